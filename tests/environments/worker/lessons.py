"""Small tasks for the tests of collecting: what they observe and want depends on the task's number alone, and on the seed."""
import gymnasium as gym
import numpy as np

TASKS = ["low", "middle", "high"]
LENGTH = 8


class Lesson(gym.Env):
    """Episodes of LENGTH steps, odd ones of which end by truncation. A step pays where the action answers what is observed."""

    def __init__(self, task):
        self.task, self.episode = TASKS.index(task), -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.steps = self.episode + 1, 0
        return self.observe(), {}

    def step(self, action):
        reward = self.reward(action)
        self.steps += 1
        over, odd = self.steps == LENGTH, self.episode % 2 == 1
        return self.observe(), reward, over and not odd, over and odd, {}


class Names(Lesson):
    """One of three things is seen, of which the task says what to do: Discrete to Discrete, neither from 0 on."""

    def __init__(self, task):
        super().__init__(task)
        self.observation_space = gym.spaces.Discrete(3, start=5)
        self.action_space = gym.spaces.Discrete(3, start=-1)

    def observe(self):
        self.seen = int(self.np_random.integers(3))
        return 5 + self.seen

    def reward(self, action):
        assert self.action_space.contains(action)
        return float(action + 1 == (self.seen + self.task) % 3)


class Pairs(Lesson):
    """Two numbers are seen, and both are to be repeated: MultiDiscrete to MultiDiscrete, of narrow types."""

    def __init__(self, task):
        super().__init__(task)
        self.observation_space = gym.spaces.MultiDiscrete([2, 3], dtype=np.uint8)
        self.action_space = gym.spaces.MultiDiscrete([2, 3], dtype=np.int16)

    def observe(self):
        self.seen = self.np_random.integers([2, 3])
        return self.seen.astype(np.uint8)

    def reward(self, action):
        assert self.action_space.contains(action)
        return float((action == self.seen).sum()) / 2


class Points(Lesson):
    """A point is seen, and a point at the task's distance is to be named: Box to Box, which clips what is played."""

    def __init__(self, task):
        super().__init__(task)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = gym.spaces.Box(-1, 1, (2,), np.float32)

    def observe(self):
        self.seen = self.np_random.uniform(-0.5, 0.5, 2)
        return 100 + 10 * self.seen  # far from where a fresh network can tell such points apart

    def reward(self, action):
        assert self.action_space.contains(action) and action.dtype == np.float32
        wanted = self.seen + [0.4 * (self.task - 1), 0]
        return -float(np.square(action - wanted).sum())


class Endings(Names):
    """Each step is an episode: one action pays more and ends it, all others pay less and only cut it off."""

    def step(self, action):
        ends = action == -1
        return self.observe(), 0.6 if ends else 0.5, ends, not ends, {}


def make_names(task, seed):
    return Names(task)


def make_pairs(task, seed):
    return Pairs(task)


def make_points(task, seed):
    return Points(task)


def make_endings(task, seed):
    return Endings(task)


def make_failing(task, seed):
    """The last task fails, after the others have been learnt where they come one after the other."""
    environment = Names(task)
    if task == "high":
        environment.reward = lambda action: 1 // 0
    return environment


def make_whole_box(task, seed):
    environment = Names(task)
    environment.action_space = gym.spaces.Box(0, 5, (1,), np.int32)
    return environment
