"""What xland_rollouts.py makes of steps that workers took, and all of it with a small network and plain environments.

  python3 tests/benchmark/test_xland_rollouts.py build/release/bin/adtrain
"""
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import numpy as np

from step_marks import MARKS, Played

PROGRAM = pathlib.Path(__file__).with_name("xland_rollouts.py")
ADTRAIN = pathlib.Path(sys.argv.pop(1)).resolve()
LENGTHS = 7, 12  # of episodes: of environments with even and odd numbers

# In place of configs/xland_tasks.py: random cells, and every odd environment's episodes reach the goal.
ROOMS = f"""
import gymnasium as gym
import numpy as np

ENVIRONMENT_ID, NUM_TILES, NUM_COLORS, NUM_ACTIONS = "XLand-MiniGrid-R1-9x9", 13, 12, 6
TASKS = [f"{{ENVIRONMENT_ID}} ruleset {{1000 + i}}" for i in range(40)]

class Rooms(gym.vector.VectorEnv):
    metadata = {{"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}}

    def __init__(self, numbers):
        self.num_envs = len(numbers)
        self.single_observation_space = gym.spaces.MultiDiscrete(np.tile([NUM_TILES, NUM_COLORS], (5, 5, 1)))
        self.single_action_space = gym.spaces.Discrete(NUM_ACTIONS)
        self.odd = np.array(numbers) % 2 == 1
        self.steps, self.random = np.zeros(self.num_envs, int), np.random.default_rng(0)

    def look(self):
        return self.random.integers(0, [NUM_TILES, NUM_COLORS], (self.num_envs, 5, 5, 2))

    def reset(self, *, seed=None, options=None):
        return self.look(), {{}}

    def step(self, actions):
        self.steps += 1
        over = self.steps == np.where(self.odd, {LENGTHS[1]}, {LENGTHS[0]})
        self.steps[over] = 0
        seen = self.look()
        return seen, 1.0 * (over & self.odd), over & self.odd, over & ~self.odd, {{"final_obs": seen, "_final_obs": over}}

def make_vec_env(tasks, seeds):
    return Rooms([int(task.rsplit(" ", 1)[1]) for task in tasks])
"""


class Marks(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def write(self, process, number, steps, period, busy, late=0.0, ended=0, found=0):
        marks = np.zeros(steps, MARKS)
        marks["begin"] = 1000 + late + period * np.arange(steps)
        marks["end"] = marks["begin"] + busy
        marks["ended"], marks["found"] = ended, found
        marks.tofile(self.folder / f"{process}-{number}-16.marks")

    def test_lock_steps_take_as_long_as_the_slowest_worker(self):
        for half in range(2):
            self.write(7, 1 + half, 200, 0.010, 0.002, late=0.005 * half, ended=2, found=1)
            self.write(8, 1 + half, 150, 0.012, 0.003, late=0.005 * half)
        played = Played(self.folder, window=40)
        self.assertEqual((played.steps, played.environments, len(played.processes)), (150, 64, 2))
        self.assertAlmostEqual(played.milliseconds(40, 149), 12.0)
        # The process of the shorter period steps 4 ms of each of its 10, in a time that is the slowest worker's.
        self.assertEqual([round(share, 6) for share in sorted(played.stepping_shares(40, 149))], [round(4 / 12, 6), 0.5])
        self.assertEqual((played.episodes(), played.found()), (2 * 150 * 2, 150 * 2))


@unittest.skipUnless(all(map(importlib.util.find_spec, ("gymnasium", "h5py"))), "this Python has no gymnasium or no h5py")
class Rollouts(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "xland_tasks.py").write_text(ROOMS)

    def run_program(self, *more):
        small = ["tf_n_embd=16", "tf_n_layer=1", "tf_n_head=1", "mixed_precision=no", "global_batch_size=2", "num_workers=1"]
        command = [sys.executable, PROGRAM, ADTRAIN, self.folder / "runs", "--environments", "12", "--workers", "2", "--window",
                   "24", "--train-steps", "2", *(part for pair in small for part in ("--set", pair)), *more]
        return subprocess.run(command, env=os.environ | {"PYTHONPATH": str(self.folder)}, capture_output=True, text=True,
                              timeout=120)

    def test_counts_what_was_played(self):
        finished = self.run_program("--episodes", "20")
        self.assertEqual(finished.returncode, 0, finished.stdout + finished.stderr)
        lock_steps = 20 * max(LENGTHS)  # the longest episodes are awaited
        self.assertRegex(finished.stdout, rf"(?m)^12 environments in 2 workers took {lock_steps} lock-steps$")
        self.assertRegex(finished.stdout, rf"(?m)^contexts full, {lock_steps - 1 - 24} lock-steps in .* ms a lock-step")
        self.assertRegex(finished.stdout, rf"(?m)^all {lock_steps} lock-steps took \d+\.\d\d minutes$")
        ended = sum(6 * (lock_steps // length) for length in LENGTHS)
        self.assertRegex(finished.stdout, rf"(?m)^{ended} episodes of {12 * lock_steps / ended:.1f} steps on average")
        shares = re.search(r"stepped environments (.*)% to (.*)% of that time", finished.stdout)
        self.assertTrue(0 < float(shares[1]) <= float(shares[2]) < 100, shares[0])

    def test_an_evaluation_without_time_is_stopped(self):
        finished = self.run_program("--episodes", "100000", "--limit", "0")
        self.assertEqual(finished.returncode, 0, finished.stdout + finished.stderr)
        self.assertIn("evaluate was asked to stop after 0 s", finished.stdout)
        self.assertIn("raise --episodes or --limit", finished.stdout)

    def test_an_evaluation_that_fails_is_shown(self):
        finished = self.run_program("--episodes", "1", "--set-evaluation", "eval_context=none")
        self.assertEqual(finished.returncode, 1)
        self.assertIn("eval_context", finished.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
