"""CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED of int16 by int8 weights, with 64-bit sums.

The kernels of CONV_2D and FULLY_CONNECTED compute four outputs at a time. They copy the pixels of a
window to one row of scratch, unless they are one already, and multiply that row by rows of weights.
Partial sums of some hundred products fit 32 bits, and are added to 64-bit sums.

Weights are packed. Zeros fill outputs and depth up to multiples of four. The inner two of four
bytes are exchanged, so that splitting a word gives the halves that belong together. Those of int4
are unpacked into scratch, some outputs at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.graph.attributes import Convolution, FullyConnected
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import replaced, shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import KernelParameter, Operand, buffers
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.contract.packed_weights import is_packed, weights_label, weights_table
from utvm_deploy.kernels.contract.requantization import (
    exact_multiplier,
    quantize_multipliers,
    short_multiplier,
)
from utvm_deploy.kernels.contract.routine_call import RoutineCall, RoutineKernel
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.micro_kernel import packed_halves
from utvm_deploy.kernels.native.routines.dot import wide_dot_texts
from utvm_deploy.kernels.native.routines.int16x8_depthwise import Int16x8Depthwise
from utvm_deploy.kernels.native.window_rewrites import simplified
from utvm_deploy.kernels.portable.integers.convolution import PRODUCT_BITS, Int16x8Conv2D, window_of

# Longer sums of FULLY_CONNECTED overflow when they are multiplied by a double's fraction.
_MOST_BITS_OF_SUM = 36
# Fewer channels do not fill a word of weights.
_LEAST_CHANNELS = 4
_FOUR = 4
_HOW = "C, the products of four outputs at a time"
#: Weights that are unpacked at a time should take at most these bytes.
_UNPACKED_BYTES = 1024


def packed_extent(count: int) -> int:
    """The outputs, or the products of an output, in packed weights."""
    return -(-count // _FOUR) * _FOUR


def pack_rows(weights: Array) -> Array:
    """Packed weights from [outputs, depth]."""
    outputs, depth = weights.shape
    filled = np.zeros((packed_extent(outputs), packed_extent(depth)), np.int8)
    filled[:outputs, :depth] = weights
    fours = filled.reshape(filled.shape[0], -1, _FOUR)[:, :, [0, 2, 1, 3]]
    return np.ascontiguousarray(fours).reshape(-1)


def _rows_table(weights: Array, dtype: str) -> Array:
    """The table in flash: packed rows, of int4 in half of the bytes."""
    rows = pack_rows(weights)
    return packed_halves(rows) if is_packed(dtype) else rows


def is_short(weights: Array, bias: Array, shift: Array) -> bool:
    """Whether every sum fits 32 bits, and its requantization, too.

    Let a be a sum, m a multiplier of 15 bits, and b a right shift from 17 to 46. The reference
    computes (a m + 2**(b - 1)) >> b in 64 bits. Nothing is added to the lower word, so that equals
    (high word of a (m << 16) + 2**(b - 17)) >> (b - 16).
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
    weights: str = "int8"  # their element type

    why: ClassVar[str] = _HOW

    @property
    def name(self) -> str:
        channels = f"{self.channels}x{self.outputs}_rows_16x8{weights_label(self.weights)}"
        return f"conv2d_{self.window.label}_{channels}"

    @property
    def pitch(self) -> int:
        """Bytes from one row of weights to the next."""
        return packed_extent(self.window.kernel[0] * self.window.kernel[1] * self.channels)

    def geometry(self, *, is_short: bool) -> Array:
        """As ``utvm_wide_conv`` reads it; ``is_short`` is what ``is_short`` above says."""
        w = self.window
        is_in_place = w.kernel == (1, 1) and not w.is_padded and self.pitch == self.channels
        rest = (self.outputs, self.pitch, is_short, is_in_place)
        return np.array([*w.geometry(self.channels), *rest], dtype=np.int32)

    @property
    def routine(self) -> RoutineCall:
        parameters: tuple[KernelParameter, ...] = (
            *buffers(input="int16", geometry="int32", weights="int8"),
            *buffers(bias="int64", multiplier="int32", shift="int32"),
            *("low", "high"),
            *buffers(output="int16"),
        )
        scratch, block = _scratch(self.pitch, self.outputs, self.weights)
        return RoutineCall(
            f"utvm_wide_conv{weights_label(self.weights)}", parameters, block, scratch
        )

    def texts(self, core: str) -> tuple[str, ...]:
        whole = shared_text("utvm_wide_conv")
        if not is_packed(self.weights):
            return (*wide_dot_texts(core), whole)
        part = replaced(
            whole,
            ("utvm_wide_conv(", "utvm_wide_conv_part(", 1),
            ("int64_t *totals) {\n    const int32_t outputs = geometry[14];", _COUNT_BEHIND, 1),
            ("x++, output += outputs", "x++, output += geometry[14]", 1),
            # A model may have layers with weights of int8, too.
            *((f"utvm_wide_{name}(", f"utvm_wide_part_{name}(", 2) for name in _CONV_HELPERS),
        )
        names = "utvm_unpack_halves", "utvm_wide_conv_int4"
        unpack, driver = map(shared_text, names)
        return (*wide_dot_texts(core), unpack, part, driver)


