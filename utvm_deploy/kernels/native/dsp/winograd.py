"""CONV_2D by exact Winograd for cores with the DSP extension: 3x3 at stride 1 (``winograd_code``).

A tile has 2 x 2 outputs, or 4 x 4 (``winograd4_transforms``) with weights of int8.

The output is computed in *bands*: some rows of tiles. The band's bytes are copied with their
borders, transformed into V, and multiplied for each two channels of the output. All tables are read
once for each band, so more rows of tiles mean fewer reads of the weights, and more scratch. Names
in the C say strip: a record holds the digest of that C.

Weights are in flash as U, which has 3.6 times the bytes, or as int8. Those of int8 become the U of
two channels in scratch, in each band. They take the place of the band's bytes, which are V by then.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import bytes_texts, shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.contract.driver import Buffer, Driver, Index, Operand
from utvm_deploy.kernels.contract.lag import Lag, lag_by_pixels
from utvm_deploy.kernels.contract.reading import Reading
from utvm_deploy.kernels.contract.strategy import Choices
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.dsp.assembly import shared_blocks, tile
from utvm_deploy.kernels.native.dsp.assembly import winograd4_transforms as larger
from utvm_deploy.kernels.native.dsp.assembly import winograd_code as code
from utvm_deploy.kernels.native.dsp.assembly import winograd_transforms as transforms
from utvm_deploy.kernels.native.layer_tables import ConvolutionTables
from utvm_deploy.kernels.native.micro_kernel import equal_blocks, windows_call
from utvm_deploy.kernels.native.scaling import Scaling
from utvm_deploy.records.candidate import COMPACT_LITTLE, COMPACT_MOST

#: By the outputs of a tile along an axis: the power of two that multiplies sums, in 32 bits.
FACTOR_BITS = {code.OUTPUTS: 2, larger.OUTPUTS: larger.FACTOR_BITS}
#: Rows of tiles in a band that the choice is from.
ROWS = (1, 2, 4, 8)
#: Scratch of a candidate for measuring at most: two bands of 4 x 4 tiles take this in ResNet-8.
MOST_WINOGRAD_BYTES = 30_000
_CHANNELS = 2
_SCALING_WORDS = 8
#: Of ``geometry``: height, width, channels, and the columns before the image.
_GEOMETRY_WORDS = 4
# Cycles of a step of a group, by its tiles.
_STEP = {3: 6.0, 2: 4.0}
# Of a group besides; of its loop over channels, if it has one; of a position.
_GROUP, _TURNS, _POSITION = 4.5, 14.0, 18.0
# Of the outputs of a tile and two channels; of the input of a tile and four channels.
_OUTPUT, _INPUT = {2: 104.0, 4: 470.0}, {2: 112.0, 4: 400.0}
# Of copying four bytes; of the calls for a band and two channels.
_COPY, _CALL = 2.0, 130.0
# Of U for two channels of the output and two of the input.
_EXPANSION = {2: 64.0, 4: 190.0}


@dataclass(frozen=True)
class WinogradChoices(Choices):
    """Rows of tiles in a band, whether weights are int8 in flash, and outputs of a tile's row."""

    method = "winograd"
    rows: int | None = None
    int8: bool = False
    outputs: int = code.OUTPUTS


class EqualBands(NamedTuple):
    """Bands of equally many rows of tiles, one after the other."""

    first: int  # row of tiles
    times: int
    rows: int
    is_cut: bool  # the last row of tiles has fewer rows of outputs


