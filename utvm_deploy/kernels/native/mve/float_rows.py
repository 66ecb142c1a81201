"""Products by vectors of float32 or float16: tiles of P pixels by up to V vectors of channels.

A step of the depth multiplies each of V vectors of weights by one value of each pixel, which is in
a core register. VFMA rounds a product and its sum at once. Sums of float32 begin with the bias.
Those of float16 are exact: they begin with 0, and the bias comes last. What is
loaded for the next step comes behind its last use in this one, so that no product waits. So the
last step of a run is written apart. Layouts are those of ``fpu/row_tile.py``; channels that fill
no vector are loaded with what follows them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from utvm_deploy.graph.number_formats.shipped import FLOAT16_ARITHMETIC
from utvm_deploy.kernels.contract.c_texts import family_text, replaced
from utvm_deploy.kernels.isa.assembler import Assembler, Label, StackFrame
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.list_scheduler import cycles as cycles_of
from utvm_deploy.kernels.isa.mnemonics import Slot, at, post, pre
from utvm_deploy.kernels.native.fpu.row_tile import PARAMETERS, RowTile, over_tiles, stay_inside
from utvm_deploy.kernels.native.fpu.shared_blocks import (
    LIMITED_ABOVE,
    LIMITED_BELOW,
    attribute_of,
    parameters_of,
)
from utvm_deploy.kernels.native.mve.float_lanes import (
    HALVES,
    SINGLES,
    VECTOR_BYTES,
    Lanes,
    half_texts,
)
from utvm_deploy.targets.arm_m.timing_m55 import CORTEX_M55

#: Where the assembly can be used: vectors of floating point.
FLOAT_CONDITION = "defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2) && defined(__GNUC__)"
_VECTORS = 8
_BASES = ("r0", "r10", "r12")
#: Registers with a value of each pixel.
_VALUES = ("r4", "r5", "r6", "r7", "r9", "r11")


class _Slots(StackFrame):
    """What the routine keeps on the stack."""

    image: Slot  # the first row of outputs sees this
    panel: Slot  # weights of this group
    limits: Slot
    output: Slot  # of the first pixel for this group
    rows: Slot
    width: Slot
    groups: Slot
    mode: Slot
    row: Slot  # what this row of outputs sees
    left: Slot  # rows of outputs
    columns: Slot  # of this row of outputs, from this tile on
    taps: Slot  # runs of a window
    turns: Slot  # of a run, but the last
    jump: Slot  # bytes from the last value of a run to the next run
    pitch: Slot  # bytes from what a row of outputs sees to the next
    pixel: Slot  # bytes from output to output
    weights: Slot  # bytes of a group without the bias


@dataclass(frozen=True)
class VectorRowTile(RowTile):
    """A register tile; the last vector of channels may have fewer."""

    fused: bool = True

    lanes: ClassVar[Lanes] = SINGLES
    what: ClassVar[str] = "Helium assembly"
    family: ClassVar[str] = "mve"
    steps: ClassVar[tuple[int, ...]] = (1,)
    #: That of LDR.
    reach_bytes: ClassVar[int] = 4095
    output_cycles: ClassVar[int] = 2
    #: The cycle model of these cores has none.
    waits: ClassVar[bool] = False

    @classmethod
    def sizes(cls, width: int, outputs: int) -> Iterable[tuple[int, int]]:
        for pixels in range(1, min(len(_VALUES), width) + 1):
            for vectors in range(
                1, min((_VECTORS - 1) // pixels, -(-outputs // cls.lanes.count)) + 1
            ):
                yield pixels, min(cls.lanes.count * vectors, outputs)

    @property
    def slack(self) -> int:
        return -self.channels % self.lanes.count

    @property
    def function(self) -> str:
        return f"utvm_mve_{self.numbers}_rows_{self.pixels}x{self.channels}_{self.stride}"

    @property
    def vectors(self) -> int:
        """Vectors of channels."""
        return -(-self.channels // self.lanes.count)

    def fits(self, core: str) -> bool:
        return len(self.bases()) <= len(_BASES)

    def bases(self) -> tuple[str, ...]:
        return _BASES[: -(-self.pixels // self._near)]

    def cycles(self, core: str) -> float:
        return _turn_cycles(self)

    def text(self, core: str) -> str:
        return _text(self)

    @property
    def _streams(self) -> tuple[str, ...]:
        """Registers of weights; each has the same vectors of channels in every step."""
        first = self.pixels * self.vectors
        has_two = self.vectors % 2 == 0 and first + 2 <= _VECTORS
        return tuple(f"q{first + n}" for n in range(2 if has_two else 1))

    def sums(self, pixel: int) -> tuple[str, ...]:
        """The registers with the sums of a pixel."""
        return tuple(f"q{pixel * self.vectors + n}" for n in range(self.vectors))

    def multiply(self, a: Assembler, *, is_last: bool) -> None:
        """The products of a step, and the loads of the next one unless ``is_last``."""
        registers, vectors = self._streams, self.vectors
        for vector in range(vectors):
            for pixel in range(self.pixels):
                weights = registers[vector % len(registers)]
                self.lanes.compute(a, "vfma", self.sums(pixel)[vector], weights, _VALUES[pixel])
                if vector == vectors - 1 and not is_last:
                    self._load_value(a, pixel)
            following = vector + len(registers)
            if following < vectors or not is_last:
                self._load_weights(a, following % vectors)

    def run(self, a: Assembler, turns: Slot) -> None:
        """The products of a run, which is at r0. r1: weights; ``turns``: values but the last."""
        for before, base in pairwise(self.bases()):
            a.constant("lr", self._near * self.stride)
            a.add(base, before, "lr")
        for pixel in range(self.pixels):
            self._load_value(a, pixel, is_first=True)
        for vector in range(len(self._streams)):
            self._load_weights(a, vector)
        a.load(lr=turns)
        with a.hardware_loop("wls", "lr"):
            self.multiply(a, is_last=False)
        self.multiply(a, is_last=True)

    def _load_weights(self, a: Assembler, vector: int) -> None:
        """The next weights, which are those of this vector of channels."""
        left = self.channels - self.lanes.count * vector
        bytes_on = min(VECTOR_BYTES, self.lanes.size * left)
        self.lanes.load(a, self._streams[vector % len(self._streams)], post("r1", bytes_on))

    def _load_value(self, a: Assembler, pixel: int, *, is_first: bool = False) -> None:
        """The next value of a pixel; its base moves with the first pixel it is for."""
        number, near = divmod(pixel, self._near)
        base, offset = _BASES[number], near * self.stride
        place = at(base, offset) if near or is_first else pre(base, self.lanes.size)
        self.lanes.load_value(a, _VALUES[pixel], place)

    def body(self) -> str:
        """The C of its function where there are no vectors."""
        return replaced(
            family_text("fpu", "utvm_fpu_rows"),
            ("CHANNELS", str(self.channels), 5),
            ("STRIDE", str(self.stride // self.lanes.size), 1),
            ("STEP", "1", 1),
        )

    def begin(self, a: Assembler) -> None:
        """Begin all sums with the bias, which is r4 bytes behind r1."""
        a.add("r4", "r1")
        for vector, register in enumerate(self.sums(0)):
            self.lanes.load(a, register, at("r4", VECTOR_BYTES * vector))
            for pixel in range(1, self.pixels):
                a.vmov(self.sums(pixel)[vector], register)

    def end(self, a: Assembler) -> None:
        """What remains when r1 is at the bias."""


@dataclass(frozen=True)
class HalfRowTile(VectorRowTile):
    """A register tile of float16, whose sums have one order."""

    lanes: ClassVar[Lanes] = HALVES
    dtype: ClassVar[str] = HALVES.dtype
    numbers: ClassVar[str] = "half"

    @property
    def helpers(self) -> tuple[str, ...]:
        return half_texts(self.body())

    def body(self) -> str:
        return replaced(
            family_text("mve", "utvm_half_rows"),
            ("FORMAT", FLOAT16_ARITHMETIC.symbol("").rstrip("_"), 4),
            ("CHANNELS", str(self.channels), 5),
            ("STRIDE", str(self.stride // self.lanes.size), 1),
        )

    def begin(self, a: Assembler) -> None:
        for register in range(self.pixels * self.vectors):
            a.vmov_i32(f"q{register}", 0)

    def end(self, a: Assembler) -> None:
        """Add the bias."""
        for vector, register in enumerate(self.sums(0)):
            bias = self._streams[vector % len(self._streams)]
            self.lanes.load(a, bias, at("r1", VECTOR_BYTES * vector))
            for pixel in range(self.pixels):
                register = self.sums(pixel)[vector]
                self.lanes.compute(a, "vadd", register, register, bias)


@code_cache
def _turn_cycles(tile: VectorRowTile) -> int:
    a = Assembler(CORTEX_M55)
    tile.multiply(a, is_last=False)
    return cycles_of(a.code, CORTEX_M55, repeat=4) // 4


@code_cache
def _text(tile: VectorRowTile) -> str:
    """The C text of the tile's function."""
    attribute = attribute_of(tile.dtype)
    return _routine(tile).c_function(tile.function, tile.body(), FLOAT_CONDITION, attribute)


