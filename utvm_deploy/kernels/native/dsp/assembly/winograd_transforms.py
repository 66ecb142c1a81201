"""The transforms of exact Winograd convolutions, and U from weights of int8 (winograd_code.py)."""

from __future__ import annotations

from utvm_deploy.kernels.contract.c_texts import replaced
from utvm_deploy.kernels.isa.assembler import Assembler, StackFrame, words
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.dsp import CONDITION
from utvm_deploy.kernels.isa.mnemonics import Slot, at
from utvm_deploy.kernels.native.dsp.assembly import shared_blocks
from utvm_deploy.kernels.native.dsp.assembly.winograd_code import INPUTS, PLACE_WORDS, QUAD

#: Weights of a channel; the most inputs whose U the expansion reaches with offsets.
TAPS, MOST_EXPANDED = 9, 144
_EXPANSION = "const int32_t *weights, int32_t *u, int32_t quads"
_OUTPUT = """
const int32_t *v, const int32_t *scaling, const int32_t *limits, int8_t *output,
const int32_t *places, int32_t tiles
"""
_INPUT = """
const int8_t *first, const int8_t *second, int32_t *to, int32_t quads, int32_t stride,
int32_t pitch, int32_t tiles, int32_t is_sum
"""


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


def transform_name(tiles: int, channels: int) -> str:
    """The C function that transforms the input of a group."""
    return f"utvm_winograd_input_{tiles}_{channels}"


def expansion_name(channels: int) -> str:
    """The C function that makes the U of two channels of the output from weights of int8."""
    return f"utvm_winograd_weights_{channels}"


@code_cache
def expansion_text(core: str, channels: int) -> str:
    """The C text of ``expansion_name``."""
    a = Assembler(core, _EXPANSION)
    slots = _ExpansionSlots
    a.enter(frame=slots)
    a.constant("r12", QUAD * 2 * TAPS)
    a.mul("r12", "r12", "r2")
    a.add("r12", "r12", "r0")
    a.str("r12", slots.end)
    # The lower of two lanes, shifted, leaves its sign in the upper one.
    a.mvn("r2", 1 << 16)
    a.mvn("r3", 3 << 16)
    a.constant("r12", 8 * QUAD * channels)
    a.add("r12", "r12", "r1")
    with a.loop("ne", aligned=True), a.scheduled(is_loop=True):
        for channel in range(2):
            _expand(a, channel, channels)
        a.add("r0", "r0", QUAD * TAPS)
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
        a.ldr("lr", at("r0", QUAD * (3 * row + column)))
        a.sxtb16(target, "lr", *rotation)

    def put(row: int, column: int, value: str) -> None:
        base, first = ("r1", 0) if row < 2 else ("r12", 2)
        a.str(value, at(base, QUAD * ((INPUTS * (row - first) + column) * channels + channel)))

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
        a.add("r0", "r0", QUAD)
        a.add("r1", "r1", QUAD)
        a.subs("r3", "r3", 1)
    a.leave()
