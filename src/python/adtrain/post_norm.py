"""The post-norm network: torch.nn.TransformerEncoderLayer's blocks, learned positions."""

import numpy as np

from .attention import Attention
from .configuration import ModelOptions
from .layers import LayerNorm, Linear, gelu
from .network import PlainNetwork
from .transitions import Transitions, state_index
from .weights import Weights

TRANSITION, COMPRESS, END_COMPRESS = range(3)
"""Types of tokens: rows of the type embedding, columns of the token-type logits."""


class PostNormBlock:
    def __init__(self, weights: Weights, name: str, options: ModelOptions):
        width, inner = options.tf_n_embd, options.inner_width
        self._in_proj = Linear(weights, f"{name}.self_attn.in_proj", width, 3 * width, separator="_")
        self._out_proj = Linear(weights, f"{name}.self_attn.out_proj", width, width)
        self._norm1 = LayerNorm(weights, f"{name}.norm1", width)
        self._linear1 = Linear(weights, f"{name}.linear1", width, inner)
        self._linear2 = Linear(weights, f"{name}.linear2", inner, width)
        self._norm2 = LayerNorm(weights, f"{name}.norm2", width)

    def __call__(self, x: np.ndarray, attention: Attention, layer: int, rows: int) -> np.ndarray:
        queries, keys, values = (attention.split(part) for part in np.split(self._in_proj(x), 3, axis=-1))
        read = attention(layer, queries, keys, values, rows)
        y = self._norm1(x[:, -rows:] + self._out_proj(read))
        return self._norm2(y + self._linear2(gelu(self._linear1(y))))


class PostNormParameters:
    """What the post-norm network and the one with compressed context hold alike."""

    def __init__(self, options: ModelOptions, weights: Weights):
        width = options.tf_n_embd
        self.embed_context = Linear(weights, "embed_context", options.transition_features, width)
        self.embed_query_state = weights.take("embed_query_state.weight", options.grid_size**2, width)
        self.token_types = weights.take("token_type_embedding.weight", 3, width)
        self.positions = weights.take("pos_embedding", 1, options.n_transit, width)[0]
        self.compress_start = weights.take("compress_start_token", 1, 1, width).reshape(width)
        self.compress_end = weights.take("compress_end_token", 1, 1, width).reshape(width)
        name = "transformer_encoder.layers"
        self.blocks = [PostNormBlock(weights, f"{name}.{layer}", options) for layer in range(options.tf_n_layer)]
        self.pred_action = Linear(weights, "pred_action", width, options.num_actions)
        self.pred_token_type = Linear(weights, "pred_token_type", width, 3)


class PostNormNetwork(PlainNetwork):
    def __init__(self, options: ModelOptions, weights: Weights):
        super().__init__(options)
        self._parameters = PostNormParameters(options, weights)
        self.blocks, self.pred_action = self._parameters.blocks, self._parameters.pred_action

    def embed(
        self, context: Transitions, query_states: np.ndarray, first: int, before: Transitions | None
    ) -> np.ndarray:
        held = self._parameters
        transitions = held.embed_context(context.features(self.options.num_actions)) + held.token_types[TRANSITION]
        query = held.embed_query_state[state_index(query_states, self.options.grid_size)]
        tokens = np.concatenate([transitions, query[:, None]], axis=1)
        return tokens + held.positions[first : first + tokens.shape[1]]
