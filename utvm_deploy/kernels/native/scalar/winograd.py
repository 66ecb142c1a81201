"""CONV_2D by exact Winograd, 3x3 at stride 1, in C: F(4x4, 3x3) and F(2x2, 3x3) in integers.

A *tile* is m x m outputs, which see n x n inputs d, n = m + 2. With the weights g of a channel,

    U = G g G^T,   V = B^T d B,   Y = A^T (sum over channels of U V) A = f outputs,

where the sum is made for each of the n x n *positions*. The points are 0, 1, -1 and infinity, for
m = 4 also 2 and -2 (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016).
Rows of G and columns of A^T are multiplied so that no matrix has fractions, and that f is one
number. It is 2**2 for m = 2, and 24**2 = 9 * 2**6 for m = 4.

All sums are modulo 2**32. The inverse of 9 modulo 2**32 makes 2**6 y of 24**2 y. It is exact if
2**6 |y| < 2**31. So each layer's bound of |y|, from its weights and bias, must be below 2**25, and
below 2**29 for m = 2. Rows of G sum up to 7 at most, and rows of B^T to 10, in absolute values. So
U stays within 49 * 128, and V within 100 * 128: both fit 16 bits.

Two channels are transformed at once: a word of V is v0 + 2**16 v1. Bytes become 0 to 255. That
adds at most 36 * 128 to V at one position, as B^T of ones is 0 elsewhere. Each lower half gets
2**15, so that it borrows nothing from the upper one. ``start`` takes both off again.

A block of up to four tiles is computed at a time, for four channels of the output at a time.

Layouts, in the order of channels 0, 2, 1, 3 of each four:
    V        uint32 [pair of channels][position][tile]
    U        int16  [group of four outputs][position][channel][slot]
    start    int32  [group][position][slot]
    products uint32 [tile][position][slot]
    scaling  int32  [group][bias * 2**bits, multiplier, offset, shift][slot]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import bytes_texts, family_text, replaced, shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall, ScalarArgument
from utvm_deploy.kernels.contract.driver import Driver, Number, Operand
from utvm_deploy.kernels.contract.lag import Lag, lag_by_pixels
from utvm_deploy.kernels.contract.reading import Reading
from utvm_deploy.kernels.contract.strategy import Choices
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.layer_tables import ConvolutionTables
from utvm_deploy.kernels.native.micro_kernel import by_groups, equal_blocks
from utvm_deploy.kernels.native.scalar.rounding import TWICE, Rounding, short_rounding
from utvm_deploy.records.candidate import COMPACT_LITTLE

CHANNELS = 4
#: Tiles of a block at most, whose sums stay in registers.
MOST_TILES = 4
#: Channels of a quad in the order of the halves of its two words, lower ones first.
_ORDER = (0, 2, 1, 3)
#: What a lower half is raised by, and a byte of the image.
_RAISED, _UNSIGNED = 1 << 15, 1 << 7


class Form(NamedTuple):
    """What F(m x m, 3x3) consists of."""

    bits: int  # of the power of two in the factor of sums
    inverse: int  # modulo 2**32, of the odd part of that factor
    transform: tuple[tuple[int, int, int], ...]  # G
    ones: int  # what B^T of ones is at row 1; it is 0 elsewhere
    # Instructions for the input of a tile and four channels, and the output of one channel.
    input: float
    output: float


FORMS = {
    2: Form(2, 1, ((2, 0, 0), (1, 1, 1), (1, -1, 1), (0, 0, 2)), 2, 300.0, 100.0),
    4: Form(
        6,
        pow(9, -1, 1 << 32),
        ((3, 0, 0), (-1, -1, -1), (-1, 1, -1), (1, 2, 4), (1, -2, 4), (0, 0, 3)),
        -6,
        900.0,
        400.0,
    ),
}


@dataclass(frozen=True)
class WinogradChoices(Choices):
    """Rows of a tile's outputs, and tiles of a block."""

    method: ClassVar[str] = "winograd"
    outputs: int
    tiles: int = MOST_TILES


