"""The inner block of depthwise convolutions: two pixels of eight channels, any window.

Eight products fit eight lanes of 16 bits, and so does the sum of two, as long as two weights of a
channel come to 255 at most. Pairs of taps are summed up so, then widened to four vectors of 32
bits: the even and the odd lanes of both pixels. The tap that is left, or all where weights come to
more, are widened one by one. Groups of channels are outermost, so that one table serves a row of
pixels.

Layouts, for channel c = 8 group + lane and tap t = column + kernel columns * row:
    rows     int8  [row][column][channels, filled up to eights]
    weights  int8  [group][tap][lane]
    offsets  int32 [tap]: bytes from the window's first pixel
    scaling  int32 [group][bias, multiplier, right shift (, left shift)][even lanes, odd lanes]
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from utvm_deploy.cores.timing_m55 import CORTEX_M55
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import family_text, replaced
from utvm_deploy.kernels.isa.assembler import Assembler, Frame
from utvm_deploy.kernels.isa.mnemonics import Slot, at, post
from utvm_deploy.kernels.native.micro_kernel import by_groups
from utvm_deploy.kernels.native.mve.code import CONDITION, requantize, scaling_rows

GROUP = 8
#: What two weights of a channel may come to: 255 * 128 is less than 2**15.
_PAIR_LIMIT = 255

PARAMETERS = (
    "const int8_t *rows",
    "const int8_t *weights",
    "const int32_t *scaling",
    "const int32_t *offsets",
    "const int32_t *limits",
    "int8_t *output",
    "int32_t step",
    "int32_t count",
    "int32_t channels",
    "int32_t taps",
    "int32_t pairs",
)


class _Slots(Frame, size_bytes=64):
    """What a routine keeps on the stack."""

    offsets: Slot
    output: Slot  # where the next pixel goes
    step: Slot  # to the second pixel; 0 if there is none
    first_pixel: Slot  # of this group of channels
    first_output: Slot  # of this group of channels
    zero_point: Slot
    low: Slot
    high: Slot
    channels_left: Slot
    channels: Slot
    count: Slot  # pixels
    pairs: Slot  # of taps
    output_step: Slot  # from pixel to pixel
    pixel_step: Slot  # from pixel to pixel
    singles: Slot  # taps outside the pairs


def fits_pairs(weights: Array) -> bool:
    """Whether two weights may share 16 bits; ``weights`` are [taps, channels]."""
    pairs = np.abs(weights[: weights.shape[0] // 2 * 2].astype(np.int64))
    return bool((pairs[0::2] + pairs[1::2] <= _PAIR_LIMIT).all())


def scaling_words(has_left: bool) -> int:
    """Of a group's entry in the scaling table."""
    return GROUP * (4 if has_left else 3)


def pack_weights(weights: Array) -> Array:
    """[taps, channels] -> the layout above."""
    return by_groups(weights.astype(np.int8), GROUP).reshape(-1)


def pack_offsets(window: tuple[int, int], row_pitch: int, column_pitch: int) -> Array:
    """The table of offsets."""
    rows, columns = window
    taps = [r * row_pitch + c * column_pitch for r in range(rows) for c in range(columns)]
    return np.array(taps, dtype=np.int32)


