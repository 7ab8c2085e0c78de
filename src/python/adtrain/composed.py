"""Networks with blocks of chosen pieces, over transitions or over tokens of the previous action and reward and the state."""

from collections.abc import Callable

import numpy as np

from .attention import Attention
from .configuration import ModelOptions
from .layers import LayerNorm, Linear, RmsNorm, gelu, silu
from .network import PlainNetwork
from .rotary import rotated, rotations
from .transitions import Transitions, state_index
from .weights import Weights

_FEATURES = 64
"""Of the embedding of a coordinate, of a state and of an action."""


def _norm(weights: Weights, name: str, width: int, options: ModelOptions) -> LayerNorm | RmsNorm:
    return RmsNorm(weights, name, width) if options.tf_norm == "rms" else LayerNorm(weights, name, width)


class ComposedBlock:
    def __init__(self, weights: Weights, name: str, options: ModelOptions):
        width, inner = options.tf_n_embd, options.inner_width
        in_attention, in_mlp = options.tf_bias != "none", options.tf_bias == "all"
        self._rotary = options.tf_positions == "rotary"
        self._norm_1 = _norm(weights, f"{name}.norm_1", width, options)
        self._qkv = Linear(weights, f"{name}.attention.qkv", width, 3 * width, bias=in_attention)
        self._query_norm: Callable[[np.ndarray], np.ndarray] | None = None
        if options.tf_qk_norm == "on":
            size = width // options.tf_n_head
            self._query_norm = _norm(weights, f"{name}.attention.query_norm", size, options)
            self._key_norm = _norm(weights, f"{name}.attention.key_norm", size, options)
        self._out = Linear(weights, f"{name}.attention.out", width, width, bias=in_attention)
        self._norm_2 = _norm(weights, f"{name}.norm_2", width, options)
        gated = options.tf_mlp == "swiglu"
        self._gate = Linear(weights, f"{name}.mlp.gate", width, inner, bias=in_mlp) if gated else None
        self._up = Linear(weights, f"{name}.mlp.up", width, inner, bias=in_mlp)
        self._down = Linear(weights, f"{name}.mlp.down", inner, width, bias=in_mlp)

    def __call__(self, x: np.ndarray, attention: Attention, layer: int, rows: int) -> np.ndarray:
        queries, keys, values = (attention.split(part) for part in np.split(self._qkv(self._norm_1(x)), 3, axis=-1))
        if self._query_norm:
            queries, keys = self._query_norm(queries), self._key_norm(keys)
        if self._rotary:
            cos, sin = rotations(attention.positions, queries.shape[-1])
            queries, keys = rotated(queries, cos, sin), rotated(keys, cos, sin)
        y = x[:, -rows:] + self._out(attention(layer, queries, keys, values, rows))
        normed = self._norm_2(y)
        up = self._up(normed)
        return y + self._down(silu(self._gate(normed)) * up if self._gate else gelu(up))


class TransitionTokens:
    """A transition is a token, and the query the embedding of its state."""

    def __init__(self, weights: Weights, options: ModelOptions):
        self._options = options
        self._context = Linear(weights, "embed_context", options.transition_features, options.tf_n_embd)
        self._query_state = weights.take("embed_query_state.weight", options.grid_size**2, options.tf_n_embd)

    def __call__(self, context: Transitions, query_states: np.ndarray, before: Transitions | None) -> np.ndarray:
        transitions = self._context(context.features(self._options.num_actions))
        query = self._query_state[state_index(query_states, self._options.grid_size)]
        return np.concatenate([transitions, query[:, None]], axis=1)


class PreviousTokens:
    """A token holds the previous action and reward and the present state, of which the last is the query's."""

    def __init__(self, weights: Weights, options: ModelOptions):
        self._coordinates = weights.take("embed_coordinate.weight", 2 * options.grid_size, _FEATURES)
        self._state = Linear(weights, "embed_state", 2 * _FEATURES, _FEATURES)
        self._actions = weights.take("embed_action.weight", options.num_actions, _FEATURES)
        self._first_action, self._first_reward = self._actions[0], np.zeros(1, np.float32)
        if options.first_step == "learned":
            self._first_action = weights.take("first_action", _FEATURES)
            self._first_reward = weights.take("first_reward", 1)
        self._token = Linear(weights, "embed_token", 2 * _FEATURES + 1, options.tf_n_embd)
        self._second_table = np.array([0, options.grid_size])

    def __call__(self, context: Transitions, query_states: np.ndarray, before: Transitions | None) -> np.ndarray:
        states = np.concatenate([context.states, query_states[:, None]], axis=1)
        coordinates = self._coordinates[states + self._second_table].reshape(*states.shape[:2], 2 * _FEATURES)
        actions, rewards = self._actions[context.actions], context.rewards[..., None]
        if before is None:
            first_action = np.broadcast_to(self._first_action, (len(context), 1, _FEATURES))
            first_reward = np.broadcast_to(self._first_reward, (len(context), 1, 1))
        else:
            first_action, first_reward = self._actions[before.actions], before.rewards[..., None]
        parts = [
            np.concatenate([first_action, actions], axis=1),
            np.concatenate([first_reward, rewards], axis=1),
            self._state(coordinates),
        ]
        return self._token(np.concatenate(parts, axis=-1))


class ComposedNetwork(PlainNetwork):
    def __init__(self, options: ModelOptions, weights: Weights):
        super().__init__(options)
        width = options.tf_n_embd
        self.alibi = options.tf_positions == "alibi"
        previous = options.token_layout == "previous"
        self._tokens = PreviousTokens(weights, options) if previous else TransitionTokens(weights, options)
        self._positions = None
        if options.tf_positions == "learned":
            self._positions = weights.take("embed_position.weight", options.n_transit, width)
        self.blocks = [ComposedBlock(weights, f"blocks.{layer}", options) for layer in range(options.tf_n_layer)]
        self._final_norm = _norm(weights, "final_norm", width, options) if options.tf_final_norm == "on" else None
        self.pred_action = Linear(weights, "pred_action", width, options.num_actions)

    def embed(
        self, context: Transitions, query_states: np.ndarray, first: int, before: Transitions | None
    ) -> np.ndarray:
        tokens = self._tokens(context, query_states, before)
        return tokens if self._positions is None else tokens + self._positions[first : first + tokens.shape[1]]

    def logits(self, read: np.ndarray) -> np.ndarray:
        return self.pred_action(self._final_norm(read) if self._final_norm else read)
