"""The matrix product of convolutions for cores with Helium, in tiles of 3 pixels by 2 channels.

A turn of the inner loop multiplies 16 bytes of three pixels by 16 bytes of two channels. It has
five loads, six VMLADAVA, and LETP, which masks the bytes beyond the depth. The sums of two tiles
fill three vectors: each has one pixel and four channels. They are requantized together. Pixels that
are left over are computed one by one, with four channels each.

Pixels of int16 come in vectors of eight. Their sums fit 32 bits and are rounded once.

Layouts, for channel o = 4 quad + 2 slot + pair and depth k = 16 block + byte:
    pixels   int8  [pixel][depth], ``pitch`` bytes from pixel to pixel
    weights  int8  [quad][pair][block][slot][byte], zeros beyond the depth and the channels;
                   blocks of eight for pixels of int16. Of the second pair, blocks and slots are
                   in reverse: the loop loads a vector ahead, and must not leave the table.
    scaling  int32 [quad][bias by pair and slot | multiplier | right shift (| left shift)]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import family_text, replaced
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.isa.assembler import Assembler, StackFrame
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.mnemonics import Slot, at, pre
from utvm_deploy.kernels.native.gathered_gemm import PRODUCT_PARAMETERS
from utvm_deploy.kernels.native.micro_kernel import by_groups
from utvm_deploy.kernels.native.mve.shared_blocks import (
    CONDITION,
    INT8,
    INT16,
    PixelType,
    multiply_four_channels,
    requantize,
    requantize_once,
    scaling_rows,
)
from utvm_deploy.targets.arm_m.timing_m55 import CORTEX_M55

#: Channels that are requantized together.
CHANNELS = 4
#: Pixels of a tile.
PIXELS = 3


class _Slots(StackFrame, size_bytes=56):
    """What a routine keeps on the stack."""

    pixels: Slot  # of the next tile
    output: Slot  # where the next tile goes
    left: Slot  # pixels after the next tile
    weights: Slot  # of these four channels
    first_pixel: Slot
    first_output: Slot  # of these four channels
    count: Slot  # pixels
    channels_left: Slot
    channels: Slot  # in bytes of the output
    pitch: Slot  # in bytes
    zero_point: Slot
    low: Slot
    high: Slot


def padded_depth(depth: int, by: PixelType = INT8) -> int:
    """Bytes of a channel in the table of weights."""
    return -(-depth // by.lanes) * by.lanes


def pack_weights(weights: Array, by: PixelType = INT8) -> Array:
    """[channels, depth] -> the layout above."""
    packed = pack_blocks(weights, by)
    packed[:, 1] = packed[:, 1, ::-1, ::-1].copy()
    return packed.reshape(-1)


def pack_blocks(weights: Array, by: PixelType = INT8) -> Array:
    """[channels, depth] -> [quad, pair, block, slot, byte], nothing in reverse."""
    channels, depth = weights.shape
    filled = np.pad(weights, ((0, -channels % CHANNELS), (0, -depth % by.lanes)))
    # quad, slot, pair, block, byte -> quad, pair, block, slot, byte
    split = filled.reshape(-1, 2, 2, filled.shape[1] // by.lanes, by.lanes)
    return np.ascontiguousarray(split.transpose(0, 2, 3, 1, 4))


@dataclass(frozen=True)
class MveProduct:
    """The micro-kernel of this module."""

    has_left: bool = False  # the scale of a channel needs a left shift
    by: PixelType = INT8

    pixels: ClassVar[int] = PIXELS
    depth_step: ClassVar[int] = 1
    has_parts: ClassVar[bool] = True
    why: ClassVar[str] = f"Helium assembly, {PIXELS} pixels x 2 channels in registers"

    @property
    def label(self) -> str:
        return "mve_left" if self.has_left else "mve"

    @property
    def function(self) -> str:
        wide = "wide_" if self.by is INT16 else ""
        return f"utvm_mve_{wide}gemm{'_left' if self.has_left else ''}"

    @property
    def scaling_words(self) -> int:
        """Words of four channels in the table of scaling."""
        return CHANNELS * (4 if self.has_left else 3)

    def texts(self, core: str) -> tuple[str, ...]:
        return (_text(self),)

    def tables(self, channels: int, depth: int) -> tuple[Operand, Operand, Operand]:
        quads = -(-channels // CHANNELS)
        return (
            Operand("weights", (quads * CHANNELS * padded_depth(depth, self.by),), "int8"),
            Operand("scaling", (quads * self.scaling_words,), "int32"),
            Operand("limits", (3,), "int32"),
        )

    def pack(self, weights: Array, rows: Array) -> tuple[Array, Array]:
        """The layouts above; ``rows`` are the bias, multiplier and shift of each channel."""
        table = by_groups(scaling_rows(*rows, has_left=self.has_left), CHANNELS)
        table[:, 0] = table[:, 0, [0, 2, 1, 3]]
        return pack_weights(weights, self.by), table.reshape(-1)


@code_cache
def _text(product: MveProduct) -> str:
    """The C text of the function."""
    parameters = PRODUCT_PARAMETERS
    if product.by is INT16:
        body = family_text("mve", product.function)
        wide = (("int8_t " + name, "int16_t " + name, 1) for name in ("*pixels", "*output"))
        parameters = replaced(parameters, *wide)
    else:
        body = replaced(
            family_text("mve", "utvm_mve_gemm"),
            ("QUAD_WORDS", str(product.scaling_words), 2),
            ("LEFT_SHIFT", "s[12]" if product.has_left else "0", 1),
        )
    a = Assembler(CORTEX_M55, parameters)
    _multiply(a, product)
    return a.c_function(product.function, body, CONDITION)


def _multiply(a: Assembler, product: MveProduct) -> None:
    """Emit the routine: groups of four channels, then pixels."""
    _begin(a, product.by)
    with a.loop("gt"):  # four channels
        a.ldrd("r1", "r0", _Slots.first_pixel)
        a.ldr("r2", _Slots.count)
        a.strd("r1", "r0", _Slots.pixels)
        a.strd("r2", "r7", _Slots.left)
        a.subs("r2", PIXELS)
        with a.unless("lt"), a.loop("ge"):
            _compute_three_pixels(a, product)
            a.ldrd("r2", "r7", _Slots.left)
            a.subs("r2", PIXELS)
        a.adds("r2", PIXELS)
        with a.unless("eq"), a.loop("gt"):
            _compute_one_pixel(a, product)
            a.ldrd("r2", "r7", _Slots.left)
            a.subs("r2", 1)
        a.load(r0=_Slots.first_output, r1=_Slots.channels_left)
        a.adds("r0", CHANNELS * product.by.size_bytes)
        a.add("r12", "r12", 4 * product.scaling_words)
        a.add("r7", "r7", "r9", "lsl #2")
        a.str("r0", _Slots.first_output)
        a.subs("r1", CHANNELS)
        a.str("r1", _Slots.channels_left)
    a.leave()


def _begin(a: Assembler, by: PixelType) -> None:
    """Put arguments into slots. r7: weights, r12: scaling, r11: depth, r9: padded depth."""
    a.enter(frame=_Slots, vectors=("d8-d15",))
    a.mov("r7", a.argument("weights"))
    a.mov("r12", a.argument("scaling"))
    a.str(a.argument("pixels"), _Slots.first_pixel)
    a.ldm(a.argument("limits"), ("r0", "r1", "r2"))
    a.strd("r0", "r1", _Slots.zero_point)
    a.str("r2", _Slots.high)
    a.add("r0", "sp", a.stack_argument("output").offset)
    a.ldm("r0", ("r0", "r1", "r2", "r11"))
    a.ldr("r3", a.stack_argument("pitch"))
    if by is INT16:
        a.lsl("r3", 1)
    a.strd("r0", "r1", _Slots.first_output)
    a.strd("r2", "r2", _Slots.channels_left)
    a.str("r3", _Slots.pitch)
    if by is INT16:
        a.lsl("r2", 1)
        a.str("r2", _Slots.channels)
    a.add("r9", "r11", by.lanes - 1)
    a.bic("r9", "r9", by.lanes - 1)


def _compute_three_pixels(a: Assembler, product: MveProduct) -> None:
    """Compute the outputs of three pixels. r1: the first pixel; r2: how many pixels follow."""
    a.ldr("r3", _Slots.pitch)
    a.str("r2", _Slots.left)
    a.add("r5", "r1", "r3", "lsl #1")
    a.add("r3", "r1")
    _multiply_tile(a, 0, product.by)
    a.add("r7", "r7", "r9", "lsl #1")
    for pixel in ("r1", "r3", "r5"):
        a.sub(pixel, pixel, "r9", *(("lsl #1",) if product.by is INT16 else ()))
    _multiply_tile(a, 1, product.by)
    vectors = ("q4", "q5", "q6")
    with a.scheduled():
        _finish(a, vectors, ("q2", "q3", "q7"), product)
        a.ldrd("r1", "r0", _Slots.pixels)
        a.load(r3=_Slots.pitch, r4=_Slots.channels)
        a.add("r3", "r3", "r3", "lsl #1")
        a.add("r1", "r3")
        a.add("r5", "r0", "r4")
        a.add("r6", "r5", "r4")
        a.add("r4", "r6")
        a.strd("r1", "r4", _Slots.pixels)
    _store(a, vectors, ("r0", "r5", "r6"), product.by)


def _multiply_tile(a: Assembler, pair: int, by: PixelType) -> None:
    """Put the sums of three pixels and a pair of channels into their lanes of q4, q5 and q6."""
    sums = ("r0", "r2"), ("r4", "r6"), ("r8", "r10")
    a.ldrd("r0", "r2", at("r12", 8 * pair))
    step = -by.lanes if pair else by.lanes
    by.load_weights(a, "q0", pre("r7", step) if pair else at("r7"))
    for even, odd in sums[1:]:
        a.mov(even, "r0")
        a.mov(odd, "r2")
    vectors = ("q1", "q2", "q3")
    with by.loop(a, "r11"), a.scheduled(is_loop=True):
        for (even, _), vector, pixel in zip(sums, vectors, ("r1", "r3", "r5"), strict=True):
            by.load_pixels(a, vector, pixel)
            by.multiply(a, even, "q0", vector)
        by.load_weights(a, "q7", at("r7", step))
        by.load_weights(a, "q0", pre("r7", 2 * step))  # of the next turn
        for (_, odd), vector in zip(sums, vectors, strict=True):
            by.multiply(a, odd, "q7", vector)
    for v, (even, odd) in zip(("q4", "q5", "q6"), sums, strict=True):
        a.vmov(f"{v}[{2 + pair}]", f"{v}[{pair}]", even, odd)


def _compute_one_pixel(a: Assembler, product: MveProduct) -> None:
    """Compute the outputs of the pixel at r1. r2: how many pixels are left, with this one."""
    a.str("r2", _Slots.left)
    sums = ("r0", "r2", "r4", "r6")
    a.ldm("r12", sums)
    a.add("r3", "r7", "r9", "lsl #2")
    multiply_four_channels(a, sums, product.by)
    with a.scheduled():
        a.vmov("q4[2]", "q4[0]", "r0", "r2")
        a.vmov("q4[3]", "q4[1]", "r4", "r6")
        _finish(a, ("q4",), ("q2", "q3"), product)
        a.ldrd("r1", "r0", _Slots.pixels)
        a.load(r3=_Slots.pitch, r4=_Slots.channels)
        a.add("r1", "r3")
        a.add("r4", "r0")
        a.strd("r1", "r4", _Slots.pixels)
    _store(a, ("q4",), ("r0",), product.by)


def _finish(
    a: Assembler, vectors: tuple[str, ...], temporaries: tuple[str, ...], product: MveProduct
) -> None:
    """Turn sums into outputs in place, and let the predicate select the channels that exist."""
    if product.by is INT16:
        requantize_once(a, vectors, "r12", 16, 16)
    else:
        requantize(a, vectors, temporaries, 16, 16, "r7", has_left=product.has_left)
    a.ldrd("r8", "r10", _Slots.zero_point)
    a.load(r2=_Slots.high, r7=_Slots.channels_left)
    if product.by is INT8:  # int16 has no zero point
        a.vmov_i32(temporaries[1], 1)
        for v in vectors:
            a.vmla_s32(v, temporaries[1], "r8")  # VADD would wait for its pipe
    a.vdup_32("q0", "r10")
    a.vdup_32(temporaries[0], "r2")
    a.vctp_32("r7")
    for v in vectors:
        a.vmax_s32(v, v, "q0")
        a.vmin_s32(v, v, temporaries[0])


def _store(a: Assembler, vectors: tuple[str, ...], places: tuple[str, ...], by: PixelType) -> None:
    """Store the channels that the predicate selects."""
    store = a.vstrb_32 if by is INT8 else a.vstrh_32
    with a.predicated():
        for v, place in zip(vectors, places, strict=True):
            store(v, at(place))
