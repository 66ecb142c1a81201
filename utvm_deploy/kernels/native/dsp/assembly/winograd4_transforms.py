"""The transforms of exact Winograd F(4x4, 3x3), and U from weights of int8 (winograd_code.py).

The points are 0, 1, -1, 2, -2 and infinity (Lavin and Gray, as in ``winograd_code``). Along an axis

    U: a, a + b + c, a - b + c, a + 2b + 4c, a - 2b + 4c, c
    V: 4 d0 - 5 d2 + d4, (d4 - 4 d2) + (d3 - 4 d1), (d4 - 4 d2) - (d3 - 4 d1),
       (d4 - d2) + 2 (d3 - d1), (d4 - d2) - 2 (d3 - d1), 4 d1 - 5 d3 + d5

are integers. With ``one`` and ``two`` for the sums of the products 1 and 2, 3 and 4, and ``other``
and ``rest`` for their differences,

    6 m0 - 4 one + two, rest - 2 other, two - one, 2 rest - other + 6 m5

are 24, 12, 6 and 6 times the outputs. Along both axes that is 9 times powers of two, modulo 2**32.
The inverse of 9 modulo 2**32, times another power of two, makes 2**6 times each output. So outputs
must be below 2**25. U stays within 49 * 128, V within 100 * 128.
"""

from __future__ import annotations

from collections.abc import Callable

from utvm_deploy.kernels.contract.c_texts import replaced
from utvm_deploy.kernels.isa.assembler import Assembler, StackFrame, words
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.dsp import CONDITION
from utvm_deploy.kernels.isa.mnemonics import Memory, Slot, at
from utvm_deploy.kernels.native.dsp.assembly import shared_blocks
from utvm_deploy.kernels.native.dsp.assembly.winograd_code import QUAD
from utvm_deploy.kernels.native.dsp.assembly.winograd_transforms import TAPS

OUTPUTS, INPUTS = 4, 6
#: Outputs are multiplied by this power of two.
FACTOR_BITS = 6
#: Words of a tile in ``places``: the first three are those of ``winograd_code``, then rows of
#: outputs, and bytes to each next column.
PLACE_WORDS = 7
EXPANSION = "utvm_winograd4_weights"
_INVERSE = pow(9, -1, 1 << 32)
#: The outputs of an axis lack these powers of two.
_MISSING = (0, 1, 2, 2)
_INPUT = """
const int8_t *image, int32_t *to, int32_t quads, int32_t row, int32_t stride, int32_t *part
"""
_OUTPUT = """
const int32_t *v, const int32_t *scaling, const int32_t *limits, int8_t *output,
const int32_t *places, int32_t tiles, int32_t row
"""
#: Of what the output keeps of a row: six words of each channel, and three factors.
_ROW_WORDS = 2 * INPUTS + 3
#: Where an axis puts what it makes.
Place = Callable[[int], Memory]


class _InputSlots(StackFrame):
    image: Slot
    to: Slot
    quads: Slot  # left
    row: Slot  # bytes from row to row of the image
    pitch: Slot  # bytes from column to column
    next: Slot  # bytes from the end of a row of V to its next row
    end: Slot  # of what this loop goes through


class _ExpansionSlots(StackFrame):
    end: Slot  # of the weights
    back: Slot  # bytes from the end of U to the next channel of the output
    part: Slot = words(3 * INPUTS)


class _OutputSlots(StackFrame):
    scaling: Slot = words(8)
    low: Slot  # the lower limit in each of four bytes
    high: Slot
    clamps: Slot  # 0: the limits are those of int8
    v: Slot
    output: Slot
    places: Slot
    tiles: Slot  # left
    row: Slot  # bytes from row to row of the output
    rows: Slot  # of this tile, left
    to: Slot  # where its next row is
    part: Slot = words(OUTPUTS * _ROW_WORDS)


def part_words(tiles: int) -> int:
    """Words of scratch that the input of a group takes: two for each of its columns and rows."""
    return 2 * INPUTS * (OUTPUTS * tiles + 2)


