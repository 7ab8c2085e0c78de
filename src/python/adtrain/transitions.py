"""Transitions as arrays."""

import dataclasses

import numpy as np


@dataclasses.dataclass
class Transitions:
    """n rows of L consecutive transitions."""

    states: np.ndarray
    """int32 (n, L, 2)"""
    actions: np.ndarray
    """int32 (n, L)"""
    rewards: np.ndarray
    """float32 (n, L)"""
    next_states: np.ndarray
    """int32 (n, L, 2)"""

    @classmethod
    def zeros(cls, rows: int, length: int) -> "Transitions":
        return cls(
            np.zeros((rows, length, 2), np.int32),
            np.zeros((rows, length), np.int32),
            np.zeros((rows, length), np.float32),
            np.zeros((rows, length, 2), np.int32),
        )

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def length(self) -> int:
        """L"""
        return self.actions.shape[1]

    def part(self, rows: slice | np.ndarray, steps: slice = slice(None)) -> "Transitions":
        """Those of some rows and steps."""
        return Transitions(*(array[rows, steps] for array in self._arrays()))

    def put(self, columns: int | np.ndarray, step: "Transitions") -> None:
        """Writes one transition a row, (n, 1), each into its column."""
        rows = np.arange(len(self))
        for array, values in zip(self._arrays(), step._arrays(), strict=True):
            array[rows, columns] = values[:, 0]

    def drop_front(self, rows: int | slice | np.ndarray, count: int) -> None:
        """Drops the first `count` transitions: the rest moves to the front, and what follows it has no meaning."""
        if count > 0:
            for array in self._arrays():
                array[rows, :-count] = array[rows, count:]

    def features(self, num_actions: int) -> np.ndarray:
        """float32 (n, L, num_actions + 5): state, one-hot action, reward, next state."""
        one_hot = self.actions[..., None] == np.arange(num_actions)
        return np.concatenate([self.states, one_hot, self.rewards[..., None], self.next_states], axis=-1, dtype=np.float32)

    def _arrays(self) -> tuple[np.ndarray, ...]:
        return self.states, self.actions, self.rewards, self.next_states


def state_index(states: np.ndarray, grid_size: int) -> np.ndarray:
    """The rows of a state embedding, (…), for states (…, 2)."""
    return states[..., 0] * grid_size + states[..., 1]
