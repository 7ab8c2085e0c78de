"""Histories: those that the program collects are read as h5py reads them, and those written here are what it trains from."""
import unittest
import zlib
from unittest import mock

import h5py
import numpy as np

import adtrain
from support import ROOT, Darkroom, FolderTest
from support import adtrain as program

SHIPPED = ROOT / "data/history_darkroom_PPO_alg-seed0.hdf5"
TASKS, STREAMS, STEPS = 9, 2, 200
CONFIG = f"""\
env: darkroom
grid_size: 3
train_env_ratio: 0.7
n_stream: {STREAMS}
n_steps: 20
total_source_timesteps: {STREAMS * STEPS}
batch_size: 20
n_epochs: 1
tf_n_embd: 16
tf_n_layer: 2
tf_n_head: 2
n_transit: 30
train_timesteps: 4
num_warmup_steps: 2
global_batch_size: 8
train_source_timesteps: {STEPS}
train_n_stream: {STREAMS}
ckpt_interval: 4
eval_interval: 4
"""


def random_history(task, seed=0):
    """Of a random policy."""
    generator = np.random.default_rng([seed, task])
    environment = Darkroom([task] * STREAMS, grid_size=3)
    steps = []
    for _ in range(STEPS):
        states, actions = environment.states, generator.integers(0, 5, STREAMS)
        rewards, _, done = environment.step(actions)
        steps.append((states, actions, rewards, environment.states, np.full(STREAMS, done)))
    return adtrain.History(*(np.stack(column) for column in zip(*steps)))


