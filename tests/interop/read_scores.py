"""Reads folders of scores with NumPy, csv and json, checks that their files tell the same story, and computes the scores of a
family's tasks anew, by the networks of the Python package.

usage: read_scores.py SCORES [RUN HISTORIES]
"""

import csv
import json
import pathlib
import sys

import numpy as np

folder = pathlib.Path(sys.argv[1])
summary = json.loads((folder / "summary.json").read_text())
scores = np.load(folder / "scores.npy", allow_pickle=False)
assert scores.dtype.names == ("sample", "task", "stream", "position", "action", "probability", "loss", "rank"), scores.dtype
assert len(scores) == summary["samples"] > 0 and (np.diff(scores["sample"]) > 0).all()

numbers = scores["action"].reshape(len(scores), -1)
with open(folder / "scores.csv", newline="") as file:
    rows = list(csv.DictReader(file))
assert len(rows) == len(scores)
for row, score, action in zip(rows, scores, numbers, strict=True):
    for name in ("sample", "task", "stream", "position"):
        assert int(row[name]) == score[name], (row, score)
    columns = ["action"] if len(action) == 1 else [f"action_{i}" for i in range(len(action))]
    for column, number in zip(columns, action, strict=True):
        lacked = number == np.iinfo(np.int64).max if number.dtype == np.int64 else np.isnan(number)
        assert lacked if row[column] == "" else float(row[column]) == number, (row, score)
    for name in ("probability", "loss"):
        assert np.isnan(score[name]) if row[name] == "" else np.float32(row[name]) == score[name], (row, score)
    assert (row["rank"] or "-1") == str(score["rank"]), (row, score)

np.testing.assert_allclose(scores["loss"].mean(dtype=float), summary["loss"], rtol=1e-12)
if "accuracy" in summary:
    known = scores[~np.isnan(scores["probability"])]
    np.testing.assert_allclose((known["rank"] == 1).mean(), summary["accuracy"], rtol=1e-12)
    np.testing.assert_allclose(known["probability"].mean(dtype=float), summary["probability"], rtol=1e-12)
for task in summary["tasks"]:
    own = scores[scores["task"] == task["task"]]
    assert len(own) == task["samples"]
    np.testing.assert_allclose(own["loss"].mean(dtype=float), task["loss"], rtol=1e-12)

if len(sys.argv) > 2:
    import adtrain
    from adtrain.transitions import Transitions

    run = adtrain.Run(sys.argv[2])
    network, histories, length = run.network(), adtrain.Histories(sys.argv[3]), run.configuration["n_transit"]
    largest = 0.0
    for score in scores:
        history, stream, last = histories[int(score["task"])], score["stream"], score["position"]
        window = [column[last - length + 1 : last + 1, stream][None] for column in
                  (history.states, history.actions, history.rewards, history.next_states)]
        context = Transitions(*window).part(slice(None), slice(0, length - 1))
        logits = network.predict(context, window[0][:, -1]).actions[0].astype(float)
        assert score["action"] == window[1][0, -1]
        probabilities = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        expected = probabilities[score["action"]]
        largest = max(largest, abs(score["probability"] - expected), abs(score["loss"] + np.log(expected)))
        assert score["rank"] == 1 + (probabilities > expected).sum(), score
    assert largest < 1e-4, largest
    print(f"largest difference to the Python package's network: {largest:.1e}")
print(f"{len(scores)} scores of {len(summary['tasks'])} tasks")
