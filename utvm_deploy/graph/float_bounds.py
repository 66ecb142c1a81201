"""How far the results of float32 operators may be from those of LiteRT's reference kernels.

An operator that is not in the table has the reference's bits: it only adds, subtracts, multiplies,
divides, compares, rounds, takes square roots or moves. What is not a number equals what is not one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.graph.model import Array


@dataclass(frozen=True)
class Bound:
    """The largest difference that is allowed; 0 in both fields asks for equal bits."""

    ulps: int = 0  # units in the last place of a float32
    relative: float = 0.0  # of the largest finite magnitude in the tensor

    @property
    def is_exact(self) -> bool:
        """Whether bits must be equal."""
        return not (self.ulps or self.relative)

    @property
    def text(self) -> str:
        """For people."""
        if self.is_exact:
            return "equal bits"
        return f"{self.ulps} ULP" if self.ulps else f"{self.relative:g} relative"


EXACT = Bound()
#: The bound of a whole model that has an inexact operator.
OF_MODELS = Bound(relative=1e-4)
_FUNCTION = Bound(ulps=2)
_CANCELLING = Bound(relative=1e-6)
_OF_ROWS = Bound(relative=1e-5)

#: Kind -> the bound of one operator, given the reference's inputs.
FLOAT_BOUNDS: Mapping[str, Bound] = {
    **dict.fromkeys(("ATAN2", "COS", "ELU", "EXP", "LOG", "LOGISTIC"), _FUNCTION),
    **dict.fromkeys(("POW", "SIN", "TANH"), _FUNCTION),
    # By tanh, its results are small differences of numbers near 1.
    "GELU": _CANCELLING,
    # LiteRT adds its products in an order that depends on the processor it runs on.
    **dict.fromkeys(("SVDF", "UNIDIRECTIONAL_SEQUENCE_LSTM"), _OF_ROWS),
    **dict.fromkeys(("LOCAL_RESPONSE_NORMALIZATION", "LOG_SOFTMAX", "SOFTMAX"), _OF_ROWS),
    # Functions of TVM's, compared with its LLVM build, which calls other functions.
    "CALL_TIR": _OF_ROWS,
}


def outside(bound: Bound, got: Array, expected: Array) -> NDArray[np.bool_]:
    """Where two tensors of one shape and type differ by more than the bound."""
    expected = expected.reshape(got.shape)
    as_bytes = np.dtype(f"u{got.dtype.itemsize}")
    # Compared as bytes: -0.0 and 0.0 differ.
    ours, theirs = (np.ascontiguousarray(a).view(as_bytes) for a in (got, expected))
    differs: NDArray[np.bool_] = ours != theirs
    if got.dtype != np.float32:
        return differs
    differs = differs & ~(np.isnan(got) & np.isnan(expected))
    if bound.is_exact or not differs.any():
        return differs
    finite = np.isfinite(got) & np.isfinite(expected)
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    if bound.ulps:
        allowed = bound.ulps * np.spacing(np.abs(expected)).astype(np.float64)
    else:
        magnitudes = np.abs(expected[np.isfinite(expected)])
        allowed = np.float64(bound.relative * float(magnitudes.max(initial=0.0)))
    with np.errstate(invalid="ignore"):
        near: NDArray[np.bool_] = finite & (distance <= allowed)
    return differs & ~near