@dataclass(frozen=True)
class ScalarWinograd:
    """Shape parameters; a tile is ``outputs`` x ``outputs``."""

    window: Window
    input_channels: int
    output_channels: int
    outputs: int
    tiles: int  # of a block
    rounding: Rounding

    @property
    def name(self) -> str:
        channels = f"{self.input_channels}x{self.output_channels}"
        form = f"winograd{self.outputs}_{self.tiles}{self.rounding.label}"
        return f"conv2d_{self.window.label}_{channels}_scalar_{form}"

    @property
    def why(self) -> str:
        size = f"{self.outputs}x{self.outputs}"
        return f"C, Winograd F({size}, 3x3), {self.tiles} tiles x {CHANNELS} channels in registers"

    @property
    def reading(self) -> Reading:
        return Reading(windows_per_column=1.5, is_winograd=True)

    @property
    def choices(self) -> WinogradChoices:
        """The choices of a candidate for this kernel."""
        return WinogradChoices(self.outputs, self.tiles)

    @property
    def form(self) -> Form:
        return FORMS[self.outputs]

    @property
    def positions(self) -> int:
        return (self.outputs + 2) ** 2

    @property
    def depth(self) -> int:
        """Channels of the input, filled up to fours."""
        return -(-self.input_channels // 4) * 4

    @property
    def groups(self) -> int:
        return -(-self.output_channels // CHANNELS)

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of tiles of the output."""
        w, m = self.window, self.outputs
        return -(-w.output_height // m), -(-w.output_width // m)

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of tiles of a block."""
        rows, columns = self.size
        columns = min(columns, self.tiles)
        return min(rows, self.tiles // columns), columns

    @property
    def lag(self) -> Lag | None:
        rows, columns = self.block
        pixels = self.outputs * rows * self.window.output_width
        is_part = columns < self.size[1]
        sizes = self.input_channels, self.output_channels, pixels
        return lag_by_pixels(self.window, *sizes, mixed=is_part)

    @property
    def products(self) -> int:
        """Multiplications of a call."""
        tiles = self.window.batch * self.size[0] * self.size[1]
        return self.positions * tiles * self.input_channels * self.output_channels

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        return self._image, *self._tables, "border", self._output

    @property
    def scratch(self) -> tuple[Operand, ...]:
        rows, columns = self.block
        pixels = (self.outputs * rows + 2) * (self.outputs * columns + 2)
        products = rows * columns * self.positions * CHANNELS
        return (
            Operand("work", (max(pixels * self.depth // 4, products),), "uint32"),
            Operand("transformed", (self.depth // 2 * self.positions * rows * columns,), "uint32"),
        )

    def texts(self, core: str) -> tuple[str, ...]:
        return (
            *bytes_texts(core),
            shared_text("utvm_rows"),
            *(
                family_text("scalar", f"utvm_{name}")
                for name in ("scalar_keep", "scalar_halves", f"winograd_axis_{self.outputs}")
            ),
            self.rounding.text,
            *(input_text(self.outputs, tiles) for tiles in self._block_tiles),
            *(multiply_text(self.outputs, tiles) for tiles in self._block_tiles),
            output_text(self.outputs, self.rounding),
        )

    def drive(self, c: Driver) -> None:
        (all_rows, all_columns), (rows, columns) = self.size, self.block
        with c.loop("batch", self.window.batch) as n:
            for first_row, times, high in equal_blocks(all_rows, rows):
                with c.loop("row", times) as row:
                    y = (row * high + first_row) * self.outputs
                    for first, count, wide in equal_blocks(all_columns, columns):
                        with c.loop("column", count) as column:
                            x = (column * wide + first) * self.outputs
                            self._compute(c, (n, y, x), high * wide, wide)

    @property
    def estimated_cycles(self) -> float:
        """About the instructions of a call."""
        total = 0.0
        quads = self.depth // 4
        for _, times, high in equal_blocks(self.size[0], self.block[0]):
            for _, count, wide in equal_blocks(self.size[1], self.block[1]):
                tiles = high * wide
                turn = 4 * (tiles + CHANNELS + 2 * tiles * CHANNELS) + 4
                multiplied = self.positions * (quads * turn + 2 * tiles * CHANNELS + 12)
                pixels = (self.outputs * high + 2) * (self.outputs * wide + 2)
                read = tiles * quads * self.form.input + pixels * self.depth
                written = tiles * self.output_channels * self.form.output
                total += times * count * (read + self.groups * multiplied + written)
        return self.window.batch * total

    def make_call(self, call: KernelCall, tables: ConvolutionTables) -> KernelCall | str:
        """The call instead of the portable one, or why it would not be exact."""
        found = short_rounding(tables, self.form.bits)
        if isinstance(found, str):
            return found
        rounding, scaling = found
        kernel = replace(self, rounding=rounding)
        weights, start = packed_weights(tables.weights, self.outputs)
        rows = by_groups(np.array(scaling, dtype=np.int32), CHANNELS)
        constants = (
            ConstantArgument("weights", weights),
            ConstantArgument("start", start),
            ConstantArgument("scaling", rows.reshape(-1)),
            ConstantArgument("limits", np.array(tables.limits, dtype=np.int32)),
        )
        border = ScalarArgument("border", tables.border)
        arguments = (call.arguments[0], *constants, border, call.arguments[-1])
        # Other kernels have smaller weights.
        return replace(
            call,
            kernel=kernel,
            arguments=arguments,
            heeds_compact=COMPACT_LITTLE,
            products=self.products,
        )

    def _compute(
        self, c: Driver, place: tuple[Number, Number, Number], tiles: int, columns: int
    ) -> None:
        """Write the calls for a block at the image, row and column ``place``."""
        w, (n, y, x), depth = self.window, place, self.depth
        work, v = self.scratch
        weights, start, scaling, limits = self._tables
        c.call(
            _name(self.outputs, "input", str(tiles)),
            *(self._image.at(n), work.at(), v.at(), y + -w.top, x + -w.left),
            *(w.height, w.width, self.input_channels, columns, "border"),
        )
        with c.loop("group", self.groups) as group:
            c.call(
                _name(self.outputs, "multiply", str(tiles)),
                *(v.at(), weights.at(group * (self.positions * depth * CHANNELS))),
                *(start.at(group * (self.positions * CHANNELS)), work.at(), depth // 4),
            )
            channels = self.output_channels
            c.call(
                _name(self.outputs, "output", self.rounding.label),
                *(work.at(), scaling.at(group * (4 * CHANNELS)), limits.at()),
                self._output.at(n, y, x, group * CHANNELS),
                *(y * -1 + w.output_height, x * -1 + w.output_width, w.output_width * channels),
                *(channels, group * -CHANNELS + channels, tiles, columns),
            )

    @property
    def _block_tiles(self) -> list[int]:
        """Tiles of all blocks that there are."""
        rows, columns = (
            {one for _, _, one in equal_blocks(*pair)}
            for pair in zip(self.size, self.block, strict=True)
        )
        return sorted({high * wide for high in rows for wide in columns})

    @property
    def _tables(self) -> tuple[Operand, Operand, Operand, Operand]:
        slots = self.groups * CHANNELS
        return (
            Operand("weights", (slots * self.positions * self.depth,), "int16"),
            Operand("start", (slots * self.positions,), "int32"),
            Operand("scaling", (slots * 4,), "int32"),
            Operand("limits", (2,), "int32"),
        )

    @property
    def _image(self) -> Operand:
        return Operand("image", self.window.input_shape(self.input_channels), "int8")

    @property
    def _output(self) -> Operand:
        return Operand("output", self.window.output_shape(self.output_channels), "int8")


def winograd_kernels(tables: ConvolutionTables) -> Iterator[ScalarWinograd]:
    """All kernels to choose from; none if the layer is not of this kind, or not exact in any."""
    w = tables.window
    outputs, _, _, inputs = tables.weights.shape
    is_plain = w.kernel == (3, 3) and w.strides == w.dilations == (1, 1)
    if not is_plain or inputs != tables.inputs:
        return
    for m, form in FORMS.items():
        found = short_rounding(tables, form.bits)
        if isinstance(found, str):
            continue
        for tiles in range(MOST_TILES, 0, -1):
            kernel = ScalarWinograd(w, inputs, outputs, m, tiles, found[0])
            if kernel.block[0] * kernel.block[1] == tiles:
                yield kernel


def packed_weights(weights: Array, m: int) -> tuple[Array, Array]:
    """``weights`` and ``start`` of weights [outputs, 3, 3, inputs]."""
    form = FORMS[m]
    g = np.array(form.transform, dtype=np.int32)
    outputs, _, _, inputs = weights.shape
    filled = np.pad(weights, ((0, -outputs % CHANNELS), (0, 0), (0, 0), (0, -inputs % 4)))
    u = np.einsum("ik,oklc,jl->oijc", g, filled.astype(np.int32), g)
    positions, depth = (m + 2) ** 2, filled.shape[3]
    quads = u.reshape(-1, CHANNELS, positions, depth // 4, 4)[..., _ORDER]
    # group, slot, position, quad, lane -> group, position, quad, lane, slot
    quads = quads.transpose(0, 2, 3, 4, 1)
    sums = _RAISED * quads[:, :, :, ::2].sum(axis=(2, 3), dtype=np.int64)
    raised = m + 3  # the position of row 1 and column 1
    sums[:, raised] += _UNSIGNED * form.ones**2 * quads[:, raised].sum(axis=(1, 2), dtype=np.int64)
    start = (-sums).astype(np.uint32).view(np.int32)
    return quads.astype(np.int16).reshape(-1), start.reshape(-1)


def _name(m: int, part: str, suffix: str) -> str:
    return f"utvm_winograd{m}_{part}{'' if suffix.startswith('_') else '_'}{suffix}"


@lru_cache(maxsize=32)
def input_text(m: int, tiles: int) -> str:
    """The C function that makes V of a block."""
    return replaced(
        family_text("scalar", "utvm_scalar_winograd_input"),
        ("NAME", _name(m, "input", str(tiles)), 1),
        ("TILES", str(tiles), 5),
        ("POSITIONS", str((m + 2) ** 2), 1),
        ("OUTPUTS", str(m), 6),
        ("INPUTS", str(m + 2), 13),
    )


@lru_cache(maxsize=32)
def multiply_text(m: int, tiles: int) -> str:
    """The C function that multiplies a block with four channels."""
    slots, block = range(CHANNELS), range(tiles)
    positions = (m + 2) ** 2
    turn = []
    for lane in range(4):
        half = "upper" if lane % 2 else "lower"
        turn += [f"w{c} = (uint32_t)(int32_t)taps[{lane * CHANNELS + c}];" for c in slots]
        for t in block:
            turn += [f"x = utvm_{half}_half(at + {lane // 2 * positions * tiles + t});"]
            turn += [f"t{t}{c} += x * w{c};" for c in slots]
    steps = {"taps": 4 * CHANNELS, "at": 2 * positions * tiles}
    turn += [f"{name} += {step}; UTVM_SCALAR_KEEP({name});" for name, step in steps.items()]
    begin = [f"uint32_t t{t}{c} = (uint32_t)start[{c}];" for t in block for c in slots]
    end = [f"products[{t * positions * CHANNELS + c}] = t{t}{c};" for t in block for c in slots]
    return replaced(
        family_text("scalar", "utvm_scalar_winograd_multiply"),
        ("NAME", _name(m, "multiply", str(tiles)), 1),
        ("BEGIN", "\n".join(begin), 1),
        ("MULTIPLY", "\n".join(turn), 1),
        ("END", "\n".join(end), 1),
        ("TILES", str(tiles), 1),
        ("POSITIONS", str(positions), 1),
    )


@lru_cache(maxsize=8)
def output_text(m: int, rounding: Rounding) -> str:
    """The C function that makes the outputs of a block and four channels."""
    form = FORMS[m]
    exact = f"({{}} >> {form.bits})" if rounding == TWICE else "{}"
    value = exact.format("(int32_t)sum")
    return replaced(
        family_text("scalar", "utvm_scalar_winograd_output"),
        ("NAME", _name(m, "output", rounding.label), 1),
        ("SCALED", rounding.scaled(value), 1),
        ("POSITIONS", str((m + 2) ** 2), 1),
        ("INVERSE", f"{form.inverse}u", 1),
        ("OUTPUTS", str(m), 8),
        ("INPUTS", str(m + 2), 5),
    )
