"""TRANSPOSE_CONV for cores with Helium: as in ``dsp/transpose_conv.py``, by ``gemm.py``.

A row of a block of output pixels may have fewer taps than another one. Those that it does not have
are the first of a window, so each row of a block is a product of its own, of what is behind them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from utvm_deploy.kernels.contract.c_texts import family_text, replaced, shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall, ScalarArgument
from utvm_deploy.kernels.contract.driver import Driver, Operand
from utvm_deploy.kernels.contract.extents import label
from utvm_deploy.kernels.contract.requantization import fold_input_offset
from utvm_deploy.kernels.native.dsp.transpose_conv import as_convolution, blocks_of_weights
from utvm_deploy.kernels.native.gathered_gemm import GatheredConv2D, gathered
from utvm_deploy.kernels.native.layer_tables import constants, limits_of, scalars
from utvm_deploy.kernels.native.mve import gemm
from utvm_deploy.kernels.native.mve.code import has_left_shift
from utvm_deploy.kernels.native.mve.conv2d import MveProduct
from utvm_deploy.kernels.portable.transpose_conv import TransposeConv2D

#: Pixels whose windows are the image itself, multiplied at a time.
_IN_PLACE = 24


@dataclass(frozen=True)
class MveTransposeConv:
    """The ordinary convolution, what its channels are in the output, and the depth of each row."""

    conv: GatheredConv2D
    strides: tuple[int, int]
    first: tuple[int, int]  # row and column of the first block that is the output's first pixel
    output: tuple[int, int, int, int]
    depths: tuple[int, ...]

    @property
    def name(self) -> str:
        window = self.conv.window
        return (
            f"transpose_conv_{window.label}_{self.conv.input_channels}_to_{label(self.strides)}"
            f"_c{label(self.first)}_d{label(self.depths)}_{label(self.output)}"
            f"_{self.conv.product.label}"
        )

    @property
    def why(self) -> str:
        return (
            f"{self.conv.product.why}, as a convolution by blocks of {label(self.strides)} pixels"
        )

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        w = self.conv.window
        return (
            Operand("image", (w.batch, w.height * w.width * self.conv.input_channels), "int8"),
            *self._tables,
            "border",
            self._numbers,
            Operand("output", (w.batch, math.prod(self.output[1:])), "int8"),
        )

    @property
    def scratch(self) -> tuple[Operand, ...]:
        gathered_bytes = self._pixels * self.conv.depth if self.conv.is_gathered else 1
        return (
            Operand("windows", (gathered_bytes,), "int8"),
            Operand("tile", (self._pixels * self._channels,), "int8"),
        )

    def texts(self, core: str) -> tuple[str, ...]:
        driver = family_text("mve", "utvm_mve_transpose_conv")
        return (
            shared_text("utvm_bytes"),
            shared_text("utvm_windows"),
            *self.conv.product.texts(core),
            replaced(driver, ("PRODUCT", self.conv.product.function, 2)),
        )

    def drive(self, c: Driver) -> None:
        image, *_, output = (one for one in self.parameters if isinstance(one, Operand))
        with c.loop("batch", self.conv.window.batch) as n:
            c.call(
                f"utvm_mve_transpose_conv_by_{self.conv.product.function}",
                image.at(n * image.stride(0)),
                *(one.at() for one in self._tables),
                "border",
                self._numbers.at(),
                output.at(n * output.stride(0)),
                *(one.at() for one in self.scratch),
            )

    @property
    def _tables(self) -> tuple[Operand, ...]:
        return (
            Operand("geometry", (self.conv.geometry.size,), "int32"),
            Operand("weights", (sum(self._weights),), "int8"),
            Operand("scaling", (len(self.depths) * self._scaling,), "int32"),
            Operand("limits", (3,), "int32"),
        )

    @property
    def _numbers(self) -> Operand:
        return Operand("numbers", (12 + 3 * len(self.depths),), "int32")

    def arguments(self) -> ConstantArgument:
        """The numbers, as ``utvm_mve_transpose_conv.h`` reads them."""
        w = self.conv.window
        blocks = w.output_height * w.output_width
        product = (w.output_width, blocks, self._pixels, self.conv.depth, self.conv.is_gathered)
        rows = [
            number
            for depth, size in zip(self.depths, self._weights, strict=True)
            for number in (depth, size, self._scaling)
        ]
        values = (*product, *self.strides, *self.first, *self.output[1:], *rows)
        return ConstantArgument("numbers", np.array(values, dtype=np.int32))

    @property
    def _pixels(self) -> int:
        """Multiplied at a time."""
        return self.conv.pixels or _IN_PLACE

    @property
    def _channels(self) -> int:
        """Of a row of a block."""
        return self.strides[1] * self.output[3]

    @property
    def _weights(self) -> list[int]:
        """Bytes of each row's weights."""
        quads = -(-self._channels // gemm.CHANNELS)
        return [quads * gemm.CHANNELS * gemm.padded_depth(depth) for depth in self.depths]

    @property
    def _scaling(self) -> int:
        """Words of each row's scaling."""
        _, scaling, _ = self.conv.product.tables(self._channels, 1)
        return scaling.shape[0]


def mve_transpose_conv_call(call: KernelCall) -> KernelCall | str:
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
    inputs, columns = weights.shape[3], weights.shape[2]
    # [row of a block, channels of the row, row of the window, ...]
    rows = weights.reshape(kernel.strides[0], -1, *weights.shape[1:])
    taps = [-(-(kernel.kernel[0] - r) // kernel.strides[0]) for r in range(kernel.strides[0])]
    depths = tuple(max(count, 1) * columns * inputs for count in taps)
    times = kernel.strides[1]
    multiplier, shift = (np.tile(tables[name], times) for name in ("multiplier", "shift"))
    product = MveProduct(has_left_shift(shift))
    packed, scaling = [], []
    for row, depth in zip(rows, depths, strict=True):
        flat = row.reshape(row.shape[0], -1)[:, -depth:]
        bias = fold_input_offset(np.tile(tables["bias"], times), flat, border)
        packed.append(gemm.pack_weights(flat))
        scaling.append(gemm.pack_scaling(bias, multiplier, shift, has_left=product.has_left))
    conv = gathered(window, (inputs, weights.shape[0]), product, None)
    made = MveTransposeConv(conv, kernel.strides, first, kernel.output, depths)
    limits = np.array([numbers["output_zero_point"], *limits_of(call)], dtype=np.int32)
    return replace(
        call,
        kernel=made,
        arguments=(
            call.arguments[0],
            ConstantArgument("geometry", conv.geometry),
            ConstantArgument("weights", np.concatenate(packed)),
            ConstantArgument("scaling", np.concatenate(scaling)),
            ConstantArgument("limits", limits),
            ScalarArgument("border", border),
            made.arguments(),
            call.arguments[-1],
        ),
    )
