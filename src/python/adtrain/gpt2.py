"""The GPT-2 network: state, action and reward are tokens of their own."""

import numpy as np

from .attention import Attention
from .configuration import ModelOptions
from .layers import LayerNorm, Linear, gelu_tanh
from .network import PlainNetwork
from .transitions import Transitions, state_index
from .weights import Weights


class Gpt2Block:
    def __init__(self, weights: Weights, name: str, options: ModelOptions):
        width, inner = options.tf_n_embd, options.inner_width
        self._ln_1 = LayerNorm(weights, f"{name}.ln_1", width)
        self._c_attn = Linear(weights, f"{name}.attn.c_attn", width, 3 * width)
        self._attn_c_proj = Linear(weights, f"{name}.attn.c_proj", width, width)
        self._ln_2 = LayerNorm(weights, f"{name}.ln_2", width)
        self._c_fc = Linear(weights, f"{name}.mlp.c_fc", width, inner)
        self._mlp_c_proj = Linear(weights, f"{name}.mlp.c_proj", inner, width)

    def __call__(self, x: np.ndarray, attention: Attention, layer: int, rows: int) -> np.ndarray:
        queries, keys, values = (attention.split(part) for part in np.split(self._c_attn(self._ln_1(x)), 3, axis=-1))
        y = x[:, -rows:] + self._attn_c_proj(attention(layer, queries, keys, values, rows))
        return y + self._mlp_c_proj(gelu_tanh(self._c_fc(self._ln_2(y))))


class Gpt2Network(PlainNetwork):
    tokens_per_transition = 3

    def __init__(self, options: ModelOptions, weights: Weights):
        super().__init__(options)
        width = options.tf_n_embd
        self._embed_state = weights.take("embed_state.weight", options.grid_size**2, width)
        self._embed_action = weights.take("embed_action.weight", options.num_actions, width)
        self._embed_reward = Linear(weights, "embed_reward", 1, width)
        tokens = self.tokens_per_transition * (options.n_transit - 1) + 1
        self._positions = weights.take("transformer.wpe.weight", tokens, width)
        self.blocks = [Gpt2Block(weights, f"transformer.h.{layer}", options) for layer in range(options.tf_n_layer)]
        self._ln_f = LayerNorm(weights, "transformer.ln_f", width)
        self.pred_action = Linear(weights, "pred_action", width, options.num_actions)

    def embed(
        self, context: Transitions, query_states: np.ndarray, first: int, before: Transitions | None
    ) -> np.ndarray:
        states = self._embed_state[state_index(context.states, self.options.grid_size)]
        actions = self._embed_action[context.actions]
        rewards = self._embed_reward(context.rewards[..., None])
        steps = np.stack([states, actions, rewards], axis=2).reshape(len(context), -1, self.options.tf_n_embd)
        query = self._embed_state[state_index(query_states, self.options.grid_size)]
        tokens = np.concatenate([steps, query[:, None]], axis=1)
        begin = self.tokens_per_transition * first
        return tokens + self._positions[begin : begin + tokens.shape[1]]

    def logits(self, read: np.ndarray) -> np.ndarray:
        return self.pred_action(self._ln_f(read))
