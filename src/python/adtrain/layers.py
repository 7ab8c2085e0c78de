"""Layers of all networks. Tokens are float32 (n, T, width)."""

import numpy as np

from .weights import Weights

NORM_EPSILON = 1e-5


class Linear:
    """x Wᵀ + b"""

    def __init__(self, weights: Weights, name: str, inputs: int, outputs: int, *, separator: str = ".", bias: bool = True):
        self._weight = np.ascontiguousarray(weights.take(f"{name}{separator}weight", outputs, inputs).T)
        self._bias = weights.take(f"{name}{separator}bias", outputs) if bias else None

    def __call__(self, x: np.ndarray) -> np.ndarray:
        # One product over all rows: NumPy multiplies a stack of matrices one by one.
        y = x.reshape(-1, x.shape[-1]) @ self._weight
        if self._bias is not None:
            y += self._bias
        return y.reshape(*x.shape[:-1], y.shape[-1])


class LayerNorm:
    def __init__(self, weights: Weights, name: str, width: int):
        self._weight = weights.take(f"{name}.weight", width)
        self._bias = weights.take(f"{name}.bias", width)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        return centred * (self._weight / np.sqrt(_mean_of_squares(centred) + NORM_EPSILON)) + self._bias


class RmsNorm:
    def __init__(self, weights: Weights, name: str, width: int):
        self._weight = weights.take(f"{name}.weight", width)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return x * (self._weight / np.sqrt(_mean_of_squares(x) + NORM_EPSILON))


def _mean_of_squares(x: np.ndarray) -> np.ndarray:
    return np.einsum("...i,...i->...", x, x)[..., None] / np.float32(x.shape[-1])


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def gelu(x: np.ndarray) -> np.ndarray:
    """x Φ(x), by the error function."""
    return x * (0.5 + 0.5 * erf(x * np.float32(np.sqrt(0.5))))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    """GPT-2's approximation of GELU."""
    return 0.5 * x * (1 + np.tanh(np.float32(np.sqrt(2 / np.pi)) * (x + 0.044715 * x * x * x)))


# Of x² from the highest power down: the quotient of these polynomials, times x, is the error function's best rational
# approximation on [-4, 4] in float32, as in Eigen. NumPy has no error function of its own.
_ERF_NUMERATOR = (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
                  -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02)
_ERF_DENOMINATOR = (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03,
                    -1.42647390514189e-02)


def erf(x: np.ndarray) -> np.ndarray:
    """The error function, to 5e-7 in float32."""
    x = np.clip(x, -4, 4)
    square = x * x
    return x * _polynomial(square, _ERF_NUMERATOR) / _polynomial(square, _ERF_DENOMINATOR)


def _polynomial(x: np.ndarray, coefficients: tuple[float, ...]) -> np.ndarray:
    """By Horner's rule, in place."""
    highest, *others = coefficients
    value = np.full_like(x, highest)
    for coefficient in others:
        value *= x
        value += np.float32(coefficient)
    return value
