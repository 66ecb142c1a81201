"""DEPTHWISE_CONV_2D for cores with Helium: two pixels of eight channels, any window.

VMULLB and VMULLT multiply the even and the odd lanes of a tap to products of 32 bits: four vectors
of sums for both pixels. The loop loads the next tap of the first pixel ahead, so that products and
sums of two taps overlap. Groups of channels are the outer loop, so that a row of pixels reads a
group's tables once.

Layouts, for channel c = 8 group + lane and tap t = column + kernel columns * row:
    rows     int8  [row][column][channels, a multiple of eight]
    weights  int8  [group][tap][lane]
    offsets  int32 [tap]: bytes from the window's first pixel, and a 0 that is loaded ahead
    scaling  int32 [group][bias, multiplier, right shift (, left shift)][even lanes, odd lanes]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import family_text, replaced
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import Buffer, buffers
from utvm_deploy.kernels.isa.assembler import Assembler, StackFrame
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.mnemonics import Slot, at, post
from utvm_deploy.kernels.native.layer_tables import ConvolutionTables
from utvm_deploy.kernels.native.micro_kernel import by_groups
from utvm_deploy.kernels.native.mve.shared_blocks import (
    CONDITION,
    has_left_shift,
    requantize,
    scaling_rows,
)
from utvm_deploy.kernels.native.row_depthwise import RowDepthwise, Steps, row_depthwise_call
from utvm_deploy.targets.arm_m.timing_m55 import CORTEX_M55

#: Channels of a group: the lanes of 16 bits.
GROUP = 8

PARAMETERS = """
const int8_t *rows, const int8_t *weights, const int32_t *scaling, const int32_t *offsets,
const int32_t *limits, int8_t *output, int32_t step, int32_t count, int32_t channels, int32_t taps
"""


class _Slots(StackFrame, size_bytes=64):
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
    taps: Slot
    output_step: Slot  # from pixel to pixel
    pixel_step: Slot  # from pixel to pixel


@dataclass(frozen=True)
class MveRowProduct:
    """The micro-kernel of this module."""

    taps: int
    has_left: bool  # the scale of a channel needs a left shift

    group: ClassVar[int] = GROUP
    why: ClassVar[str] = f"Helium assembly, 2 pixels x {GROUP} channels in registers"
    tables: ClassVar[tuple[Buffer, ...]] = buffers(
        weights="int8", scaling="int32", offsets="int32", limits="int32"
    )

    @property
    def label(self) -> str:
        return "mve" + ("_left" if self.has_left else "")

    @property
    def function(self) -> str:
        return f"utvm_mve_depthwise{'_left' if self.has_left else ''}"

    def texts(self, core: str) -> tuple[str, ...]:
        return (_text(self.function, self.has_left),)

    def numbers(self, steps: Steps, count: int, channels: int) -> tuple[int, ...]:
        return steps.window, count, channels, self.taps


def mve_depthwise_call(call: KernelCall, tables: ConvolutionTables) -> KernelCall:
    """The call instead of the portable one."""
    channels = tables.weights.shape[0]
    weights = tables.weights.reshape(channels, -1).T
    product = MveRowProduct(len(weights), has_left_shift(tables.shift))
    kernel = RowDepthwise(tables.window, channels, product, channels // tables.inputs)
    rows, columns = np.indices(tables.window.kernel)
    offsets = rows * kernel.steps.row + columns * kernel.steps.column
    numbers = tables.bias, tables.multiplier, tables.shift
    return row_depthwise_call(
        *(call, kernel, tables.border),
        weights=by_groups(weights, GROUP).reshape(-1),
        scaling=pack_scaling(*numbers, product.has_left),
        offsets=np.append(offsets, 0).astype(np.int32),
        limits=np.array([tables.zero_point, *tables.limits], dtype=np.int32),
    )


def pack_scaling(bias: Array, multiplier: Array, shift: Array, has_left: bool) -> Array:
    """The reference's numbers of each channel -> the layout above."""
    table = by_groups(scaling_rows(bias, multiplier, shift, has_left=has_left), GROUP)
    # group, row, pair of lanes, even or odd -> group, row, even or odd, pair of lanes
    split = table.reshape(*table.shape[:2], GROUP // 2, 2).swapaxes(2, 3)
    return np.ascontiguousarray(split).reshape(-1)


def _scaling_words(has_left: bool) -> int:
    """Words that a group has in the table of scaling."""
    return GROUP * (4 if has_left else 3)


@code_cache
def _text(function: str, has_left: bool) -> str:
    """The C text of the function."""
    body = replaced(
        family_text("mve", "utvm_mve_depthwise"),
        ("GROUP_WORDS", str(_scaling_words(has_left)), 1),
        ("LEFT_SHIFT", "s[24]" if has_left else "0", 1),
    )
    a = Assembler(CORTEX_M55, PARAMETERS)
    _multiply(a, has_left)
    return a.c_function(function, body, CONDITION)


def _multiply(a: Assembler, has_left: bool) -> None:
    """Emit the routine: groups of channels, then pairs of pixels."""
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
        a.add("r12", 4 * _scaling_words(has_left))
        a.mov("r6", "r1")
        a.subs("r9", GROUP)
        a.add("r0", GROUP)
        a.add("r7", GROUP)
        a.strd("r0", "r7", _Slots.first_pixel)
        a.str("r9", _Slots.channels_left)
    a.leave()


def _begin(a: Assembler) -> None:
    """Put arguments into slots. r12: the group's scaling, r6: its weights."""
    a.enter(frame=_Slots, vectors=("d8-d15",))
    a.mov("r12", a.argument("scaling"))
    a.str(a.argument("offsets"), _Slots.offsets)
    a.add("r4", "sp", a.stack_argument("limits").offset)
    # Limits, output, step, count, channels, taps.
    a.ldm("r4", ("r2", "r3", "r5", "r6", "r7", "r8"))
    a.strd("r0", "r3", _Slots.first_pixel)
    a.ldm("r2", ("r2", "r3", "r4"))
    a.strd("r2", "r3", _Slots.zero_point)
    a.strd("r4", "r7", _Slots.high)
    a.strd("r7", "r6", _Slots.channels)
    a.str("r8", _Slots.taps)
    a.strd("r7", "r5", _Slots.output_step)
    a.mov("r6", a.argument("weights"))


def _multiply_taps(a: Assembler) -> None:
    """Put the sums of the pixels at r0 and r0 + r5 into q4 to q7.

    r1 ends after the group's weights.
    """
    a.ldr("r2", _Slots.offsets)
    a.mov("r1", "r6")
    a.vldrw_32("q4", at("r12"))
    a.ldr("r3", post("r2", 4))
    a.ldr("r4", _Slots.taps)
    a.vldrw_32("q5", at("r12", 16))
    a.add("r3", "r0")
    a.vmov("q6", "q4")
    a.vldrb_s16("q1", at("r3"))
    a.vmov("q7", "q5")
    with a.hardware_loop("dls", "r4"), a.scheduled(is_loop=True):
        a.vldrb_s16("q0", post("r1", 8))
        a.add("r3", "r5")
        a.vldrb_s16("q2", at("r3"))
        a.vmullb_s16("q3", "q1", "q0")
        a.vmullt_s16("q1", "q1", "q0")
        a.vadd_i32("q4", "q4", "q3")
        a.vadd_i32("q5", "q5", "q1")
        a.ldr("r3", post("r2", 4))
        a.vmullb_s16("q3", "q2", "q0")
        a.vmullt_s16("q2", "q2", "q0")
        a.add("r3", "r0")
        a.vldrb_s16("q1", at("r3"))  # of the next tap
        a.vadd_i32("q6", "q6", "q3")
        a.vadd_i32("q7", "q7", "q2")


def _store(a: Assembler, has_left: bool) -> None:
    """Store the outputs of both pixels at r7 and r7 + r10; r9 becomes the channels left."""
    with a.scheduled():
        for number, vectors in enumerate((("q4", "q6"), ("q5", "q7"))):
            requantize(a, vectors, ("q2", "q3"), 32 + 16 * number, 32, "r4", has_left=has_left)
        a.ldrd("r2", "r3", _Slots.zero_point)
        a.ldrd("r4", "r9", _Slots.high)
        a.vqmovnb_s32("q4", "q4")
        a.vqmovnb_s32("q6", "q6")
        a.vqmovnt_s32("q4", "q5")
        a.vqmovnt_s32("q6", "q7")
        a.vdup_16("q0", "r3")
        a.vqadd_s16("q4", "q4", "r2")
        a.vqadd_s16("q6", "q6", "r2")
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
