"""Reads an evaluation folder with NumPy, csv and json, and checks that its files tell the same story."""

import csv
import json
import pathlib
import sys

import numpy as np

folder = pathlib.Path(sys.argv[1])
summary = json.loads((folder / "summary.json").read_text())
tasks, repeats, episodes = len(summary["tasks"]), summary["repeats"], summary["episodes"]

rewards = np.load(folder / "reward_episode.npy", allow_pickle=False)
assert rewards.dtype == np.float32 and rewards.flags.c_contiguous and rewards.shape == (tasks, episodes), rewards.shape
if repeats > 1:
    by_repeat = np.load(folder / "reward_episode_repeats.npy", allow_pickle=False)
    assert by_repeat.dtype == np.float32 and by_repeat.shape == (tasks, repeats, episodes), by_repeat.shape
    np.testing.assert_allclose(by_repeat.mean(axis=1), rewards, atol=1e-6)

np.testing.assert_allclose(rewards.mean(axis=0), summary["mean"], atol=1e-5)
np.testing.assert_allclose(rewards.std(axis=0), summary["std"], atol=1e-5)
np.testing.assert_allclose(rewards[:, -10:].mean(), summary["last10_mean"], atol=1e-5)

with open(folder / "reward_episode.csv", newline="") as file:
    rows = list(csv.DictReader(file))
assert len(rows) == tasks * episodes
for row, reward in zip(rows, rewards.reshape(-1), strict=True):
    assert abs(float(row["reward"]) - reward) < 1e-6, row
assert [int(row["task"]) for row in rows[::episodes]] == summary["tasks"]

print(f"{tasks} tasks, {repeats} repeats, {episodes} episodes")
