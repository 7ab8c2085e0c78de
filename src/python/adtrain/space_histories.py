"""Histories of any space, written for adtrain. docs/history-formats.md describes the file, version 2."""

import json
import os
import pathlib
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from .errors import HistoryError
from .hdf5_errors import writing
from .packages import needed

_CHUNK_STEPS, _CHUNK_BYTES = 4096, 1 << 22
_LONGEST_ATTRIBUTE = 60_000


def write_histories(
    path: str | os.PathLike[str],
    task: int | str,
    states: Any,
    actions: Any,
    rewards: Any,
    terminated: Any,
    truncated: Any,
    observation_space: Any,
    action_space: Any,
    *,
    compression: int = 4,
    scores: Mapping[str, float] | None = None,
    group: str | None = None,
) -> int:
    """Appends a task's learning histories to the file, which is made where it is not there; returns the task's number.

    `task`: its number, or its name, and then it gets the next number. Arrays are (streams, steps, …), one history after the
    other, or (steps, …) of a single one: `states` before each step and `actions` in the types in which they are to be kept,
    `rewards`, and whether the step ended an episode by the task's own rule (`terminated`) or cut it off (`truncated`). The
    step behind an end begins with the state after the reset. Spaces are Gymnasium's, or Minari's JSON as a text or
    dictionary; they are those of a single step, and the same for all tasks of a group. `compression`: 0, or gzip's level 1
    to 9. `scores`: {"random-score": …, "expert-score": …}, returns of an episode. `group`: the name of the tasks that share
    these spaces, where there are several such. For one process at a time.

    Throws HistoryError where arrays do not fit each other, the spaces or the tasks before, where they are not finite, where
    the file has the task, and where it is none of HDF5, damaged or a folder; then the file is as before.
    """
    columns = _columns(states, actions, rewards, terminated, truncated)
    spaces = {"observation-space": _space(observation_space), "action-space": _space(action_space)}
    _expect(columns, spaces)
    path, h5py = pathlib.Path(path), needed("h5py", "h5py", "Writing histories")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path), h5py.File(path, "a") as file:
        number = _place(file, path, task)
        _agree(file, path, columns, spaces, group)
        if not _tasks(file):
            for name, space in spaces.items():
                file.attrs[name] = _text(json.dumps(space))
        file.attrs.pop("content_crc32", None)  # of the tasks that adtrain had collected
        file.attrs["adtrain-format"], file.attrs["axes"] = 2, _text("stream,time")
        unfinished = f"unfinished {number}"
        file.pop(unfinished, None)
        written = file.create_group(unfinished)
        for name, values in columns.items():
            dataset = written.create_dataset(name, data=values, **_filters(values, compression))
            dataset.attrs["crc32"] = np.uint32(zlib.crc32(values.tobytes()))
        if isinstance(task, str):
            written.attrs["task"] = _text(task)
        if group is not None:
            written.attrs["group"] = _text(group)
        for name, space in spaces.items():
            if json.loads(file.attrs[name]) != space:  # another group than that of the file's first task
                written.attrs[name] = _text(json.dumps(space))
        for name, score in (scores or {}).items():
            written.attrs[name] = float(score)
        file.move(unfinished, str(number))
    return number


def _columns(states: Any, actions: Any, rewards: Any, terminated: Any, truncated: Any) -> dict[str, np.ndarray]:
    rewards = np.asarray(rewards, np.float32)
    single = rewards.ndim == 1
    given = {
        "states": np.asarray(states),
        "actions": np.asarray(actions),
        "rewards": rewards,
        "terminations": np.asarray(terminated, bool),
        "truncations": np.asarray(truncated, bool),
    }
    columns = {name: np.ascontiguousarray(values[np.newaxis] if single else values) for name, values in given.items()}
    steps = columns["rewards"].shape
    if len(steps) != 2 or 0 in steps:
        raise HistoryError(f"rewards has shape {rewards.shape}; expected (streams, steps) or (steps,)")
    for name, values in columns.items():
        per_step = name not in ("states", "actions")
        if values.shape[:2] != steps or (per_step and values.ndim != 2):
            raise HistoryError(
                f"{name} has shape {values.shape}; expected {steps}{'' if per_step else ' and the shape of its space'}, as rewards"
            )
        if values.dtype.kind not in "biuf" or values.dtype.itemsize > 8:
            raise HistoryError(f"{name} holds {values.dtype}; expected booleans, integers or real numbers of up to 64 bits")
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise HistoryError(f"{name} holds NaN or infinity; expected finite numbers")
    return columns


