"""A checkpoint's tensors, taken one by one."""

from collections.abc import Mapping

import numpy as np

from .errors import CheckpointError


class Weights:
    """Gives each tensor once, and knows at the end which were not asked for."""

    def __init__(self, tensors: Mapping[str, np.ndarray]):
        if any(".quant_state." in name or name.endswith(".SCB") for name in tensors):
            raise CheckpointError(
                "the checkpoint's weights are quantised, which this package does not compute with: use the run that they "
                "were exported from, or adtrain score and adtrain evaluate"
            )
        self._tensors = dict(tensors)

    def take(self, name: str, *shape: int) -> np.ndarray:
        """float32 of that shape. Throws CheckpointError where the tensor is missing or has another."""
        if name not in self._tensors:
            raise _of_another_network(f"no tensor {name}")
        tensor = self._tensors.pop(name)
        if tensor.shape != shape:
            raise _of_another_network(f"{name} of shape {tensor.shape}; expected {shape}")
        return tensor

    def leave(self, prefix: str) -> None:
        """Passes over the tensors whose names begin so."""
        self._tensors = {name: tensor for name, tensor in self._tensors.items() if not name.startswith(prefix)}

    def expect_all_taken(self) -> None:
        if self._tensors:
            raise _of_another_network(f"tensors that are not the network's: {', '.join(self._tensors)}")


def _of_another_network(found: str) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint has {found}. It holds another network than the run's config.yaml describes: use the config.yaml "
        "that it was trained with"
    )
