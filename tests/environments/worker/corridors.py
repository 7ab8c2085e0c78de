"""Corridors for tests: one observes (position, 0), walks right by action 0, and the episode ends at the task's own length."""
import os
import sys

import gymnasium as gym
import numpy as np

TASKS = ["three", "five", "eight"]
LENGTHS = {"three": 3, "five": 5, "eight": 8}


class Corridor(gym.Env):
    """Pays the number of the episode + 0.25 at its end. An odd episode ends by truncation."""

    def __init__(self, task, seed):
        self.observation_space = gym.spaces.MultiDiscrete([9, 9])
        self.action_space = gym.spaces.Discrete(5)
        self.length, self.seed, self.episode = LENGTHS[task], seed, -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        assert (seed == self.seed) if self.episode < 0 else (seed is None)
        self.episode += 1
        self.position = 0
        return np.array([0, self.episode % 9]), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.position += int(action == 0)
        over = self.position == self.length
        odd = self.episode % 2 == 1
        reward = self.episode + 0.25 if over else 0.0
        return np.array([self.position, self.episode % 9]), reward, over and not odd, over and odd, {}


def make_env(task, seed):
    return Corridor(task, seed)


def vector(mode):
    def make_vec_env(tasks, seeds):
        return gym.vector.SyncVectorEnv([lambda pair=pair: Corridor(*pair) for pair in zip(tasks, seeds)],
                                        autoreset_mode=mode)
    return make_vec_env


make_next_step = vector(gym.vector.AutoresetMode.NEXT_STEP)
make_same_step = vector(gym.vector.AutoresetMode.SAME_STEP)
make_disabled = vector(gym.vector.AutoresetMode.DISABLED)


class Endless(Corridor):
    def step(self, action):
        observation, *_ = super().step(1)
        return observation, 1.0, False, False, {}


def make_endless(task, seed):
    return Endless(task, seed)


def make_endless_vector(tasks, seeds):
    return gym.vector.SyncVectorEnv([lambda pair=pair: Endless(*pair) for pair in zip(tasks, seeds)])


make_endless_vector.__name__ = "make_vec_env"


class Foreign(gym.vector.VectorEnv):
    """Next-step like Gymnasium's default, and no class of Gymnasium's: it cannot reset single places."""

    metadata = {"autoreset_mode": gym.vector.AutoresetMode.NEXT_STEP}

    def __init__(self, tasks):
        self.num_envs = len(tasks)
        self.single_observation_space = gym.spaces.MultiDiscrete([9, 9])
        self.single_action_space = gym.spaces.Discrete(5)
        self.lengths = np.array([LENGTHS[task] for task in tasks])

    def observation(self):
        return np.stack([self.positions, np.zeros_like(self.positions)], 1)

    def reset(self, *, seed=None, options=None):
        self.positions = np.zeros(self.num_envs, int)
        return self.observation(), {}

    def step(self, actions):
        self.positions += 1
        over = self.positions == self.lengths
        return self.observation(), over.astype(float), over, np.zeros_like(over), {}


def make_foreign(tasks, seeds):
    return Foreign(tasks)


class Real(gym.Env):
    """Real numbers: it observes what was done, three times as much, in a box that this may leave."""

    def __init__(self):
        self.observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
        self.action_space = gym.spaces.Box(-2, 2, (2,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        assert action.dtype == np.float64 and action.shape == (2,)
        return np.array([3 * action[0], action[1], 0.5]), float(action[0]), False, False, {}


def make_real(task, seed):
    return Real()


def make_talkative(task, seed):
    print("made for", task, "in process", os.getpid())
    print("x" * 300000, file=sys.stderr)  # more than a pipe takes
    return Corridor(task, seed)
