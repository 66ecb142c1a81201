"""The convolution of float32 over rows: tiles of P pixels by C channels that read them in place.

A window's columns and channels are one run of values in each of its rows. A tile takes two values
of a run at a time: the weights of its channels for both, then both values of one pixel after the
other. Layouts:
    image    [row][column][input channel], with zeros where windows reach outside
    panels   [group of C channels]: weights [depth][channel], then the bias of each channel
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, ClassVar

from utvm_deploy.graph.element_type import element_type
from utvm_deploy.kernels.contract.c_texts import family_text, replaced, shared_text
from utvm_deploy.kernels.isa.assembler import Assembler, StackFrame
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.instructions import Instruction
from utvm_deploy.kernels.isa.list_scheduler import cycles as cycles_of
from utvm_deploy.kernels.isa.mnemonics import Slot, at
from utvm_deploy.kernels.native.fpu.gemm import add_bias
from utvm_deploy.kernels.native.fpu.shared_blocks import (
    ATTRIBUTE,
    CONDITION,
    LEAST_FREE,
    REGISTERS,
    Products,
    clear,
    finish,
    run,
)
from utvm_deploy.targets.arm_m.timings import timing_of
from utvm_deploy.targets.arm_m.toolchain import has_extremes
from utvm_deploy.targets.contract.timing import Kind

PARAMETERS = """
const float *image, const float *panels, const float *limits, float *output, int32_t rows,
int32_t width, int32_t groups, const int32_t *shape, int32_t mode
"""
#: Registers that point at pixels.
_BASES = ("r0", "r10", "r12", "lr")
#: The largest constant of ADD.
_MOST_ADDED = 4095
_FLOAT_BYTES = 4


class _Slots(StackFrame):
    """What a routine keeps on the stack."""

    image: Slot  # the first row of outputs sees this
    panel: Slot  # weights of this group
    output: Slot  # of the first pixel for this group
    rows: Slot
    width: Slot
    groups: Slot
    row: Slot  # what this row of outputs sees
    left: Slot  # rows of outputs
    taps: Slot  # runs of a window
    turns: Slot  # of a run
    jump: Slot  # bytes from the end of a run to the next
    pitch: Slot  # bytes from what a row of outputs sees to the next


@dataclass(frozen=True)
class RowTile:
    """A register tile; pixels are ``stride`` bytes apart."""

    pixels: int
    channels: int
    stride: int
    step: int
    fused: bool = False  # products and sums may be rounded at once

    what: ClassVar[str] = "FPU assembly"
    family: ClassVar[str] = "fpu"
    #: The elements, and what the names of kernels and C functions call them.
    dtype: ClassVar[str] = "float32"
    numbers: ClassVar[str] = "float"
    #: How many values of a run a turn of the loop takes, the best first.
    steps: ClassVar[tuple[int, ...]] = (4, 6, 5, 7, 3, 2, 1)
    reach_bytes: ClassVar[int] = 1020
    #: Core cycles to limit and store an output.
    output_cycles: ClassVar[int] = 4
    #: Whether estimates have waits for the data cache.
    waits: ClassVar[bool] = True

    @classmethod
    def sizes(cls, width: int, outputs: int) -> Iterable[tuple[int, int]]:
        """Pixels and channels of all tiles for ``width`` columns and ``outputs`` channels."""
        return product(range(1, min(12, width) + 1), range(1, min(6, outputs) + 1))

    @property
    def slack(self) -> int:
        """Values that a tile reads past the weights."""
        return 0

    @property
    def helpers(self) -> tuple[str, ...]:
        """The C that the text of its function needs."""
        return (shared_text("utvm_float_limited"),)

    @property
    def label(self) -> str:
        """As in ``tile=8x3_rows``."""
        return f"{self.pixels}x{self.channels}_rows"

    @property
    def function(self) -> str:
        """The C function's name."""
        sizes = f"{self.pixels}x{self.channels}_{self.stride}_{self.step}"
        return f"utvm_fpu_rows_{sizes}{'_fused' if self.fused else ''}"

    def fits(self, core: str) -> bool:
        """Whether sums, weights and a pixel fit the registers, and pixels are within reach."""
        registers = Products(core, fused=False).registers
        if self.pixels * self.channels + LEAST_FREE > REGISTERS:
            return False
        hop = self._near * self.stride
        bases = -(-self.pixels // self._near)
        is_near = bases <= len(_BASES) and (bases == 1 or hop <= _MOST_ADDED)
        return is_near and self._values + 2 <= registers

    def cycles(self, core: str) -> float:
        """Cycles for each value of the runs."""
        return _turn_cycles(self, core) / self.step

    def text(self, core: str) -> str:
        """The C text of its function."""
        return rows_text(self, core)

    @property
    def _near(self) -> int:
        """Pixels that loads reach from one base."""
        return max((self.reach_bytes - _FLOAT_BYTES * (self.step + 1)) // self.stride, 0) + 1

    @property
    def _weights(self) -> int:
        """The first register with weights; pairs begin at an even one."""
        return self.pixels * self.channels + self.pixels * self.channels % 2

    @property
    def _values(self) -> int:
        """The first register with values of pixels."""
        return self._weights + 2 * self.channels

    def bases(self) -> Sequence[str]:
        """The registers that point at pixels."""
        return _BASES[: -(-self.pixels // self._near)]

    def point(self, a: Assembler) -> None:
        """Point the other bases at their pixels."""
        bases = self.bases()
        for before, base in pairwise(bases):
            a.add(base, before, self._near * self.stride)

    def turn(self, a: Assembler, products: Products) -> None:
        """The products of ``step`` values; r1 points at weights."""
        chunk = max(1, min((products.registers - self._values) // 2, 4, self.pixels))
        for first in range(0, self.step, 2):
            count = min(2, self.step - first)
            a.vldmia("r1!", run(self._weights, count * self.channels))
            for start in range(0, self.pixels, chunk):
                some = range(start, min(start + chunk, self.pixels))
                for place, pixel in enumerate(some):
                    self._load(a, self._values + 2 * place, pixel, first, count)
                products.add(
                    a,
                    [
                        (
                            f"s{pixel * self.channels + channel}",
                            f"s{self._values + 2 * place + value}",
                            f"s{self._weights + value * self.channels + channel}",
                        )
                        for value in range(count)
                        for place, pixel in enumerate(some)
                        for channel in range(self.channels)
                    ],
                )
        for base in self.bases():
            a.add(base, _FLOAT_BYTES * self.step)

    def _load(self, a: Assembler, register: int, pixel: int, value: int, count: int) -> None:
        """Load one value of a pixel, or two that follow each other."""
        number, near = divmod(pixel, self._near)
        base, offset = _BASES[number], near * self.stride + _FLOAT_BYTES * value
        if count == 1:
            a.vldr(f"s{register}", at(base, offset))
            return
        text = f"vldr d{register // 2}, [{base}, #{offset}]"
        written = (f"s{register}", f"s{register + 1}")
        a.emit(Instruction(text, Kind.FP_LOAD_DOUBLE, address=(base,), writes=written))


@code_cache
def _turn_cycles(tile: RowTile, core: str) -> int:
    timing = timing_of(core)
    a = Assembler(timing)
    tile.turn(a, Products(core, fused=tile.fused))
    return cycles_of(a.code, timing, repeat=4) // 4


@code_cache
def rows_text(tile: RowTile, core: str) -> str:
    """The C text of the tile's function."""
    body = replaced(
        family_text("fpu", "utvm_fpu_rows"),
        ("CHANNELS", str(tile.channels), 5),
        ("STRIDE", str(tile.stride // _FLOAT_BYTES), 1),
        ("STEP", str(tile.step), 1),
    )
    return _routine(tile, core).c_function(tile.function, body, CONDITION, ATTRIBUTE)


def _routine(tile: RowTile, core: str) -> Assembler:
    a = Assembler(parameters=PARAMETERS)
    products = Products(core, fused=tile.fused)
    a.enter(frame=_Slots, vectors=("d8-d15",))
    a.store(r0=_Slots.image, r1=_Slots.panel, r3=_Slots.output)
    a.copy_arguments("r12", _Slots, "rows", "width", "groups")
    a.ldr("r11", a.stack_argument("mode"))
    a.ldr("r12", a.stack_argument("shape"))
    for place, slot in enumerate((_Slots.taps, _Slots.turns, _Slots.jump, _Slots.pitch)):
        a.ldr("r4", at("r12", 4 * place))
        a.str("r4", slot)
    a.ldr("r7", at("r12", 16))
    with over_tiles(a, tile, _Slots):
        stay_inside(a, tile)
        clear(a, tile.pixels * tile.channels)
        a.mov("r0", "r8")
        a.load(r1=_Slots.panel, r6=_Slots.taps)
        with a.loop("ne"):  # runs
            tile.point(a)
            a.load(r9=_Slots.turns)
            with a.loop("ne", aligned=True):
                a.subs("r9", 1)
                tile.turn(a, products)
            a.load(r12=_Slots.jump)
            a.add("r0", "r12")
            a.subs("r6", 1)
        add_bias(a, tile.pixels, tile.channels)
        a.mov("r4", tile.pixels)
        finish(a, tile.pixels, tile.channels, extremes=has_extremes(core))
        a.mov("r12", tile.pixels)
        a.mla("r3", "r12", "r7", "r3")
    a.leave()
    return a


@contextmanager
def over_tiles(a: Assembler, tile: RowTile, slots: Any, *, behind: int = 0) -> Iterator[None]:
    """The loops over groups of channels, rows and tiles, around the code of a tile.

    That code finds its first window at r8, its output at r3, and the columns from this tile on in
    r5. It keeps r5 and r8, moves r3 to the next tile's output, and leaves r1 ``behind`` bytes in
    front of the next panel. ``slots`` names the stack slots of the routine.
    """
    with a.loop("ne"):  # groups
        a.load(r3=slots.output, r8=slots.image, r4=slots.rows)
        with a.loop("ne"):  # rows
            a.store(r8=slots.row, r4=slots.left)
            a.load(r5=slots.width)
            with a.loop("gt"):  # tiles
                yield
                a.constant("r12", tile.pixels * tile.stride)
                a.add("r8", "r12")
                a.subs("r5", tile.pixels)
            a.load(r8=slots.row, r12=slots.pitch, r4=slots.left)
            a.add("r8", "r12")
            a.subs("r4", 1)
        a.load(r3=slots.output, r4=slots.groups)
        if behind:
            a.add("r1", behind)
        a.add("r3", element_type(tile.dtype).unit_bytes * tile.channels)
        a.subs("r4", 1)
        a.store(r1=slots.panel, r3=slots.output, r4=slots.groups)


def stay_inside(a: Assembler, tile: RowTile) -> None:
    """Move the last tile of a row back, so that it ends where the row ends.

    It computes some outputs again, and never reads past the row.
    """
    a.cmp("r5", tile.pixels)
    with a.unless("ge"):
        a.mov("r12", tile.pixels)
        a.sub("r12", "r12", "r5")
        a.constant("r4", tile.stride)
        a.mls("r8", "r12", "r4", "r8")
        a.mls("r3", "r12", "r7", "r3")
        a.mov("r5", tile.pixels)
