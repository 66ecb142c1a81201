"""The routines of exact Winograd convolutions: F(2x2, 3x3) in integers, and products of any form.

A *tile* is 2 x 2 outputs, which see 4 x 4 inputs d. With the weights g of a channel,

    U = (2 G) g (2 G)^T,   V = B^T d B,   Y = A^T (sum over channels of U V) A = 4 * outputs,

where the sum is made for each of the 16 *positions*. Lavin and Gray have the matrices ("Fast
Algorithms for Convolutional Neural Networks", 2016). G is doubled, so all numbers are integers. U
stays within 9 * 128, V within 4 * 128, so both are int16. Sums may wrap: Y fits 32 bits, and
addition is modulo 2**32. Tiles are multiplied in groups of three and of two, with two channels of
the output.

A word of U or V holds two channels of a quad. ``half`` 0 holds the first and the third, ``half`` 1
the second and the fourth.

Layouts, in words of 32 bits:

    V        [position][group][quad][half][tile], and after each group its products
             [tile][channel of two]; two words of slack at the end
    U        [pair of channels][position][quad][half][channel of two], two words of slack
    weights  [pair of channels][quad][half][tap], each a word of four int8: the first channel of a
             half for both channels of the output, then the second
    scaling  [pair of channels][bias * 4, multiplier, offset, shift][channel of two]
    places   [tile][bytes from V to its products of position 0, bytes from position to position,
             bytes to its output, to the next column, to the next row]
"""

from __future__ import annotations

from functools import partial

from utvm_deploy.kernels.contract.c_texts import replaced
from utvm_deploy.kernels.isa.assembler import Assembler, StackFrame
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.dsp import CONDITION
from utvm_deploy.kernels.isa.mnemonics import Slot, at, instruction
from utvm_deploy.kernels.native.dsp.assembly import shared_blocks

#: Words of a tile in ``places``, and words that are read past U and V, but not used.
PLACE_WORDS = 5
SLACK_WORDS = 2
#: Outputs of a tile along each axis, inputs that it sees, and positions.
OUTPUTS, INPUTS, POSITIONS = 2, 4, 16
#: Channels up to this are multiplied without a loop; others by the largest step that divides them.
_WHOLE_CHANNELS = 64
_LONGEST_STEP = 48
QUAD = 4
_SUMS = (("r4", "r5"), ("r6", "r7"), ("r8", "r9"))
_MULTIPLY = "int32_t *v, const int32_t *u, int32_t groups, int32_t quads, int32_t tiles"


class _MultiplySlots(StackFrame):
    groups: Slot
    left: Slot  # groups of this position
    end: Slot  # of V
    last: Slot  # where U ends for this position


def group_bytes(tiles: int, channels: int) -> int:
    """Bytes of a group in V for one position, with its products."""
    return tiles * (2 * channels + 8)


def step_of(channels: int) -> int:
    """Channels that a turn of the inner loop multiplies."""
    if channels <= _WHOLE_CHANNELS:
        return channels
    return next(s for s in range(_LONGEST_STEP, 0, -QUAD) if channels % s == 0)


def multiply_name(tiles: int, channels: int, positions: int = POSITIONS) -> str:
    """The C function that multiplies groups of ``tiles`` tiles."""
    form = "" if positions == POSITIONS else "4"
    return f"utvm_winograd{form}_multiply_{tiles}_{channels}"


@code_cache
def multiply_text(core: str, tiles: int, channels: int, positions: int = POSITIONS) -> str:
    """The C text of ``multiply_name``: the products of two channels with all groups."""
    a = Assembler(core, _MULTIPLY)
    slots = _MultiplySlots
    a.enter(frame=slots)
    step = step_of(channels)
    a.constant("r4", positions * group_bytes(tiles, channels))
    a.mul("r4", "r4", "r2")
    a.add("r4", "r4", "r0")
    a.store(r2=slots.groups, r4=slots.end)
    with a.loop("ne"):  # a position
        a.ldr("lr", slots.groups)
        a.str("lr", slots.left)
        if step == channels:
            with a.scheduled():
                _load_first(a)
            with a.loop("ne", aligned=True), a.scheduled(is_loop=True):
                _multiply_whole(a, tiles, channels)
            a.add("r1", "r1", 4 * channels)
        else:
            a.constant("lr", 4 * channels)
            a.add("lr", "lr", "r1")
            a.str("lr", slots.last)
            with a.loop("ne"):
                _multiply_by_steps(a, tiles, channels, step)
            a.ldr("r1", slots.last)
        a.ldr("lr", slots.end)
        a.cmp("r0", "lr")
    a.leave()
    name = multiply_name(tiles, channels, positions)
    portable = replaced(
        shared_blocks.helper("utvm_winograd_multiply"), (f"p < {POSITIONS}", f"p < {positions}", 1)
    )
    return a.c_function(name, portable, CONDITION)


