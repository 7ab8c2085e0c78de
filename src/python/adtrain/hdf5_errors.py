"""What fails in HDF5 files of histories, as an error of this package."""

import contextlib
import pathlib
from collections.abc import Iterator

from .errors import HistoryError


@contextlib.contextmanager
def reading(path: pathlib.Path) -> Iterator[None]:
    """Makes what h5py and the system raise inside of the block a HistoryError that names the file."""
    with _named(path, "read", "learning histories in HDF5"):
        yield


@contextlib.contextmanager
def writing(path: pathlib.Path) -> Iterator[None]:
    """The same of a file that is written."""
    expected = "a new file, or histories in HDF5, where there is room and writing is allowed: choose another path"
    with _named(path, "written", expected):
        yield


@contextlib.contextmanager
def _named(path: pathlib.Path, done: str, expected: str) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError, KeyError) as error:  # h5py raises each of them for damaged files
        reason = "it is a folder" if path.is_dir() else " ".join(str(error).split())
        raise HistoryError(f"{path} cannot be {done} ({reason}); expected {expected}") from None