def input_name(tiles: int) -> str:
    """The C function that transforms the input of a group."""
    return f"utvm_winograd4_input_{tiles}"


@code_cache
def input_text(core: str, tiles: int) -> str:
    """The C text of ``input_name``: V of one group, four channels at a time."""
    a = Assembler(core, _INPUT)
    slots = _InputSlots
    wide = OUTPUTS * tiles + 2
    a.enter(frame=slots)
    a.mvn("r12", 3 << 16)
    a.lsl("r10", "r2", 2)
    a.store(r0=slots.image, r1=slots.to, r2=slots.quads, r3=slots.row, r10=slots.pitch)
    a.ldr("r10", a.stack_argument("stride"))
    a.add("r10", "r10", "r10", "lsl #1")
    a.lsl("r10", "r10", 1)
    a.sub("r10", "r10", 2 * QUAD * tiles)
    a.str("r10", slots.next)
    with a.loop("ne"):
        # Down the columns: r0 and r2 are at rows 0 and 3 of the image, r1 at the part.
        a.load(r0=slots.image, r3=slots.row)
        a.ldr("r1", a.stack_argument("part"))
        a.add("r2", "r3", "r3", "lsl #1")
        a.add("r2", "r2", "r0")
        a.add("r10", "r1", QUAD * wide)
        a.str("r10", slots.end)
        with a.loop("ne", aligned=True), a.scheduled(is_loop=True):
            for half in range(2):
                _transform_column(a, half, QUAD * wide)
            a.add("r1", "r1", QUAD)
            a.load(r10=slots.pitch, r11=slots.end)
            a.add("r0", "r0", "r10")
            a.add("r2", "r2", "r10")
            a.cmp("r1", "r11")
        # Along the rows: r0 is at the part, r1 and r2 at positions 0 and 3 of V.
        a.ldr("r0", a.stack_argument("part"))
        a.ldr("r1", slots.to)
        a.ldr("r3", a.stack_argument("stride"))
        a.add("r2", "r3", "r3", "lsl #1")
        a.add("r2", "r2", "r1")
        a.add("r10", "r0", QUAD * part_words(tiles))
        a.str("r10", slots.end)
        with a.loop("ne", aligned=True), a.scheduled(is_loop=True):
            for half in range(2):
                _transform_row(a, half, tiles, QUAD * wide)
            a.load(r10=slots.next, r11=slots.end)
            a.add("r1", "r1", "r10")
            a.add("r2", "r2", "r10")
            a.add("r0", "r0", 2 * QUAD * wide)
            a.cmp("r0", "r11")
        a.load(r0=slots.image, r1=slots.to, r2=slots.quads)
        a.add("r0", "r0", QUAD)
        a.add("r1", "r1", 2 * QUAD * tiles)
        a.subs("r2", "r2", 1)
        a.store(r0=slots.image, r1=slots.to, r2=slots.quads)
    a.leave()
    portable = replaced(shared_blocks.helper("utvm_winograd4_input"), ("TILES", str(tiles), 5))
    return a.c_function(input_name(tiles), portable, CONDITION)


def _transform_column(a: Assembler, half: int, row: int) -> None:
    """Two channels of a column of the image, to the part."""
    column = ("r4", "r5", "r6", "r7", "r8", "r9")
    for n, one in enumerate(column):
        a.ldr(one, _sixth(n))
        a.sxtb16(one, one, *(("ror #8",) if half else ()))
    _transform_input(a, column, lambda n: at("r1", row * (2 * n + half)))


def _transform_row(a: Assembler, half: int, tiles: int, row: int) -> None:
    """Two channels of a row of the part, to all tiles of a row of positions."""
    window = ("r4", "r5", "r6", "r7", "r8", "r9")
    for tile in range(tiles):
        first = OUTPUTS * tile
        values = tuple(window[(first + n) % INPUTS] for n in range(INPUTS))
        for n in range(2 if tile else 0, INPUTS):
            a.ldr(values[n], at("r0", row * half + QUAD * (first + n)))
        _transform_input(a, values, lambda n: _sixth(n, "r1"))
        a.add("r1", "r1", QUAD)
        a.add("r2", "r2", QUAD)


