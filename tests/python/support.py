"""What the tests of the Python package share."""
import os
import pathlib
import subprocess
import tempfile
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOVES = np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [0, 0]])


def run(*command, code=0, **more):
    """Standard output and error of a command, which must end with `code`."""
    finished = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=200, **more)
    assert finished.returncode == code, f"{command} ended with {finished.returncode}:\n{finished.stdout}"
    return finished.stdout


def adtrain(*arguments, settings=(), **more):
    """Runs the program on the CPU. `settings`: key=value, for --set."""
    overrides = [word for setting in settings for word in ("--set", setting)]
    return run(os.environ["ADTRAIN"], *arguments, *overrides, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""}, **more)


class FolderTest(unittest.TestCase):
    """Tests with a folder of their class."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="adtrain-python-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)


class Darkroom:
    """Darkroom for several environments at once, in lock-step. docs/history-format.md has its rules."""

    def __init__(self, tasks, grid_size=9, horizon=20):
        self.goals = np.stack(np.divmod(np.asarray(tasks), grid_size), axis=1)
        self.grid_size, self.horizon, self.time = grid_size, horizon, 0
        self.states = self._start()

    def step(self, actions):
        """Rewards, the states that the actions led to, and whether all episodes ended; `states` are the next ones then."""
        reached = np.clip(self.states + MOVES[actions], 0, self.grid_size - 1)
        self.time = (self.time + 1) % self.horizon
        done = self.time == 0
        self.states = self._start() if done else reached
        return (reached == self.goals).all(1).astype(np.int32), reached, done

    def _start(self):
        return np.full_like(self.goals, self.grid_size // 2)


def rollout(agent, environment, episodes):
    """The returns (environments, episodes) of an agent that learns in context."""
    returns = np.zeros((len(environment.goals), episodes), np.float32)
    for episode in range(episodes):
        done = False
        while not done:
            actions = agent.act(environment.states)
            rewards, _, done = environment.step(actions)
            agent.observe(actions, rewards, environment.states, done)
            returns[:, episode] += rewards
    return returns
