"""A checkpoint's tensors, taken one by one."""

from collections.abc import Mapping

import numpy as np

from .errors import CheckpointError


class Weights:
    """Gives each tensor once, and knows at the end which were not asked for."""

    def __init__(self, tensors: Mapping[str, np.ndarray]):
        self._tensors = dict(tensors)

    def take(self, name: str, *shape: int) -> np.ndarray:
        """float32 of that shape. Throws CheckpointError where the tensor is missing or has another."""
        if name not in self._tensors:
            raise CheckpointError(f"the checkpoint has no tensor {name}; {_OTHER_NETWORK}")
        tensor = self._tensors.pop(name)
        if tensor.shape != shape:
            raise CheckpointError(f"the checkpoint's {name} has shape {tensor.shape}; expected {shape}; {_OTHER_NETWORK}")
        return tensor

    def expect_all_taken(self) -> None:
        if self._tensors:
            raise CheckpointError(f"the checkpoint has tensors that are not the network's: {', '.join(self._tensors)}; {_OTHER_NETWORK}")


_OTHER_NETWORK = "it holds another network than the run's config.yaml describes: use the config.yaml that it was trained with"
