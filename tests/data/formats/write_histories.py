"""Writes small data sets of learning histories with h5py in published layouts, of random values, and what their
windows must be, by slicing with h5py: FOLDER SEED NAME=LAYOUT ...

Each data set has a folder, FOLDER/NAME. Its windows.json lists windows as {"task": name of its group, "history",
"first", "count"}; windows.bin has their bytes, one window after the other, the columns of each in the order of the
list COLUMNS.
"""

import json
import sys
from pathlib import Path

import h5py
import numpy as np

COLUMNS = ["states", "actions", "rewards", "next_states", "dones", "terminations", "truncations", "step_num",
           "expert_actions", "optimal_actions"]
TYPES = [np.bool_, np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32, np.uint64, np.int64, np.float16,
         np.float32, np.float64, np.dtype(">i4"), np.dtype(">f8"), np.dtype(">u2")]


def values(random, shape, dtype):
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return random.random(shape) < 0.2
    if dtype.kind == "f":
        return random.normal(size=shape).astype(dtype)
    return random.integers(0, 120, shape).astype(dtype)


def write_xland(random, path):
    """As dunno-lab/xland-minigrid-datasets: stream first, gzip 6 alone, chunks of (1, 4096, ...), here shorter."""
    streams, steps, chunk = 3, 1000, 128
    with h5py.File(path, "w") as file:
        for task in range(12):
            group = file.create_group(str(task))
            group.attrs["env-id"] = "XLand-MiniGrid-R1-9x9"
            group.attrs["benchmark-id"] = "trivial-1m"
            group.attrs["ruleset-id"] = 1000 + 7 * task
            for name, dtype, row in [("states", np.uint8, (5, 5)), ("actions", np.uint8, ()),
                                     ("rewards", np.float16, ()), ("dones", bool, ()),
                                     ("expert_actions", np.uint8, ())]:
                content = values(random, (streams, steps, *row), dtype)
                group.create_dataset(name, data=content % 6 if name.endswith("actions") else content,
                                     chunks=(1, chunk, *row), compression="gzip", compression_opts=6)
    return {"stream_first": True, "steps": steps, "streams": streams}


def write_adtrain1(random, path):
    """As the Python projects and adtrain write: time first, contiguous, or chunked with shuffle and gzip."""
    streams, steps = 5, 700
    with h5py.File(path, "w") as file:
        file.attrs["grid_size"] = "9"
        for task in (0, 1, 17):
            group = file.create_group(str(task))
            options = {} if task < 17 else {"chunks": True, "shuffle": True, "compression": "gzip"}
            for name, dtype, row in [("states", np.int32, (2,)), ("actions", np.int32, ()), ("rewards", np.int32, ()),
                                     ("next_states", np.int32, (2,)), ("dones", bool, ())]:
                group.create_dataset(name, data=values(random, (steps, streams, *row), dtype), **options)
            group.create_dataset("optimal_actions", data=values(random, (streams, steps), np.int32))
    return {"stream_first": False, "steps": steps, "streams": streams}


