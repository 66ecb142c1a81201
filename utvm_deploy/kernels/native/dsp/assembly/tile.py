"""The register tile of convolutions: up to three pixels by two channels, a sum in a register each.

Six products and their operands (three words of pixels, a word of weights, two SXTB16) are twelve
instructions. A core that issues two at a time does them in six cycles. A tile of 4 x 2 would need
one register more than there are.

``patches_code.py`` and ``columns_code.py`` build their routines from these blocks. Blocks that
depend on the type of the values are in ``value_types.py``. r0 points at the pixels of a tile and r1
at its weights. Loads run ahead by one word of weights and two of pixels, so they read past the end
of both.

Layouts of the tables, for depth k = 4 q + 2 l + f (quad, lane, phase):

    weights  int8  [pair of channels][quad][phase][lane][channel], ``SLACK_BYTES`` after them
    scaling  int32 [pair of channels][bias, multiplier, offset, shift][channel]
    limits   int32 [low, high]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.isa.assembler import Assembler, StackFrame
from utvm_deploy.kernels.isa.mnemonics import Memory, Slot, at, post, pre
from utvm_deploy.kernels.native.dsp.assembly import shared_blocks

PIXELS = 3
CHANNELS = 2
#: Bytes that are read past the weights, and past the pixels, but never used.
SLACK_BYTES = 16
#: Words of the table of scaling for two channels.
SCALING_WORDS = 4 * CHANNELS
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
_MISS_CYCLES = 22
#: Weights that stay in a small cache while the pixels go through it.
_CACHED_BYTES = 2048


class TileSlots(StackFrame):
    """What every routine with this tile keeps on the stack."""

    last: Slot  # where r1 points when the last step of these channels begins
    scaling: Slot  # of these two channels
    output: Slot  # of the next tile
    left: Slot  # pixels
    first_output: Slot  # of these two channels
    channels_left: Slot
    output_pitch: Slot  # bytes from pixel to pixel
    low: Slot  # the lower limit, as often as a word holds an output
    high: Slot
    clamps: Slot  # 0: the limits are those of the type
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
    return again * weights_bytes / shared_blocks.CACHE_LINE_BYTES * _MISS_CYCLES


def tables(
    outputs: int,
    depth: int,
    groups: int = 1,
    scaling_words: int = SCALING_WORDS,
    *,
    halves: bool = False,
) -> tuple[Operand, Operand, Operand]:
    """Weights, scaling and limits of groups of ``outputs`` channels, each of a padded depth.

    ``halves``: the weights are those of ``halves.py``.
    """
    pairs = groups * -(-outputs // CHANNELS)
    size = pairs * depth if halves else pairs * depth * CHANNELS + SLACK_BYTES
    return (
        Operand("weights", (size,), "int8"),
        Operand("scaling", (pairs * scaling_words,), "int32"),
        Operand("limits", (2,), "int32"),
    )


def load_weights(a: Assembler) -> None:
    """Load the weights at r1 for the first phase."""
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


def next_channels(
    a: Assembler,
    size: int,
    scaling_words: int = SCALING_WORDS,
    weights: Slot = TileSlots.weights,
) -> None:
    """Move to the next two channels and their weights (r1); flags: ``gt`` if there are any.

    ``size``: bytes of an output. ``weights``: where the table is for the channels that are done.
    """
    a.load(r2=TileSlots.first_output, r3=TileSlots.scaling, r4=TileSlots.channels_left)
    a.load(r1=weights, r5=TileSlots.weights_bytes)
    a.adds("r2", CHANNELS * size)
    a.adds("r3", 4 * scaling_words)
    a.add("r1", "r1", "r5")
    a.store(r2=TileSlots.first_output, r3=TileSlots.scaling)
    a.subs("r4", CHANNELS)
    a.str("r4", TileSlots.channels_left)


def widen(
    a: Assembler, pairs: Sequence[tuple[str, str]], source: str, target: str, left: str, phase: int
) -> None:
    """Widen a quad of bytes with each pair of registers; ``left`` counts quads, and sets flags.

    The words of a quad are ``phase`` bytes apart in the target. Both pointers move.
    """
    for quad, (low, high) in enumerate(pairs):
        a.ldr(low, post(source, 4))
        a.sxtb16(high, low, "ror #8")
        a.sxtb16(low, low)
        a.str(low, at(target, 2 * phase * quad))
        a.str(high, at(target, 2 * phase * quad + phase))
    a.add(target, target, 2 * phase * len(pairs))
    a.subs(left, left, len(pairs))
