"""Writes small data sets in Minari's layout with h5py, of random values, good ones and each odd in one way: FOLDER SEED.

FOLDER/good/expected.bin has what an import of FOLDER/good must give: the columns of its one history, one after the other.
"""

import json
import sys
from pathlib import Path

import h5py
import numpy as np

FOLDER, RANDOM = Path(sys.argv[1]), np.random.default_rng(int(sys.argv[2]))
OBSERVATION_TYPES, ACTION_TYPES = ["u1", "i2", "<i8", ">i4", "f2", "<f4", ">f8"], ["u1", "<i4", "<i8", ">u2"]


def values(shape, dtype):
    if np.dtype(dtype).kind == "f":
        return RANDOM.normal(size=shape).astype(dtype)
    return RANDOM.integers(0, 6, shape).astype(dtype)


def write(name, *, row=(3,), observation_type="<f4", action_type="<i8", episodes=12, spaces=None, change=None, metadata=None,
          name_in_it=True):
    """`change` is called with the open file, `metadata` with what metadata.json will say."""
    folder = FOLDER / name / "data"
    folder.mkdir(parents=True)
    columns = {"observations": [], "actions": [], "rewards": [], "terminations": [], "truncations": []}
    total = 0
    with h5py.File(folder / "main_data.hdf5", "w", track_order=True) as file:
        for number in range(episodes):
            steps = int(RANDOM.integers(2, 70))
            total += steps
            group = file.create_group(f"episode_{number}")
            group.attrs["id"], group.attrs["total_steps"] = number, steps
            terminated = np.zeros(steps, bool)
            truncated = np.zeros(steps, bool)
            (terminated if RANDOM.integers(2) else truncated)[-1] = True
            content = {"observations": values((steps + 1, *row), observation_type), "actions": values((steps,), action_type),
                       "rewards": RANDOM.integers(-3, 4, steps) if number % 3 == 0 else RANDOM.normal(size=steps),
                       "terminations": terminated, "truncations": truncated}
            for key, array in content.items():
                group.create_dataset(key, data=array, chunks=True, maxshape=(None, *array.shape[1:]))
                columns[key].append(array[:steps])
            group.create_group("infos")
        if change:
            change(file)
    observation = {"type": "Box", "dtype": np.dtype(observation_type).name, "shape": list(row), "low": [-np.inf],
                   "high": [np.inf]}
    said = {"total_episodes": episodes, "total_steps": total, "data_format": "hdf5", "minari_version": "0.5.4",
            "observation_space": json.dumps(observation),
            "action_space": json.dumps({"type": "Discrete", "dtype": "int64", "start": 0, "n": 6}),
            "env_spec": json.dumps({"id": "CartPole-v1", "kwargs": {}}), "ref_max_score": 7.5} | (spaces or {})
    if name_in_it:
        said["dataset_id"] = f"test/{name}-v0"
    if metadata:
        metadata(said)
    (folder / "metadata.json").write_text(json.dumps(said))
    return {key: np.concatenate(arrays) for key, arrays in columns.items()}


def replaced(path, values):
    def change(file):
        del file[path]
        if values is not None:
            file[path] = values
    return change


def set_at(path, step, value):
    def change(file):
        file[path][step] = value
    return change


def extended(path, rows):
    def change(file):
        file[path].resize(file[path].shape[0] + rows, axis=0)
    return change


good = write("good", row=tuple(map(int, RANDOM.integers(1, 5, RANDOM.integers(0, 3)))), episodes=int(RANDOM.integers(1, 30)),
             observation_type=OBSERVATION_TYPES[RANDOM.integers(len(OBSERVATION_TYPES))],
             action_type=ACTION_TYPES[RANDOM.integers(len(ACTION_TYPES))])
good["rewards"] = good["rewards"].astype("f4")
(FOLDER / "good" / "expected.bin").write_bytes(
    b"".join(array.astype(array.dtype.newbyteorder("<")).tobytes() for array in good.values()))

dictionary = json.dumps({"type": "Dict", "subspaces": {"position": {"type": "Box", "low": [-np.inf]}}})
image = json.dumps({"type": "Box", "dtype": "uint8", "shape": [40, 40, 3], "low": [0], "high": [255]})

write("unnamed", name_in_it=False)
write("lost_episode", change=replaced("episode_5", None))
write("lost_rewards", change=replaced("episode_3/rewards", None))
write("lost_steps", metadata=lambda said: said.update(total_steps=said["total_steps"] + 1))
write("no_totals", metadata=lambda said: said.pop("total_episodes"))
write("other_steps", change=lambda file: file["episode_4"].attrs.update(total_steps=10**6))
write("no_last_observation", change=extended("episode_2/observations", -1))
write("other_rows", change=replaced("episode_7/observations", np.zeros((3, 2), "f4")))
write("other_actions", change=lambda file: replaced("episode_6/actions", file["episode_6/actions"][()].astype("i4"))(file))
write("nan", change=set_at("episode_1/observations", 0, np.nan))
write("infinite_reward", change=set_at("episode_1/rewards", 0, 1e60))
write("not_its_action", change=set_at("episode_8/actions", 0, 6))
write("dictionary", spaces={"observation_space": dictionary})
write("tuple", spaces={"action_space": json.dumps({"type": "Tuple", "subspaces": []})})
write("no_space", metadata=lambda said: said.pop("action_space"))
write("real_actions", action_type="f4")
write("jpeg", row=(700,), observation_type="u1", spaces={"observation_space": image})
write("raw_image", row=(40, 40, 3), observation_type="u1", spaces={"observation_space": image}, episodes=2)
write("arrow", metadata=lambda said: said.update(data_format="arrow"))
write("no_file")
(FOLDER / "no_file" / "data" / "main_data.hdf5").unlink()
write("no_json")
(FOLDER / "no_json" / "data" / "metadata.json").write_text("{")
write("cut")
with open(FOLDER / "cut" / "data" / "main_data.hdf5", "r+b") as cut:
    cut.truncate(1000)
write("early_end", change=lambda file: replaced("episode_0/truncations", np.ones_like(file["episode_0/truncations"]))(file))
write("unmarked_end", change=lambda file: [replaced(f"episode_{number}/{name}", np.zeros_like(file[f"episode_{number}/{name}"]))(file)
                                           for number in (0, 2) for name in ("truncations", "terminations")])
