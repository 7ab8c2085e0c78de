"""Causal attention over the tokens of one forward pass and those whose keys and values were kept."""

import numpy as np

from .transitions import Transitions


class KeyValueCache:
    """Keys and values of a context that grows: of each layer those of its first `length` tokens.

    A pass appends its tokens in every layer; what is not to stay is forgotten by `keep`.
    """

    def __init__(self, layers: int, capacity: int):
        """`capacity`: the most tokens of a pass with those before it."""
        self.length = 0
        self.last: Transitions | None = None
        """The last transition of the context, (n, 1)."""
        self._capacity = capacity
        self._kept: list[tuple[np.ndarray, np.ndarray] | None] = [None] * layers

    def keep(self, length: int, appended: Transitions) -> None:
        """The next pass continues behind the first `length` tokens, those of `appended` the last of them."""
        self.length = length
        if appended.length > 0:
            self.last = appended.part(slice(None), slice(appended.length - 1, appended.length))

    def append(self, layer: int, keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of new tokens (n, heads, T, size); returns those of all tokens up to them, (n, heads, length + T, size)."""
        rows, heads, tokens, size = keys.shape
        shape = (rows, heads, self._capacity, size)
        kept = self._kept[layer] = self._kept[layer] or (np.empty(shape, np.float32), np.empty(shape, np.float32))
        end = self.length + tokens
        for all_tokens, new in zip(kept, (keys, values), strict=True):
            all_tokens[:, :, self.length : end] = new
        return kept[0][:, :, :end], kept[1][:, :, :end]


class Attention:
    """Attention of one forward pass: all layers have the same tokens, and so the same mask."""

    def __init__(
        self,
        heads: int,
        tokens: int,
        first: np.ndarray | None = None,
        cache: KeyValueCache | None = None,
        *,
        alibi: bool = False,
    ):
        """`tokens`: T, new in this pass. `first`: (n), where each row begins; what is before it is padding, and attends to
        itself alone. `cache`: of the tokens before; not with `first`. `alibi`: whether the scores of head h = 0 … H − 1
        lose 2^(−8(h+1)/H) for each token between reader and read."""
        before = cache.length if cache else 0
        self.positions = np.arange(before, before + tokens)
        self._heads = heads
        self._cache = cache
        key = np.arange(before + tokens)
        seen = key <= self.positions[:, None]
        if first is not None:
            seen = seen & ((key >= first[:, None, None]) | (key == key[:, None]))
        # (n or 1, 1 or heads, T, tokens so far): what is added to scores
        self._mask = np.where(seen, np.float32(0), np.float32(-np.inf)).reshape(-1, 1, *seen.shape[-2:])
        self._alibi = alibi
        if alibi:
            slopes = 2.0 ** (-8 * np.arange(1, heads + 1) / heads)
            distance = self.positions[:, None] - key
            self._mask = (self._mask - slopes[:, None, None] * distance).astype(np.float32)

    def split(self, x: np.ndarray) -> np.ndarray:
        """(n, T, width) as heads, (n, heads, T, size)"""
        return x.reshape(*x.shape[:2], self._heads, -1).swapaxes(1, 2)

    def __call__(self, layer: int, queries: np.ndarray, keys: np.ndarray, values: np.ndarray, rows: int) -> np.ndarray:
        """What the last `rows` tokens read: (n, rows, width). Queries, keys and values: (n, heads, T, size)."""
        if self._cache:
            keys, values = self._cache.append(layer, keys, values)
        scale = np.float32(queries.shape[-1] ** -0.5)
        scores = (queries[:, :, -rows:] * scale) @ keys.swapaxes(2, 3)
        if rows > 1 or len(self._mask) > 1 or self._alibi:  # a single last token reads all before it
            scores += self._mask[:, :, -rows:]
        scores -= scores.max(-1, keepdims=True)
        np.exp(scores, out=scores)
        read = (scores @ values) / scores.sum(-1, keepdims=True)
        return read.swapaxes(1, 2).reshape(len(read), rows, -1)
