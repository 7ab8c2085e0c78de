"""Environments that do nothing: what a worker costs by itself."""
import gymnasium as gym
import numpy as np


class Idle(gym.Env):
    observation_space = gym.spaces.MultiDiscrete([9, 9])
    action_space = gym.spaces.Discrete(5)
    here = np.array([4, 4])

    def reset(self, *, seed=None, options=None):
        return self.here, {}

    def step(self, action):
        return self.here, 0.0, False, False, {}


class IdleVector(gym.vector.VectorEnv):
    metadata = {"autoreset_mode": gym.vector.AutoresetMode.DISABLED}
    single_observation_space = Idle.observation_space
    single_action_space = Idle.action_space

    def __init__(self, count):
        self.num_envs = count
        self.here = np.full((count, 2), 4)
        self.rewards = np.zeros(count)
        self.never = np.zeros(count, bool)

    def reset(self, *, seed=None, options=None):
        return self.here, {}

    def step(self, actions):
        return self.here, self.rewards, self.never, self.never, {}


def make_env(task, seed):
    return Idle()


def make_vec_env(tasks, seeds):
    return IdleVector(len(tasks))
