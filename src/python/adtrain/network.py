"""The Algorithm Distillation networks, for inference."""

import abc
import dataclasses
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from .attention import Attention, KeyValueCache
from .configuration import ModelOptions
from .layers import Linear
from .transitions import Transitions

# Rows of a batch are passed on in parts of about so many tokens, whose temporary arrays fit a processor's caches.
_TOKENS_AT_ONCE = 1024


@dataclasses.dataclass(frozen=True)
class Predictions:
    """Logits at the query of each row."""

    actions: np.ndarray
    """float32 (n, num_actions)"""
    token_types: np.ndarray | None = None
    """float32 (n, 3), compressed context alone: a transition follows, `<compress>`, `</compress>`"""


class Block(Protocol):
    """A transformer block."""

    def __call__(self, x: np.ndarray, attention: Attention, layer: int, rows: int) -> np.ndarray:
        """The last `rows` tokens of its output, (n, rows, width), from all tokens of the pass, (n, T, width)."""


class Network(abc.ABC):
    """A trained network. Equal to adtrain's to 1e-5 of the largest logit. Not changed by its use."""

    blocks: Sequence[Block]
    pred_action: Linear

    def __init__(self, options: ModelOptions):
        self.options = options

    def read_last(self, tokens: np.ndarray, attention: Attention) -> np.ndarray:
        """The last token of the blocks' output, (n, width), from embedded tokens (n, T, width)."""
        x = tokens
        for layer, block in enumerate(self.blocks):
            last = layer + 1 == len(self.blocks)  # nothing reads the last block's other output
            x = block(x, attention, layer, 1 if last else x.shape[1])
        return x[:, -1]


class PlainNetwork(Network):
    """A network whose sequence is transitions and then a query: all but compressed context."""

    tokens_per_transition = 1
    alibi = False
    """Whether attention has ALiBi's penalties."""

    @abc.abstractmethod
    def embed(
        self, context: Transitions, query_states: np.ndarray, first: int, before: Transitions | None
    ) -> np.ndarray:
        """Tokens (n, T, width) of transitions, before which `first` others stand, and of the query after them.

        `before`: the last of those others, (n, 1); None where there are none.
        """

    def logits(self, read: np.ndarray) -> np.ndarray:
        """(n, num_actions) from what the query reads, (n, width)."""
        return self.pred_action(read)

    def new_cache(self) -> KeyValueCache:
        """For `predict`: keys and values of a context that grows up to n_transit − 1 transitions."""
        tokens = self.tokens_per_transition * (self.options.n_transit - 1) + 1
        return KeyValueCache(len(self.blocks), tokens)

    def predict(self, context: Transitions, query_states: np.ndarray, cache: KeyValueCache | None = None) -> Predictions:
        """The next action after `context`, 0 … n_transit − 1 transitions, in the states int32 (n, 2).

        With a cache `context` holds only the transitions after those of the cache, which then remembers them too.
        """
        if cache is not None:
            first = cache.length // self.tokens_per_transition
            actions = self._logits_of(context, query_states, first, cache)
            cache.keep(self.tokens_per_transition * (first + context.length), context)
            return Predictions(actions)
        parts = [
            self._logits_of(context.part(rows), query_states[rows], 0, None)
            for rows in parts_of(len(context), self.tokens_per_transition * context.length + 1)
        ]
        return Predictions(np.concatenate(parts))

    def _logits_of(
        self, context: Transitions, query_states: np.ndarray, first: int, cache: KeyValueCache | None
    ) -> np.ndarray:
        tokens = self.embed(context, query_states, first, cache.last if cache else None)
        attention = Attention(self.options.tf_n_head, tokens.shape[1], cache=cache, alibi=self.alibi)
        return self.logits(self.read_last(tokens, attention))


def parts_of(rows: int, tokens: int) -> list[slice]:
    """Slices of a batch of `rows` sequences of so many tokens."""
    length = max(1, _TOKENS_AT_ONCE // tokens)
    return [slice(begin, begin + length) for begin in range(0, rows, length)]