def pack_scaling(bias: Array, multiplier: Array, shift: Array, *, has_left: bool) -> Array:
    """The reference's numbers of each channel -> the layout above."""
    rows = scaling_rows(bias, multiplier, shift, has_left=has_left)
    table = by_groups(rows, GROUP)
    # group, row, pair of lanes, even or odd -> group, row, even or odd, pair of lanes
    split = table.reshape(-1, len(rows), GROUP // 2, 2).swapaxes(2, 3)
    return np.ascontiguousarray(split).reshape(-1)


def name_of(has_left: bool) -> str:
    """The C function."""
    return "utvm_mve_depthwise_left" if has_left else "utvm_mve_depthwise"


@lru_cache(maxsize=2)
def depthwise_text(has_left: bool) -> str:
    """The C text of the function."""
    body = replaced(
        family_text("mve", "utvm_mve_depthwise"),
        ("GROUP_WORDS", str(scaling_words(has_left)), 1),
        ("LEFT_SHIFT", "s[24]" if has_left else "0", 1),
    )
    a = Assembler(CORTEX_M55, PARAMETERS)
    _multiply(a, has_left)
    return a.c_function(name_of(has_left), body, CONDITION)


def _multiply(a: Assembler, has_left: bool) -> None:
    """The whole routine."""
    _begin(a)
    with a.loop("gt"):  # a group of channels
        a.ldrd("r0", "r7", _Slots.first_pixel)
        a.ldr("r8", _Slots.count)
        a.ldrd("r10", "r5", _Slots.output_step)
        with a.loop("gt"):  # two pixels
            a.cmp("r8", 1)
            with a.when("eq"):  # the last one twice
                a.mov("r5", 0)
                a.mov("r10", 0)
            _multiply_taps(a)
            _store(a, has_left)
            a.add("r7", "r3", "r10")
            a.add("r0", "r0", "r5", "lsl #1")
            a.subs("r8", 2)
        a.ldrd("r0", "r7", _Slots.first_pixel)
        a.add("r12", 4 * scaling_words(has_left))
        a.mov("r6", "r1")
        a.subs("r9", GROUP)
        a.add("r0", GROUP)
        a.add("r7", GROUP)
        a.strd("r0", "r7", _Slots.first_pixel)
        a.str("r9", _Slots.channels_left)
    a.leave()


def _begin(a: Assembler) -> None:
    """Arguments to their slots. r12: scaling of the group, r6: its weights."""
    a.enter(frame=_Slots, vectors=("d8-d15",))
    a.mov("r12", a.argument("scaling"))
    a.str(a.argument("offsets"), _Slots.offsets)
    a.add("r4", "sp", a.stack_argument("limits").offset)
    # Limits, output, step, count, channels, taps, pairs.
    a.ldm("r4", ("r2", "r3", "r5", "r6", "r7", "r8", "r9"))
    a.strd("r0", "r3", _Slots.first_pixel)
    a.ldm("r2", ("r2", "r3", "r4"))
    a.strd("r2", "r3", _Slots.zero_point)
    a.strd("r4", "r7", _Slots.high)
    a.strd("r7", "r6", _Slots.channels)
    a.sub("r8", "r8", "r9", "lsl #1")
    a.str("r9", _Slots.pairs)
    a.str("r8", _Slots.singles)
    a.strd("r7", "r5", _Slots.output_step)
    a.mov("r6", a.argument("weights"))


def _multiply_taps(a: Assembler) -> None:
    """Sums of the pixels at r0 and r0 + r5 to q4 to q7; r1 ends behind the group's weights."""
    a.ldr("r2", _Slots.offsets)
    a.mov("r1", "r6")
    a.vldrw_32("q4", at("r12"))
    a.vldrw_32("q5", at("r12", 16))
    a.ldr("r3", _Slots.pairs)
    a.vmov("q6", "q4")
    a.vmov("q7", "q5")
    with a.hardware_loop("wls", "r3"), a.scheduled(is_loop=True):  # two taps
        a.ldrd("r3", "r4", post("r2", 8))
        a.vldrb_s16("q0", post("r1", 8))
        a.add("r3", "r0")
        a.add("r4", "r0")
        _multiply_tap(a)
        a.vldrb_s16("q0", post("r1", 8))
        a.vldrb_s16("q3", at("r4"))
        a.add("r4", "r5")
        a.vmul_i16("q3", "q3", "q0")
        a.vadd_i16("q1", "q1", "q3")
        a.vldrb_s16("q3", at("r4"))
        a.vmul_i16("q3", "q3", "q0")
        a.vadd_i16("q2", "q2", "q3")
        _add_products(a)
    a.ldr("r3", _Slots.singles)
    with a.hardware_loop("wls", "r3"), a.scheduled(is_loop=True):  # one tap
        a.ldr("r3", post("r2", 4))
        a.vldrb_s16("q0", post("r1", 8))
        a.add("r3", "r0")
        _multiply_tap(a)
        _add_products(a)


def _multiply_tap(a: Assembler) -> None:
    """Products of both pixels at r3 and r3 + r5 with the weights in q0, to q1 and q2."""
    a.vldrb_s16("q1", at("r3"))
    a.add("r3", "r5")
    a.vmul_i16("q1", "q1", "q0")
    a.vldrb_s16("q2", at("r3"))
    a.vmul_i16("q2", "q2", "q0")


def _add_products(a: Assembler) -> None:
    """Add the products in q1 and q2, eight of 16 bits each, to the sums of their pixels."""
    a.vmovlb_s16("q0", "q1")
    a.vmovlt_s16("q1", "q1")
    a.vadd_i32("q4", "q4", "q0")
    a.vmovlb_s16("q0", "q2")
    a.vadd_i32("q5", "q5", "q1")
    a.vmovlt_s16("q2", "q2")
    a.vadd_i32("q6", "q6", "q0")
    a.vadd_i32("q7", "q7", "q2")


def _store(a: Assembler, has_left: bool) -> None:
    """Store outputs of both pixels at r7 and r7 + r10; r9 becomes the channels that are left."""
    with a.scheduled():
        for number, vectors in enumerate((("q4", "q6"), ("q5", "q7"))):
            requantize(a, vectors, ("q2", "q3"), 32 + 16 * number, 32, has_left=has_left)
        a.ldrd("r2", "r3", _Slots.zero_point)
        a.ldrd("r4", "r9", _Slots.high)
        for n in range(4, 8):
            a.vadd_i32(f"q{n}", f"q{n}", "r2")
        a.vdup_16("q0", "r3")
        a.vqmovnb_s32("q4", "q4")
        a.vqmovnb_s32("q6", "q6")
        a.vqmovnt_s32("q4", "q5")
        a.vqmovnt_s32("q6", "q7")
        a.vdup_16("q1", "r4")
        a.vctp_16("r9")
        a.vmax_s16("q4", "q4", "q0")
        a.vmax_s16("q6", "q6", "q0")
        a.add("r3", "r7", "r10")
        a.vmin_s16("q4", "q4", "q1")
        a.vmin_s16("q6", "q6", "q1")
    with a.predicated():
        a.vstrb_16("q4", at("r7"))
        a.vstrb_16("q6", at("r3"))
