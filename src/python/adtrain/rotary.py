"""Rotary positions."""

import numpy as np

_BASE = 10000.0


def rotations(positions: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine, float32 (T, size / 2), of the angles at these positions."""
    angles = positions[:, None] * _BASE ** (np.arange(0, size, 2) / -size)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def rotated(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Turns element i of each head together with element i + size / 2."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
