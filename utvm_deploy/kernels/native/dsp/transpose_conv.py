"""TRANSPOSE_CONV for cores with the DSP extension: the ordinary convolution that it is in disguise.

Output row y is reached by window row k from input row (y + padding - k) / stride. With
y + padding = stride * q + r these are the rows q - j for k = r + stride * j: for each r the windows
of an ordinary convolution of stride 1. So it computes all outputs of a block of stride x stride
pixels as channels of one pixel; taps that a window does not have are weights of zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import replaced, shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.contract.driver import Driver, Operand
from utvm_deploy.kernels.contract.extents import label
from utvm_deploy.kernels.contract.requantization import fold_input_offset
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.dsp import gemm
from utvm_deploy.kernels.native.dsp.code import helper
from utvm_deploy.kernels.native.dsp.gather import gather_text
from utvm_deploy.kernels.native.dsp.patches import DspPatches, patches_call, patches_kernel
from utvm_deploy.kernels.native.layer_tables import constants, limits_of, scalars
from utvm_deploy.kernels.native.scaling import short_scaling
from utvm_deploy.kernels.portable.transpose_conv import TransposeConv2D


@dataclass(frozen=True)
class DspTransposeConv:
    """The ordinary convolution, and what its channels are in the output."""

    conv: DspPatches
    strides: tuple[int, int]
    first: tuple[int, int]  # row and column of the first block that is the output's first pixel
    output: tuple[int, int, int, int]

    @property
    def name(self) -> str:
        window = self.conv.window
        return (
            f"transpose_conv_{window.label}_{self.conv.input_channels}_to_{label(self.strides)}"
            f"_c{label(self.first)}_{label(self.output)}_dsp"
        )

    @property
    def numbers(self) -> Array:
        """As ``utvm_scatter_blocks.h`` reads them."""
        w = self.conv.window
        blocks = w.output_height * w.output_width
        product = (w.output_width, blocks, self.conv.pixels, self.conv.output_channels)
        values = (*product, self.conv.depth, *self.strides, *self.first, *self.output[1:])
        return np.array(values, dtype=np.int32)

    @property
    def why(self) -> str:
        return f"DSP assembly, as a convolution by blocks of {label(self.strides)} pixels"

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        return self._image, self._geometry, *self.conv.tables, "border", self._numbers, self._output

    @property
    def scratch(self) -> tuple[Operand, ...]:
        conv = self.conv
        tile = Operand("tile", (conv.pixels * conv.output_channels,), "int8")
        return conv.windows(conv.pixels), tile

    def texts(self, core: str) -> tuple[str, ...]:
        return (
            shared_text("utvm_scale"),
            shared_text("utvm_bytes"),
            gemm.gemm_text(core, self.conv.product.step, self.conv.depth),
            gather_text(core),
            helper("utvm_scatter_blocks"),
            replaced(helper("utvm_transpose_conv"), ("PRODUCT", self.conv.product.function, 2)),
        )

    def drive(self, c: Driver) -> None:
        image, output = self._image, self._output
        with c.loop("batch", self.conv.window.batch) as n:
            c.call(
                f"utvm_transpose_conv_by_{self.conv.product.function}",
                image.at(n * image.stride(0)),
                *(one.at() for one in (self._geometry, *self.conv.tables)),
                *("border", self._numbers.at(), output.at(n * output.stride(0))),
                *(one.at() for one in self.scratch),
            )

    @property
    def _image(self) -> Operand:
        w = self.conv.window
        shape = w.batch, w.height * w.width * self.conv.input_channels
        return Operand("image", shape, "int8")

    @property
    def _geometry(self) -> Operand:
        return Operand("geometry", (self.conv.geometry.size,), "int32")

    @property
    def _numbers(self) -> Operand:
        return Operand("numbers", (self.numbers.size,), "int32")

    @property
    def _output(self) -> Operand:
        shape = self.conv.window.batch, int(np.prod(self.output[1:]))
        return Operand("output", shape, "int8")


def as_convolution(kernel: TransposeConv2D) -> tuple[Window, tuple[int, int]] | None:
    """The window of the ordinary convolution, and the output's first pixel within its blocks."""
    ones = (1, 1)
    taps, made, borders, first = (
        (rows, columns)
        for rows, columns in zip(*(_along(kernel, axis) for axis in (0, 1)), strict=True)
    )
    if min(borders) < 0:
        return None
    batch, height, width, _ = kernel.image
    window = Window(batch, height, width, *made, taps, ones, ones, *borders)
    return window, first


def _along(kernel: TransposeConv2D, axis: int) -> tuple[int, int, int, int]:
    """Taps, pixels, the border before them, and where the output begins in its first block."""
    stride, padding = kernel.strides[axis], kernel.padding[axis]
    taps = -(-kernel.kernel[axis] // stride)
    first, last = padding // stride, (kernel.output[1 + axis] - 1 + padding) // stride
    return taps, last - first + 1, taps - 1 - first, padding % stride


def blocks_of_weights(weights: Array, strides: tuple[int, int]) -> Array:
    """[outputs, rows, columns, inputs] -> the same of the ordinary convolution."""
    outputs, rows, columns, inputs = weights.shape
    taps = [-(-size // stride) for size, stride in zip((rows, columns), strides, strict=True)]
    filled: Array = np.zeros(
        (outputs, taps[0] * strides[0], taps[1] * strides[1], inputs), weights.dtype
    )
    filled[:, :rows, :columns] = weights
    # Row r + stride * j of a window is row r of a block, at tap taps - 1 - j.
    split = filled.reshape(outputs, taps[0], strides[0], taps[1], strides[1], inputs)
    turned = split[:, ::-1, :, ::-1].transpose(2, 4, 0, 1, 3, 5)
    return np.ascontiguousarray(turned).reshape(-1, *taps, inputs)


def dsp_transpose_conv_call(call: KernelCall) -> KernelCall | str:
    """The call instead of the generic one."""
    kernel = call.kernel
    assert isinstance(kernel, TransposeConv2D)
    found = as_convolution(kernel)
    if found is None:
        return "the padding is larger than the window"
    window, first = found
    tables, numbers = constants(call), scalars(call)
    border = numbers["input_zero_point"]
    weights = blocks_of_weights(tables["weights"], kernel.strides)
    times = math.prod(kernel.strides)
    scaling = short_scaling(
        fold_input_offset(np.tile(tables["bias"], times), weights, border),
        weights,
        np.tile(tables["multiplier"], times),
        np.tile(tables["shift"], times),
        numbers["output_zero_point"],
    )
    if isinstance(scaling, str):
        return scaling
    conv = patches_kernel(window, weights.shape[3], weights.shape[0])
    if isinstance(conv, str):
        return conv
    made = DspTransposeConv(conv, kernel.strides, first, kernel.output)
    plain = patches_call(call, conv, weights, scaling, border, limits_of(call))
    *arguments, output = plain.arguments
    return replace(
        call,
        kernel=made,
        arguments=(*arguments, ConstantArgument("numbers", made.numbers), output),
    )
