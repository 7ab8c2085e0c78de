"""Another module's vector environments, with the times of their steps: for `env_worker: timed_environments:make_vec_env`.

TIMED_WORKER is the other module:function. TIMED_FOLDER gets a file for each VectorEnv that steps, which step_marks.py reads.
"""
import importlib
import os
import pathlib
import time

import gymnasium as gym
import numpy as np

from step_marks import MARKS

MARKS_AT_ONCE = 256  # are written, so that those of a process that was killed are there

module_name, _, function = os.environ["TIMED_WORKER"].partition(":")
module = importlib.import_module(module_name)
TASKS = getattr(module, "TASKS", None)


class Timed(gym.vector.VectorWrapper):
    """Its file is named by the process, the number of the VectorEnv in it and the number of environments."""

    made = 0

    def __init__(self, environments):
        super().__init__(environments)
        name = f"{os.getpid()}-{Timed.made}-{environments.num_envs}.marks"
        Timed.made += 1
        self.path = pathlib.Path(os.environ["TIMED_FOLDER"]) / name
        self.marks, self.marked = np.zeros(MARKS_AT_ONCE, MARKS), 0

    def step(self, actions):
        begin = time.monotonic()
        played = self.env.step(actions)
        end = time.monotonic()
        _, _, terminated, truncated, _ = played
        self.marks[self.marked] = begin, end, np.sum(terminated | truncated), np.sum(terminated)
        self.marked += 1
        if self.marked == MARKS_AT_ONCE:
            self.write()
        return played

    def write(self):
        if self.marked:
            with self.path.open("ab") as file:
                file.write(self.marks[:self.marked].tobytes())
            self.marked = 0

    def close(self, **options):
        self.write()
        super().close(**options)


def make_vec_env(tasks, seeds):
    return Timed(getattr(module, function)(tasks, seeds))
