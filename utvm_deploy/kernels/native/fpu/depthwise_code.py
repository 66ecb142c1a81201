"""The depthwise product of float32: tiles of some pixels by a few channels.

A tile loads the weights of a row of the kernel, then one column of its channels after the other.
Each column is multiplied for all pixels that see it. Layouts:
    rows     [row of the kernel, in a ring][column][channel]
    weights  [group of C channels]: [row][column][channel], then the bias of each channel
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from utvm_deploy.graph.element_type import element_type
from utvm_deploy.kernels.contract.c_texts import family_text, replaced, shared_text
from utvm_deploy.kernels.isa.assembler import Assembler, StackFrame
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.mnemonics import Slot, at
from utvm_deploy.kernels.native.fpu.shared_blocks import (
    CONDITION,
    LEAST_FREE,
    Products,
    attribute_of,
    clear,
    finish,
    parameters_of,
    run,
)
from utvm_deploy.targets.arm_m.toolchain import has_extremes

PARAMETERS = """
const float *rows, const float *weights, const float *limits, float *output, int32_t slot,
int32_t count, int32_t groups, const int32_t *geometry, int32_t mode
"""

#: Pixels of a tile in registers of single precision.
_PIXELS = 4


class _Slots(StackFrame):
    """What a routine keeps on the stack."""

    rows: Slot  # of this group of channels
    weights: Slot  # of this group
    output: Slot  # of this group
    column: Slot  # of the next tile, in slot 0 of the ring
    slot: Slot
    count: Slot  # pixels
    left: Slot  # pixels from the next tile on
    groups: Slot
    height: Slot  # rows of the kernel
    ring: Slot  # bytes of all rows


@dataclass(frozen=True)
class DepthwiseTile:
    """Columns of the kernel, columns from output to output, and the channels of a group."""

    columns: int
    stride: int
    channels: int
    fused: bool = False
    pixels: int = _PIXELS

    what: ClassVar[str] = "FPU assembly"
    family: ClassVar[str] = "fpu"
    #: The elements, and what the names of kernels and C functions call them.
    dtype: ClassVar[str] = "float32"
    numbers: ClassVar[str] = "float"

    @property
    def slack(self) -> int:
        """Values that a tile reads past the weights and past the ring."""
        return 0

    @property
    def helpers(self) -> tuple[str, ...]:
        """The C that the text of its function needs."""
        return (shared_text("utvm_float_limited"),)

    @property
    def function(self) -> str:
        """The C function's name."""
        end = "_fused" if self.fused else ""
        return f"utvm_fpu_depthwise_{self.columns}_s{self.stride}_{self.channels}{end}"

    @property
    def width(self) -> int:
        """Columns that a tile sees."""
        return (self.pixels - 1) * self.stride + self.columns

    def text(self, core: str) -> str:
        """The C text of its function."""
        return depthwise_text(self, core)

    def body(self) -> str:
        """The C of its function where there is no assembly."""
        return replaced(
            family_text("fpu", "utvm_fpu_depthwise"),
            ("CHANNELS", str(self.channels), 6),
            ("COLUMNS", str(self.columns), 4),
            ("STRIDE", str(self.stride), 1),
        )

    def begin(self, a: Assembler) -> None:
        """Set the sums of a tile to 0."""
        clear(a, self.pixels * self.channels)

    def row(self, a: Assembler, core: str) -> None:
        """The products of a row of the kernel; r0 points at the first column, r1 at weights."""
        _row(a, self, Products(core, fused=self.fused))

    def add_bias(self, a: Assembler) -> None:
        """Add the bias at r1, which then is at the next weights, to the sums."""
        outputs = self.pixels * self.channels
        a.vldmia("r1!", run(outputs, self.channels))
        for number in range(outputs):
            a.vadd_f32(f"s{number}", f"s{number}", f"s{outputs + number % self.channels}")

    def finish(self, a: Assembler, core: str) -> None:
        """Store the outputs of r4 pixels, and move r3 to the next tile's."""
        finish(a, self.pixels, self.channels, extremes=has_extremes(core))
        a.add("r3", "r3", "r7", "lsl #2")