def _routine(tile: VectorRowTile) -> Assembler:
    a = Assembler(CORTEX_M55, parameters_of(PARAMETERS, tile.dtype))
    _begin(a, tile)
    with over_tiles(a, tile, _Slots, behind=tile.lanes.size * tile.channels):
        a.load(r7=_Slots.pixel)
        stay_inside(a, tile)
        a.store(r5=_Slots.columns)
        _sum_up(a, tile)
        a.load(r2=_Slots.limits, r11=_Slots.mode, r7=_Slots.pixel)
        limit(a, tile.pixels * tile.vectors, tile.lanes)
        for pixel in range(tile.pixels):
            store(a, tile.sums(pixel), tile.channels, tile.lanes)
        a.load(r5=_Slots.columns)
    a.leave()
    return a


def _begin(a: Assembler, tile: VectorRowTile) -> None:
    """Put arguments into slots."""
    a.enter(frame=_Slots, vectors=("d8-d15",))
    a.store(r0=_Slots.image, r1=_Slots.panel, r2=_Slots.limits, r3=_Slots.output)
    a.copy_arguments("r12", _Slots, "rows", "width", "groups", "mode")
    a.ldr("r12", a.stack_argument("shape"))
    a.ldm("r12", ("r4", "r5", "r6", "r7", "r8"))  # taps, values, jump, pitch, pixel
    a.mul("r9", "r4", "r5")
    a.mov("r10", tile.lanes.size * tile.channels)
    a.mul("r9", "r9", "r10")
    a.sub("r5", 1)
    a.add("r6", tile.lanes.size)
    a.store(r4=_Slots.taps, r5=_Slots.turns, r6=_Slots.jump, r7=_Slots.pitch, r8=_Slots.pixel)
    a.store(r9=_Slots.weights)


