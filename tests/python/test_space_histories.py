"""Histories of any space: those that write_histories writes are read by the program as they are."""
import json
import unittest

import h5py
import numpy as np

import adtrain
from support import FolderTest
from support import adtrain as program

BOX = {"type": "Box", "dtype": "float32", "shape": [3], "low": [-1.0] * 3, "high": [1.0] * 3}
STREAMS, STEPS = 4, 5000


def random_task(seed, **others):
    """Of episodes of 50 steps, which alternately end and are cut off, and pay more and more."""
    generator = np.random.default_rng(seed)
    end = np.arange(STEPS) % 50 == 49
    odd = np.arange(STEPS) // 50 % 2 == 1
    return {
        "states": generator.uniform(-1, 1, (STREAMS, STEPS, 3)).astype(np.float32),
        "actions": generator.integers(0, 4, (STREAMS, STEPS)).astype(np.uint8),
        "rewards": np.broadcast_to(np.where(end, np.arange(STEPS), 0), (STREAMS, STEPS)),
        "terminated": np.broadcast_to(end & ~odd, (STREAMS, STEPS)),
        "truncated": np.broadcast_to(end & odd, (STREAMS, STEPS)),
        "observation_space": BOX,
        "action_space": {"type": "Discrete", "dtype": "uint8", "start": 0, "n": 4},
    } | others


class SpaceHistories(FolderTest):
    def complaint(self, path, task, **arguments):
        with self.assertRaises(adtrain.HistoryError) as raised:
            adtrain.write_histories(path, task, **arguments)
        return str(raised.exception)

    def test_the_program_reads_what_is_appended_task_by_task(self):
        path = self.folder / "mine" / "h.hdf5"
        self.assertEqual(adtrain.write_histories(path, "walk", **random_task(0), scores={"random-score": 1.5}), 0)
        self.assertEqual(adtrain.write_histories(path, "run", **random_task(1)), 1)
        self.assertEqual(adtrain.write_histories(path, 17, **random_task(2)), 17)
        found = json.loads(program("inspect", "histories", path, "--json", cwd=self.folder))["data_sets"][0]
        self.assertEqual(found["description"], "version 2, one group a task, stream first")
        self.assertEqual(found["groups"][0]["observation_space"], BOX)
        self.assertEqual([task["name"] for task in found["read"]["each_task"]], ["walk", "run", "task 17"])
        self.assertEqual(found["read"]["episodes"], 3 * STREAMS * STEPS // 50)
        self.assertLess(found["read"]["return_of_first_tenth"], found["read"]["return_of_last_tenth"])
        with h5py.File(path) as file:
            self.assertEqual(set(file), {"0", "1", "17"})
            self.assertEqual(file["0"].attrs["task"], b"walk")
            self.assertEqual(file["0"].attrs["random-score"], 1.5)
            self.assertEqual(file["17/states"].chunks, (1, 4096, 3))
            for name, expected in (("states", "states"), ("actions", "actions"), ("terminations", "terminated")):
                np.testing.assert_array_equal(file["17"][name], random_task(2)[expected])

    def test_a_single_history_and_gymnasiums_spaces_will_do(self):
        try:
            import gymnasium.spaces as spaces
        except ImportError:
            self.skipTest("no gymnasium")
        path, task = self.folder / "single.hdf5", random_task(3)
        for name in ("states", "actions", "rewards", "terminated", "truncated"):
            task[name] = task[name][0]
        task |= {"observation_space": spaces.Box(-1, 1, (3,), np.float32), "action_space": spaces.Discrete(4)}
        adtrain.write_histories(path, "one", **task, compression=0)
        adtrain.write_histories(path, "two", **task)
        self.assertIn("Box((3,), float32)", program("inspect", "histories", path, cwd=self.folder))

    def test_groups_of_tasks_may_have_spaces_of_their_own(self):
        path, small = self.folder / "groups.hdf5", BOX | {"shape": [2], "low": [-1.0] * 2, "high": [1.0] * 2}
        other = {"states": random_task(1)["states"][:, :, :2], "observation_space": small}
        adtrain.write_histories(path, "walk", **random_task(0), group="legs")
        adtrain.write_histories(path, "reach", **random_task(1, **other), group="arms")
        adtrain.write_histories(path, "run", **random_task(2), group="legs")
        adtrain.write_histories(path, "push", **random_task(3, **other), group="arms")
        found = json.loads(program("inspect", "histories", path, "--json", cwd=self.folder))["data_sets"][0]
        self.assertEqual([(group["name"], group["observation_space"]) for group in found["groups"]],
                         [("legs", BOX), ("arms", small)])
        self.assertEqual([task["name"] for task in found["read"]["each_task"]], ["walk", "reach", "run", "push"])
        self.assertIn("of group 'arms' is", self.complaint(path, "a", **random_task(4), group="arms"))
        self.assertIn("another group", self.complaint(path, "a", **random_task(4, **other), group="legs"))

    def test_what_does_not_fit_is_refused_and_leaves_the_file(self):
        path = self.folder / "refused.hdf5"
        adtrain.write_histories(path, "walk", **random_task(0))
        nan = random_task(1)["states"].copy()
        nan[1, 2, 0] = np.nan
        for task, changed, expected in (
            ("walk", {}, "is called 'walk' already"),
            (0, {}, "found task 0"),
            ("a", {"states": nan}, "states holds NaN"),
            ("a", {"actions": np.full((STREAMS, STEPS), 4)}, "values that its space"),
            ("a", {"actions": np.zeros((STREAMS, STEPS))}, "values that its space"),
            ("a", {"rewards": np.zeros((STREAMS, STEPS, 1))}, "rewards has shape"),
            ("a", {"truncated": np.zeros((STREAMS, STEPS - 1))}, "truncations has shape"),
            ("a", {"observation_space": BOX | {"shape": [4]}}, "expected (4,)"),
            ("a", {"observation_space": BOX | {"low": [-2.0] * 3}}, "the observation-space is"),
            ("a", {"actions": np.zeros((STREAMS, STEPS), np.int64)}, "found int64"),
            ("a", {"action_space": object()}, "expected Discrete, MultiDiscrete or Box"),
            ("a", {"action_space": "Discrete(4)"}, "found the space 'Discrete(4)', which is no JSON"),
        ):
            self.assertIn(expected, self.complaint(path, task, **random_task(1, **changed)))
        with h5py.File(path) as file:
            self.assertEqual(set(file), {"0"})
            np.testing.assert_array_equal(file["0/states"], random_task(0)["states"])
        grids = self.folder / "grids.hdf5"
        with h5py.File(grids, "w") as file:
            file.create_group("0")
        self.assertIn("no file of version 2", self.complaint(grids, "a", **random_task(0)))

    def test_files_that_are_none_are_refused_by_name_and_left(self):
        whole = self.folder / "whole.hdf5"
        adtrain.write_histories(whole, "walk", **random_task(0))
        text, cut, folder = self.folder / "text.hdf5", self.folder / "cut.hdf5", self.folder / "folder.hdf5"
        text.write_text("random_score: 1")
        cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
        folder.mkdir()
        for path, reason in (
            (text, "file signature not found"),
            (cut, "truncated file"),
            (folder, "it is a folder"),
            (text / "h.hdf5", "File exists"),
        ):
            before = path.read_bytes() if path.is_file() else None
            said = self.complaint(path, "run", **random_task(1))
            self.assertRegex(said, f"^{path} cannot be written .*{reason}.*; expected a new file, or histories in HDF5")
            self.assertEqual(path.read_bytes() if path.is_file() else None, before)


if __name__ == "__main__":
    unittest.main()
