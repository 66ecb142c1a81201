"""The routines of exact Winograd convolutions: F(2x2, 3x3) in integers.

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
from utvm_deploy.kernels.isa.assembler import Assembler, StackFrame, words
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.dsp import CONDITION
from utvm_deploy.kernels.isa.mnemonics import Slot, at, instruction
from utvm_deploy.kernels.native.dsp.assembly import shared_blocks

#: Words of a tile in ``places``, and words that are read past U and V, but not used.
PLACE_WORDS = 5
SLACK_WORDS = 2
#: Outputs of a tile along each axis, inputs that it sees, and positions.
OUTPUTS, INPUTS, POSITIONS = 2, 4, 16
#: Weights of a channel; the most inputs whose U the expansion reaches with offsets.
TAPS, MOST_EXPANDED = 9, 144
#: Channels up to this are multiplied without a loop; others by the largest step that divides them.
_WHOLE_CHANNELS = 64
_LONGEST_STEP = 48
_QUAD = 4
_SUMS = (("r4", "r5"), ("r6", "r7"), ("r8", "r9"))
_MULTIPLY = "int32_t *v, const int32_t *u, int32_t groups, int32_t quads, int32_t tiles"
_EXPANSION = "const int32_t *weights, int32_t *u, int32_t quads"
_OUTPUT = """
const int32_t *v, const int32_t *scaling, const int32_t *limits, int8_t *output,
const int32_t *places, int32_t tiles
"""
_INPUT = """
const int8_t *first, const int8_t *second, int32_t *to, int32_t quads, int32_t stride,
int32_t pitch, int32_t tiles, int32_t is_sum
"""


class _MultiplySlots(StackFrame):
    groups: Slot
    left: Slot  # groups of this position
    end: Slot  # of V
    last: Slot  # where U ends for this position


class _ExpansionSlots(StackFrame):
    end: Slot  # of the weights


class _OutputSlots(StackFrame):
    scaling: Slot = words(8)
    low: Slot  # the lower limit in each of four bytes
    high: Slot
    clamps: Slot  # 0: the limits are those of int8
    v: Slot
    output: Slot
    places: Slot
    left: Slot  # tiles


def group_bytes(tiles: int, channels: int) -> int:
    """Bytes of a group in V for one position, with its products."""
    return tiles * (2 * channels + 8)


def step_of(channels: int) -> int:
    """Channels that a turn of the inner loop multiplies."""
    if channels <= _WHOLE_CHANNELS:
        return channels
    return next(s for s in range(_LONGEST_STEP, 0, -_QUAD) if channels % s == 0)


def multiply_name(tiles: int, channels: int) -> str:
    """The C function that multiplies groups of ``tiles`` tiles."""
    return f"utvm_winograd_multiply_{tiles}_{channels}"


def transform_name(tiles: int, channels: int) -> str:
    """The C function that transforms the input of a group."""
    return f"utvm_winograd_input_{tiles}_{channels}"


@code_cache
def multiply_text(core: str, tiles: int, channels: int) -> str:
    """The C text of ``multiply_name``: the products of two channels with all groups."""
    a = Assembler(core, _MULTIPLY)
    slots = _MultiplySlots
    a.enter(frame=slots)
    step = step_of(channels)
    a.constant("r4", POSITIONS * group_bytes(tiles, channels))
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
    name = multiply_name(tiles, channels)
    return shared_blocks.function_text(name, a, portable="utvm_winograd_multiply")


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


def expansion_name(channels: int) -> str:
    """The C function that makes the U of two channels of the output from weights of int8."""
    return f"utvm_winograd_weights_{channels}"


@code_cache
def expansion_text(core: str, channels: int) -> str:
    """The C text of ``expansion_name``."""
    a = Assembler(core, _EXPANSION)
    slots = _ExpansionSlots
    a.enter(frame=slots)
    a.constant("r12", _QUAD * 2 * TAPS)
    a.mul("r12", "r12", "r2")
    a.add("r12", "r12", "r0")
    a.str("r12", slots.end)
    # The lower of two lanes, shifted, leaves its sign in the upper one.
    a.mvn("r2", 1 << 16)
    a.mvn("r3", 3 << 16)
    a.constant("r12", 8 * _QUAD * channels)
    a.add("r12", "r12", "r1")
    with a.loop("ne", aligned=True), a.scheduled(is_loop=True):
        for channel in range(2):
            _expand(a, channel, channels)
        a.add("r0", "r0", _QUAD * TAPS)
        a.add("r1", "r1", 8)
        a.add("r12", "r12", 8)
        a.ldr("lr", slots.end)
        a.cmp("r0", "lr")
    a.leave()
    return shared_blocks.function_text(
        expansion_name(channels), a, portable="utvm_winograd_weights"
    )


def _expand(a: Assembler, channel: int, channels: int) -> None:
    """U of one channel of the output: (2 G) g, times (2 G)^T, in two lanes."""
    rotation = ("ror #8",) if channel else ()
    top, bottom = ("r4", "r5", "r6"), ("r7", "r8", "r9")

    def tap(row: int, column: int, target: str) -> None:
        a.ldr("lr", at("r0", _QUAD * (3 * row + column)))
        a.sxtb16(target, "lr", *rotation)

    def put(row: int, column: int, value: str) -> None:
        base, first = ("r1", 0) if row < 2 else ("r12", 2)
        a.str(value, at(base, _QUAD * ((INPUTS * (row - first) + column) * channels + channel)))

    def doubled(target: str, value: str, times: int) -> None:
        if times:
            a.and_(target, ("r2", "r3")[times - 1], value, f"lsl #{times}")

    def row_of(row: int, values: tuple[str, str, str], times: int) -> None:
        """A row of U is 2 a, a + b + c, a - b + c, 2 c, all ``times`` doubled."""
        left, middle, right = values
        a.sadd16("r10", left, right)
        a.sadd16("r11", "r10", middle)
        a.ssub16("r10", "r10", middle)
        for column, one in ((1, "r11"), (2, "r10")):
            doubled(one, one, times)
            put(row, column, one)
        for column, one in ((0, left), (3, right)):
            doubled("lr", one, times + 1)
            put(row, column, "lr")

    for row, values in ((0, top), (2, bottom)):
        for column, target in enumerate(values):
            tap(row, column, target)
        row_of(row + row // 2, values, 1)
    for column, (high, low) in enumerate(zip(top, bottom, strict=True)):
        tap(1, column, "r10")
        a.sadd16("r11", high, low)
        a.sadd16(high, "r11", "r10")
        a.ssub16(low, "r11", "r10")
    row_of(1, top, 0)
    row_of(2, bottom, 0)


def output_name(*, once: bool) -> str:
    """The C function that makes outputs; ``once``: with the scaling of ``single_rounding.py``."""
    return f"utvm_winograd_output{'_once' if once else ''}"


@code_cache
def output_text(core: str, *, once: bool) -> str:
    """The C text of ``output_name``: the outputs of two channels of all tiles."""
    a = Assembler(core, _OUTPUT)
    slots = _OutputSlots
    a.enter(frame=slots)
    a.str("r0", slots.v)
    a.str("r3", slots.output)
    for n in range(8):
        a.ldr("r4", at("r1", 4 * n))
        a.str("r4", slots.scaling.word(n))
    a.load(r5=a.stack_argument("places"), r6=a.stack_argument("tiles"))
    a.store(r5=slots.places, r6=slots.left)
    shared_blocks.load_limits(a, "r2", slots.low, slots.clamps)
    with a.loop("ne", aligned=True):
        with a.scheduled():
            a.load(r3=slots.places, r0=slots.v)
            a.ldr("r12", at("r3"))
            a.ldr("r1", at("r3", 4))
            a.add("r0", "r0", "r12")
            a.add("r2", "r1", "r1", "lsl #1")
            left = ("r4", "r5", "r6", "r7")
            right = ("r8", "r9", "r10", "r11")
            _transform_products(a, 0, left, ("r3", *right), once=once)
            a.add("r0", "r0", 4)
            a.sub("r0", "r0", "r1", "lsl #4")
            _transform_products(a, 1, right, ("r3", "r12", "lr"), once=once)
            for low, high in zip(left, right, strict=True):
                a.bfi(low, high, 8, 8)
            a.ldr("r8", slots.clamps)
            a.cmp("r8", 0)
        with a.unless("eq"):
            a.load(r8=slots.low, r9=slots.high)
            shared_blocks.clamp(a, ("r4", "r5", "r6", "r7"), "r8", "r9", "r10")
        with a.scheduled():
            a.load(r3=slots.places, r12=slots.output)
            a.ldr("r0", at("r3", 8))
            a.ldr("r1", at("r3", 12))
            a.ldr("r2", at("r3", 16))
            a.add("r0", "r0", "r12")
            a.add("r2", "r2", "r0")
            a.add("r3", "r3", 4 * PLACE_WORDS)
            a.str("r3", slots.places)
            a.ldr("r8", slots.left)
            a.subs("r8", "r8", 1)
            a.str("r8", slots.left)
        # In this order: a step of 0 puts what is outside of the output where a later one goes.
        a.strh("r7", at("r2", "r1"))
        a.strh("r6", at("r2"))
        a.strh("r5", at("r0", "r1"))
        a.strh("r4", at("r0"))
    a.leave()
    portable = shared_blocks.helper("utvm_winograd_output")
    if once:
        portable = replaced(
            portable,
            ("utvm_scale(", "utvm_scale_once(", 1),
            ("(int32_t)sum / 4", "(int32_t)sum", 1),
        )
    return a.c_function(output_name(once=once), portable, CONDITION)


def _transform_products(
    a: Assembler, channel: int, outputs: tuple[str, ...], free: tuple[str, ...], *, once: bool
) -> None:
    """Outputs (row by row) of the products at r0; r1 is the stride, r2 three times it."""
    top, right, bottom, corner = outputs
    scaling = _OutputSlots.scaling
    for row in range(INPUTS):
        one, two, other = (free[(3 * row + n) % len(free)] for n in range(3))
        left = (top, bottom, one, one)[row]
        difference = (right, corner, other, other)[row]
        a.ldr(one, at("r0", "r1"))
        a.ldr(two, at("r0", "r1, lsl #1"))
        if row == 1:
            a.ldr(other, scaling.word(channel))
            a.add(one, one, other)
        a.sub(other, one, two)
        a.add(one, one, two)
        a.ldr(two, at("r0"))
        a.add(left, one, two)
        a.ldr(two, at("r0", "r2"))
        a.sub(difference, other, two)
        if row in (1, 2):
            a.add(top, top, left)
            a.add(right, right, difference)
        if row > 1:
            a.sub(bottom, bottom, left)
            a.sub(corner, corner, difference)
        a.add("r0", "r0", "r1", "lsl #2")
    multiplier, offset, shift = free[:3]
    for register, word in ((multiplier, 2), (offset, 4), (shift, 6)):
        a.ldr(register, scaling.word(word + channel))
    if once:
        shared_blocks.scale_once(a, outputs, multiplier, offset, shift)
        return
    for one in outputs:
        a.asr(one, one, 1)
    temporary = free[3] if len(free) > 3 else "r2"
    shared_blocks.scale(a, outputs, multiplier, offset, shift, temporary, is_doubled=True)


@code_cache
def transform_text(core: str, tiles: int, channels: int) -> str:
    """The C text of ``transform_name``: V of one group."""
    name = transform_name(tiles, channels)
    texts = []
    for kind in ("difference", "sum"):
        a = Assembler(core, _INPUT)
        _transform_rows(a, tiles, channels, is_sum=kind == "sum")
        texts.append(
            shared_blocks.function_text(f"{name}_{kind}", a, portable="utvm_winograd_rows")
        )
    whole = replaced(
        shared_blocks.helper("utvm_winograd_input"),
        ("NAME", name, 5),
        ("CHANNELS", str(channels), 4),
        ("TILES", str(tiles), 4),
    )
    return "\n".join([*texts, whole])


def _transform_rows(a: Assembler, tiles: int, channels: int, *, is_sum: bool) -> None:
    """Four positions of a group, from two rows of the image."""
    a.enter()
    a.ldr("r12", a.stack_argument("stride"))
    a.add("r11", "r12", "r12", "lsl #1")
    if not is_sum:
        a.mov("r10", 0x00010001)
    window = ("r4", "r5", "r6", "r7")
    with a.loop("ne", aligned=True), a.scheduled(is_loop=True):
        for half in range(2):
            rotation = ("ror #8",) if half else ()

            def column(n: int, target: str, rotation: tuple[str, ...] = rotation) -> None:
                a.ldr("r8", at("r0", n * channels))
                a.ldr("r9", at("r1", n * channels))
                if is_sum:
                    a.sxtb16(target, "r8", *rotation)
                else:
                    # first + 1 + ~second
                    a.mvn("r9", "r9")
                    a.sxtab16(target, "r10", "r8", *rotation)
                a.sxtab16(target, target, "r9", *rotation)

            for n in range(2):
                column(n, window[n])
            for tile in range(tiles):
                d0, d1, d2, d3 = (window[(2 * tile + n) % 4] for n in range(4))
                column(2 * tile + 2, d2)
                column(2 * tile + 3, d3)
                a.ssub16("r8", d0, d2)
                a.str("r8", at("r2"))
                a.sadd16("r9", d1, d2)
                a.str("r9", at("r2", "r12"))
                a.ssub16("r8", d2, d1)
                a.str("r8", at("r2", "r12, lsl #1"))
                a.ssub16("r9", d1, d3)
                a.str("r9", at("r2", "r11"))
                a.add("r2", "r2", 4)
        a.add("r0", "r0", _QUAD)
        a.add("r1", "r1", _QUAD)
        a.subs("r3", "r3", 1)
    a.leave()