@dataclass(frozen=True)
class Int16x8ProductDense(RoutineKernel):
    """FULLY_CONNECTED."""

    batch: int
    inputs: int
    outputs: int
    weights: str = "int8"  # their element type

    why: ClassVar[str] = _HOW

    @property
    def name(self) -> str:
        batch = f"_n{self.batch}" if self.batch != 1 else ""
        shape = f"{self.inputs}x{self.outputs}_rows_16x8{weights_label(self.weights)}"
        return f"fully_connected{batch}_{shape}"

    @property
    def routine(self) -> RoutineCall:
        pitch = packed_extent(self.inputs)
        parameters: tuple[KernelParameter, ...] = (
            *buffers(input="int16", weights="int8", bias="int64", scales="int32"),
            *("low", "high"),
            *buffers(output="int16"),
        )
        scratch, block = _scratch(pitch, self.outputs, self.weights)
        sizes = (self.batch, self.inputs, self.outputs, pitch, *block)
        return RoutineCall(
            f"utvm_wide_dense{weights_label(self.weights)}", parameters, sizes, scratch
        )

    def texts(self, core: str) -> tuple[str, ...]:
        whole = shared_text("utvm_wide_dense")
        if not is_packed(self.weights):
            return (*wide_dot_texts(core), whole)
        part = replaced(
            whole,
            ("utvm_wide_dense(", "utvm_wide_dense_part(", 1),
            ("int32_t pitch) {", "int32_t pitch, int32_t stride) {", 1),
            ("output += outputs", "output += stride", 1),
        )
        unpack, driver = map(shared_text, ("utvm_unpack_halves", "utvm_wide_dense_int4"))
        return (*wide_dot_texts(core), unpack, part, driver)


_CONV_HELPERS = ("gather", "short", "long")
#: The parameter of ``utvm_wide_conv_part`` in place of a number of the geometry.
_COUNT_BEHIND = "int64_t *totals, int32_t outputs) {"


