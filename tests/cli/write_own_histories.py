"""Small histories in which learning can be seen: usage: write_own_histories.py FOLDER

FOLDER/xland.hdf5 has the layout of XLand-100B; in each task one action pays, which is chosen ever more often.
FOLDER/vintix has that of Vintix; actions come ever nearer to a function of the observation, which lies around
another mean in each task. FOLDER/short has the same in many short histories, of two groups of spaces."""
import json
import sys
from pathlib import Path

import h5py
import numpy as np


def write_xland(path, tasks=5, streams=4, steps=300):
    random = np.random.default_rng(3)
    with h5py.File(path, "w") as file:
        for task in range(tasks):
            group = file.create_group(str(task))
            group.attrs["env-id"], group.attrs["benchmark-id"] = "XLand-MiniGrid-R1-9x9", "trivial-1m"
            group.attrs["ruleset-id"] = 100 + task
            best = np.full((streams, steps), task % 6)
            knows = random.random((streams, steps)) < np.linspace(0, 2, steps)
            actions = np.where(knows, best, random.integers(0, 6, (streams, steps)))
            columns = {
                "states": random.integers(0, 156, (streams, steps, 5, 5)).astype("u1"),
                "actions": actions.astype("u1"),
                "rewards": (actions == best).astype("f2"),
                "dones": np.broadcast_to(np.arange(steps) % 10 == 9, (streams, steps)),
                "expert_actions": best.astype("u1")}
            for name, values in columns.items():
                group.create_dataset(name, data=values, chunks=(1, 128, *values.shape[2:]), compression="gzip",
                                     compression_opts=6)


def write_vintix(path, domain, task, observations, mean, lengths=(450, 450)):
    random = np.random.default_rng(int(100 * mean) + observations)
    folder = path / domain / task
    folder.mkdir(parents=True)
    (folder / f"{task}.json").write_text(json.dumps(
        {"task_name": task, "observation_shape": {"proprio": [observations]}, "action_dim": 2}))
    for trajectory, steps in enumerate(lengths):
        observed = random.normal(mean, 3, (steps, observations)).astype("f4")
        best = np.tanh((observed[:, :2] - mean) / 3)
        actions = best + random.normal(0, 1, (steps, 2)) * np.linspace(1, 0.05, steps)[:, None]
        rewards = -np.abs(actions - best).sum(1)
        with h5py.File(folder / f"trajectory_{trajectory}.h5", "w") as file:
            for first in range(0, steps, 100):
                end = min(first + 100, steps)
                group = file.create_group(f"{first}-{end - 1}")
                group["proprio_observation"], group["action"] = observed[first:end], actions[first:end].astype("f4")
                group["reward"] = rewards[first:end].astype("f4")
                group["step_num"] = (np.arange(steps) % 25)[first:end].astype("i4")


folder = Path(sys.argv[1])
write_xland(folder / "xland.hdf5")
for number, task in enumerate(["ant", "hopper", "walker"]):
    write_vintix(folder / "vintix", "mujoco", task, 4, 5.0 * number)
    write_vintix(folder / "domains", "mujoco", task, 4, 5.0 * number)
write_vintix(folder / "domains", "metaworld", "reach", 6, 1.0)
lengths = np.random.default_rng(5)
for number, (domain, task) in enumerate([("mujoco", "ant"), ("mujoco", "hopper"), ("mujoco", "walker"),
                                         ("metaworld", "reach")]):
    write_vintix(folder / "short", domain, task, 4 if domain == "mujoco" else 6, 2.0 * number,
                 [*lengths.integers(3, 40, 24), 60])
