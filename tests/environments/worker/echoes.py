"""Environments of other spaces than grids, for tests: they observe what was done."""
import gymnasium as gym
import numpy as np


class Echo(gym.Env):
    """Observes its step's number and the last action, pays the action's first number, ends after two or three steps."""

    def __init__(self, task, seed):
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.action_space = gym.spaces.Box(-1, 1, (2,), np.float32)
        self.length = 2 + task % 2

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(3), {}

    def step(self, action):
        self.steps += 1
        over = self.steps == self.length
        return np.array([self.steps, *action], np.float64), float(action[0]), over, False, {}


def make_echo(task, seed):
    return Echo(task, seed)


class Symbols(gym.Env):
    """Observes two symbols of two digits each, does one thing of three from 5 on and one of two; never ends."""

    def __init__(self, task, seed):
        self.observation_space = gym.spaces.MultiDiscrete(np.array([[13, 12], [13, 12]]))
        self.action_space = gym.spaces.MultiDiscrete([3, 2], start=[5, 0])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.array([[12, 11], [0, 0]]), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.steps += 1
        return np.array([[self.steps % 13, 3], [action[0], action[1]]]), 1.0, False, False, {}


def make_symbols(task, seed):
    return Symbols(task, seed)
