"""DEPTHWISE_CONV_2D of small windows for cores with Helium: four pixels of a channel at a time.

VMLADAV sums up a window in one instruction, if its bytes are one vector: four columns of four rows.
So three routines follow each other for one or two rows of the output:

1. Four rows are interleaved: a word has the four rows of a channel at a column.
2. A gathering load takes four columns of a channel, and VMLADAV computes a pixel. Four pixels are
   requantized together. They are two columns of two rows, or four columns of one row.
3. Words of four pixels are split into pixels of sixteen channels.

The second loop goes through the channels. Its turn requantizes the sums of the turn before, so the
first turn stores a word that nothing reads, and the last one adds up a channel too many. Tables
have a channel more for that: weights behind the last one, scaling before the first one.

Layouts, for y of one or two rows of the output:
    columns  int8  [column][channel][row]
    weights  int8  [channel][y][column][row]
    scaling  int32 [channel][bias, multiplier, right shift]
    quads    int8  [four pixels][spare word, channel][pixel]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import family_text, replaced
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import Argument, Buffer, Driver, Number, Operand, buffers
from utvm_deploy.kernels.contract.lag import Lag, lag_by_pixels
from utvm_deploy.kernels.isa.assembler import Assembler, StackFrame
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.mnemonics import Slot, at, post
from utvm_deploy.kernels.native.layer_tables import ConvolutionTables
from utvm_deploy.kernels.native.micro_kernel import equal_blocks
from utvm_deploy.kernels.native.mve.shared_blocks import CONDITION
from utvm_deploy.kernels.native.row_depthwise import RowDepthwise, Steps, row_depthwise_call
from utvm_deploy.records.candidate import COMPACT_LITTLE
from utvm_deploy.targets.arm_m.timing_m55 import CORTEX_M55

#: Channels of a vector, and pixels whose sums are requantized together.
GROUP, PIXELS = 16, 4
#: Rows and columns of the bytes that VMLADAV multiplies.
_SIDE = 4
#: Windows of fewer taps are as fast tap by tap.
_LEAST_TAPS = 6

_ROWS_PARAMETERS = """
const int8_t *rows, int32_t *columns, int32_t row, int32_t vectors, int32_t count
"""
_PARAMETERS = """
const int32_t *columns, const int8_t *weights, const int32_t *scaling, int32_t *quads,
const int32_t *limits, int32_t tap, int32_t pixel, int32_t step, int32_t pitch, int32_t count,
int32_t channels
"""
_PUT_PARAMETERS = """
const int32_t *quads, const int32_t *limits, int8_t *output, int32_t row, int32_t width,
int32_t channels, int32_t pitch
"""


class _Slots(StackFrame, size_bytes=16):
    """What the second routine keeps on the stack."""

    columns: Slot  # of the next four pixels
    weights: Slot
    scaling: Slot
    quads: Slot  # where the next four pixels go


@dataclass(frozen=True)
class PatchProduct:
    """The micro-kernel of this module: for ``rows`` of the output, one or two."""

    rows: int

    group: ClassVar[int] = GROUP
    label: ClassVar[str] = "mve_patches"
    tables: ClassVar[tuple[Buffer, ...]] = buffers(weights="int8", scaling="int32", limits="int32")

    @property
    def why(self) -> str:
        return f"Helium assembly, windows in a vector, {self.rows} x {self.columns} pixels"

    @property
    def columns(self) -> int:
        """Columns of the output that are computed together."""
        return PIXELS // self.rows

    @property
    def function(self) -> str:
        return f"utvm_mve_patches{self.rows}"

    @property
    def put(self) -> str:
        """The function that stores the pixels."""
        return f"utvm_mve_put_patches{self.rows}"

    def texts(self, core: str) -> tuple[str, ...]:
        return _interleave_text(), _multiply_text(self), _put_text(self)

    def numbers(self, steps: Steps, count: int, channels: int) -> tuple[int, ...]:
        """Bytes of the columns: from tap to tap, from pixel to pixel, to the next four pixels."""
        pixel = _SIDE * steps.window
        return _SIDE * steps.column, pixel, pixel * self.columns


@dataclass(frozen=True)
class PatchDepthwise(RowDepthwise):
    """Shape parameters."""

    product: PatchProduct

    @property
    def lag(self) -> Lag | None:
        pixels = self.product.rows * self.window.output_width
        return lag_by_pixels(self.window, self.inputs, self.channels, pixels)

    @property
    def scratch(self) -> tuple[Operand, ...]:
        return (*super().scratch, self._columns, self._quads)

    def drive(self, c: Driver) -> None:
        height, tables = self.window.output_height, self._read_tables(c)[:-1]
        with c.loop("batch", self.window.batch) as n:
            for first, count, rows in equal_blocks(height, self.product.rows):
                with c.loop("row", count) as y:
                    self._compute_rows(c, tables, n, first + y * rows, rows)

    def _compute_rows(
        self, c: Driver, tables: Sequence[Argument], n: Number, y: Number, rows: int
    ) -> None:
        """Compute ``rows`` rows of the output of image ``n``, from row ``y`` on."""
        w, product, image, output = self.window, self.product, self._image, self._output
        lines = w.kernel[0] + rows - 1
        source = image.at(n, y * w.strides[0])
        if self.is_copied:
            source = self._rows.at()
            self._copy_rows(c, n, y * w.strides[0], lines)
        columns, quads = self._columns, self._quads
        vectors = (w.padded_width if self.is_copied else w.width) * self.pitch // GROUP
        c.call("utvm_mve_interleave", source, columns.at(), self.steps.row, vectors, lines)
        pitch = 4 * quads.stride(0)
        numbers = product.numbers(self.steps, w.output_width, self.channels)
        sizes = *numbers, pitch, quads.shape[0], self.channels
        c.call(product.function, columns.at(), *tables, quads.at(), "limits", *sizes)
        row = output.stride(1) if rows > 1 else 0
        sizes = row, w.output_width, self.channels, pitch
        c.call(product.put, quads.at(), "limits", output.at(n, y), *sizes)

    @property
    def lines(self) -> int:
        return self.window.kernel[0] + self.product.rows - 1

    @property
    def _columns(self) -> Operand:
        """The interleaved rows, a word for each channel and column."""
        w, pixels = self.window, self.product.columns
        last = pixels * -(-w.output_width // pixels) - 1
        read = last * w.strides[1] + (_SIDE - 1) * w.dilations[1] + 1
        columns = max(read, w.padded_width if self.is_copied else w.width)
        return Operand("columns", (columns * self.pitch + _SIDE,), "int32")

    @property
    def _quads(self) -> Operand:
        """Words of four pixels, with a spare one before those of a channel."""
        quads = -(-self.window.output_width // self.product.columns)
        return Operand("quads", (quads, 1 + self.pitch), "int32")


def patch_depthwise_call(call: KernelCall, tables: ConvolutionTables) -> KernelCall | str:
    """The call instead of the portable one, or why there is none."""
    w = tables.window
    taps = int(np.prod(w.kernel))
    if max(w.kernel) > _SIDE or taps < _LEAST_TAPS:
        return f"windows of {w.kernel[0]}x{w.kernel[1]} are computed tap by tap"
    if int(tables.shift.max()) >= 0:
        return "a scale is larger than one half"
    is_dense = w.strides == (1, 1) and w.dilations[0] == 1
    rows = 2 if is_dense and max(w.kernel) < _SIDE and w.output_height > 1 else 1
    channels = tables.weights.shape[0]
    kernel = PatchDepthwise(w, channels, PatchProduct(rows), channels // tables.inputs)
    numbers = np.array([tables.bias, tables.multiplier, tables.shift], dtype=np.int32)
    made = row_depthwise_call(
        *(call, kernel, tables.border),
        weights=_pack_weights(tables.weights.reshape(channels, *w.kernel), rows),
        scaling=np.pad(numbers.T, ((1, 0), (0, 0))).reshape(-1),
        limits=np.array([tables.zero_point, *tables.limits], dtype=np.int32),
    )
    return replace(made, heeds_compact=COMPACT_LITTLE)


def _pack_weights(weights: Array, rows: int) -> Array:
    """[channel, row, column] -> the layout above."""
    channels, height, width = weights.shape
    packed = np.zeros((channels + 1, rows, _SIDE, _SIDE), np.int8)
    for row in range(rows):
        packed[:-1, row, :width, row : row + height] = weights.swapaxes(1, 2)
    return packed.reshape(-1)


@code_cache
def _interleave_text() -> str:
    """The C text of the routine that interleaves rows; the last one stands for missing ones."""
    name = "utvm_mve_interleave"
    a = Assembler(CORTEX_M55, _ROWS_PARAMETERS)
    a.enter()
    a.ldr("r12", a.stack_argument("count"))
    for number, (row, last) in enumerate((("r4", "r0"), ("r5", "r4"), ("r6", "r5")), 2):
        a.mov(row, last)
        a.cmp("r12", number)
        with a.when("ge"):
            a.add(row, row, "r2")
    vectors = ("q0", "q1", "q2", "q3")
    with a.hardware_loop("dls", "r3"), a.scheduled(is_loop=True):
        for vector, row in zip(vectors, ("r0", "r4", "r5", "r6"), strict=True):
            a.vldrb_8(vector, post(row, GROUP))
        for store in (a.vst40_8, a.vst41_8, a.vst42_8, a.vst43_8):
            store(vectors, at("r1"))
        a.adds("r1", _SIDE * GROUP)
    a.leave()
    return a.c_function(name, family_text("mve", name), CONDITION)


@code_cache
def _multiply_text(product: PatchProduct) -> str:
    """The C text of the routine that multiplies."""
    two = product.rows == 2
    a = Assembler(CORTEX_M55, _PARAMETERS)
    a.enter(frame=_Slots, vectors=("d8-d15",))
    a.strd("r0", "r1", _Slots.columns)
    a.strd("r2", "r3", _Slots.scaling)
    a.load(r4=a.stack_argument("tap"), r5=a.stack_argument("pixel"))
    a.ldr("r11", a.stack_argument("limits"))
    a.ldr("r11", at("r11"))
    # Of each pixel, the places of four columns. Two rows share them.
    places = ("q3", "q7") if two else ("q3", "q5", "q6", "q7")
    a.mov("r0", 0)
    a.vidup_u32("q3", "r0", 1)
    a.vmul_i32("q3", "q3", "r4")
    for before, place in pairwise(places):
        a.vadd_i32(place, before, "r5")
    with a.loop("gt"):  # four pixels
        a.ldr("r3", a.stack_argument("channels"))
        a.ldrd("r1", "r5", _Slots.columns)
        a.ldrd("r12", "r7", _Slots.scaling)
        a.adds("r3", 1)
        with a.hardware_loop("dls", "r3"), a.scheduled(is_loop=True):  # a channel
            _requantize(a, "q6" if two else "q2")
            _add_up(a, places, ("q4", "q5") if two else ("q4",))
        a.load(r0=_Slots.columns, r1=a.stack_argument("step"))
        a.load(r2=_Slots.quads, r3=a.stack_argument("pitch"), r4=a.stack_argument("count"))
        a.add("r0", "r1")
        a.add("r2", "r3")
        a.store(r0=_Slots.columns, r2=_Slots.quads)
        a.subs("r4", 1)
        a.str("r4", a.stack_argument("count"))
    a.leave()
    body = replaced(
        family_text("mve", "utvm_mve_patches"),
        ("ROWS", str(product.rows), 1),
        ("COLUMNS", str(product.columns), 2),
    )
    return a.c_function(product.function, body, CONDITION)


def _requantize(a: Assembler, sign: str) -> None:
    """Store the four pixels of q1 as a word at r7, saturated; r12: their scaling."""
    a.ldm("r12!", ("r8", "r9", "r10"))
    a.vadd_i32("q1", "q1", "r8")
    a.vqrdmulh_s32("q1", "q1", "r9")
    a.vshr_s32(sign, "q1", 31)
    a.vadd_i32("q1", "q1", sign)
    a.vrshl_s32("q1", "r10")
    a.vadd_i32("q1", "q1", "r11")
    a.vqmovnb_s32("q1", "q1")
    a.vqmovnb_s16("q1", "q1")
    a.vstrb_32("q1", post("r7", 4))


def _add_up(a: Assembler, places: tuple[str, ...], weights: tuple[str, ...]) -> None:
    """Put the sums of the next channel, at r1, into q1; r5: its weights."""
    sums = iter(("r0", "r2", "r4", "r6"))
    for vector in weights:
        a.vldrb_8(vector, post("r5", GROUP))
    if len(weights) == 1:
        for number, place in enumerate(places):
            patch = ("q0", "q2")[number % 2]
            a.vldrw_u32(patch, at("r1", place))
            a.vmladav_s8(next(sums), patch, weights[0])
    else:
        for patch, place in zip(("q0", "q2"), places, strict=True):
            a.vldrw_u32(patch, at("r1", place))
        for vector in weights:
            for patch in ("q0", "q2"):
                a.vmladav_s8(next(sums), patch, vector)
    a.adds("r1", _SIDE)
    a.vmov("q1[2]", "q1[0]", "r0", "r4")
    a.vmov("q1[3]", "q1[1]", "r2", "r6")


@code_cache
def _put_text(product: PatchProduct) -> str:
    """The C text of the routine that stores pixels.

    A pixel beyond the end goes where the one before it goes, which is stored later.
    """
    a = Assembler(CORTEX_M55, _PUT_PARAMETERS)
    a.enter(vectors=("d8-d11",))
    a.ldrd("r4", "r5", at("r1", 4))
    a.vdup_8("q4", "r4")
    a.vdup_8("q5", "r5")
    a.load(r6=a.stack_argument("width"), r7=a.stack_argument("channels"))
    a.ldr("r8", a.stack_argument("pitch"))
    a.adds("r0", 4)
    pixels = ("r2", "r9") if product.rows == 2 else ("r2", "r9", "r10", "r11")
    with a.loop("gt"):  # four pixels
        for number, (last, pixel) in enumerate(pairwise(pixels), 1):
            a.mov(pixel, last)
            a.cmp("r6", number)
            with a.when("gt"):
                a.add(pixel, pixel, "r7")
        if product.rows == 2:
            a.add("r10", "r2", "r3")
            a.add("r11", "r9", "r3")
        a.mov("r4", "r2")
        a.mov("r12", "r0")
        a.mov("r1", "r7")
        with a.loop("gt"):  # sixteen channels
            vectors = ("q0", "q1", "q2", "q3")
            with a.scheduled():
                for load in (a.vld40_8, a.vld41_8, a.vld42_8, a.vld43_8):
                    load(vectors, at("r12"))
                for v in vectors:
                    a.vmax_s8(v, v, "q4")
                    a.vmin_s8(v, v, "q5")
                a.add("r12", _SIDE * GROUP)
                a.vctp_8("r1")
            with a.predicated():
                for v, pixel in zip(vectors[::-1], ("r11", "r10", "r9", "r4"), strict=True):
                    a.vstrb_8(v, post(pixel, GROUP))
            a.subs("r1", GROUP)
        a.add("r0", "r8")
        a.add("r2", "r2", "r7", f"lsl #{1 if product.rows == 2 else 2}")
        a.subs("r6", product.columns)
    a.leave()
    body = replaced(
        family_text("mve", "utvm_mve_put_patches"), ("COLUMNS", str(product.columns), 3)
    )
    return a.c_function(product.put, body, CONDITION)
