"""Evaluations of a run."""

import dataclasses
import json
import pathlib
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import AdtrainError
from .packages import needed

if TYPE_CHECKING:
    import pandas

SUMMARY = "summary.json"


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What `adtrain evaluate` measured in context."""

    folder: pathlib.Path
    summary: dict[str, Any]
    """summary.json: what was evaluated, how, and its figures."""
    tasks: np.ndarray
    """int64 (tasks)"""
    returns: np.ndarray
    """float32 (tasks, repeats, episodes): of each episode"""

    @classmethod
    def read(cls, folder: pathlib.Path) -> "Evaluation":
        """Throws AdtrainError where the folder holds no complete evaluation."""
        try:
            summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
            name = "reward_episode_repeats.npy" if summary["repeats"] > 1 else "reward_episode.npy"
            stored = np.load(folder / name, allow_pickle=False)
            returns = stored.reshape(len(summary["tasks"]), summary["repeats"], summary["episodes"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise AdtrainError(
                f"{folder} holds no complete evaluation ({error}); expected {SUMMARY} and the returns, as `adtrain "
                "evaluate` writes them"
            ) from None
        return cls(folder, summary, np.array(summary["tasks"], np.int64), returns)

    @property
    def learning_curve(self) -> np.ndarray:
        """float32 (episodes): the mean return over tasks and repeats"""
        return self.returns.mean(axis=(0, 1))

    def frame(self) -> "pandas.DataFrame":
        """A row for each episode: task, repeat, episode (from 1), return."""
        pandas = needed("pandas", "pandas", "Evaluation.frame()")
        _, repeats, episodes = self.returns.shape
        index = pandas.MultiIndex.from_product(
            [self.tasks, range(repeats), range(1, episodes + 1)], names=["task", "repeat", "episode"]
        )
        return pandas.DataFrame({"return": self.returns.reshape(-1)}, index=index).reset_index()
