"""The figures of a training run."""

import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import AdtrainError
from .packages import needed

if TYPE_CHECKING:
    import pandas


class Metrics(Mapping[str, np.ndarray]):
    """One array a figure, all along the steps at which any was recorded; NaN where one was not.

    `metrics["step"]` is int64 (S), `metrics["loss"]` float64 (S). A figure of every rank, such as `peak_memory`, is
    (S, ranks); a group of figures has dots in its names, as `memory_parts.activations`.
    """

    def __init__(self, columns: dict[str, np.ndarray]):
        self._columns = columns

    @classmethod
    def read(cls, path: pathlib.Path) -> "Metrics":
        """Reads a metrics.jsonl. The incomplete last line of a run that was killed is passed over."""
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise AdtrainError(
                f"{path} cannot be read ({error.strerror}); expected the figures of a run: train first"
            ) from None
        at_steps: dict[int, dict[str, Any]] = {}
        for number, line in enumerate(text.splitlines(keepends=True), start=1):
            if not line.endswith("\n"):
                break
            try:
                record = json.loads(line)
                at_steps.setdefault(record["step"], {}).update(_figures(record))
            except (ValueError, KeyError, TypeError):
                raise AdtrainError(f"{path}:{number}: found {line.strip()!r}; expected a JSON object with a step") from None
        steps = sorted(at_steps)
        names = list(dict.fromkeys(name for step in steps for name in at_steps[step]))
        columns = {name: _column([at_steps[step].get(name) for step in steps]) for name in names}
        return cls({"step": np.array(steps, np.int64), **columns})

    def frame(self) -> "pandas.DataFrame":
        """A row for each step, a column for each figure, and for one of every rank `name.0`, `name.1`, …"""
        pandas = needed("pandas", "pandas", "Metrics.frame()")
        columns = {}
        for name, values in self.items():
            if values.ndim == 1:
                columns[name] = values
            else:
                columns.update({f"{name}.{rank}": values[:, rank] for rank in range(values.shape[1])})
        return pandas.DataFrame(columns)

    def __getitem__(self, name: str) -> np.ndarray:
        """Throws KeyError, which names the figures that there are, where this one was not recorded."""
        if name not in self._columns:
            raise KeyError(f"found the figure {name!r}; expected one of those that were recorded: {', '.join(self._columns)}")
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def _figures(record: dict[str, Any], prefix: str = "") -> dict[str, float | list[float]]:
    """The numbers of a line, by dotted names. What is not finite is null there, and told in `non_finite`."""
    figures: dict[str, float | list[float]] = {}
    for name, value in record.items():
        if isinstance(value, dict) and name != "non_finite":
            figures.update(_figures(value, f"{prefix}{name}."))
        elif _is_number(value) and prefix + name != "step":
            figures[prefix + name] = value
        elif isinstance(value, list) and all(map(_is_number, value)):
            figures[prefix + name] = value
    figures.update({name: float(value) for name, value in record.get("non_finite", {}).items()})
    return figures


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _column(values: list[float | list[float] | None]) -> np.ndarray:
    """float64 (S) or (S, ranks). Where a run went on with fewer ranks, the others' values are NaN."""
    ranks = max((len(value) for value in values if isinstance(value, list)), default=0)
    column = np.full((len(values), ranks) if ranks else len(values), np.nan)
    for i, value in enumerate(values):
        if isinstance(value, list):
            column[i, : len(value)] = value
        elif value is not None:
            column[i] = value
    return column
