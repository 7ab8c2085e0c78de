"""Environments that go wrong, each in its own way, in task 1, episode 2, step 3."""
import ctypes
import os
import pickle
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
            observation, reward, *ends = self.happen(observation, reward)
            terminated, truncated = ends or (terminated, truncated)
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
make_ragged_reward = maker(lambda observation, reward: (observation, [[1], [2, 3]]))
make_huge_reward = maker(lambda observation, reward: (observation, -1e39))
make_dict_terminated = maker(lambda observation, reward: (observation, reward, {"agent": False}, False))
make_two_terminated = maker(lambda observation, reward: (observation, reward, np.array([False, True]), False))
make_real_terminated = maker(lambda observation, reward: (observation, reward, 0.5, False))
make_text_truncated = maker(lambda observation, reward: (observation, reward, False, "no"))
make_no_truncated = maker(lambda observation, reward: (observation, reward, False, None))
make_whole_terminated = maker(lambda observation, reward: (observation, reward, 2, False))
make_negative_truncated = maker(lambda observation, reward: (observation, reward, False, np.array(-1)))
make_true_ends = maker(lambda observation, reward: (observation, reward, np.array(True), 1))
make_whole_ends = maker(lambda observation, reward: (observation, reward, np.False_, np.array(0)))
make_float_ends = maker(lambda observation, reward: (observation, reward, np.float32(0), np.array([False])))


def make_nan_observation(task, seed):
    environment = maker(lambda observation, reward: (np.array([1, np.nan], np.float32), reward))(task, seed)
    environment.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    return environment


def narrow(task, happen):
    """In a space of int8, in which 260 would be 4."""
    environment = maker(happen)(task, 0)
    environment.observation_space = gym.spaces.MultiDiscrete([9, 9], dtype=np.int8)
    return environment


def make_wrapping_observation(task, seed):
    return narrow(task, lambda observation, reward: (np.array([4, 260]), reward))


def make_narrow(task, seed):
    return narrow(task, lambda observation, reward: (np.array([4, 8]), reward))


def mask_of(options):
    return options["reset_mask"] if options else slice(None)


class Together(gym.vector.VectorEnv):
    """All tasks at once; in episode 2, step 3 it answers what `wrong` names, in all of them."""

    metadata = {"autoreset_mode": gym.vector.AutoresetMode.DISABLED}

    def __init__(self, tasks, wrong):
        self.num_envs, self.wrong = len(tasks), wrong
        self.episodes, self.steps = np.zeros(self.num_envs, int), np.zeros(self.num_envs, int)
        self.single_observation_space = gym.spaces.MultiDiscrete([9, 9], dtype=np.int8)
        self.single_action_space = gym.spaces.Discrete(5)

    def reset(self, *, seed=None, options=None):
        begins = mask_of(options)
        self.episodes[begins] += 1
        self.steps[begins] = 0
        return np.stack([self.steps, self.steps], 1), {}

    def step(self, actions):
        self.steps += 1
        over = self.steps == 4
        answer = {"observations": np.stack([self.steps, self.steps], 1), "rewards": np.zeros(self.num_envs),
                  "terminated": over, "truncated": np.zeros_like(over)}
        if (self.episodes == 2).all() and (self.steps == 3).all():
            answer.update(self.wrong)
        return (*answer.values(), {})


def vector_maker(**wrong):
    return lambda tasks, seeds: Together(tasks, wrong)


make_vector_with_real_ends = vector_maker(terminated=np.array([0, 0.5, 1]))
make_vector_with_whole_ends = vector_maker(terminated=np.array([0, 2, 1]))
make_vector_with_one_true = vector_maker(terminated=True)
make_vector_with_two = vector_maker(terminated=2)
make_vector_with_dict = vector_maker(truncated={"agent": False})
make_vector_with_nones = vector_maker(terminated=[False, None, True])
make_vector_with_ragged_rewards = vector_maker(rewards=[[1], [2, 3], [4]])
make_wrapping_vector = vector_maker(observations=np.array([[1, 2], [3, 4], [5, 260]]))
make_sound_vector = vector_maker(terminated=[0, 1, 1], rewards=[True, False, True])
make_vector_of_floats = vector_maker(terminated=np.array([0, 1, 1], np.float32), truncated=False)


class Uneven(gym.vector.VectorEnv):
    """The task "wrong" has episodes of three steps, the others of four. It observes the step; resets what `begins` says."""

    metadata = {"autoreset_mode": gym.vector.AutoresetMode.DISABLED}

    def __init__(self, tasks, begins):
        self.num_envs, self.begins = len(tasks), begins
        self.single_observation_space = gym.spaces.Discrete(9)
        self.single_action_space = gym.spaces.Discrete(5)
        self.lengths = np.array([3 if task == "wrong" else 4 for task in tasks])
        self.steps = np.zeros(self.num_envs, int)

    def reset(self, *, seed=None, options=None):
        self.steps[self.begins(options)] = 0
        return self.steps, {}

    def step(self, actions):
        self.steps += 1
        over = self.steps == self.lengths
        return self.steps, np.zeros(self.num_envs), over, np.zeros_like(over), {}


class Hidden(Uneven):
    """What it tells of the environments that play on is of no use, which is nobody's business."""

    def reset(self, **options):
        steps, info = super().reset(**options)
        return np.where(self.steps > 0, 8, steps), info


def make_vector_that_resets_all(tasks, seeds):
    return Uneven(tasks, lambda options: slice(None))


def make_vector_with_mask(tasks, seeds):
    return Uneven(tasks, mask_of)


def make_vector_that_pickles_options(tasks, seeds):
    return Hidden(tasks, lambda options: mask_of(pickle.loads(pickle.dumps(options))))


def make_vector_that_copies_options(tasks, seeds):
    return Hidden(tasks, lambda options: mask_of(dict(options or {})))


def make_nothing(task, seed):
    return None if task == "wrong" else Sound()


def make_nothing_at_all(task, seed):
    pass


def make_no_vector(tasks, seeds):
    return None if "wrong" in tasks else Together(tasks, {})


def make_other_action_bounds(task, seed):
    environment = Sound()
    limit = 3 if task == "wrong" else 1
    environment.action_space = gym.spaces.Box(-limit, limit, (1,), np.float32)
    return environment


def make_other_observation_bounds(task, seed):
    environment = Sound()
    environment.observation_space = gym.spaces.Box(-9, 18 if task == "wrong" else 9, (2,), np.float32)
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
