"""Samples as a model takes them, and its outputs as real numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.base.errors import DataError
from utvm_deploy.graph.element_type import element_type
from utvm_deploy.graph.model import Array, Quantization
from utvm_deploy.quality.datasets import ModelInput


def to_input(samples: Array, one: ModelInput) -> tuple[Array, int]:
    """Samples of the type that the input takes, and how many values were clipped to it.

    Floats are quantized as TFLite's QUANTIZE does it. Integers are of the input's type already.
    """
    if samples.dtype == np.dtype(one.dtype):
        return samples, 0
    quantization = one.quantization
    if quantization is None:
        raise DataError(
            f"the data are {samples.dtype}, and input {one.name!r} takes {one.dtype} without a "
            f"scale; give samples of {one.dtype}"
        )
    low, high = element_type(one.dtype).limits
    steps = samples.astype(np.float32) / np.float32(quantization.scale)
    # Halves away from zero; in double precision, where adding a half to a float32 is exact.
    wide = steps.astype(np.float64)
    rounded = np.trunc(wide + np.copysign(0.5, wide)) + quantization.zero_point
    clipped = int(np.count_nonzero((rounded < low) | (rounded > high)))
    return np.clip(rounded, low, high).astype(one.dtype), clipped


def to_real(values: Array, quantization: Quantization | None) -> NDArray[np.float64]:
    """What quantized numbers stand for; others as they are."""
    if values.dtype.kind == "f" or quantization is None:
        return values.astype(np.float64)
    real = values.astype(np.float64) - quantization.zero_point
    return real * quantization.scale


@dataclass
class InputCount:
    """How many input values were converted, and how many of them clipped."""

    values: int = 0
    clipped: int = 0

    def taken(self, batch: Sequence[Array], inputs: Sequence[ModelInput]) -> tuple[Array, ...]:
        """A batch as the model takes it."""
        made = []
        for samples, one in zip(batch, inputs, strict=True):
            array, clipped = to_input(samples, one)
            self.values += samples.size
            self.clipped += clipped
            made.append(array)
        return tuple(made)


def how_taken(batch: Sequence[Array], inputs: Sequence[ModelInput]) -> str:
    """How samples become the inputs of the model, in words."""
    said = []
    for samples, one in zip(batch, inputs, strict=True):
        if samples.dtype == np.dtype(one.dtype):
            said.append(f"{one.dtype}, as the data have them")
        elif one.quantization is not None:
            scale, zero = one.quantization.scale, one.quantization.zero_point
            said.append(f"{samples.dtype}, quantized to {one.dtype} (scale {scale:g}, zero {zero})")
        else:
            said.append(f"{samples.dtype}")
    if len(set(said)) == 1:
        return said[0]
    return "; ".join(f"{one.name}: {text}" for one, text in zip(inputs, said, strict=True))
