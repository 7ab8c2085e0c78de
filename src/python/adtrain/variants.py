"""Which network a configuration describes."""

from collections.abc import Mapping

import numpy as np

from .composed import ComposedNetwork
from .compressed import CompressedNetwork
from .configuration import ModelOptions
from .gpt2 import Gpt2Network
from .network import Network
from .post_norm import PostNormNetwork
from .pre_norm import PreNormNetwork
from .weights import Weights

_VARIANTS: dict[str, type[PreNormNetwork | PostNormNetwork | CompressedNetwork | Gpt2Network | ComposedNetwork]] = {
    "pre_norm": PreNormNetwork,
    "post_norm": PostNormNetwork,
    "compressed": CompressedNetwork,
    "gpt2": Gpt2Network,
    "composed": ComposedNetwork,
}


def network_of(options: ModelOptions, tensors: Mapping[str, np.ndarray]) -> Network:
    """The network that the options describe, with a checkpoint's tensors.

    Throws CheckpointError where these are not exactly the network's, ConfigurationError where the network is a plug-in's.
    """
    weights = Weights(tensors)
    network = _VARIANTS[options.variant](options, weights)
    if options.dynamics:
        weights.leave("pred_dynamics.")  # what actions lead to: agents here follow the policy alone
    weights.expect_all_taken()
    return network