def _sixth(n: int, base: str = "r0", third: str = "r2", stride: str = "r3") -> Memory:
    """The place ``n`` strides after ``base``; ``third`` is three strides after it."""
    start = third if n > 2 else base
    return (at(start), at(start, stride), at(start, f"{stride}, lsl #1"))[n % 3]


def _transform_input(a: Assembler, values: tuple[str, ...], place: Place) -> None:
    """B^T d of two channels; the last two of the values stay as they are."""
    d0, d1, d2, d3, d4, d5 = values
    outer, difference = "r10", "r11"
    a.ssub16(outer, d4, d2)
    a.ssub16(d0, d0, d2)
    a.and_(d0, "r12", d0, "lsl #2")
    a.sadd16(d0, d0, outer)
    a.str(d0, place(0))
    a.and_(d2, "r12", d2, "lsl #2")
    a.ssub16(d2, d4, d2)
    a.ssub16(difference, d3, d1)
    a.and_(d1, "r12", d1, "lsl #2")
    a.ssub16(d1, d3, d1)
    a.sadd16(d0, d2, d1)
    a.str(d0, place(1))
    a.ssub16(d2, d2, d1)
    a.str(d2, place(2))
    a.sadd16(d1, difference, difference)
    a.sadd16(d0, outer, d1)
    a.str(d0, place(3))
    a.ssub16(outer, outer, d1)
    a.str(outer, place(4))
    a.ssub16(d3, d5, d3)
    a.and_(difference, "r12", difference, "lsl #2")
    a.ssub16(d3, d3, difference)
    a.str(d3, place(5))


@code_cache
def expansion_text(core: str) -> str:
    """The C text of ``EXPANSION``: U of two channels of the output from weights of int8."""
    a = Assembler(core, "const int32_t *weights, int32_t *u, int32_t quads")
    slots = _ExpansionSlots
    a.enter(frame=slots)
    a.constant("r4", 2 * QUAD * TAPS)
    a.mul("r4", "r4", "r2")
    a.add("r4", "r4", "r0")
    a.lsl("r2", "r2", 4)
    a.add("r5", "r2", "r2", "lsl #1")
    a.add("r3", "r1", "r5")
    a.add("lr", "r5", "r5")
    a.add("r5", "lr", "lr", "lsl #1")
    a.lsl("r5", "r5", 1)
    a.sub("r5", "r5", QUAD)
    a.store(r4=slots.end, r5=slots.back)
    a.mvn("r12", 3 << 16)
    with a.loop("ne"):
        for channel in range(2):
            with a.scheduled():
                _expand(a, channel)
        a.add("r0", "r0", QUAD * TAPS)
        a.ldr("r4", slots.end)
        a.cmp("r0", "r4")
    a.leave()
    return shared_blocks.function_text(EXPANSION, a)


def _expand(a: Assembler, channel: int) -> None:
    """U of one channel of the output, for two of the input: the columns of the taps, then rows.

    r1 and r3 are at positions 0 and 3 of a row, r2 from position to position, lr from row to row.
    """
    slots = _ExpansionSlots
    taps = ("r4", "r5", "r6")
    for column in range(3):
        for n, one in enumerate(taps):
            a.ldr(one, at("r0", QUAD * (3 * n + column)))
            a.sxtb16(one, one, *(("ror #8",) if channel else ()))
        for n, one in enumerate(_transform_weights(a)):
            a.str(one, slots.part.word(3 * n + column))
    for row in range(INPUTS):
        for n, one in enumerate(taps):
            a.ldr(one, slots.part.word(3 * row + n))
        for n, one in enumerate(_transform_weights(a)):
            a.str(one, _sixth(n, "r1", "r3", "r2"))
        a.add("r1", "r1", "lr")
        a.add("r3", "r3", "lr")
    a.ldr("r4", slots.back)
    a.sub("r1", "r1", "r4")
    a.sub("r3", "r3", "r4")


