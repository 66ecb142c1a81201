"""DEPTHWISE_CONV_2D of int16 by int8 weights whose sums fit 32 bits, pixel by pixel.

The padding of int16 is zero, so taps outside of the image are left out. Each step computes a group
of four channels. Weights are int8 [group][tap][lane], the scaling is int32
[group][bias, multiplier, rounding, shift][lane]. The C serves every core, the assembly those with
the DSP extension.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import replaced, shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.contract.driver import KernelParameter, Operand, buffers
from utvm_deploy.kernels.contract.packed_weights import is_packed, weights_label
from utvm_deploy.kernels.contract.routine_call import RoutineCall, RoutineKernel
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.isa.assembler import Assembler, StackFrame
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.dsp import CONDITION, select
from utvm_deploy.kernels.isa.mnemonics import Slot, at, post
from utvm_deploy.kernels.native.micro_kernel import by_groups, packed_halves

PARAMETERS = """
const int16_t *first, const int8_t *weights, const int32_t *scaling, int16_t *output,
const int32_t *walk
"""
_LANES = 4
# Weights of int4 are unpacked for a multiple of eight channels, which should take these bytes.
_EIGHT, _UNPACKED_BYTES = 8, 1024
_SUMS = ("r4", "r5", "r6", "r7")


class _Slots(StackFrame):
    """What the routine keeps on the stack."""

    scaling: Slot
    output: Slot
    first: Slot  # input of the window's first column
    weights: Slot
    channels: Slot  # still to compute
    rows: Slot  # still to multiply


@dataclass(frozen=True)
class Int16x8Depthwise(RoutineKernel):
    """The shape of a layer with one output for each channel."""

    window: Window
    channels: int
    weights: str = "int8"  # their element type

    family: ClassVar[str] = ""
    lanes: ClassVar[int] = _LANES
    pixel: ClassVar[str] = "utvm_wide_depthwise_pixel"
    why: ClassVar[str] = "C, or DSP assembly: four channels of a pixel"

    @property
    def name(self) -> str:
        ends = f"16x8{self.family}{weights_label(self.weights)}"
        return f"depthwise_{self.window.label}_{self.channels}_pixels_{ends}"

    @property
    def geometry(self) -> Array:
        """As ``utvm_wide_depthwise`` reads it."""
        return self.window.geometry(self.channels)

    @property
    def routine(self) -> RoutineCall:
        tables = buffers(input="int16", geometry="int32", weights="int8", scaling="int32")
        parameters: tuple[KernelParameter, ...] = (*tables, "low", "high", *buffers(output="int16"))
        if not is_packed(self.weights):
            return RoutineCall(f"utvm_wide_depthwise_by_{self.pixel}", parameters)
        taps = math.prod(self.window.kernel)
        block = min(max(_UNPACKED_BYTES // (_EIGHT * taps), 1), -(-self.channels // _EIGHT))
        unpacked = Operand("unpacked", (block * _EIGHT * taps,), "int8")
        return RoutineCall(
            "utvm_wide_depthwise_int4", parameters, (block * _EIGHT,), scratch=(unpacked,)
        )

    def texts(self, core: str) -> tuple[str, ...]:
        names = ("LANES", str(self.lanes), 3), ("PIXEL", self.pixel, 2)
        text = replaced(shared_text("utvm_wide_depthwise"), *names)
        if not is_packed(self.weights):
            return self.pixel_text(core), text
        part = replaced(
            text,
            (f"utvm_wide_depthwise_by_{self.pixel}(", "utvm_wide_depthwise_part(", 1),
            ("int32_t high, int16_t *output) {", "int32_t high, int16_t *output, int32_t n) {", 1),
            ("channels, low, high};", "n, low, high};", 1),
            # A model may have layers with weights of int8, too.
            ("utvm_taps_before(", "utvm_part_taps_before(", 3),
            ("utvm_taps_until(", "utvm_part_taps_until(", 3),
            ("int32_t n = 0; n < geometry[0]; n++", "int32_t i = 0; i < geometry[0]; i++", 1),
        )
        unpack, driver = map(shared_text, ("utvm_unpack_halves", "utvm_wide_depthwise_int4"))
        return self.pixel_text(core), unpack, part, driver

    def pixel_text(self, core: str) -> str:
        """The C texts of a pixel: of groups of four channels, and of the remaining channels."""
        return f"{_fours_text(core)}\n{shared_text('utvm_wide_depthwise_pixel')}"

    @staticmethod
    def pack_scaling(bias: Array, multiplier: Array, right: Array) -> Array:
        """The scaling table from the values of each channel; multipliers have 31 bits."""
        rounding = 1 << (right.astype(np.int64) - 1).clip(0)
        rows = np.array([bias, multiplier, rounding, right], dtype=np.int32)
        return by_groups(rows, _LANES).reshape(-1)

    def tables(
        self, weights: Array, bias: Array, multiplier: Array, right: Array
    ) -> dict[str, Array]:
        """The tables of the call; ``weights`` are [taps, channels], or have more dimensions."""
        return {
            "geometry": self.geometry,
            "weights": self.pack_weights(weights),
            "scaling": self.pack_scaling(bias, multiplier, right),
        }

    def by(self, family: type[Int16x8Depthwise], call: KernelCall) -> KernelCall:
        """The call of a family's kernel instead of ``call``, which is of this one."""
        given = {a.name: a.data for a in call.arguments if isinstance(a, ConstantArgument)}
        taps = math.prod(self.window.kernel)
        split = given["weights"].reshape(-1, taps, self.lanes).transpose(1, 0, 2)
        weights = split.reshape(taps, -1)[:, : self.channels]
        rows = given["scaling"].reshape(-1, 4, self.lanes).swapaxes(0, 1).reshape(4, -1)
        bias, multiplier, _, right = rows[:, : self.channels]
        made = family(self.window, self.channels)
        source, _, _, _, *others = call.arguments
        made_tables = made.tables(weights, bias, multiplier, right)
        tables = (ConstantArgument(name, table) for name, table in made_tables.items())
        return replace(call, kernel=made, arguments=(source, *tables, *others))

    def pack_weights(self, weights: Array) -> Array:
        """The table of weights from [taps, channels]."""
        table = by_groups(weights.reshape(-1, self.channels), self.lanes).reshape(-1)
        return packed_halves(table) if is_packed(self.weights) else table