def _space(space: Any) -> dict[str, Any]:
    """Minari's JSON of a space."""
    if isinstance(space, str):
        try:
            space = json.loads(space)
        except ValueError as error:
            raise HistoryError(f"found the space {space[:200]!r}, which is no JSON ({error}); expected Minari's JSON of one") from None
    if isinstance(space, Mapping):
        return dict(space)
    kind = type(space).__name__
    if kind == "Discrete":
        return {"type": kind, "dtype": str(space.dtype), "start": int(space.start), "n": int(space.n)}
    if kind == "MultiDiscrete":
        start = getattr(space, "start", np.zeros_like(space.nvec))
        return {"type": kind, "dtype": str(space.dtype), "nvec": space.nvec.tolist(), "start": start.tolist()}
    if kind == "Box":
        return {"type": kind, "dtype": str(space.dtype), "shape": list(space.shape)} | {
            name: _bounds(bounds) for name, bounds in (("low", space.low), ("high", space.high))
        }
    raise HistoryError(f"found the space {space}; expected Discrete, MultiDiscrete or Box, or Minari's JSON of one")


def _bounds(bounds: np.ndarray) -> Any:
    """Those of an image are the same thousands of times; one number stands for all of them."""
    flat = bounds.ravel()
    return [flat[0].item()] if flat.size >= 1024 and (flat == flat[0]).all() else bounds.tolist()


def _shape(space: dict[str, Any]) -> tuple[int, ...]:
    if space["type"] == "Discrete":
        return ()
    return tuple(space["shape"]) if space["type"] == "Box" else np.shape(space["nvec"])


def _expect(columns: dict[str, np.ndarray], spaces: dict[str, dict[str, Any]]) -> None:
    for name, attribute in (("states", "observation-space"), ("actions", "action-space")):
        values, space = columns[name], spaces[attribute]
        if values.shape[2:] != _shape(space):
            raise HistoryError(f"{name} has rows of shape {values.shape[2:]}; expected {_shape(space)}, as {space['type']} has")
        if space["type"] != "Box":
            count = np.asarray(space["n"] if space["type"] == "Discrete" else space["nvec"])
            first = np.asarray(space.get("start", 0))
            if values.dtype.kind == "f" or (values < first).any() or (values >= first + count).any():
                raise HistoryError(f"{name} holds values that its space {json.dumps(space)[:200]} does not have")
        if len(json.dumps(space)) > _LONGEST_ATTRIBUTE:
            raise HistoryError(f"the {attribute} takes more than {_LONGEST_ATTRIBUTE} bytes; expected fewer elements")


def _tasks(file: Any) -> list[str]:
    return [name for name in file if name.isdecimal()]


def _place(file: Any, path: pathlib.Path, task: int | str) -> int:
    numbers = [int(name) for name in _tasks(file)]
    if isinstance(task, str):
        known = [number for number in numbers if file[str(number)].attrs.get("task") in (task, _text(task))]
        if known:
            raise HistoryError(f"{path}: task {known[0]} is called {task!r} already; expected another name")
        return max(numbers, default=-1) + 1
    if task < 0 or task in numbers:
        raise HistoryError(f"{path}: found task {task}; expected a number from 0 on that the file does not have")
    return int(task)


def _agree(
    file: Any, path: pathlib.Path, columns: dict[str, np.ndarray], spaces: dict[str, dict[str, Any]], group: str | None
) -> None:
    """With the tasks of the group that the file has."""
    others = _tasks(file)
    if not others:
        return
    axes = file.attrs.get("axes")
    if str(file.attrs.get("adtrain-format")) not in ("2", "b'2'") or axes not in (b"stream,time", "stream,time"):
        raise HistoryError(f"{path} is no file of version 2 with streams first; expected a new file, or one that was written here")
    named = None if group is None else _text(group)
    before = next((file[name] for name in others if file[name].attrs.get("group") in (group, named)), None)
    if before is None:
        return
    for name, space in spaces.items():
        known = before.attrs.get(name, file.attrs[name])
        if json.loads(known) != space:
            of = "" if group is None else f" of group {group!r}"
            raise HistoryError(
                f"{path}: the {name}{of} is {_shown(known)}; found {_shown(json.dumps(space))}: give tasks of other spaces "
                "another group"
            )
    for name, values in columns.items():
        dtype = before[name].dtype
        if dtype != values.dtype:
            raise HistoryError(f"{path}: {name} of the tasks before are {dtype}; found {values.dtype}")


def _shown(text: Any) -> str:
    return (text.decode() if isinstance(text, bytes) else str(text))[:200]


def _filters(values: np.ndarray, compression: int) -> dict[str, Any]:
    """Chunks of one history."""
    if compression == 0:
        return {}
    steps = max(1, min(values.shape[1], _CHUNK_STEPS, _CHUNK_BYTES // max(1, values[0, 0].nbytes)))
    return {"chunks": (1, steps, *values.shape[2:]), "shuffle": True, "compression": compression}


def _text(text: str) -> np.bytes_:
    """Of fixed length, as adtrain writes them."""
    return np.bytes_(text.encode())
