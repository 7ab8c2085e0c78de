"""Environments that go wrong, each in its own way, in task 1, episode 2, step 3."""
import ctypes
import os
import signal
import sys
import time

import gymnasium as gym
import numpy as np

TASKS = ["sound", "wrong"]


class Sound(gym.Env):
    """Ends each episode after four steps."""

    def __init__(self):
        self.observation_space = gym.spaces.MultiDiscrete([9, 9])
        self.action_space = gym.spaces.Discrete(5)
        self.episode = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        self.steps = 0
        return np.zeros(2, int), {}

    def step(self, action):
        self.steps += 1
        return np.array([self.steps, 0]), 0.0, self.steps == 4, False, {}


class Wrong(Sound):
    def __init__(self, happen):
        super().__init__()
        self.happen = happen

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        if self.episode == 2 and self.steps == 3:
            observation, reward = self.happen(observation, reward)
        return observation, reward, terminated, truncated, info


def maker(happen):
    return lambda task, seed: Wrong(happen) if task == "wrong" else Sound()


def fail(observation, reward):
    raise ValueError("the arm is broken")


def die(number):
    def happen(observation, reward):
        for line in range(30):
            print("line", line, file=sys.stderr)
        sys.stderr.flush()
        os.kill(os.getpid(), number)
    return happen


def crash(observation, reward):
    ctypes.string_at(0)


def leave(observation, reward):
    os._exit(7)


def hang(observation, reward):
    while True:
        time.sleep(1)


make_failing_step = maker(fail)
make_killed = maker(die(signal.SIGKILL))
make_crashing = maker(crash)
make_leaving = maker(leave)
make_hanging = maker(hang)
make_long_observation = maker(lambda observation, reward: (np.zeros(3, int), reward))
make_real_observation = maker(lambda observation, reward: (np.array([0.5, 1]), reward))
make_dict_observation = maker(lambda observation, reward: ({"x": 1}, reward))
make_ragged_observation = maker(lambda observation, reward: ([[1], [2, 3]], reward))
make_observation_outside = maker(lambda observation, reward: (np.array([4, 9]), reward))
make_nan_reward = maker(lambda observation, reward: (observation, float("nan")))
make_text_reward = maker(lambda observation, reward: (observation, "much"))


def make_nan_observation(task, seed):
    environment = maker(lambda observation, reward: (np.array([1, np.nan], np.float32), reward))(task, seed)
    environment.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    return environment


def make_failing_make(task, seed):
    if task == "wrong":
        raise RuntimeError("no such robot")
    return Sound()


def make_failing_reset(task, seed):
    environment = Sound()
    if task == "wrong":
        environment.reset = None
    return environment


def make_other_space(task, seed):
    environment = Sound()
    if task == "wrong":
        environment.action_space = gym.spaces.Discrete(6)
    return environment


def make_hanging_at_once(task, seed):
    hang(None, None)


def make_dict(task, seed):
    environment = Sound()
    environment.observation_space = gym.spaces.Dict(x=gym.spaces.Discrete(3))
    return environment