def write_adtrain2(random, path):
    """Any element types, chunks of odd extents, filters and missing chunks."""
    stream_first = bool(random.integers(2))
    streams, steps = int(random.integers(1, 6)), int(random.integers(30, 900))
    lead = (streams, steps) if stream_first else (steps, streams)
    columns = []
    for name, row in [("states", tuple(random.integers(1, 6, random.integers(0, 3)))), ("actions", (2,)),
                      ("rewards", ()), ("dones", ()), ("step_num", ()), ("expert_actions", (2,))]:
        columns.append((name, row, TYPES[random.integers(len(TYPES))]))
    with h5py.File(path, "w") as file:
        file.attrs["adtrain-format"] = 2
        file.attrs["axes"] = "stream,time" if stream_first else "time,stream"
        for task in range(4):
            group = file.create_group(str(task))
            group.attrs["task"] = f"reach {task}"
            for name, row, dtype in columns:
                shape = (*lead, *map(int, row))
                options = {}
                if random.random() < 0.8:
                    options["chunks"] = tuple(int(random.integers(1, extent + 1)) for extent in shape)
                    options["shuffle"] = bool(random.integers(2))
                    options["fletcher32"] = bool(random.integers(2))
                    if random.random() < 0.8:
                        options["compression"] = "gzip"
                        options["compression_opts"] = int(random.integers(0, 10))
                    if np.dtype(dtype).kind == "i":
                        options["fillvalue"] = 7
                dataset = group.create_dataset(name, shape=shape, dtype=dtype, **options)
                content = values(random, shape, dtype)
                if random.random() < 0.2:  # the rest is never written
                    dataset[: lead[0] // 3] = content[: lead[0] // 3]
                elif random.random() < 0.9:
                    dataset[...] = content
    return {"stream_first": stream_first, "steps": steps, "streams": streams}


def write_vintix(random, path):
    """As dunnolab/vintix: a folder a task, a file a trajectory, groups of 10 000 steps, here of 100, the last one
    shorter; uncompressed, or compressed as a user may have repacked them."""
    lengths = {}
    for domain, task, observations, actions in [("mujoco", "ant_v4", 7, 2), ("mujoco", "hopper_v4", 5, 2),
                                                ("metaworld", "reach-v2", 3, 4), ("metaworld", "push-v2", 3, 4)]:
        folder = path.parent / "vintix" / domain / task
        folder.mkdir(parents=True)
        (folder / f"{task}.json").write_text(json.dumps({
            "task_name": task, "observation_shape": {"proprio": [observations]}, "action_dim": actions,
            "action_type": "continuous", "reward_scale": 0.5}))
        lengths[task] = []
        for trajectory in range(3):
            steps = int(random.integers(1, 450))
            lengths[task].append(steps)
            numbers = np.arange(steps) % 25
            with h5py.File(folder / f"trajectory_{trajectory}.h5", "w") as file:
                for first in range(0, steps, 100):
                    last = min(first + 100, steps) - 1
                    group = file.create_group(f"{first}-{last}")
                    options = {"compression": "gzip", "chunks": True} if trajectory == 1 else {}
                    count = last - first + 1
                    for name, row in [("proprio_observation", (observations,)), ("action", (actions,)), ("reward", ())]:
                        group.create_dataset(name, data=values(random, (count, *row), np.float32), **options)
                    group.create_dataset("step_num", data=numbers[first:last + 1].astype(np.int32), **options)
                    if domain == "metaworld":
                        group.create_dataset("demonstrator_action", data=values(random, (count, actions), np.float32))
    return {"lengths": lengths}


def vintix_windows_of(random, path, layout):
    """Windows of whole trajectories, put together as the project's loader does: groups in order of their numbers."""
    listed, content = [], []
    for folder in sorted((path.parent / "vintix").glob("*/*")):
        for history, file_path in enumerate(sorted(folder.glob("*.h5"))):
            with h5py.File(file_path, "r") as file:
                groups = sorted(file, key=lambda name: int(name.split("-")[0]))
                names = ["proprio_observation", "action", "reward", "step_num", "demonstrator_action"]
                columns = [np.concatenate([file[group][name][()] for group in groups])
                           for name in names if name in file[groups[0]]]
            steps = len(columns[0])
            for i in range(8):
                first = 0 if i == 0 else int(random.integers(steps))
                count = steps if i == 0 else int(random.integers(0, steps - first + 1))
                listed.append({"task": folder.name, "history": history, "first": first, "count": count})
                content += [little(column[first:first + count]) for column in columns]
    return listed, b"".join(content)


def little(array):
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"))).tobytes()


def windows_of(random, path, layout):
    """Random windows, and whole histories, as slices of h5py."""
    steps, streams = layout["steps"], layout["streams"]
    listed, content = [], []
    with h5py.File(path, "r") as file:
        tasks = list(file)
        for i in range(60):
            task, history = str(random.choice(tasks)), int(random.integers(streams))
            first = 0 if i % 10 == 0 else int(random.integers(steps))
            count = steps if i % 10 == 0 else int(random.integers(0, steps - first + 1))
            listed.append({"task": task, "history": history, "first": first, "count": count})
            for name in COLUMNS:
                if name not in file[task]:
                    continue
                dataset = file[task][name]
                by_stream = layout["stream_first"] or name == "optimal_actions"
                content.append(little(dataset[history, first:first + count] if by_stream
                                      else dataset[first:first + count, history]))
    return listed, b"".join(content)


def samples_of(random, path, layout, length):
    """Samples of the XLand collection's own loader: segment k of a history starts at 1 + k * (length / 2)."""
    listed, content = [], []
    starts = list(range(1, layout["steps"] - length, length // 2))
    with h5py.File(path, "r") as data:
        for _ in range(30):
            task, history = str(random.integers(len(data))), int(random.integers(layout["streams"]))
            start = int(random.choice(starts))
            listed.append({"task": task, "history": history, "start": start, "length": length})
            group, end = data[task], start + length
            content += [little(group["states"][history][start:end]), little(group["actions"][history][start - 1:end - 1]),
                        little(group["rewards"][history][start - 1:end - 1]), little(group["actions"][history][start:end])]
    return listed, b"".join(content)


LAYOUTS = {"vintix": write_vintix, "xland": write_xland, "adtrain1": write_adtrain1, "adtrain2": write_adtrain2}


def write(random, folder, layout_name):
    folder.mkdir()
    path = folder / "histories.hdf5"
    layout = LAYOUTS[layout_name](random, path)
    windows, content = (vintix_windows_of if layout_name == "vintix" else windows_of)(random, path, layout)
    document = {**layout, "windows": windows}
    (folder / "windows.bin").write_bytes(content)
    if layout_name == "xland":
        document["samples"], samples = samples_of(random, path, layout, 64)
        (folder / "samples.bin").write_bytes(samples)
    (folder / "windows.json").write_text(json.dumps(document))


for number, argument in enumerate(sys.argv[3:]):
    name, layout_name = argument.split("=")
    write(np.random.default_rng([int(sys.argv[2]), number]), Path(sys.argv[1]) / name, layout_name)