@dataclass(frozen=True)
class DspWinograd:
    """Shape parameters; a band has ``rows`` rows of tiles."""

    window: Window
    input_channels: int
    output_channels: int
    rows: int
    once: bool = False  # requantized with one rounding
    int8: bool = False  # weights in flash, instead of U
    outputs: int = code.OUTPUTS  # of a tile, along an axis

    groups = 1

    @property
    def name(self) -> str:
        channels = f"{self.input_channels}x{self.output_channels}"
        form = f"winograd{self.outputs if self.is_larger else ''}{'_int8' if self.int8 else ''}"
        return f"conv2d_{self.window.label}_{channels}_{form}"

    @property
    def why(self) -> str:
        weights = ", weights of int8" if self.int8 else ""
        form = f"Winograd F({self.outputs}x{self.outputs}, 3x3)"
        return f"DSP assembly, {form}, {self.rows} rows of tiles at a time{weights}"

    @property
    def reading(self) -> Reading:
        # 40 to 61 MACs read one line, and not 32.
        return Reading(windows_per_column=1.5, is_winograd=True, missed=self._missed_cycles)

    @property
    def choices(self) -> WinogradChoices:
        """The choices of a candidate for this kernel."""
        return WinogradChoices(self.rows, self.int8, self.outputs)

    @property
    def rounded_once(self) -> DspWinograd:
        """The kernel for tables of ``single_rounding.py``."""
        return replace(self, once=True)

    @property
    def is_larger(self) -> bool:
        """Whether tiles have 4 x 4 outputs."""
        return self.outputs == larger.OUTPUTS

    @property
    def positions(self) -> int:
        """Positions of a tile."""
        return (self.outputs + 2) ** 2

    @property
    def tiles(self) -> int:
        """Tiles of a row."""
        return -(-self.window.output_width // self.outputs)

    @property
    def tile_rows(self) -> int:
        """Rows of tiles of the output."""
        return -(-self.window.output_height // self.outputs)

    @property
    def runs(self) -> dict[int, int]:
        """Tiles of a group -> groups of a row, in their order."""
        twos = -self.tiles % 3
        if self.is_larger and twos and self.tiles % 2 == 0:
            twos = self.tiles // 2  # code of one kind, which goes through the positions once
        return {n: count for n, count in ((3, (self.tiles - 2 * twos) // 3), (2, twos)) if count}

    @property
    def columns(self) -> int:
        """Columns of the image under a row of tiles."""
        return self.outputs * self.tiles + 2

    @property
    def bands(self) -> list[EqualBands]:
        """All bands, in their order."""
        is_odd = self.window.output_height % self.outputs > 0
        found = [EqualBands(*run, False) for run in equal_blocks(self.tile_rows, self.rows)]
        if is_odd:
            last = found.pop()
            if last.times > 1:
                found.append(last._replace(times=last.times - 1))
            first = last.first + (last.times - 1) * last.rows
            found.append(EqualBands(first, 1, last.rows, True))
        return found

    def places(self, bands: EqualBands) -> Array:
        """``places`` of a band: for each tile in the order of V."""
        w, pixel, m = self.window, self.output_channels, self.outputs
        found = []
        begin = column = 0
        for size, count in self.runs.items():
            group = code.group_bytes(size, self.input_channels)
            stride = group * count * bands.rows
            for row, number, n in np.ndindex(bands.rows, count, size):
                t = column + number * size + n
                there = group * (row * count + number) + 2 * self.input_channels * size
                is_last_row = bands.is_cut and row == bands.rows - 1
                high = (w.output_height - 1) % m + 1 if is_last_row else m
                steps = [pixel if m * t + x < w.output_width else 0 for x in range(1, m)]
                down = w.output_width * pixel if high > 1 else 0
                found.append(
                    (
                        begin + there + 8 * n,
                        stride,
                        m * (row * w.output_width + t) * pixel,
                        *((high, *steps) if self.is_larger else (*steps, down)),
                    )
                )
            begin += self.positions * stride
            column += count * size
        return np.array(found, dtype=np.int32).reshape(-1)

    def v_words(self, rows: int) -> int:
        """Words of V for a band of ``rows`` rows of tiles, without slack."""
        size = sum(n * count for n, count in self.runs.items())
        return self.positions * rows * code.group_bytes(size, self.input_channels) // 4

    @property
    def products(self) -> int:
        """Multiplications of a call."""
        tiles = self.window.batch * self.tile_rows * self.tiles
        return self.positions * tiles * self.input_channels * self.output_channels

    @property
    def lag(self) -> Lag | None:
        pixels = self.outputs * self.rows * self.window.output_width
        return lag_by_pixels(self.window, self.input_channels, self.output_channels, pixels)

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        return (
            *(self._image, self._geometry, self._weights, self._scaling, self._limits),
            *("border", self._places, self._output),
        )

    @property
    def scratch(self) -> tuple[Operand, ...]:
        if not self.int8:
            return self._bytes, self._v
        most = max(-(-self._bytes.size_bytes // 4), self._u_words + code.SLACK_WORDS)
        part = larger.part_words(max(self.runs))
        parts = (Operand("part", (part,), "int32"),) if self.is_larger else ()
        return Operand("bytes", (most,), "int32"), self._v, *parts

    def texts(self, core: str) -> tuple[str, ...]:
        channels = self.input_channels
        if self.is_larger:
            inputs = [larger.input_text(core, n) for n in self.runs]
            expansion = larger.expansion_text(core)
            output = larger.output_text(core, once=self.once)
        else:
            inputs = [transforms.transform_text(core, n, channels) for n in self.runs]
            expansion = transforms.expansion_text(core, channels) if self.int8 else ""
            output = transforms.output_text(core, once=self.once)
        return (
            *bytes_texts(core),
            shared_blocks.helper("utvm_scale_once") if self.once else shared_text("utvm_scale"),
            shared_blocks.helper("utvm_winograd_strip"),
            *inputs,
            *((expansion,) if self.int8 else ()),
            *(code.multiply_text(core, n, channels, self.positions) for n in self.runs),
            output,
        )

    def drive(self, c: Driver) -> None:
        begin = 0
        for one in self.bands:
            with c.loop("batch", self.window.batch) as n, c.loop("strip", one.times) as number:
                self._compute(c, one, n, number * one.rows + one.first, begin)
            begin += self.places(one).size

    def _compute(self, c: Driver, one: EqualBands, n: Index, first: Index, begin: int) -> None:
        w, channels = self.window, self.input_channels
        image, rows, v = self._image, self._bytes, self._v
        y = first * self.outputs
        high = self.outputs * one.rows + 2
        c.call(
            *("utvm_winograd_strip", image.at(n), rows.at(), y + -w.top, high, self.columns),
            *("border", self._geometry.at()),
        )
        start, column = 0, 0
        for size, count in self.runs.items():
            group = code.group_bytes(size, channels)
            stride = group * count * one.rows
            with c.loop("row", one.rows) as row, c.loop("group", count) as number:
                place = row * (count * group // 4) + number * (group // 4) + start
                x = number * (self.outputs * size) + column
                name = transforms.transform_name(size, channels)
                c.call(
                    larger.input_name(size) if self.is_larger else name,
                    *(rows.at(row * self.outputs, x), v.at(place)),
                    *(channels // 4, self.columns * channels, stride),
                    *(("part",) if self.is_larger else ()),
                )
            start += self.positions * stride // 4
            column += self.outputs * size * count
        pairs = self.output_channels // _CHANNELS
        with c.loop("pair", pairs) as pair:
            start, weights = 0, self._weights.at(pair * self._pair_words)
            if self.int8:
                expanded = Buffer("bytes", "int32").at()
                name = transforms.expansion_name(channels)
                name = larger.EXPANSION if self.is_larger else name
                c.call(name, weights, expanded, channels // 4)
                weights = expanded
            for size, count in self.runs.items():
                groups = count * one.rows
                c.call(
                    code.multiply_name(size, channels, self.positions),
                    *(v.at(start), weights, groups, channels // 4, size),
                )
                start += self.positions * groups * code.group_bytes(size, channels) // 4
            make = larger.output_name if self.is_larger else transforms.output_name
            c.call(
                *(make(once=self.once), v.at(), self._scaling.at(pair * _SCALING_WORDS)),
                *(self._limits.at(), self._output.at(n, y, 0, pair * _CHANNELS)),
                *(self._places.at(begin), one.rows * self.tiles),
                *((w.output_width * self.output_channels,) if self.is_larger else ()),
            )

    @property
    def estimated_cycles(self) -> float:
        """Cycles of a layer, as the cores take them that have records."""
        channels, pairs = self.input_channels, self.output_channels // _CHANNELS
        step = code.step_of(channels)
        group = _GROUP if step == channels else _GROUP + _TURNS + 2 * channels / step
        cycles = 0.0
        for one in self.bands:
            multiplied = sum(
                count * one.rows * (channels / 2 * _STEP[n] + group) + _POSITION
                for n, count in self.runs.items()
            )
            tiles = one.rows * self.tiles
            band = pairs * (self.positions * multiplied + tiles * _OUTPUT[self.outputs] + _CALL)
            copied = (self.outputs * one.rows + 2) * self.columns * channels / 4 * _COPY
            cycles += one.times * (band + tiles * channels / 4 * _INPUT[self.outputs] + copied)
        if self.int8:
            passes = sum(one.times for one in self.bands)
            cycles += passes * pairs * channels / 2 * _EXPANSION[self.outputs]
        return self.window.batch * cycles + self._missed_cycles

    @property
    def _missed_cycles(self) -> float:
        """Cycles of the estimate that wait for weights."""
        weights = 4 * self.output_channels // _CHANNELS * self._pair_words
        passes = sum(one.times for one in self.bands)
        return self.window.batch * tile.cache_cycles(passes, weights)

    def make_call(
        self, call: KernelCall, tables: ConvolutionTables, scaling: Scaling
    ) -> KernelCall:
        """The call instead of the portable one."""
        w = self.window
        geometry = np.array([w.height, w.width, self.input_channels, w.left], dtype=np.int32)
        rows = np.array(scaling, dtype=np.int32)
        if not self.once:
            rows[0] *= 1 << FACTOR_BITS[self.outputs]
        by_pair = rows.reshape(len(rows), -1, _CHANNELS).swapaxes(0, 1)
        pack = int8_weights if self.int8 else packed_weights
        packed = (
            ConstantArgument("weights", pack(tables.weights)),
            ConstantArgument("scaling", np.ascontiguousarray(by_pair).reshape(-1)),
            ConstantArgument("limits", np.array(tables.limits, dtype=np.int32)),
        )
        places = np.concatenate([self.places(one) for one in self.bands])
        other = ConstantArgument("places", places)
        found = windows_call(call, self, geometry, packed, tables.border, other)
        # Other kernels have smaller weights, or share more code.
        heeds = COMPACT_MOST if self.int8 else COMPACT_LITTLE
        return replace(found, heeds_compact=heeds, products=self.products)

    @property
    def _image(self) -> Operand:
        return Operand("image", self.window.input_shape(self.input_channels), "int8")

    @property
    def _geometry(self) -> Operand:
        return Operand("geometry", (_GEOMETRY_WORDS,), "int32")

    @property
    def _weights(self) -> Operand:
        size = self.output_channels // _CHANNELS * self._pair_words
        return Operand("weights", (size + (0 if self.int8 else code.SLACK_WORDS),), "int32")

    @property
    def _u_words(self) -> int:
        """Words of U for two channels of the output."""
        return self.positions * self.input_channels

    @property
    def _pair_words(self) -> int:
        """Words in flash for two channels of the output."""
        return transforms.TAPS * self.input_channels // 2 if self.int8 else self._u_words

    @property
    def _scaling(self) -> Operand:
        return Operand("scaling", (self.output_channels // _CHANNELS * _SCALING_WORDS,), "int32")

    @property
    def _limits(self) -> Operand:
        return Operand("limits", (2,), "int32")

    @property
    def _places(self) -> Operand:
        words = larger.PLACE_WORDS if self.is_larger else code.PLACE_WORDS
        size = sum(one.rows * self.tiles * words for one in self.bands)
        return Operand("places", (size,), "int32")

    @property
    def _output(self) -> Operand:
        return Operand("output", self.window.output_shape(self.output_channels), "int8")

    @property
    def _bytes(self) -> Operand:
        high = max(self.outputs * one.rows for one in self.bands) + 2
        name = "(int8_t *)bytes" if self.int8 else "bytes"
        return Operand(name, (high, self.columns, self.input_channels), "int8")

    @property
    def _v(self) -> Operand:
        most = max(one.rows for one in self.bands)
        return Operand("transformed", (self.v_words(most) + code.SLACK_WORDS,), "int32")


def packed_weights(weights: Array) -> Array:
    """U of weights [outputs, 3, 3, inputs], as words of two int16."""
    g = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]], dtype=np.int32)
    u = np.einsum("ik,oklc,jl->oijc", g, weights.astype(np.int32), g)
    outputs, inputs = weights.shape[0], weights.shape[3]
    # pair, channel, position, quad, lane, half -> pair, position, quad, half, channel, lane
    split = u.reshape(outputs // 2, 2, code.POSITIONS, inputs // 4, 2, 2)
    words = np.ascontiguousarray(split.transpose(0, 2, 3, 5, 1, 4).astype("<i2"))
    return np.concatenate([words.reshape(-1).view("<i4"), np.zeros(code.SLACK_WORDS, np.int32)])


def int8_weights(weights: Array) -> Array:
    """Weights [outputs, 3, 3, inputs] as words of four int8, in the order of U."""
    outputs, inputs = weights.shape[0], weights.shape[3]
    # pair, channel, tap, quad, lane, half -> pair, quad, half, tap, lane, channel
    split = weights.reshape(outputs // 2, 2, transforms.TAPS, inputs // 4, 2, 2)
    words = np.ascontiguousarray(split.transpose(0, 3, 5, 2, 4, 1).astype("i1"))
    return words.reshape(-1).view("<i4")


def winograd_kernels(
    window: Window, inputs: int, outputs: int, groups: int, *, is_compact: bool = False
) -> Iterator[DspWinograd]:
    """All kernels to choose from, or the compact ones; none if the layer is not of this kind."""
    is_plain = window.kernel == (3, 3) and window.strides == window.dilations == (1, 1)
    if not is_plain or groups > 1 or inputs % 4 or outputs % _CHANNELS:
        return
    fewest = math.inf
    for m in FACTOR_BITS:
        # Tiles that reach beyond the output may take as many products as smaller ones.
        height, width = -(-window.output_height // m), -(-window.output_width // m)
        products = height * width * (m + 2) ** 2
        if width == 1 or products >= fewest:
            return
        fewest = products
        for rows in ROWS:
            rows = min(rows, -(-window.output_height // m))
            kernel = DspWinograd(window, inputs, outputs, rows, outputs=m)
            if m == code.OUTPUTS and not is_compact:
                yield kernel
            if inputs <= transforms.MOST_EXPANDED:
                yield replace(kernel, int8=True)
            if rows >= kernel.tile_rows:
                break
