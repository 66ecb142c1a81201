"""The matrix product of float32: tiles of P pixels by C channels, with all sums in registers.

For each step of the depth, a tile loads the weights of its channels, and its pixels in chunks. All
tiles of a block read the weights of a group, before the next group's. Layouts:
    pixels   [tile][depth][pixel of the tile]: what one step reads is together
    panels   [group of C channels]: weights [depth][channel], then the bias of each channel
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import family_text, replaced
from utvm_deploy.kernels.isa.assembler import Assembler, Label, StackFrame
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.list_scheduler import cycles as cycles_of
from utvm_deploy.kernels.isa.mnemonics import Slot
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
from utvm_deploy.targets.table import CORES

PARAMETERS = """
const float *pixels, const float *panels, const float *limits, float *output, int32_t count,
int32_t groups, int32_t depth, int32_t pitch, int32_t mode
"""
#: Core cycles that a missing line of the data cache costs (docs/reference/cycle-model.md).
MISS_CYCLES = 22
#: Of the smallest data cache, that a block's values and weights may take.
CACHE_BYTES = 3584
FLOAT_BYTES = 4


class _Slots(StackFrame):
    """What a routine keeps on the stack."""

    pixels: Slot  # of the first tile
    panel: Slot  # weights of this group
    output: Slot  # of the first tile for this group
    count: Slot  # pixels
    groups: Slot


@dataclass(frozen=True)
class FpuTile:
    """A register tile; the loop over the depth is written out ``step`` times."""

    pixels: int
    channels: int
    fused: bool = False  # products and sums may be rounded at once
    step: int = 4

    what: ClassVar[str] = "FPU assembly"
    dtype: ClassVar[str] = "float32"
    #: Values that a tile reads past the weights.
    slack: ClassVar[int] = 0

    def __post_init__(self) -> None:
        needed = max(LEAST_FREE, self.channels + 1 if self.pixels > 1 else self.step + 1)
        if self.pixels * self.channels + needed > REGISTERS:
            raise ValueError(f"a tile of {self.label} does not fit {REGISTERS} registers")

    @property
    def label(self) -> str:
        """As in ``tile=8x3``."""
        return f"{self.pixels}x{self.channels}"

    @property
    def function(self) -> str:
        """The C function's name."""
        return f"utvm_fpu_gemm_{self.label}{'_fused' if self.fused else ''}"

    def panel_floats(self, depth: int) -> int:
        """Weights and biases of a group of channels."""
        return (depth + 1) * self.channels

    def cycles(self, count: int, groups: int, depth: int, core: str, shared: int) -> float:
        """About the cycles of a product; ``shared`` tiles read weights from memory once."""
        turn = _turn_cycles(self, core) / self.step
        if CORES[core].cache_line_bytes:
            miss = MISS_CYCLES * FLOAT_BYTES * self.channels / CORES[core].cache_line_bytes
            turn += miss / min(shared, -(-count // self.pixels))
        outputs = self.pixels * self.channels
        return -(-count // self.pixels) * groups * (depth * turn + 30 + 4.0 * outputs)


#: The tiles that are the best for some layers; with one pixel, it is read in place.
TILES = tuple(FpuTile(*one) for one in ((12, 2), (8, 3), (6, 4), (5, 4), (4, 5), (4, 4), (10, 2)))
#: The most channels of a tile of one pixel: its weights come in chunks.
MOST_CHANNELS = 16


@code_cache
def _turn_cycles(tile: FpuTile, core: str) -> int:
    timing = timing_of(core)
    a = Assembler(timing)
    _turn(a, tile, tile.step, Products(core, fused=tile.fused))
    return cycles_of(a.code, timing, repeat=4) // 4


def pack(weights: Array, bias: Array, channels: int) -> Array:
    """[outputs, depth], [outputs] -> panels of ``channels``; the outputs are a multiple of it."""
    rows = np.concatenate([weights, bias[:, None]], axis=1, dtype=np.float32)
    panels = rows.reshape(-1, channels, rows.shape[1]).swapaxes(1, 2)
    return np.ascontiguousarray(panels).reshape(-1)


@code_cache
def gemm_text(tile: FpuTile, core: str) -> str:
    """The C text of the tile's function."""
    body = replaced(
        family_text("fpu", "utvm_fpu_gemm"),
        ("PIXELS", str(tile.pixels), 4),
        ("CHANNELS", str(tile.channels), 5),
    )
    return _routine(tile, core).c_function(tile.function, body, CONDITION, ATTRIBUTE)


def _turn(a: Assembler, tile: FpuTile, steps: int, products: Products) -> None:
    """The products of ``steps`` steps of the depth; r0 points at pixels, r1 at weights."""
    first = tile.pixels * tile.channels
    if tile.pixels == 1:
        a.vldmia("r0!", run(first, steps))
        chunk = min(products.registers - first - tile.step, tile.channels)
        for step in range(steps):
            for start in range(0, tile.channels, chunk):
                some = range(start, min(start + chunk, tile.channels))
                weights = first + tile.step
                a.vldmia("r1!", run(weights, len(some)))
                products.add(
                    a,
                    [
                        (f"s{channel}", f"s{first + step}", f"s{weights + at}")
                        for at, channel in enumerate(some)
                    ],
                )
        return
    pixels = first + tile.channels
    # An even number is as fast to load on a core that loads two in a cycle.
    chunk = min(products.registers - pixels, tile.pixels)
    chunk -= chunk % 2 if chunk < tile.pixels else 0
    for _ in range(steps):
        a.vldmia("r1!", run(first, tile.channels))
        for start in range(0, tile.pixels, max(chunk, 1)):
            some = range(start, min(start + max(chunk, 1), tile.pixels))
            a.vldmia("r0!", run(pixels, len(some)))
            products.add(
                a,
                [
                    (f"s{pixel * tile.channels + c}", f"s{pixels + at}", f"s{first + c}")
                    for at, pixel in enumerate(some)
                    for c in range(tile.channels)
                ],
            )


def _routine(tile: FpuTile, core: str) -> Assembler:
    a = Assembler(parameters=PARAMETERS)
    a.enter(frame=_Slots, vectors=("d8-d15",))
    a.store(r0=_Slots.pixels, r1=_Slots.panel, r3=_Slots.output)
    a.copy_arguments("r12", _Slots, "count", "groups")
    for name, register in {"depth": "r6", "pitch": "r7", "mode": "r11"}.items():
        a.ldr(register, a.stack_argument(name))
    with a.loop("ne"):  # groups
        a.load(r8=_Slots.pixels, r3=_Slots.output, r5=_Slots.count)
        with a.loop("gt"):  # tiles
            clear(a, tile.pixels * tile.channels)
            a.mov("r0", "r8")
            a.load(r1=_Slots.panel)
            _sum_up(a, tile, Products(core, fused=tile.fused))
            add_bias(a, tile.pixels, tile.channels)
            a.mov("r8", "r0")  # the next tile begins where this one ends
            a.mov("r4", "r5")
            a.cmp("r4", tile.pixels)
            with a.when("gt"):
                a.mov("r4", tile.pixels)
            finish(a, tile.pixels, tile.channels, extremes=has_extremes(core))
            a.mov("r12", tile.pixels)
            a.mla("r3", "r12", "r7", "r3")
            a.subs("r5", tile.pixels)
        a.load(r3=_Slots.output, r4=_Slots.groups)
        a.add("r3", 4 * tile.channels)
        a.subs("r4", 1)
        a.store(r1=_Slots.panel, r3=_Slots.output, r4=_Slots.groups)
    a.leave()
    return a


def _sum_up(a: Assembler, tile: FpuTile, products: Products) -> None:
    """Add the products of the whole depth to the sums."""
    rest, done = Label(), Label()
    a.subs("r9", "r6", tile.step)
    a.b(rest, "lt")
    with a.loop("ge", aligned=True):
        _turn(a, tile, tile.step, products)
        a.subs("r9", tile.step)
    a.place(rest)
    a.adds("r9", tile.step)
    a.b(done, "eq")
    with a.loop("ne"):
        _turn(a, tile, 1, products)
        a.subs("r9", 1)
    a.place(done)


def add_bias(a: Assembler, pixels: int, channels: int) -> None:
    """Add the bias of each channel, which r1 points at, to the sums of a tile."""
    first = pixels * channels
    chunk = min(REGISTERS - first, channels)
    for start in range(0, channels, chunk):
        some = range(start, min(start + chunk, channels))
        a.vldmia("r1!", run(first, len(some)))
        for pixel in range(pixels):
            for at, channel in enumerate(some):
                total = f"s{pixel * channels + channel}"
                a.vadd_f32(total, total, f"s{first + at}")
