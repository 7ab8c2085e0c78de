"""Stable-Baselines3 learns tasks, the callback records how, and the program trains from that."""
import sys
import unittest

import numpy as np

try:
    import gymnasium
    import stable_baselines3 as sb3
    from stable_baselines3.common.env_util import make_vec_env
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import adtrain
from adtrain.callback import HistoryCallback
from support import Darkroom, FolderTest
from support import adtrain as program
from test_histories import CONFIG, STEPS, STREAMS, TASKS


class DarkroomEnvironment(gymnasium.Env):
    def __init__(self, task):
        self.task = task
        self.observation_space = gymnasium.spaces.Box(0, 2, (2,), np.int32)
        self.action_space = gymnasium.spaces.Discrete(5)

    def reset(self, **options):
        super().reset(**options)
        self.rules = Darkroom([self.task], grid_size=3)
        return self.rules.states[0], {}

    def step(self, action):
        (reward,), (reached,), done = self.rules.step(np.array([action]))
        return reached, float(reward), False, done, {}


class Callback(FolderTest):
    def learn(self, algorithm, writer, task, streams=STREAMS, steps=STREAMS * STEPS, markers=False, **settings):
        environments = make_vec_env(lambda: DarkroomEnvironment(task), streams)
        model = algorithm("MlpPolicy", environments, seed=task, **settings)
        model.learn(steps, callback=HistoryCallback(writer, task, compress_markers=markers))

    def test_the_program_trains_from_what_ppo_did(self):
        (self.folder / "config.yaml").write_text(CONFIG)
        path = self.folder / "histories" / adtrain.history_name("darkroom")
        with adtrain.HistoryWriter(path) as writer:
            for task in range(TASKS):
                self.learn(sb3.PPO, writer, task, markers=True, n_steps=20, batch_size=20, n_epochs=1)
        history = adtrain.Histories(path)[3]
        self.assertEqual((history.steps, history.streams), (STEPS, STREAMS))
        np.testing.assert_array_equal(history.states[1:], history.next_states[:-1])
        np.testing.assert_array_equal(np.flatnonzero(history.dones[:, 0]), np.arange(19, STEPS, 20))
        np.testing.assert_array_equal(history.compress_markers[:21, 1], [1] + [0] * 18 + [2, 1])
        program("config.yaml", cwd=self.folder, settings=["run_name=plain"])  # replays every step
        compressed = ["use_compressed_context=true", "compress_interval=13", "run_name=compressed"]
        program("config.yaml", cwd=self.folder, settings=compressed)

    def test_an_algorithm_that_learns_at_every_step(self):
        path = self.folder / "dqn.hdf5"
        with adtrain.HistoryWriter(path) as writer:
            self.learn(sb3.DQN, writer, 0, streams=1, steps=60, learning_starts=20, buffer_size=100, train_freq=1)
        history = adtrain.Histories(path)[0]
        self.assertEqual((history.steps, history.streams), (60, 1))
        np.testing.assert_array_equal(history.states[1:], history.next_states[:-1])
        with self.assertRaisesRegex(adtrain.HistoryError, "compress_markers is for algorithms such as PPO"):
            with adtrain.HistoryWriter(self.folder / "marked.hdf5") as writer:
                self.learn(sb3.DQN, writer, 0, streams=1, steps=60, learning_starts=20, buffer_size=100, markers=True,
                           train_freq=1)

    def test_observations_that_are_no_cells_are_refused(self):
        with self.assertRaisesRegex(adtrain.HistoryError, r"observations of shape \(1, 4\)"):
            with adtrain.HistoryWriter(self.folder / "cart.hdf5") as writer:
                sb3.PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8).learn(8, callback=HistoryCallback(writer, 0))
        self.assertFalse((self.folder / "cart.hdf5").exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