def _sum_up(a: Assembler, tile: VectorRowTile) -> None:
    """The sums of a tile, whose first window is at r8. r1 ends at the bias."""
    a.load(r1=_Slots.panel, r4=_Slots.weights, r2=_Slots.taps)
    tile.begin(a)
    a.mov("r0", "r8")
    with a.loop("ne"):  # runs
        tile.run(a, _Slots.turns)
        a.load(r12=_Slots.jump)
        a.add("r0", "r12")
        a.subs("r2", 1)
    tile.end(a)


def limit(a: Assembler, count: int, lanes: Lanes) -> None:
    """Limit q0 to q(count - 1) as std::min(std::max(x, least), most) does.

    r2 points at the limits, and r11 has the mode. Uses r6 and the vector after the sums. A number
    that is none is not greater or less than another one, and stays.
    """
    behind = Label()
    a.cmp("r11", 0)
    a.b(behind, "eq")
    for bit, place in ((LIMITED_BELOW, 0), (LIMITED_ABOVE, lanes.size)):
        a.tst("r11", bit)
        with a.unless("eq"):
            lanes.load_value(a, "r6", at("r2", place))
            lanes.move(a, "vdup", f"q{count}", "r6")
            for n in range(count):
                pair = (f"q{count}", f"q{n}")
                lanes.compute(a, "vcmp", "gt", *(pair if place == 0 else reversed(pair)))
                a.vpsel(f"q{n}", *pair)
    a.place(behind)


def store(a: Assembler, sums: tuple[str, ...], channels: int, lanes: Lanes) -> None:
    """Store the sums of a pixel at r3, which then is at the next one, r7 bytes on. Uses r6."""
    last = len(sums) - 1
    for number, register in enumerate(sums):
        place = at("r3", VECTOR_BYTES * number)
        if number == last and channels % lanes.count:
            a.mov("r6", channels % lanes.count)
            lanes.move(a, "vctp", "r6")
            with a.predicated():
                lanes.store(a, register, place)
        else:
            lanes.store(a, register, place)
    a.add("r3", "r7")