def _transform_weights(a: Assembler) -> tuple[str, ...]:
    """G g of r4, r5 and r6, and where it is."""
    a.sadd16("r7", "r4", "r6")
    a.sadd16("r8", "r7", "r5")
    a.ssub16("r7", "r7", "r5")
    a.and_("r9", "r12", "r6", "lsl #2")
    a.sadd16("r9", "r9", "r4")
    a.sadd16("r10", "r5", "r5")
    a.sadd16("r11", "r9", "r10")
    a.ssub16("r9", "r9", "r10")
    return "r4", "r8", "r7", "r11", "r9", "r6"


def output_name(*, once: bool) -> str:
    """The C function that makes outputs; ``once``: with the scaling of ``single_rounding.py``."""
    return f"utvm_winograd4_output{'_once' if once else ''}"


@code_cache
def output_text(core: str, *, once: bool) -> str:
    """The C text of ``output_name``: the outputs of two channels of all tiles."""
    a = Assembler(core, _OUTPUT)
    slots = _OutputSlots
    a.enter(frame=slots)
    a.store(r0=slots.v, r3=slots.output)
    for n in range(8):
        a.ldr("r4", at("r1", QUAD * n))
        a.str("r4", slots.scaling.word(n))
    a.copy_arguments("r4", slots, "places", "tiles", "row")
    shared_blocks.load_limits(a, "r2", slots.low, slots.clamps)
    a.constant("r4", _INVERSE)
    for bits in range(2 * max(_MISSING) + 1):
        for row, missing in enumerate(_MISSING):
            if 0 <= bits - missing <= max(_MISSING):
                a.str("r4", slots.part.word(_ROW_WORDS * row + 2 * INPUTS + bits - missing))
        a.lsl("r4", "r4", 1)
    with a.loop("ne", aligned=True):
        _columns_of_products(a)
        with a.loop("ne", aligned=True):
            _row_of_outputs(a, once=once)
        a.load(r3=slots.places, r4=slots.tiles)
        a.add("r3", "r3", QUAD * PLACE_WORDS)
        a.subs("r4", "r4", 1)
        a.store(r3=slots.places, r4=slots.tiles)
    a.leave()
    portable = shared_blocks.helper("utvm_winograd4_output")
    if once:
        portable = replaced(
            portable,
            ("utvm_scale(", "utvm_scale_once(", 1),
            ("(int32_t)sum / 64", "(int32_t)sum", 1),
        )
    return a.c_function(output_name(once=once), portable, CONDITION)


def _columns_of_products(a: Assembler) -> None:
    """A^T M of a tile and both channels, to the part; r12 then points at it."""
    slots = _OutputSlots
    with a.scheduled():
        a.load(r12=slots.places, r0=slots.v, r6=slots.output)
        a.ldr("r4", at("r12"))
        a.ldr("r1", at("r12", QUAD))
        a.ldr("r5", at("r12", 2 * QUAD))
        a.ldr("r7", at("r12", 3 * QUAD))
        a.add("r0", "r0", "r4")
        a.add("r2", "r1", "r1", "lsl #1")
        a.add("r2", "r2", "r2")
        a.add("r3", "r2", "r2", "lsl #1")
        a.add("r3", "r3", "r0")
        a.add("r5", "r5", "r6")
        a.store(r5=slots.to, r7=slots.rows)
        a.sub("r1", "r1", QUAD)
        a.add("r12", "sp", slots.part.offset)
        a.add("r11", "r12", QUAD * INPUTS)
    products = ("r4", "r5", "r6", "r7", "r8", "r9")
    with a.loop("ne", aligned=True), a.scheduled(is_loop=True):
        for channel in range(2):
            for n, one in enumerate(products):
                a.ldr(one, _sixth(n, "r0", "r3", "r2"))
            a.add("r0", "r0", "r1" if channel else QUAD)
            a.add("r3", "r3", "r1" if channel else QUAD)
            for n, one in enumerate(_transform_products(a, products)):
                a.str(one, at("r12", QUAD * (_ROW_WORDS * n + INPUTS * channel)))
        a.add("r12", "r12", QUAD)
        a.cmp("r12", "r11")
    a.sub("r12", "r12", QUAD * INPUTS)