def _scratch(pitch: int, outputs: int, weights: str) -> tuple[tuple[Operand, ...], tuple[int, ...]]:
    """The scratch, and how many outputs have their weights unpacked at a time, if they are."""
    row = Operand("row", (pitch,), "int16")
    if not is_packed(weights):
        return (row, Operand("totals", (packed_extent(outputs),), "int64")), ()
    fours = min(max(_UNPACKED_BYTES // (_FOUR * pitch), 1), packed_extent(outputs) // _FOUR)
    block = _FOUR * fours
    totals = Operand("totals", (block,), "int64")
    return (row, totals, Operand("unpacked", (block * pitch,), "int8")), (block,)


def lower_int16x8_convolution(op: Operation) -> KernelCall:
    """CONV_2D, grouped or not, and DEPTHWISE_CONV_2D."""
    a = op.attributes(Convolution)
    source, result = op.source, op.result
    weights = op.constant(1)
    is_depthwise = op.kind == "DEPTHWISE_CONV_2D"
    inputs, outputs, depth = source.shape[3], result.shape[3], weights.shape[3]
    if is_depthwise:
        depth = 1
    window, dtype = window_of(op, weights.shape[1:3]), op.input(1).dtype
    plain = Int16x8Conv2D(window, inputs, outputs, depth, is_depthwise, weights=dtype)
    kernel: Int16x8Conv2D | Int16x8ProductConv | Int16x8Depthwise = plain
    bias = op.bias(outputs).astype(np.int64)
    multiplier, shift = quantize_multipliers(op.scales(outputs))
    stored = weights_table(weights[0] if is_depthwise else weights, dtype)
    tables = {"weights": stored, "bias": bias}
    tables |= {"multiplier": multiplier, "shift": shift}
    if a.sums_in_32_bits:
        kernel = replace(plain, sum_type="int32")
        tables["bias"] = bias.astype(np.int32)
    else:
        multiplier = np.array([short_multiplier(int(m)) for m in multiplier], np.int32)
        tables["multiplier"] = multiplier
        has_short_sums = is_short(
            np.moveaxis(weights, 3, 0) if is_depthwise else weights, bias, shift
        )
        if not is_depthwise and depth == inputs:
            kernel = Int16x8ProductConv(window, depth, outputs, dtype)
            tables["weights"] = _rows_table(weights.reshape(outputs, -1), dtype)
            tables = {"geometry": kernel.geometry(is_short=has_short_sums), **tables}
        elif is_depthwise and has_short_sums and outputs == inputs >= _LEAST_CHANNELS:
            window, seen = simplified(window, weights)
            kernel = Int16x8Depthwise(window, outputs, dtype)
            # As ``is_short`` says: the high word, and a shift by 16 less than 15 - shift.
            tables = kernel.tables(seen, bias, multiplier.astype(np.int32) << 16, -1 - shift)
    macs = math.prod(result.shape) * math.prod(weights.shape[1:3]) * depth
    low, high = a.clamp
    return op.call(kernel, {**tables, "low": low, "high": high}, macs=macs)


def lower_int16x8_dense(op: Operation) -> KernelCall:
    """FULLY_CONNECTED."""
    a = op.attributes(FullyConnected)
    result = op.result
    weights = op.constant(1)
    outputs, inputs = weights.shape
    bias = op.bias(outputs).astype(np.int64)
    if (inputs << PRODUCT_BITS) + int(np.abs(bias).max()) >= 1 << _MOST_BITS_OF_SUM:
        raise UnsupportedOperator(
            f"FULLY_CONNECTED {result.name} sums up {inputs} products of 16 by 8 bits and a bias, "
            f"which may exceed {_MOST_BITS_OF_SUM} bits; split the layer"
        )
    scales = np.array([exact_multiplier(scale) for scale in op.scales(outputs)], np.int32)
    dtype = op.input(1).dtype
    tables = {"weights": _rows_table(weights, dtype), "bias": bias, "scales": scales}
    batch, (low, high) = math.prod(result.shape) // outputs, a.clamp
    kernel = Int16x8ProductDense(batch, inputs, outputs, dtype)
    macs = batch * inputs * outputs
    return op.call(kernel, {**tables, "low": low, "high": high}, macs=macs)


INT16_LOWERINGS = {
    "CONV_2D": lower_int16x8_convolution,
    "DEPTHWISE_CONV_2D": lower_int16x8_convolution,
    "FULLY_CONNECTED": lower_int16x8_dense,
}
