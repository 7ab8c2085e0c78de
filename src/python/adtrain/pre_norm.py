"""The pre-norm network: RMSNorm before each sublayer, SwiGLU, rotary positions."""

import numpy as np

from .attention import Attention
from .configuration import ModelOptions
from .layers import Linear, RmsNorm, silu
from .network import PlainNetwork
from .rotary import rotated, rotations
from .transitions import Transitions, state_index
from .weights import Weights


class PreNormBlock:
    def __init__(self, weights: Weights, name: str, options: ModelOptions):
        width, inner = options.tf_n_embd, options.inner_width
        self._heads = options.tf_n_head
        self._norm_1 = RmsNorm(weights, f"{name}.norm_1", width)
        self._attn = Linear(weights, f"{name}.attn.attn", width, 3 * width)
        self._proj = Linear(weights, f"{name}.attn.proj", width, width)
        self._norm_2 = RmsNorm(weights, f"{name}.norm_2", width)
        self._w1 = Linear(weights, f"{name}.mlp.swiglu.w1", width, inner, bias=False)
        self._w2 = Linear(weights, f"{name}.mlp.swiglu.w2", width, inner, bias=False)
        self._w3 = Linear(weights, f"{name}.mlp.swiglu.w3", inner, width, bias=False)

    def __call__(self, x: np.ndarray, attention: Attention, layer: int, rows: int) -> np.ndarray:
        # The rows of the fused weight are ordered by head: q_h, k_h, v_h.
        fused = self._attn(self._norm_1(x)).reshape(*x.shape[:2], self._heads, 3, -1)
        queries, keys, values = fused.transpose(3, 0, 2, 1, 4)
        cos, sin = rotations(attention.positions, queries.shape[-1])
        read = attention(layer, rotated(queries, cos, sin), rotated(keys, cos, sin), values, rows)
        residual = x[:, -rows:] + self._proj(read)
        normed = self._norm_2(residual)
        return residual + self._w3(silu(self._w1(normed)) * self._w2(normed))


class PreNormNetwork(PlainNetwork):
    def __init__(self, options: ModelOptions, weights: Weights):
        super().__init__(options)
        width = options.tf_n_embd
        self._embed_context = Linear(weights, "embed_context", options.transition_features, width)
        self._embed_query_state = weights.take("embed_query_state.weight", options.grid_size**2, width)
        self.blocks = [PreNormBlock(weights, f"transformer.blocks.{i}", options) for i in range(options.tf_n_layer)]
        self.pred_action = Linear(weights, "pred_action", width, options.num_actions)

    def embed(
        self, context: Transitions, query_states: np.ndarray, first: int, before: Transitions | None
    ) -> np.ndarray:
        transitions = self._embed_context(context.features(self.options.num_actions))
        query = self._embed_query_state[state_index(query_states, self.options.grid_size)]
        return np.concatenate([transitions, query[:, None]], axis=1)
