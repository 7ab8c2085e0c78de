"""What the network is shown of each environment's past, as adtrain's evaluation keeps it."""

import abc

import numpy as np

from .attention import KeyValueCache
from .compressed import CompressedNetwork
from .network import Network, PlainNetwork
from .post_norm import END_COMPRESS
from .transitions import Transitions


class Context(abc.ABC):
    """The contexts of n environments, which persist across episodes."""

    @abc.abstractmethod
    def ask(self, states: np.ndarray) -> np.ndarray:
        """Action logits, float32 (n, num_actions), in the states int32 (n, 2)."""

    @abc.abstractmethod
    def append(self, step: Transitions, ended: np.ndarray) -> None:
        """Appends a transition to each environment's context, (n, 1). `ended`: bool (n), whether it ended an episode."""


class SlidingContext(Context):
    """The last n_transit − 1 transitions. Until there are so many, keys and values are kept from step to step; then every
    step shifts the window, and with it all positions."""

    def __init__(self, network: PlainNetwork, environments: int):
        self._network = network
        self._window = Transitions.zeros(environments, network.options.n_transit - 1)
        self._length = 0
        self._cached = 0
        self._cache: KeyValueCache | None = network.new_cache()

    def ask(self, states: np.ndarray) -> np.ndarray:
        if self._cache is None:
            return self._network.predict(self._window, states).actions
        new = self._window.part(slice(None), slice(self._cached, self._length))
        self._cached = self._length
        return self._network.predict(new, states, self._cache).actions

    def append(self, step: Transitions, ended: np.ndarray) -> None:
        if self._length == self._window.length:
            self._window.drop_front(slice(None), 1)
            self._length -= 1
            self._cache = None
        self._window.put(self._length, step)
        self._length += 1


class ForgetfulContext(Context):
    """The last n_transit − 1 transitions of each environment. They are emptied where an episode ends, none of them has a
    reward, and at least `forget_unrewarded` episodes in succession had none."""

    def __init__(self, network: PlainNetwork, environments: int, forget_unrewarded: int):
        self._network = network
        self._forget = forget_unrewarded
        self._window = Transitions.zeros(environments, network.options.n_transit - 1)
        self._length = np.zeros(environments, np.int64)
        self._steps_unrewarded = np.zeros(environments, np.int64)
        self._episodes_unrewarded = np.zeros(environments, np.int64)

    def ask(self, states: np.ndarray) -> np.ndarray:
        logits = np.empty((len(states), self._network.options.num_actions), np.float32)
        for length in np.unique(self._length):
            rows = np.flatnonzero(self._length == length)
            logits[rows] = self._network.predict(self._window.part(rows, slice(0, length)), states[rows]).actions
        return logits

    def append(self, step: Transitions, ended: np.ndarray) -> None:
        full = np.flatnonzero(self._length == self._window.length)
        self._window.drop_front(full, 1)
        self._length[full] -= 1
        self._window.put(self._length, step)
        self._length += 1
        rewarded = step.rewards[:, 0] != 0
        self._steps_unrewarded = np.where(rewarded, 0, self._steps_unrewarded + 1)
        # An episode with a reward does not count, wherever in it the reward was.
        self._episodes_unrewarded = np.where(rewarded, -1, self._episodes_unrewarded) + ended
        forgets = ended & (self._episodes_unrewarded >= self._forget) & (self._steps_unrewarded >= self._length)
        for counts in (self._length, self._steps_unrewarded, self._episodes_unrewarded):
            counts[forgets] = 0


class RegionContext(Context):
    """Compressed context: the region before, where there is one, and the current region.

    A region ends where `</compress>` is the most probable token type at the query, and where it is full. Then the region
    before is dropped, and the same query is asked again, for the environments concerned. An empty region does not end.
    """

    def __init__(self, network: CompressedNetwork, environments: int):
        self._network = network
        self._interval = network.options.compress_interval
        self._regions = Transitions.zeros(environments, 2 * self._interval)
        self._previous = np.zeros(environments, np.int64)
        self._current = np.zeros(environments, np.int64)

    def ask(self, states: np.ndarray) -> np.ndarray:
        first = self._network.predict(self._regions, self._previous, self._current, states)
        assert first.token_types is not None
        emitted = first.token_types.argmax(1) == END_COMPRESS
        ended = np.flatnonzero((self._current == self._interval) | (emitted & (self._current > 0)))
        if len(ended) == 0:
            return first.actions
        for row in ended:
            self._close(int(row))
        again = self._network.predict(
            self._regions.part(ended), self._previous[ended], self._current[ended], states[ended]
        )
        actions = first.actions.copy()
        actions[ended] = again.actions
        return actions

    def append(self, step: Transitions, ended: np.ndarray) -> None:
        self._regions.put(self._previous + self._current, step)
        self._current += 1

    def _close(self, row: int) -> None:
        self._regions.drop_front(row, int(self._previous[row]))
        self._previous[row] = self._current[row]
        self._current[row] = 0


def context_of(network: Network, environments: int, forget_unrewarded: int | None = None) -> Context:
    """Empty contexts of the kind that the network was trained with. `forget_unrewarded`: see ForgetfulContext."""
    if isinstance(network, CompressedNetwork):
        return RegionContext(network, environments)
    assert isinstance(network, PlainNetwork)
    if forget_unrewarded is not None:
        return ForgetfulContext(network, environments, forget_unrewarded)
    return SlidingContext(network, environments)
