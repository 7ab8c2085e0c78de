"""Records learning histories from Stable-Baselines3:

    with HistoryWriter(path) as writer:
        for task in range(tasks):
            model = PPO("MlpPolicy", environments_of(task))
            model.learn(100_000, callback=HistoryCallback(writer, task))
"""

import numpy as np

from .errors import HistoryError
from .histories import History, HistoryWriter
from .packages import needed

_callbacks = needed("stable_baselines3.common.callbacks", "stable-baselines3", "Recording histories")


class HistoryCallback(_callbacks.BaseCallback):  # type: ignore[misc, name-defined]
    """Records every step of one `learn`, and writes it as the history of a task when learning ends.

    Each of the vectorised environments is a stream. Observations must be cells (x, y), and actions discrete. The next state
    at an episode's end is the state after the reset, as Stable-Baselines3 gives it and adtrain's own histories have it.
    """

    def __init__(self, writer: HistoryWriter, task: int, *, compress_markers: bool = False):
        """`compress_markers`: also records where each rollout begins and ends, for compressed context."""
        super().__init__()
        self._writer = writer
        self._task = task
        self._marks = compress_markers
        self._steps: list[dict[str, np.ndarray]] = []
        self._rollout_begin = 0
        self._markers: list[int] = []

    def _on_rollout_start(self) -> None:
        self._rollout_begin = len(self._steps)

    def _on_step(self) -> bool:
        # The algorithm reuses these arrays. It replaces _last_obs after this call.
        given = self.locals
        self._steps.append(
            {
                "states": self._cells(self.model._last_obs),
                "actions": np.array(given["actions"], np.int32).reshape(-1),
                "rewards": np.array(given["rewards"]),
                "next_states": self._cells(given["new_obs"]),
                "dones": np.array(given["dones"], bool),
            }
        )
        return True

    def _on_rollout_end(self) -> None:
        length = len(self._steps) - self._rollout_begin
        self._markers += [1] + [0] * (length - 2) + [2]

    def _on_training_end(self) -> None:
        columns = {name: np.stack([step[name] for step in self._steps]) for name in self._steps[0]}
        markers = None
        if self._marks:
            if len(self._markers) != len(self._steps):
                raise HistoryError(
                    f"task {self._task}: found {len(self._markers)} steps in whole rollouts of two or more, and "
                    f"{len(self._steps)} in all; expected the same: compress_markers is for algorithms such as PPO"
                )
            markers = np.repeat(np.array(self._markers, np.int32)[:, None], columns["actions"].shape[1], axis=1)
        self._writer.write(self._task, History(**columns, compress_markers=markers))

    def _cells(self, observations: object) -> np.ndarray:
        """int32 (streams, 2)"""
        found = np.asarray(observations)
        if found.ndim != 2 or found.shape[1] != 2 or not np.all(found == np.floor(found)):
            raise HistoryError(
                f"task {self._task}: found observations of shape {found.shape} and type {found.dtype}; expected cells (x, "
                "y), whole numbers of shape (environments, 2)"
            )
        return found.astype(np.int32)
