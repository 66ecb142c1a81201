"""Convolutions of level size: one driver in C for all layers, and tables of few bytes.

A layer's table begins with its numbers, so drivers of different shapes are one function. The bias
and the shift of a channel share a word. When a layer runs, the driver unpacks its scaling into
scratch, in the form that the routine reads; of a depthwise layer, the taps, too.

    weights  int8 [HEIGHT ... BLOCK], the order of ``c/utvm_layer.h``: a byte or two each, and one
             that fills them up; then [channel][bias << 5 | shift, multiplier], words of 4 bytes;
             then weights: those of ``tile.py``, or of a depthwise layer [group of four
             channels][tap][channel]
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import bytes_texts, replaced, shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.contract.driver import Driver, Operand
from utvm_deploy.kernels.native.dsp.assembly import tile
from utvm_deploy.kernels.native.dsp.assembly.shared_blocks import helper
from utvm_deploy.kernels.native.dsp.assembly.value_types import INT8_UNSHIFTED
from utvm_deploy.kernels.native.dsp.depthwise_pixels import GROUP, DspPixels
from utvm_deploy.kernels.native.dsp.patches import DspPatches
from utvm_deploy.kernels.native.layer_tables import ConvolutionTables
from utvm_deploy.kernels.native.micro_kernel import by_groups, packed_halves
from utvm_deploy.kernels.native.scaling import Scaling
from utvm_deploy.records.candidate import COMPACT_MOST

#: A bias takes the bits of a word that its shift leaves.
SHIFT_BITS = 5
_BIAS_LIMIT = 1 << (31 - SHIFT_BITS)
#: Of a layer's table.
_NUMBERS_BYTES = 28
_PACKED_BYTES = 8  # of a channel's scaling
#: Of a depthwise layer with packed weights: which taps a group has, and where the next group's are.
_TAPS = "t = 0; t < kernel_rows * kernel_columns; t++"
_NEXT_TAPS = "taps += (kernel_rows * kernel_columns + 1) / 2 * 4;"
#: Of a layer with packed weights: the scratch also takes those of two channels, unpacked.
_LINE = f"""\
int8_t *line = (int8_t *)(void *)end;
    int16_t *patches = (int16_t *)(void *)(line + {tile.CHANNELS} * depth + {tile.SLACK_BYTES});"""
#: Numbers of two bytes, of one, and of two.
_NUMBER_TYPES = ("<i2",) * 4 + ("i1",) * 13 + ("<i2",) * 3


@dataclass(frozen=True)
class SharedPatches(DspPatches):
    """A convolution over patches by the shared driver."""

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        weights, _, _ = self.tables
        packed = _even(self.output_channels) * _PACKED_BYTES
        return _parameters(self._image, packed + weights.elements, self._output)

    @property
    def scratch(self) -> tuple[Operand, ...]:
        words = _even(self.output_channels) // tile.CHANNELS * self.product.values.scaling_words
        others = self.windows(self._block), *self.product.lines
        return (_scratch(4 * words + sum(one.size_bytes for one in others)),)

    @property
    def _driver(self) -> str:
        return f"utvm_convolution_layer{'_int4' if self.product.values.halves else ''}"

    def texts(self, core: str) -> tuple[str, ...]:
        driver = helper("utvm_convolution_layer")
        if self.product.values.halves:
            driver = replaced(
                driver,
                ("utvm_convolution_layer", self._driver, 1),
                ("_unshifted(", "_unshifted_int4(", 1),
                ("int16_t *patches = (int16_t *)(void *)end;", _LINE, 1),
                ("channels, depth);", "channels, depth, line);", 1),
            )
        return *super().texts(core), helper("utvm_layer"), driver

    def drive(self, c: Driver) -> None:
        _drive(c, self._driver, self)

    def make_call(
        self, call: KernelCall, tables: ConvolutionTables, scaling: Scaling
    ) -> KernelCall:
        """The call instead of the portable one."""
        weights, scaling = without_constants(tables.weights, scaling, tables.zero_point)
        rows = np.array(scaling, dtype=np.int32)
        flat = weights.reshape(len(weights), -1)
        table, _ = self.product.pack(flat, rows)
        packed = packed_scaling(scaling, tile.CHANNELS)
        numbers = _numbers(self, tables, self.output_channels, self._block)
        return _call(call, self, numbers, packed, table)


@dataclass(frozen=True)
class SharedPixels(DspPixels):
    """A depthwise convolution by pixels, by the shared driver."""

    halves: bool = False  # weights of int4, in the form of ``halves.py``

    @property
    def name(self) -> str:
        return f"{super().name}{'_int4' if self.halves else ''}"

    @property
    def parameters(self) -> tuple[Operand, ...]:
        taps = self.window.kernel[0] * self.window.kernel[1]
        stored = -(-taps // 2) if self.halves else taps
        return _parameters(self._image, self.pitch * (_PACKED_BYTES + stored), self._output)

    @property
    def scratch(self) -> tuple[Operand, ...]:
        taps = self.window.kernel[0] * self.window.kernel[1]
        table = self.pitch * (2 * taps + 4 * len(Scaling._fields))
        return (_scratch(table + sum(one.size_bytes for one in super().scratch)),)

    def texts(self, core: str) -> tuple[str, ...]:
        driver = replaced(
            helper("utvm_depthwise_layer"),
            ("utvm_depthwise_layer", self._driver, 1),
            ("FUNCTION", self.product.function, 1),
        )
        if self.halves:
            driver = replaced(
                driver,
                *((f"taps[{n}]", f"utvm_half(taps, t, {n})", 1) for n in range(GROUP)),
                ("t = kernel_rows * kernel_columns; t > 0; t--, taps += 4", _TAPS, 1),
                (
                    "        end = utvm_unpack",
                    f"        {_NEXT_TAPS}\n        end = utvm_unpack",
                    1,
                ),
            )
        rows = *bytes_texts(core), shared_text("utvm_rows")
        half = (helper("utvm_half"),) if self.halves else ()
        return *self.product.texts(core), *rows, helper("utvm_layer"), *half, driver

    def drive(self, c: Driver) -> None:
        _drive(c, self._driver, self)

    @property
    def _driver(self) -> str:
        return f"{self.product.function}_layer{'_int4' if self.halves else ''}"

    def make_call(
        self, call: KernelCall, tables: ConvolutionTables, scaling: Scaling
    ) -> KernelCall:
        """The call instead of the portable one."""
        weights, scaling = without_constants(tables.weights, scaling, tables.zero_point)
        taps: Array = by_groups(weights.reshape(self.channels, -1).T, GROUP).astype(np.int8)
        if self.halves:
            taps = packed_halves(np.pad(taps, ((0, 0), (0, taps.shape[1] % 2), (0, 0))))
        packed = packed_scaling(scaling, GROUP)
        copied = self.window.padded_width if self.is_copied else 0
        numbers = _numbers(self, tables, self.channels, copied)
        return _call(call, self, numbers, packed, taps.reshape(-1))


def shared_patches(kernel: DspPatches) -> SharedPatches:
    """The same convolution by the shared driver."""
    values = replace(INT8_UNSHIFTED, halves=kernel.product.values.halves)
    product = replace(kernel.product, values=values)
    sizes = kernel.window, kernel.input_channels, kernel.output_channels
    return SharedPatches(*sizes, product, kernel.pixels)


def shares_driver(tables: ConvolutionTables, outputs: int, scaling: Scaling) -> bool:
    """Whether the numbers of a layer fit its table, and its biases fit their bits."""
    w = tables.window
    small = (*w.kernel, *w.strides, *w.dilations, w.top, w.left, w.batch)
    large = (w.height, w.width, tables.inputs, w.output_width, w.output_height, outputs)
    biases = np.abs(scaling.bias.astype(np.int64))
    return (
        max(map(abs, small)) <= np.iinfo(np.int8).max
        and max(*large, w.padded_width) <= np.iinfo(np.int16).max
        and int(biases.max()) < _BIAS_LIMIT
    )


def without_constants(weights: Array, scaling: Scaling, zero_point: int) -> tuple[Array, Scaling]:
    """Weights and scaling with the same outputs, whose offsets all follow from ``zero_point``.

    A channel whose multiplier is 0 has one output for all inputs, c, which its offset says. It gets
    weights of 0, the bias 4 (c - zero point), the multiplier 1/2 and the shift 1.
    """
    is_constant = scaling.multiplier == 0
    outputs = np.right_shift(scaling.offset, scaling.shift)
    bias = np.where(is_constant, 4 * (outputs - zero_point), scaling.bias).astype(np.int32)
    multiplier = np.where(is_constant, 1 << 30, scaling.multiplier).astype(np.int32)
    shift = np.where(is_constant, 1, scaling.shift).astype(np.int32)
    offset = ((2 * zero_point + 1) << (shift - 1)).astype(np.int32)
    kept = np.where(is_constant.reshape(-1, *[1] * (weights.ndim - 1)), 0, weights)
    return kept.astype(np.int8), Scaling(bias, multiplier, offset, shift)


def packed_scaling(scaling: Scaling, group: int) -> Array:
    """[channel, 8 bytes] as int8; channels that fill up the last group have a shift of 1."""
    words = np.stack([scaling.bias.astype(np.int64) << SHIFT_BITS, scaling.multiplier], axis=1)
    words[:, 0] |= scaling.shift
    missing = -len(words) % group
    filled = np.concatenate([words, np.tile([[1, 0]], (missing, 1))])
    packed: Array = filled.astype("<i4").view(np.int8).reshape(-1)
    return packed


def _numbers(
    kernel: SharedPatches | SharedPixels, tables: ConvolutionTables, outputs: int, block: int
) -> Array:
    """The table of a layer. ``block``: pixels of a block, or columns of copied rows."""
    w = kernel.window
    window = (w.height, w.width, tables.inputs, w.output_width, *w.kernel, *w.strides)
    apart = w.dilations[1] if w.kernel[1] > 1 else 1
    places = (w.dilations[0], apart, w.top, w.left, w.batch)
    values = (*tables.limits, tables.border, tables.zero_point, w.output_height, outputs, block)
    numbers = zip((*window, *places, *values), _NUMBER_TYPES, strict=True)
    packed = b"".join(np.array(value, dtype=kind).tobytes() for value, kind in numbers)
    return np.frombuffer(packed.ljust(_NUMBERS_BYTES, b"\0"), dtype=np.int8)


def _parameters(image: Operand, table_bytes: int, output: Operand) -> tuple[Operand, ...]:
    return image, Operand("table", (_NUMBERS_BYTES + table_bytes,), "int8"), output


def _scratch(size_bytes: int) -> Operand:
    return Operand("scratch", (-(-size_bytes // 4),), "int32")


def _drive(c: Driver, function: str, kernel: SharedPatches | SharedPixels) -> None:
    """Pass all parameters on, so that compilers make one jump of the call."""
    given = [one for one in (*kernel.parameters, *kernel.scratch) if not isinstance(one, str)]
    c.call(function, *(one.at() for one in given))


def _call(call: KernelCall, kernel: SharedPatches | SharedPixels, *tables: Array) -> KernelCall:
    """The call instead of the portable one; ``tables`` follow each other."""
    constant = ConstantArgument("weights", np.concatenate(tables))
    arguments = call.arguments[0], constant, call.arguments[-1]
    return replace(call, kernel=kernel, arguments=arguments, heeds_compact=COMPACT_MOST)


def _even(channels: int) -> int:
    return -(-channels // tile.CHANNELS) * tile.CHANNELS