def _transform_products(a: Assembler, products: tuple[str, ...]) -> tuple[str, ...]:
    """A^T m without the powers of two of ``_MISSING``, and where it is; overwrites lr."""
    m0, m1, m2, m3, m4, m5 = products
    a.add("lr", m1, m2)
    a.sub(m1, m1, m2)
    a.add(m2, m3, m4)
    a.sub(m3, m3, m4)
    a.sub(m4, m2, "lr")
    a.sub(m2, m2, "lr", "lsl #2")
    a.add(m0, m0, m0, "lsl #1")
    a.add(m2, m2, m0, "lsl #1")
    a.sub(m0, m3, m1, "lsl #1")
    a.rsb(m3, m1, m3, "lsl #1")
    a.add(m5, m5, m5, "lsl #1")
    a.add(m3, m3, m5, "lsl #1")
    return m2, m0, m4, m3


def _row_of_outputs(a: Assembler, *, once: bool) -> None:
    """A row of outputs of both channels, from its row of the part at r12; flags: ne if not last."""
    slots = _OutputSlots
    found = []
    with a.scheduled():
        for channel, products in enumerate(
            (("r4", "r5", "r6", "r7", "r8", "r9"), ("r5", "r9", "r0", "r1", "r2", "r3"))
        ):
            for n, one in enumerate(products):
                a.ldr(one, at("r12", QUAD * (INPUTS * channel + n)))
            values = _transform_products(a, products)
            a.ldr("r9", slots.scaling.word(channel))
            for n, register in enumerate(("r3", "lr", "r10")):
                a.ldr(register, at("r12", QUAD * (2 * INPUTS + n)))
            for one, factor in zip(values, ("r3", "lr", "r10", "r10"), strict=True):
                a.mla(one, one, factor, "r9")
            scale = ("r10", "r11", "r3")
            for n, register in enumerate(scale):
                a.ldr(register, slots.scaling.word(2 * n + 2 + channel))
            if once:
                shared_blocks.scale_once(a, values, *scale)
            else:
                for one in values:
                    a.asr(one, one, FACTOR_BITS - 1)
                shared_blocks.scale(a, values, *scale, "lr", is_doubled=True)
            found.append(values)
        for low, high in zip(*found, strict=True):
            a.bfi(low, high, 8, 8)
        a.load(r9=slots.places, r0=slots.to, r10=slots.row)
        for n, register in enumerate(("r1", "r2", "r3")):
            a.ldr(register, at("r9", QUAD * (4 + n)))
        a.add("r1", "r1", "r0")
        a.add("r2", "r2", "r1")
        a.add("r3", "r3", "r2")
        a.add("r10", "r10", "r0")
        a.str("r10", slots.to)
        a.add("r12", "r12", QUAD * _ROW_WORDS)
        a.ldr("r9", slots.clamps)
        a.cmp("r9", 0)
    outputs = found[0]
    with a.unless("eq"):
        a.load(r9=slots.low, r10=slots.high)
        shared_blocks.clamp(a, outputs, "r9", "r10", "r11")
    # In this order: a step of 0 puts what is outside of the output where a later one goes.
    a.ldr("r11", slots.rows)
    a.strh(outputs[3], at("r3"))
    a.subs("r11", "r11", 1)
    a.strh(outputs[2], at("r2"))
    a.strh(outputs[1], at("r1"))
    a.strh(outputs[0], at("r0"))
    a.str("r11", slots.rows)