class Histories(FolderTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.folder / "config.yaml").write_text(CONFIG)
        cls.name = adtrain.history_name("darkroom")

    def train(self, folder, *settings, code=0):
        return program("config.yaml", settings=[f"traj_dir={folder}", f"run_name={folder}", *settings], cwd=self.folder,
                       code=code)

    def assert_equal(self, found, expected):
        self.assertEqual(found.columns().keys(), expected.columns().keys())
        for name, values in expected.columns().items():
            np.testing.assert_array_equal(found.columns()[name], values, err_msg=name)

    def test_the_program_trains_from_a_written_file(self):
        with adtrain.HistoryWriter(self.folder / "random" / self.name) as writer:
            for task in reversed(range(TASKS)):
                writer.write(task, random_history(task))
        self.assertIn("done: 4 steps", self.train("random"))
        read = adtrain.Histories(self.folder / "random" / self.name)
        self.assertEqual((len(read), read.settings), (TASKS, {}))
        for task, history in read.items():
            self.assert_equal(history, random_history(task))

    def test_the_program_replays_what_it_reads(self):
        with adtrain.HistoryWriter(self.folder / "wrong" / self.name) as writer:
            for task in range(TASKS):
                history = random_history(task)
                if task == 4:
                    history.rewards[7, 1] += 1
                writer.write(task, history)
        refused = self.train("wrong", "train_env_ratio=1.0", code=4)
        self.assertIn("task 4, stream 1, step 7: the reward is", " ".join(refused.split()))

    def test_collected_files_are_read_as_h5py_reads_them(self):
        settings = ["write_compress_markers=true", "optimal_actions=true", "history_compression=1"]
        program("collect", "config.yaml", settings=["traj_dir=collected", *settings], cwd=self.folder)
        path = self.folder / "collected" / self.name
        read = adtrain.Histories(path)
        self.assertEqual(read.settings["grid_size"], "3")
        with h5py.File(path) as file:
            self.assertEqual(len(read), len(file))
            for task, history in read.items():
                self.assertEqual(set(history.columns()), set(file[str(task)]))
                for name, values in history.columns().items():
                    stored = file[f"{task}/{name}"]
                    self.assertEqual((values.dtype, values.shape), (stored.dtype, stored.shape))
                    np.testing.assert_array_equal(values, stored[()])
        # Written again with its settings, it is the same to the program: also the checksum over all its content.
        with adtrain.HistoryWriter(self.folder / "copied" / self.name, read.settings, compression=1) as writer:
            for task, history in read.items():
                writer.write(task, history)
        self.assertEqual(adtrain.Histories(self.folder / "copied" / self.name).settings, read.settings)
        self.train("copied", *settings)
        refused = self.train("copied", *settings, "gamma=0.5", "run_name=other", code=4)
        self.assertIn("gamma 0.99 (the configuration says 0.5)", " ".join(refused.split()))

    def test_the_shipped_file(self):
        read = adtrain.Histories(SHIPPED)
        self.assertEqual((len(read), read[48].steps, read[48].streams), (49, 1000, 4))
        returns = np.stack([history.rewards.reshape(50, 20, 4).sum(1) for history in read.values()])
        self.assertAlmostEqual(returns[:, 0].mean(), 0.39, 2)
        self.assertAlmostEqual(returns[:, -10:].mean(), 17.30, 2)
        with self.assertRaisesRegex(KeyError, "found task 49; expected one of .*hdf5, which has 0-48"):
            read[49]

    def test_a_changed_value_is_found(self):
        path = self.folder / "changed.hdf5"
        with adtrain.HistoryWriter(path) as writer:
            writer.write(0, random_history(0))
        with h5py.File(path, "r+") as file:
            self.assertEqual(file["0/dones"].attrs["crc32"], zlib.crc32(file["0/dones"][()].tobytes()))
            file["0/rewards"][3, 1] += 1
        with self.assertRaisesRegex(adtrain.HistoryError, "data set /0/rewards has the checksum .*; expected"):
            adtrain.Histories(path)[0]
        with h5py.File(path, "r+") as file:
            del file["0/rewards"]
        with self.assertRaisesRegex(adtrain.HistoryError, "task 0 has no data set rewards"):
            adtrain.Histories(path)[0]

    def test_no_file_is_left_where_writing_fails(self):
        path = self.folder / "failed" / self.name

        def refusal(words, *tasks):
            with self.assertRaisesRegex(adtrain.HistoryError, words), adtrain.HistoryWriter(path) as writer:
                for task, history in tasks:
                    writer.write(task, history)
            self.assertEqual(list(path.parent.iterdir()), [])

        history = random_history(0)
        refusal("no task was written; expected one at least")
        refusal("task 0 was written already", (0, history), (0, history))
        fewer = adtrain.History(*(values[:100] for values in history.columns().values()))
        refusal(r"task 1 has \(100, 2\) steps and streams; expected \(200, 2\)", (0, history), (1, fewer))
        columns = history.columns()
        refusal(r"dones has shape \(199, 2\)", (0, adtrain.History(**columns | {"dones": history.dones[1:]})))
        halves = adtrain.History(**columns | {"rewards": history.rewards / 2})
        refusal("rewards holds other values than whole", (0, halves))

    def test_a_refused_history_may_be_written_again(self):
        path, history = self.folder / "again" / "refused.hdf5", random_history(3)
        halves = adtrain.History(**history.columns() | {"rewards": history.rewards / 2})
        nans = adtrain.History(**history.columns() | {"rewards": np.full(history.rewards.shape, np.nan)})
        with adtrain.HistoryWriter(path) as writer:
            for wrong in halves, nans:
                with self.assertRaisesRegex(adtrain.HistoryError, "rewards holds other values than whole"):
                    writer.write(3, wrong)
            self.assertEqual(list(writer._file), [])
            with mock.patch.object(writer, "_filters", side_effect=[{}, OSError("no space left")]):
                with self.assertRaisesRegex(adtrain.HistoryError, "refused.hdf5 cannot be written .no space left.; expected"):
                    writer.write(3, history)
            for task in -1, 1.0, "3", True, None:
                with self.assertRaisesRegex(adtrain.HistoryError, "expected its number, an integer from 0 on"):
                    writer.write(task, history)
            writer.write(np.int64(3), history)
        read = adtrain.Histories(path)
        self.assertEqual(list(read), [3])
        self.assert_equal(read[3], history)

    def test_files_of_any_space_are_told_apart(self):
        path, never = self.folder / "spaces.hdf5", np.zeros(20, bool)
        box = {"type": "Box", "dtype": "float32", "shape": [2], "low": [-1, -1], "high": [1, 1]}
        discrete = {"type": "Discrete", "dtype": "int64", "start": 0, "n": 5}
        adtrain.write_histories(path, "walk", np.zeros((20, 2), np.float32), np.zeros(20, int), np.zeros(20), never, never,
                                box, discrete)
        with self.assertRaisesRegex(adtrain.HistoryError, "is of version 2 .* expected version 1.*inspect histories"):
            adtrain.Histories(path)

    def test_a_file_may_hold_some_of_the_tasks(self):
        path = self.folder / "some" / self.name
        with adtrain.HistoryWriter(path) as writer:
            for task in 8, 0, 2, 1:
                writer.write(task, random_history(task))
        read = adtrain.Histories(path)
        self.assertEqual(list(read), [0, 1, 2, 8])
        self.assert_equal(read[8], random_history(8))
        with self.assertRaisesRegex(KeyError, "found task 3; .* which has 0-2,8"):
            read[3]
        self.train("some", "train_tasks=[0-1, 8]", "run_name=some")
        program("collect", "config.yaml", settings=["traj_dir=ours", "tasks=0-1,7"], cwd=self.folder)
        ours = adtrain.Histories(self.folder / "ours" / self.name)
        with adtrain.HistoryWriter(self.folder / "again" / self.name, ours.settings) as writer:
            for task, history in ours.items():
                writer.write(task, history)
        again = adtrain.Histories(self.folder / "again" / self.name).settings
        self.assertEqual((again, again["task_numbers"]), (ours.settings, "0-1,7"))
        with h5py.File(path, "r+") as file:
            for name in "0", "1", "2":
                del file[name]
            file.move("8", "eight")
        with self.assertRaisesRegex(adtrain.HistoryError, "found no task, but 'eight'; expected one group a task"):
            adtrain.Histories(path)

    def test_files_are_not_overwritten_by_accident(self):
        path = self.folder / "kept.hdf5"
        path.write_text("kept")
        with self.assertRaisesRegex(adtrain.HistoryError, "exists already"):
            adtrain.HistoryWriter(path)
        with self.assertRaisesRegex(adtrain.HistoryError, "kept.hdf5 cannot be read"):
            adtrain.Histories(path)
        with adtrain.HistoryWriter(path, overwrite=True) as writer:
            writer.write(0, random_history(0))
        self.assertEqual(len(adtrain.Histories(path)), 1)

    def test_what_the_system_refuses_is_a_history_error_that_names_the_file(self):
        taken, folder = self.folder / "a-file", self.folder / "a-folder.hdf5"
        taken.write_text("text")
        folder.mkdir()
        with self.assertRaisesRegex(adtrain.HistoryError, "a-folder.hdf5 cannot be read .it is a folder.; expected"):
            adtrain.Histories(folder)
        for path, reason in (folder, "it is a folder"), (taken / "h.hdf5", "File exists"):
            with self.assertRaisesRegex(adtrain.HistoryError, f"{path} cannot be written .*{reason}.*; expected"):
                with adtrain.HistoryWriter(path, overwrite=True) as writer:
                    writer.write(0, random_history(0))
        self.assertEqual([path.name for path in self.folder.glob("*.tmp")], [])
        damaged = self.folder / "damaged.hdf5"
        with adtrain.HistoryWriter(damaged, compression=1) as writer:
            writer.write(0, random_history(0))
        with h5py.File(damaged) as file:
            chunk = file["0/states"].id.get_chunk_info(0)
        with open(damaged, "r+b") as file:
            file.seek(chunk.byte_offset)
            file.write(bytes(chunk.size))
        with self.assertRaisesRegex(adtrain.HistoryError, "damaged.hdf5 cannot be read"):
            adtrain.Histories(damaged)[0]


if __name__ == "__main__":
    unittest.main(verbosity=2)