@code_cache
def _fours_text(core: str) -> str:
    a = Assembler(core, PARAMETERS)
    a.enter(frame=_Slots)
    walk = a.stack_argument("walk")
    a.strd("r2", "r3", _Slots.scaling)
    a.strd("r0", "r1", _Slots.first)
    a.ldr("r0", walk)
    a.ldr("r1", at("r0", 24))
    a.str("r1", _Slots.channels)
    with a.loop("gt"):  # four channels; r0 is the walk
        a.ldrd("r8", "r9", _Slots.first)
        a.ldr("r12", _Slots.scaling)
        a.ldr("r1", at("r0"))
        a.ldr("r2", at("r0", 12))
        a.ldm("r12", _SUMS)
        a.cmp("r1", 0)
        with a.unless("eq"), a.loop("ne"):
            _add_row(a, walk)
        a.ldrd("r12", "lr", _Slots.scaling)
        a.ldrd("r8", "r9", at("r0", 28))
        a.pkhbt("r8", "r8", "r8", "lsl #16")
        a.pkhbt("r9", "r9", "r9", "lsl #16")
        with a.scheduled():
            _store_outputs(a)
        a.add("r12", 64)
        a.strd("r12", "lr", _Slots.scaling)
        a.ldrd("r8", "r9", _Slots.first)
        a.ldr("r1", at("r0", 20))
        a.ldr("r2", _Slots.channels)
        a.add("r8", 8)
        a.add("r9", "r1")
        a.strd("r8", "r9", _Slots.first)
        a.subs("r2", _LANES)
        a.str("r2", _Slots.channels)
    a.leave()
    name = "utvm_wide_depthwise_four"
    return a.c_function(name, shared_text(name), CONDITION)


def _add_row(a: Assembler, walk: Slot) -> None:
    """The products of a window's row; the flags say whether it was the last one."""
    a.ldr("r3", at("r0", 4))
    a.str("r1", _Slots.rows)
    a.subs("r3", 3)
    with a.unless("lt"), a.loop("ge", aligned=True), a.scheduled(is_loop=True):
        for weights in (("r10", "r11"), ("r0", "r1"), ("r10", "r11")):
            _add_column(a, *weights)
        a.subs("r3", "r3", 3)
    a.adds("r3", 3)
    with a.unless("eq"), a.loop("ne", aligned=True), a.scheduled(is_loop=True):
        _add_column(a, "r10", "r11")
        a.subs("r3", "r3", 1)
    a.ldr("r0", walk)
    a.ldr("r1", _Slots.rows)
    a.ldr("r10", at("r0", 8))
    a.ldr("r11", at("r0", 16))
    a.add("r8", "r10")
    a.add("r9", "r11")
    a.subs("r1", 1)


def _add_column(a: Assembler, even: str, odd: str) -> None:
    """Four products; the column is at r8, its weights are at r9."""
    a.ldr(even, post("r9", 4))
    a.ldr("r12", at("r8"))
    a.ldr("lr", at("r8", 4))
    a.add("r8", "r8", "r2")
    a.sxtb16(odd, even, "ror #8")
    a.sxtb16(even, even)
    a.smlabb("r4", "r12", even, "r4")
    a.smlatb("r5", "r12", odd, "r5")
    a.smlabt("r6", "lr", even, "r6")
    a.smlatt("r7", "lr", odd, "r7")


def _store_outputs(a: Assembler) -> None:
    """Requantize four sums and store them at lr; the scaling is at r12, limits are r8 and r9."""
    temporaries = ("r1", "r2"), ("r3", "r10")
    for lane, total in enumerate(_SUMS):
        multiplier, rounding = temporaries[lane % 2]
        a.ldr(multiplier, at("r12", 16 + 4 * lane))
        a.ldr(rounding, at("r12", 32 + 4 * lane))
        a.smmla(total, total, multiplier, rounding)
        a.ldr(multiplier, at("r12", 48 + 4 * lane))
        a.asr(total, total, multiplier)
        a.ssat(total, 16, total)
        if lane % 2:
            pair = _SUMS[lane - 1]
            a.pkhbt(pair, pair, total, "lsl #16")
            select(a, "r11", pair, "r8", pair, "r8", 16)
            select(a, "r11", "r9", pair, pair, "r9", 16)
            a.str(pair, post("lr", 4))