def _load_first(a: Assembler) -> None:
    """Load what the first step of a group needs."""
    a.ldr("r2", at("r0"))
    a.ldr("r11", at("r1"))
    a.ldr("r3", at("r0", 4))
    a.ldr("r12", at("r1", 4))


def _steps(a: Assembler, tiles: int, channels: int, *, starts: bool, rewinds: int | None) -> None:
    """Multiply ``channels`` channels. Loads run ahead by one step, the last ones by what follows.

    ``starts``: the first products set the sums. ``rewinds``: bytes from r0 to the group that is
    next, with the same U; None: the next channels follow.
    """
    count = channels // 2
    second, spare = "r12", "lr"
    now = ["r2", "r3", "r10"] if tiles == 3 else ["r2", "r3"]
    then = now if tiles == 3 else ["r8", "r9"]
    for n in range(count):
        is_last = n == count - 1 and rewinds is not None
        following = rewinds if is_last and rewinds is not None else 4 * tiles * (n + 1)
        weights = 0 if is_last else 8 * (n + 1)

        operation = "smuad" if starts and n == 0 else "smlad"
        product = partial(_product, a, operation, now, ("r11", second))
        if tiles == 3:
            product(0, 0)
            a.ldr("r10", at("r0", 4 * tiles * n + 8))
            product(1, 0)
            a.ldr(spare, at("r1", weights + 4))
            product(2, 0)
            product(0, 1)
            a.ldr("r11", at("r1", weights))
            product(1, 1)
            a.ldr("r2", at("r0", following))
            product(2, 1)
            a.ldr("r3", at("r0", following + 4))
        else:
            product(0, 0)
            a.ldr(then[0], at("r0", following))
            product(1, 0)
            a.ldr(spare, at("r1", weights + 4))
            product(0, 1)
            a.ldr("r11", at("r1", weights))
            product(1, 1)
            a.ldr(then[1], at("r0", following + 4))
        second, spare = spare, second
        now, then = (then, now) if tiles == 2 else (now, then)


def _product(
    a: Assembler,
    operation: str,
    values: list[str],
    weights: tuple[str, str],
    tile: int,
    channel: int,
) -> None:
    """Multiply two channels of a tile's input; SMUAD sets the sum, SMLAD adds to it."""
    total = _SUMS[tile][channel]
    added = (total,) if operation == "smlad" else ()
    a.emit(instruction(operation, total, values[tile], weights[channel], *added))


def _store_sums(a: Assembler, tiles: int, offset: int) -> None:
    for n, (first, second) in enumerate(_SUMS[:tiles]):
        a.strd(first, second, at("r0", offset + 8 * n))


def _multiply_whole(a: Assembler, tiles: int, channels: int) -> None:
    """One group, whose first operands are loaded; flags: ``ne`` if there are more."""
    size = group_bytes(tiles, channels)
    _steps(a, tiles, channels, starts=True, rewinds=size)
    _store_sums(a, tiles, 2 * channels * tiles)
    a.add("r0", "r0", size)
    _count(a)


def _count(a: Assembler) -> None:
    a.ldr("lr", _MultiplySlots.left)
    a.subs("lr", "lr", 1)
    a.str("lr", _MultiplySlots.left)


def _multiply_by_steps(a: Assembler, tiles: int, channels: int, step: int) -> None:
    """One group; flags: ``ne`` if there are more. r1 is at its weights before and after."""
    with a.scheduled():
        for pair in _SUMS[:tiles]:
            for one in pair:
                a.mov(one, 0)
        _load_first(a)
    with a.loop("ne", aligned=True), a.scheduled(is_loop=True):
        _steps(a, tiles, step, starts=False, rewinds=None)
        a.add("r0", "r0", 2 * tiles * step)
        a.add("r1", "r1", 4 * step)
        a.ldr("lr", _MultiplySlots.last)
        a.cmp("r1", "lr")
    with a.scheduled():
        _store_sums(a, tiles, 0)
        a.add("r0", "r0", 8 * tiles)
        a.constant("r2", 4 * channels)
        a.sub("r1", "r1", "r2")
        _count(a)
