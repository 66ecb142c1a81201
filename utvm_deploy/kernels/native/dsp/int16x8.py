"""CONV_2D of int16 by int8 weights over columns, for cores with the DSP extension.

The tile is that of int8. Where sums may exceed 32 bits, it adds up segments of the depth in 64.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.strategy import Choices, Layer, Wish
from utvm_deploy.kernels.native.dsp.assembly.value_types import INT16, INT16_LONG, Values
from utvm_deploy.kernels.native.dsp.columns import (
    ColumnsChoices,
    DspColumns,
    columns_kernel,
    columns_kernels,
)
from utvm_deploy.kernels.native.estimated import best_kernel, choices_of_small
from utvm_deploy.kernels.native.layer_tables import ConvolutionTables, constants, limits_of
from utvm_deploy.kernels.native.routines.int16x8 import Int16x8ProductConv, is_short
from utvm_deploy.kernels.native.scaling import Scaling
from utvm_deploy.kernels.native.window_rewrites import simplified
from utvm_deploy.kernels.portable.integers.convolution import Int16x8Conv2D

_TOO_FAR = "windows too far apart for columns"


def build_int16_convolution(layer: Layer, wish: Wish) -> KernelCall | str:
    """The call instead of that of the routine in C, or why there is none."""
    portable = layer.portable.kernel
    assert isinstance(portable, Int16x8Conv2D | Int16x8ProductConv)
    if isinstance(portable, Int16x8Conv2D) and portable.sum_type == "int32":
        return "it sums up in 32 bits, which may wrap"
    filters = layer.constant(1)
    window, weights = simplified(portable.window, filters, turns_dilated=True)
    outputs, _, _, inputs = weights.shape
    groups = layer.source.shape[3] // inputs
    bias = layer.bias(outputs).astype(np.int64)
    numbers = constants(layer.portable)
    multiplier, shift = numbers["multiplier"].astype(np.int64), numbers["shift"].astype(np.int64)
    values: Values = INT16
    scaling = _short_scaling(weights, bias, multiplier, shift)
    if isinstance(scaling, str):
        values, scaling = INT16_LONG, _long_scaling(weights, bias, multiplier, shift)
    if isinstance(scaling, str):
        return scaling
    sizes = window, inputs, outputs // groups, groups
    kernel: DspColumns | None
    if wish.is_open:
        kernel = best_kernel(columns_kernels(*sizes, values), wish)
    else:
        choices = ColumnsChoices.read(wish.candidate)
        if isinstance(choices, str):
            return choices
        kernel = columns_kernel(*sizes, choices, values)
    if kernel is None:
        return _TOO_FAR
    scratch = sum(one.size_bytes for one in kernel.scratch)
    if wish.is_open and wish.most_scratch is not None and scratch > wish.most_scratch:
        return f"it needs {scratch} bytes of scratch"
    tables = ConvolutionTables(
        window, layer.source.shape[3], weights, bias, multiplier, shift, 0, 0,
        limits_of(layer.portable),
    )  # fmt: skip
    return kernel.make_call(layer.portable, tables, scaling)


def int16_choices(kernel: object) -> Iterator[Choices]:
    """The choices of this kernel, then all others of the layer."""
    if isinstance(kernel, DspColumns):
        yield kernel.choices
        sizes = kernel.window, kernel.input_channels, kernel.output_channels, kernel.groups
        yield from choices_of_small(columns_kernels(*sizes, kernel.values))


def _short_scaling(weights: Array, bias: Array, multiplier: Array, shift: Array) -> Scaling | str:
    """The table of ``WideValues``, or why sums need more than 32 bits."""
    if not is_short(weights, bias, shift):
        return "sums may need more than 32 bits"
    # As ``is_short`` says: the high word, and a shift by 16 less than 15 - shift.
    right = -1 - shift
    return _table(bias, np.left_shift(multiplier, 16), np.left_shift(1, right - 1), right)


def _long_scaling(weights: Array, bias: Array, multiplier: Array, shift: Array) -> Scaling | str:
    """The table of ``LongValues``, or why products need more than 64 bits.

    The reference computes (a m + 2**(b - 1)) >> b of a sum a, where b = 15 - shift. If b is less
    than 32, m and b grow by 32 - b bits, so that the high word has the result.
    """
    right = 15 - shift
    more = (32 - right).clip(0)
    factor, right = np.left_shift(multiplier, more), right + more
    flat = np.abs(weights.reshape(len(weights), -1).astype(np.int64))
    # In Python's integers, because these may be larger than 64 bits.
    reach = (32768 * flat.sum(axis=1) + np.abs(bias)).astype(object)
    most = max(reach * factor.astype(object) + (1 << 62))
    if most >= 1 << 63 or int(factor.max()) >= 1 << 31:
        return f"scaled sums may need {int(most).bit_length() + 1} bits"
    first = bias * factor + np.left_shift(1, right - 1)
    return _table(first, factor, np.right_shift(first, 32), right - 32)


def _table(*rows: Array) -> Scaling:
    """The lower 32 bits of the rows."""
    return Scaling(*(row.astype(np.uint64).astype(np.uint32).view(np.int32) for row in rows))
