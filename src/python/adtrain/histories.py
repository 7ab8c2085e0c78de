"""Files of learning histories. docs/history-format.md describes them."""

import dataclasses
import os
import pathlib
import zlib
from collections.abc import Iterator, Mapping
from types import ModuleType, TracebackType
from typing import Any, Self

import numpy as np

from .errors import HistoryError
from .hdf5_errors import reading, writing
from .packages import needed

_FORMAT_VERSION = "1"
_VERSION_ATTRIBUTE = "adtrain-format"  # which only files of later versions have


@dataclasses.dataclass(frozen=True)
class History:
    """How one task was learnt: T steps of S streams, time first."""

    states: np.ndarray
    """int32 (T, S, 2)"""
    actions: np.ndarray
    """int32 (T, S)"""
    rewards: np.ndarray
    """(T, S); int32 as adtrain writes them"""
    next_states: np.ndarray
    """int32 (T, S, 2)"""
    dones: np.ndarray
    """bool (T, S): true on the last step of an episode"""
    compress_markers: np.ndarray | None = None
    """int32 (T, S): 1 on the first and 2 on the last step of each rollout, else 0"""
    optimal_actions: np.ndarray | None = None
    """int32 (S, T), unlike all others: the best action in each state"""

    @property
    def steps(self) -> int:
        """T"""
        return self.actions.shape[0]

    @property
    def streams(self) -> int:
        """S"""
        return self.actions.shape[1]

    def columns(self) -> dict[str, np.ndarray]:
        """The arrays by the names of their data sets, in the order of the file's checksum."""
        columns = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: values for name, values in columns.items() if values is not None}


class Histories(Mapping[int, History]):
    """The tasks of a file, each read when it is asked for: `histories[17].rewards`."""

    def __init__(self, path: str | os.PathLike[str]):
        """Throws HistoryError where no group of the file is named by a task's number and where it is of version 2, of any
        space; MissingPackageError without h5py."""
        self.path = pathlib.Path(path)
        with reading(self.path), self._open() as file:
            numbers = sorted(int(name) for name in file if name.isdecimal() and name == str(int(name)))
            self._tasks = dict.fromkeys(numbers)
            self.settings = {name: _text(value) for name, value in file.attrs.items()}
            """How the file was made, as text; empty where it does not say."""
            others = ", ".join(repr(name) for name in list(file)[:4])
        if (version := self.settings.get(_VERSION_ATTRIBUTE)) is not None:
            raise HistoryError(
                f"{self.path} is of version {version} ({_VERSION_ATTRIBUTE}), histories of any space; expected version 1, of a "
                "family of grids. `adtrain inspect histories` and training (`histories: FILE`) read it, and h5py its arrays"
            )
        if not self._tasks:
            found = f"no task, but {others}" if others else "no group"
            raise HistoryError(f"{self.path}: found {found}; expected one group a task, named by its number")

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[int]:
        return iter(self._tasks)

    def __getitem__(self, task: int) -> History:
        """Throws KeyError, which names the tasks that there are, where the file lacks this one; HistoryError where a data set
        is missing, of another shape, or differs from its checksum, and where the file cannot be read."""
        if task not in self._tasks:
            raise KeyError(f"found task {task!r}; expected one of {self.path}, which has {_ranges(list(self._tasks))}")
        with reading(self.path), self._open() as file:
            group = file[str(task)]
            names = [field.name for field in dataclasses.fields(History) if field.name in group]
            columns = {name: self._values(group[name]) for name in names}
        missing = [name for name in ("states", "actions", "rewards", "next_states", "dones") if name not in columns]
        if missing:
            raise HistoryError(
                f"{self.path}: task {task} has no data set {', '.join(missing)}; fetch or collect the file again"
            )
        return _checked(History(**columns), f"{self.path}: task {task}")

    def _values(self, dataset: Any) -> np.ndarray:
        values: np.ndarray = dataset[()]
        found, expected = zlib.crc32(values.tobytes()), dataset.attrs.get("crc32")
        if expected is not None and found != expected:
            raise HistoryError(
                f"{self.path}: data set {dataset.name} has the checksum {found:08x}; expected {expected:08x}: its values "
                "were changed after they were collected; fetch or collect the file again"
            )
        return values

    def _open(self) -> Any:
        return _h5py().File(self.path, "r")


