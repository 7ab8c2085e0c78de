"""MuJoCo's Reacher with a hidden goal: 45 tasks for configs/run/reacher.yaml, each a place that the arm's tip has to reach.

The observation is of the arm alone. Where the goal is shows in the reward, which is minus the tip's distance from it, so an
agent has to find it in context.
"""
import gymnasium as gym
import numpy as np
from gymnasium.envs.mujoco.reacher_v5 import ReacherEnv

DISTANCES = [0.08, 0.13, 0.18]  # metres from the shoulder; the arm is 0.21 long
DIRECTIONS = range(0, 360, 24)  # degrees
TASKS = [f"{distance} m at {direction}°" for distance in DISTANCES for direction in DIRECTIONS]


class HiddenGoal(ReacherEnv):
    """Observes cosine and sine of both joints, their velocities and where the tip is."""

    def __init__(self, goal):
        self.hidden_goal = goal
        super().__init__(reward_control_weight=0.1)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (8,), np.float32)

    def reset_model(self):
        start = self.init_qpos + self.np_random.uniform(-0.1, 0.1, self.model.nq)
        start[2:] = self.hidden_goal
        self.set_state(start, np.zeros(self.model.nv))
        return self._get_obs()

    def _get_obs(self):
        angles, tip = self.data.qpos[:2], self.get_body_com("fingertip")[:2]
        return np.concatenate([np.cos(angles), np.sin(angles), self.data.qvel[:2] / 10, tip * 5]).astype(np.float32)


def make_env(task, seed):
    number = TASKS.index(task)
    distance, direction = DISTANCES[number // len(DIRECTIONS)], np.deg2rad(DIRECTIONS[number % len(DIRECTIONS)])
    goal = distance * np.array([np.cos(direction), np.sin(direction)])
    return gym.wrappers.TimeLimit(HiddenGoal(goal), max_episode_steps=50)
