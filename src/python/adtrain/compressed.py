"""The network with compressed context: post-norm blocks over regions between learned markers."""

import numpy as np

from .attention import Attention
from .configuration import ModelOptions
from .network import Network, Predictions, parts_of
from .post_norm import COMPRESS, END_COMPRESS, TRANSITION, PostNormParameters
from .transitions import Transitions, state_index
from .weights import Weights


class CompressedNetwork(Network):
    def __init__(self, options: ModelOptions, weights: Weights):
        super().__init__(options)
        self._parameters = PostNormParameters(options, weights)
        self.blocks, self.pred_action = self._parameters.blocks, self._parameters.pred_action

    def predict(
        self, regions: Transitions, previous: np.ndarray, current: np.ndarray, query_states: np.ndarray
    ) -> Predictions:
        """The next action or the end of the region, in the states int32 (n, 2).

        `regions`: in each row the transitions of the region before, `previous` (n) of them, and those of the query's region,
        `current` (n); the rest is not read. 0 previous ones mean that there is no region before.
        """
        longest = int((previous + current).max()) + 4
        parts = [
            self._predict_part(regions.part(rows), previous[rows], current[rows], query_states[rows])
            for rows in parts_of(len(regions), longest)
        ]
        return Predictions(*(np.concatenate(logits) for logits in zip(*parts, strict=True)))

    def _predict_part(
        self, regions: Transitions, previous: np.ndarray, current: np.ndarray, query_states: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        tokens, first = self._embed(regions, previous, current, query_states)
        attention = Attention(self.options.tf_n_head, tokens.shape[1], first=first)
        read = self.read_last(tokens, attention)
        return self.pred_action(read), self._parameters.pred_token_type(read)

    def _embed(
        self, regions: Transitions, previous: np.ndarray, current: np.ndarray, query_states: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Tokens (n, T, width), with padding in front of the shorter rows, and where each row begins, (n).

        A row is `<compress>`, the region before, `</compress>`, where there is one, then `<compress>`, the query's region
        and the query. Positions count a row's own tokens, so it gives the same as without padding.
        """
        held = self._parameters
        previous, current = previous[:, None], current[:, None]
        start = np.where(previous > 0, previous + 2, 0)  # of the query's region
        length = start + 1 + current + 1
        longest = int(length.max())
        place = np.arange(longest) - (longest - length)  # (n, T): in the row; negative in padding

        step = np.where(place < start, place - 1, place - start - 1 + previous)
        step = np.clip(step, 0, regions.length - 1)
        features = np.take_along_axis(regions.features(self.options.num_actions), step[..., None], axis=1)
        x = held.embed_context(features) + held.token_types[TRANSITION]
        x[(place == 0) | (place == start)] = held.compress_start + held.token_types[COMPRESS]
        x[place == start - 1] = held.compress_end + held.token_types[END_COMPRESS]
        x[:, -1] = held.embed_query_state[state_index(query_states, self.options.grid_size)]
        return x + held.positions[np.maximum(place, 0)], (longest - length)[:, 0]
