"""CONV_2D and FULLY_CONNECTED of int16 by int8 weights, four outputs at a time.

What a window sees is lined up, unless it lies so already, and multiplied with the rows of weights.
Sums of some hundred products fit 32 bits; those are added up in 64. Weights are packed: outputs and
depth to multiples of four with zeros, and of four bytes the inner two change places, so that
splitting a word gives the halves that belong together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.driver import Operand, buffers
from utvm_deploy.kernels.contract.routine_call import RoutineCall, RoutineKernel
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.routines.dot import wide_dot_texts

_FOUR = 4
_GEOMETRY = 18
_HOW = "C, the products of four outputs at a time"


def packed_extent(count: int) -> int:
    """Outputs, or products of one, in packed weights."""
    return -(-count // _FOUR) * _FOUR


def pack_rows(weights: Array) -> Array:
    """[outputs, depth] -> the layout above."""
    outputs, depth = weights.shape
    filled = np.zeros((packed_extent(outputs), packed_extent(depth)), np.int8)
    filled[:outputs, :depth] = weights
    fours = filled.reshape(filled.shape[0], -1, _FOUR)[:, :, [0, 2, 1, 3]]
    return np.ascontiguousarray(fours).reshape(-1)


def is_short(weights: Array, bias: Array, shift: Array) -> bool:
    """Whether every sum fits 32 bits, and 32 bits hold it while it is scaled, too.

    With m of 15 bits and a right shift b the reference's (a m + 2**(b - 1)) >> b in 64 bits is
    (high word of a (m << 16) + 2**(b - 17)) >> (b - 16) for b from 17 to 46: nothing is added to
    the lower word.
    """
    reach = 32768 * np.abs(weights.reshape(weights.shape[0], -1).astype(np.int64)).sum(axis=1)
    right = 15 - shift.astype(np.int64)
    fits = bool((reach + np.abs(bias)).max() < 2**31)
    return fits and int(right.min()) >= 17 and int(right.max()) <= 46


@dataclass(frozen=True)
class Int16x8ProductConv(RoutineKernel):
    """CONV_2D over all channels."""

    window: Window
    channels: int
    outputs: int

    why: ClassVar[str] = _HOW

    @property
    def name(self) -> str:
        return f"conv2d_{self.window.label}_{self.channels}x{self.outputs}_rows_16x8"

    @property
    def pitch(self) -> int:
        """Of rows of weights, in bytes."""
        return packed_extent(self.window.kernel[0] * self.window.kernel[1] * self.channels)

    def geometry(self, *, is_short: bool) -> Array:
        """As ``utvm_wide_conv`` reads it; ``is_short`` is what ``is_short`` above says."""
        w = self.window
        is_in_place = w.kernel == (1, 1) and not w.is_padded and self.pitch == self.channels
        rest = (self.outputs, self.pitch, is_short, is_in_place)
        return np.array([*w.geometry(self.channels), *rest], dtype=np.int32)

    @property
    def routine(self) -> RoutineCall:
        parameters = (
            *buffers(input="int16", geometry="int32", weights="int8"),
            *buffers(bias="int64", multiplier="int32", shift="int32"),
            *("low", "high"),
            *buffers(output="int16"),
        )
        scratch = _scratch(self.pitch, self.outputs)
        return RoutineCall("utvm_wide_conv", parameters, scratch=scratch)

    def texts(self, core: str) -> tuple[str, ...]:
        return (*wide_dot_texts(core), shared_text("utvm_wide_conv"))


@dataclass(frozen=True)
class Int16x8ProductDense(RoutineKernel):
    """FULLY_CONNECTED."""

    batch: int
    inputs: int
    outputs: int

    why: ClassVar[str] = _HOW

    @property
    def name(self) -> str:
        batch = f"_n{self.batch}" if self.batch != 1 else ""
        return f"fully_connected{batch}_{self.inputs}x{self.outputs}_rows_16x8"

    @property
    def routine(self) -> RoutineCall:
        pitch = packed_extent(self.inputs)
        parameters = (
            *buffers(input="int16", weights="int8", bias="int64", scales="int32"),
            *("low", "high"),
            *buffers(output="int16"),
        )
        sizes = (self.batch, self.inputs, self.outputs, pitch)
        return RoutineCall("utvm_wide_dense", parameters, sizes, _scratch(pitch, self.outputs))

    def texts(self, core: str) -> tuple[str, ...]:
        return (*wide_dot_texts(core), shared_text("utvm_wide_dense"))


def _scratch(pitch: int, outputs: int) -> tuple[Operand, ...]:
    totals = Operand("totals", (packed_extent(outputs),), "int64")
    return Operand("row", (pitch,), "int16"), totals
