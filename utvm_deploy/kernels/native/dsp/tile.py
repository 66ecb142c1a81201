"""The register tile of convolutions: up to three pixels by two channels, a sum in a register each.

Six products and their operands (three words of pixels, a word of weights, two SXTB16) are twelve
instructions. A core that issues two at a time does them in six cycles. A tile of 4 x 2 would need
one register more than there are.

``gemm.py`` and ``columns_code.py`` build their routines from these blocks. r0 points at the pixels
of a tile and r1 at its weights. Loads run ahead by one word of weights and two of pixels, so they
read past the end of both.
"""

from __future__ import annotations

from collections.abc import Callable

from utvm_deploy.kernels.isa.assembler import Assembler, Frame
from utvm_deploy.kernels.isa.mnemonics import Memory, Slot, at, pre
from utvm_deploy.kernels.native.dsp import code
from utvm_deploy.kernels.native.dsp.gemm_tables import CHANNELS, SCALING_BYTES

PIXELS = 3
WHY = f"DSP assembly, {PIXELS} pixels x {CHANNELS} channels in registers"
#: Of each pixel, the sums of both channels. The first one then holds the outputs as two bytes.
SUMS = (("r4", "r5"), ("r6", "r7"), ("r8", "r9"))
_PIXEL = ("r10", "r11")
_WEIGHTS = (("r2", "r3"), ("r12", "lr"))

#: Where the word of a phase and a pixel is, in bytes from r0.
Place = Callable[[int, int], int]

#: Estimated cycles, by the pixels of a tile: for two products of each sum, and for the rest.
_PHASE_CYCLES = {1: 3.0, 2: 4.5, 3: 6.0}
_TILE_CYCLES = {1: 32.0, 2: 40.0, 3: 48.0}
_TURN_CYCLES = 1.5
_MISS_CYCLES, _LINE_BYTES = 22, 32
#: Weights that stay in a small cache while the pixels go through it.
_CACHED_BYTES = 2048


class TileSlots(Frame):
    """What every routine with this tile keeps on the stack."""

    last: Slot  # where r1 points when the last step of these channels begins
    scaling: Slot  # of these two channels
    output: Slot  # of the next tile
    left: Slot  # pixels
    first_output: Slot  # of these two channels
    channels_left: Slot
    output_pitch: Slot  # bytes from pixel to pixel
    low: Slot  # the lower limit in each of four bytes
    high: Slot
    clamps: Slot  # 0: the limits are those of int8
    weights: Slot  # of these two channels
    special: Slot  # not 0: the tile is clamped, or is not stored whole
    weights_bytes: Slot  # of two channels


def estimated_cycles(pixels: int, depth: int, step: int) -> float:
    """Cycles of a tile, with a loop over steps unless a step is the whole depth."""
    turns = 0.0 if step == depth else depth / step * _TURN_CYCLES + 8
    return depth / 2 * _PHASE_CYCLES[pixels] + turns + _TILE_CYCLES[pixels]


def cache_cycles(passes: int, weights_bytes: int) -> float:
    """Cycles of cache misses for weights that are read in each of several passes."""
    again = passes if weights_bytes > _CACHED_BYTES else 1
    return again * weights_bytes / _LINE_BYTES * _MISS_CYCLES


def start(a: Assembler, pixels: int) -> None:
    """Set the sums to the bias, and load the first weights."""
    (low, high), *others = SUMS[:pixels]
    a.ldr("r12", TileSlots.scaling)
    a.ldrd(low, high, at("r12"))
    a.ldr("r1", TileSlots.weights)
    for pair in others:
        a.mov(pair[0], low)
        a.mov(pair[1], high)
    _widen_weights(a, _WEIGHTS[0], at("r1"))


def _widen_weights(a: Assembler, pair: tuple[str, str], place: Memory) -> None:
    a.ldr(pair[0], place)
    a.sxtb16(pair[1], pair[0], "ror #8")
    a.sxtb16(pair[0], pair[0])


def load_pixels(a: Assembler, pixels: int, place: Place) -> None:
    """Load the two words of pixels that the first ``step`` needs."""
    for number, register in enumerate(_PIXEL):
        a.ldr(register, at("r0", place(number // pixels, number % pixels)))


def step(
    a: Assembler, pixels: int, depth: int, place: Place, step_bytes: int, *, is_whole: bool
) -> None:
    """Multiply ``depth`` values of each pixel.

    Unless this is the whole depth, r0 moves by ``step_bytes``, r1 moves too, and the flags are
    those of comparing r1 with ``last``.
    """
    phases = depth // 2
    if not is_whole:
        # Early, so that the branch is resolved in time.
        spare = _WEIGHTS[1][1]
        a.ldr(spare, TileSlots.last)
        a.cmp("r1", spare)
    for phase in range(phases):
        now, then = _WEIGHTS[phase % 2], _WEIGHTS[(phase + 1) % 2]
        if phase < phases - 1:
            _widen_weights(a, then, at("r1", 4 * (phase + 1)))
        elif not is_whole:
            _widen_weights(a, then, pre("r1", 4 * phases))
        for pixel, sums in enumerate(SUMS[:pixels]):
            number = pixels * phase + pixel
            register = _PIXEL[number % 2]
            for total, weight in zip(sums, now, strict=True):
                a.smlad(total, register, weight, total)
            ahead, other = divmod(number + 2, pixels)
            if ahead < phases:
                a.ldr(register, at("r0", place(ahead, other)))
            elif not is_whole:
                is_first = number + 2 == pixels * phases
                offset = place(ahead - phases, other)
                a.ldr(register, pre("r0", step_bytes) if is_first else at("r0", offset))


def finish(a: Assembler, pixels: int) -> None:
    """Requantize; then r10 is the output, r11 its pitch, and the flags say ``ne`` if special."""
    sums = SUMS[:pixels]
    a.ldr("r10", TileSlots.scaling)
    for channel, (multiplier, offset) in enumerate((("r2", "r3"), ("lr", "r1"))):
        for row, target in enumerate((multiplier, offset, "r12"), 1):
            a.ldr(target, at("r10", 4 * (CHANNELS * row + channel)))
        code.scale(a, [pair[channel] for pair in sums], multiplier, offset, "r12", "r11")
    for low, high in sums:
        a.bfi(low, high, 8, 8)
    a.load(r2=TileSlots.special, r10=TileSlots.output, r11=TileSlots.output_pitch)
    a.cmp("r2", 0)


def clamp(a: Assembler, pixels: int) -> None:
    """Limit both channels of each pixel, if the limits are not those of int8."""
    a.ldr("r2", TileSlots.clamps)
    a.cmp("r2", 0)
    with a.unless("eq"), a.scheduled():
        a.load(r10=TileSlots.low, r11=TileSlots.high)
        code.clamp(a, [low for low, _ in SUMS[:pixels]], "r10", "r11", "r12")


def next_channels(a: Assembler) -> None:
    """Move to the next two channels and their weights (r1); flags: ``gt`` if there are any."""
    a.load(r2=TileSlots.first_output, r3=TileSlots.scaling, r4=TileSlots.channels_left)
    a.load(r1=TileSlots.weights, r5=TileSlots.weights_bytes)
    a.adds("r2", CHANNELS)
    a.adds("r3", SCALING_BYTES)
    a.add("r1", "r1", "r5")
    a.store(r2=TileSlots.first_output, r3=TileSlots.scaling)
    a.subs("r4", CHANNELS)
    a.str("r4", TileSlots.channels_left)