def channels_of(columns: int, core: str) -> int:
    """The channels of a tile for a kernel with that many columns; 0 if none fits."""
    for channels in (4, 2):
        needed = max(LEAST_FREE, (columns + 1) * channels)
        if _PIXELS * channels + needed <= Products(core, fused=False).registers:
            return channels
    return 0


@code_cache
def depthwise_text(tile: DepthwiseTile, core: str, condition: str = CONDITION) -> str:
    """The C text of the tile's function, which has assembly where ``condition`` holds."""
    attribute = attribute_of(tile.dtype)
    return _routine(tile, core).c_function(tile.function, tile.body(), condition, attribute)


def _row(a: Assembler, tile: DepthwiseTile, products: Products) -> None:
    """The products of a row of the kernel."""
    channels = tile.channels
    weights = tile.pixels * channels
    values = weights + tile.columns * channels
    a.vldmia("r1!", run(weights, tile.columns * channels))
    for column in range(tile.width):
        a.vldmia("r0", run(values, channels))
        if column + 1 < tile.width:
            a.add("r0", "r7")
        taps = {pixel: column - pixel * tile.stride for pixel in range(tile.pixels)}
        products.add(
            a,
            [
                (f"s{pixel * channels + c}", f"s{values + c}", f"s{weights + tap * channels + c}")
                for pixel, tap in taps.items()
                if 0 <= tap < tile.columns
                for c in range(channels)
            ],
        )


def _routine(tile: DepthwiseTile, core: str) -> Assembler:
    a = Assembler(parameters=parameters_of(PARAMETERS, tile.dtype))
    a.enter(frame=_Slots, vectors=("d8-d15",))
    a.store(r0=_Slots.rows, r1=_Slots.weights, r3=_Slots.output)
    a.copy_arguments("r12", _Slots, "slot", "count", "groups")
    a.ldr("r11", a.stack_argument("mode"))
    a.ldr("r12", a.stack_argument("geometry"))
    a.ldr("r4", at("r12", 0))
    a.ldr("r8", at("r12", 4))
    a.ldr("r7", at("r12", 8))
    a.mul("r5", "r4", "r8")
    a.store(r4=_Slots.height, r5=_Slots.ring)
    size = element_type(tile.dtype).unit_bytes
    with a.loop("ne"):  # groups
        a.load(r5=_Slots.rows, r4=_Slots.count, r3=_Slots.output)
        a.store(r5=_Slots.column, r4=_Slots.left)
        with a.loop("gt"):  # tiles
            tile.begin(a)
            a.load(r1=_Slots.weights, r5=_Slots.column, r9=_Slots.slot)
            a.load(r6=_Slots.height, r10=_Slots.ring)
            a.mla("r5", "r9", "r8", "r5")
            a.sub("r9", "r6", "r9")  # rows until the ring begins again
            with a.loop("ne"):
                a.mov("r0", "r5")
                tile.row(a, core)
                a.add("r5", "r8")
                a.subs("r9", 1)
                with a.when("eq"):
                    a.sub("r5", "r5", "r10")
                a.subs("r6", 1)
            tile.add_bias(a)
            a.load(r4=_Slots.left)
            a.cmp("r4", tile.pixels)
            with a.when("gt"):
                a.mov("r4", tile.pixels)
            # The next panel begins where this one ends; finish() keeps r1.
            tile.finish(a, core)
            a.load(r5=_Slots.column, r4=_Slots.left)
            a.mov("r12", tile.pixels * tile.stride)
            a.mla("r5", "r12", "r7", "r5")
            a.subs("r4", tile.pixels)
            a.store(r5=_Slots.column, r4=_Slots.left)
        a.load(r5=_Slots.rows, r3=_Slots.output, r4=_Slots.groups)
        a.add("r5", size * tile.channels)
        a.add("r3", size * tile.channels)
        a.subs("r4", 1)
        a.store(r5=_Slots.rows, r1=_Slots.weights, r3=_Slots.output, r4=_Slots.groups)
    a.leave()
    return a