class HistoryWriter:
    """Writes a file that adtrain trains from, task by task:

        with HistoryWriter(path) as writer:
            writer.write(0, History(…))

    The file gets its name at the end of the block, when it is complete; an exception leaves none.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        settings: Mapping[str, str] | None = None,
        *,
        compression: int = 0,
        overwrite: bool = False,
    ):
        """`path`: adtrain looks for `history_name(…)` in its `traj_dir`. `settings`: those of another file, or none:
        training compares every one with its configuration. `compression`: 0, or gzip's level 1 to 9."""
        self.path = pathlib.Path(path)
        self._settings = {name: value for name, value in (settings or {}).items() if name not in ("content_crc32", "task_numbers")}
        self._compression = compression
        self._checksums: dict[int, dict[str, int]] = {}
        self._shape: tuple[int, int] | None = None
        self._unfinished = self.path.with_name(self.path.name + ".tmp")
        if self.path.exists() and not overwrite:
            raise HistoryError(
                f"{self.path} exists already; histories are not overwritten: remove it, or pass overwrite=True"
            )
        self._h5py = _h5py()

    def __enter__(self) -> Self:
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._h5py.File(self._unfinished, "w")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with writing(self.path):
            try:
                if kind is None:
                    self._finish()
                self._file.close()
                if kind is None:
                    self._unfinished.replace(self.path)
            finally:
                self._file.close()
                self._unfinished.unlink(missing_ok=True)

    def write(self, task: int, history: History) -> None:
        """Throws HistoryError where the arrays do not fit each other or the tasks before, where `task` is no number that
        readers know, and where the file cannot be written. After any error the file is as before, and the task may be written again."""
        if isinstance(task, bool) or not isinstance(task, (int, np.integer)) or task < 0:
            raise HistoryError(f"found the task {task!r}; expected its number, an integer from 0 on")
        history = _checked(history, f"task {task}")
        shape = history.steps, history.streams
        if task in self._checksums:
            raise HistoryError(f"task {task} was written already; expected each task once")
        if self._shape is not None and shape != self._shape:
            raise HistoryError(f"task {task} has {shape} steps and streams; expected {self._shape}, as the tasks before it")
        columns = {name: _stored(given, name, f"task {task}") for name, given in history.columns().items()}
        checksums = {name: zlib.crc32(values.tobytes()) for name, values in columns.items()}
        with writing(self.path):
            group = self._file.create_group(str(task))
            try:
                for name, values in columns.items():
                    dataset = group.create_dataset(name, data=values, **self._filters(values))
                    dataset.attrs["crc32"] = np.uint32(checksums[name])
            except BaseException:
                del self._file[str(task)]
                raise
        self._shape = shape
        self._checksums[int(task)] = checksums

    def _filters(self, values: np.ndarray) -> dict[str, Any]:
        """Chunks of whole steps, about half a megabyte each."""
        if self._compression == 0:
            return {}
        steps = max(1, min(len(values), (1 << 19) // values[0].nbytes))
        return {"chunks": (steps, *values.shape[1:]), "shuffle": True, "compression": self._compression}

    def _finish(self) -> None:
        tasks = sorted(self._checksums)
        if not tasks:
            raise HistoryError(f"{self.path}: no task was written; expected one at least")
        if not self._settings:
            return  # adtrain would compare any attribute with its configuration
        lines = (f"{task}/{name} {crc:08x}\n" for task in tasks for name, crc in self._checksums[task].items())
        content = f"{zlib.crc32(''.join(lines).encode()):08x}"
        known = {"tasks": str(len(tasks)), "format_version": _FORMAT_VERSION, "content_crc32": content}
        if tasks[-1] >= len(tasks):
            known["task_numbers"] = _ranges(tasks)
        for name, value in sorted((self._settings | known).items()):
            self._file.attrs[name] = np.bytes_(value.encode())  # of fixed length: adtrain reads no other texts


def history_name(env: str, alg: str = "PPO", alg_seed: int = 0) -> str:
    """The name under which adtrain looks for a family's histories."""
    return f"history_{env}_{alg}_alg-seed{alg_seed}.hdf5"


def _ranges(tasks: list[int]) -> str:
    """Ascending numbers as "0-39,50"."""
    ranges: list[list[int]] = []
    for task in tasks:
        if ranges and task == ranges[-1][1] + 1:
            ranges[-1][1] = task
        else:
            ranges.append([task, task])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _checked(history: History, place: str) -> History:
    if history.actions.ndim != 2 or history.actions.size == 0:
        raise HistoryError(f"{place}: actions has shape {history.actions.shape}; expected (steps, streams)")
    for name, values in history.columns().items():
        shape: tuple[int, ...] = (history.steps, history.streams)
        if name == "optimal_actions":
            shape = shape[::-1]
        elif name.endswith("states"):
            shape += (2,)
        if values.shape != shape:
            raise HistoryError(f"{place}: {name} has shape {values.shape}; expected {shape}")
    return history


def _stored(given: np.ndarray, name: str, place: str) -> np.ndarray:
    """In the type that the file has."""
    with np.errstate(invalid="ignore"):  # of NaN, which is refused here
        values = np.ascontiguousarray(given, bool if name == "dones" else np.int32)
    if np.any(values != given):
        expected = "truth values" if name == "dones" else "whole numbers"
        raise HistoryError(f"{place}: {name} holds other values than {expected}")
    return values


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _h5py() -> ModuleType:
    return needed("h5py", "h5py", "Reading and writing histories")
