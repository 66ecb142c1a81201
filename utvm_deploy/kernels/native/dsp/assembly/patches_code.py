"""The matrix product of convolutions over patches, and what gathers the patches.

Rows of a window whose bytes are a multiple of four are widened straight from the image. The rows of
other windows are first copied to a line of bytes, one after the other, by words that overlap.

Layout, for depth k = 4 q + 2 l + f (quad, lane, phase); the other tables are those of ``tile.py``:

    patches  int16 [group of 3 pixels][quad][phase][pixel][lane], ``SLACK_BYTES`` after them
"""

from __future__ import annotations

from utvm_deploy.kernels.isa.assembler import Assembler, Label
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.dsp import CONDITION
from utvm_deploy.kernels.isa.mnemonics import Slot, at
from utvm_deploy.kernels.native.dsp.assembly import halves, tile
from utvm_deploy.kernels.native.dsp.assembly.shared_blocks import function_text, helper
from utvm_deploy.kernels.native.dsp.assembly.tile import CHANNELS, PIXELS, SUMS, TileSlots
from utvm_deploy.kernels.native.dsp.assembly.value_types import INT8, UNPACKED, Values

#: Depths are padded to multiples of this with weights of zero. The long step is used where it costs
#: no padding. Depths up to ``_WHOLE_DEPTH`` are written out, without a loop.
DEPTH_STEP = 8
LONG_STEP = 16
_WHOLE_DEPTH = 64
_PARAMETERS = """
const int16_t *patches, const int8_t *weights, const int32_t *scaling, const int32_t *limits,
int8_t *output, int32_t pixels, int32_t channels, int32_t depth
"""
_WIDEN_PARAMETERS = (
    "int16_t *patches, const int8_t *bytes, int32_t quads, int32_t rows, int32_t pitch"
)
_LINE_PARAMETERS = """
int16_t *patches, const int8_t *bytes, int8_t *line, int32_t quads, int32_t rows, int32_t pitch,
int32_t run
"""

_PHASE_BYTES = 4 * PIXELS  # from a word of a quad to the other one
_PAIRS = (("r4", "r5"), ("r6", "r7"), ("r12", "lr"))


class _Slots(TileSlots):
    """What the routine keeps on the stack."""

    patches: Slot
    pixels: Slot


class _HalvesSlots(_Slots):
    """The same with packed weights: ``weights`` is the line into which two channels go."""

    packed: Slot  # the weights of these two channels


def padded_depth(depth: int) -> int:
    """The depth with the zeros that fill it up."""
    return -(-depth // DEPTH_STEP) * DEPTH_STEP


def steps_for(depth: int) -> tuple[int, ...]:
    """Steps that the inner loop can have for a padded depth, the default first."""
    steps = [DEPTH_STEP] if depth % LONG_STEP else [LONG_STEP, DEPTH_STEP]
    return tuple(dict.fromkeys([depth, *steps] if depth <= _WHOLE_DEPTH else steps))


def name_of(step: int, depth: int, values: Values = INT8) -> str:
    """The C function for a padded depth."""
    return f"utvm_gemm_{'whole_' if _is_whole(step, depth, values) else ''}{step}{values.suffix}"


def _is_whole(step: int, depth: int, values: Values) -> bool:
    """Whether the depth is written out, without a loop."""
    return values.can_be_whole and step == depth


@code_cache
def gemm_text(core: str, step: int, depth: int, values: Values = INT8) -> str:
    """The C text of the function with this step, ordered for a core."""
    a = Assembler(core, _PARAMETERS + f", int8_t *{UNPACKED}" * values.halves)
    _begin(a, values)
    tiles, channels_done, special = Label(), Label(), Label()
    with a.loop("gt"):  # two channels
        _begin_channels(a, step, values)
        a.place(tiles)
        with a.scheduled():
            _start(a)
        next_step = a.here(aligned=True)
        _multiply(a, step, next_step, values, is_whole=_is_whole(step, depth, values))
        a.b(special, "ne")
        with a.scheduled():
            _store(a, "lr")
            a.cmp("lr", PIXELS)
            _start(a)
        a.b(next_step, "ge")
        a.cmp("lr", 0)
        a.b(channels_done, "le")
        a.mov("lr", 1)
        a.str("lr", _Slots.special)
        a.b(next_step)
        a.place(channels_done)
        weights = _HalvesSlots.packed if values.halves else TileSlots.weights
        tile.next_channels(a, values.size, values.scaling_words, weights)
    a.leave()
    a.place(special)
    _store_special(a, tiles, channels_done)
    return a.c_function(name_of(step, depth, values), values.portable("utvm_gemm"), CONDITION)


def _begin(a: Assembler, values: Values) -> None:
    """Put the arguments into their slots."""
    a.enter(frame=_HalvesSlots if values.halves else _Slots)
    a.load(r4=a.stack_argument("output"), r5=a.stack_argument("pixels"))
    a.load(r6=a.stack_argument("channels"), r7=a.stack_argument("depth"))
    if not values.halves:
        a.lsl("r7", "r7", 1)
    INT8.load_limits(a)
    if values.halves:
        a.load(r8=a.stack_argument(UNPACKED))
        a.store(r8=_Slots.weights)
    a.store(r7=_Slots.weights_bytes, r2=_Slots.scaling, r0=_Slots.patches)
    a.store(r4=_Slots.first_output, r5=_Slots.pixels)
    a.strd("r6", "r6", _Slots.channels_left)


def _begin_channels(a: Assembler, step: int, values: Values) -> None:
    """Fill the slots for the first tile of two channels, whose weights r1 points at."""
    if values.halves:
        a.load(r2=_Slots.weights, r0=_Slots.weights_bytes)
        a.str("r1", _HalvesSlots.packed)
        a.add("r0", "r0", "r1")
        halves.unpack(a, "r1", "r0", "r2")
        a.load(r0=_Slots.patches, r3=_Slots.first_output)
    else:
        a.load(r0=_Slots.patches, r2=_Slots.weights_bytes, r3=_Slots.first_output)
    a.load(r4=_Slots.pixels, r5=_Slots.channels_left, r6=_Slots.clamps)
    if not values.halves:
        a.add("r2", "r1", "r2")
    a.sub("r2", "r2", 2 * step)
    a.cmp("r4", PIXELS)
    with a.when("ge"):
        a.cmp("r5", CHANNELS)
    with a.when("lt"):
        a.mov("r6", 1)
    if not values.halves:
        a.str("r1", _Slots.weights)
    a.str("r2", _Slots.last)
    a.strd("r3", "r4", _Slots.output)
    a.str("r6", _Slots.special)


def place(phase: int, pixel: int) -> int:
    """Where the word of a phase and a pixel is; r0 moves on from tile to tile."""
    return 4 * (PIXELS * phase + pixel)


def _start(a: Assembler) -> None:
    INT8.start(a, PIXELS)
    tile.load_pixels(a, PIXELS, place)


def _multiply(a: Assembler, step: int, next_step: Label, values: Values, *, is_whole: bool) -> None:
    """Compute the outputs of a tile, which is started; flags: ``ne`` if it is special."""
    step_bytes = 2 * PIXELS * step
    with a.scheduled(is_loop=not is_whole):
        tile.step(a, PIXELS, step, place, step_bytes, is_whole=is_whole)
        if is_whole:
            a.add("r0", "r0", step_bytes)
            values.finish(a, PIXELS)
    if not is_whole:
        a.b(next_step, "ne")
        with a.scheduled():
            values.finish(a, PIXELS)


def _store(a: Assembler, left: str) -> None:
    """Store a tile; ``left`` becomes the pixels that are left."""
    low = [pair[0] for pair in SUMS]
    a.add("r12", "r10", "r11", "lsl #1")
    for one, target in zip(low, (at("r10"), at("r10", "r11"), at("r12")), strict=True):
        a.strh(one, target)
    a.add("r12", "r12", "r11")
    a.ldr(left, _Slots.left)
    a.sub(left, left, PIXELS)
    a.str("r12", _Slots.output)
    a.str(left, _Slots.left)


def _store_special(a: Assembler, tiles: Label, channels_done: Label) -> None:
    """Store a tile that is clamped, or has fewer than three pixels, or one channel."""
    INT8.clamp(a, PIXELS)
    with a.scheduled():
        a.load(r10=_Slots.output, r11=_Slots.output_pitch)
        a.load(r3=_Slots.left, r2=_Slots.channels_left)
        a.cmp("r3", PIXELS)
    bytewise, stored = Label(), Label()
    a.b(bytewise, "lt")
    a.cmp("r2", CHANNELS)
    a.b(bytewise, "lt")
    with a.scheduled():
        _store(a, "r3")
        a.cmp("r3", 0)
    a.b(tiles, "gt")
    a.b(channels_done)
    a.place(bytewise)
    for pixel, (low, _) in enumerate(SUMS):
        if pixel:
            a.cmp("r3", pixel + 1)
            a.b(stored, "lt")
        a.strb(low, at("r10"))
        a.cmp("r2", CHANNELS)
        with a.when("ge"):
            a.lsr(low, low, 8)
            a.strb(low, at("r10", 1))
        a.add("r10", "r10", "r11")
    a.place(stored)
    a.subs("r3", PIXELS)
    a.store(r10=_Slots.output, r3=_Slots.left)
    a.b(tiles, "gt")
    a.b(channels_done)


@code_cache
def gather_text(core: str) -> str:
    """The C text of ``utvm_gather`` and what it calls, ordered for a core."""
    rows = Assembler(core, _WIDEN_PARAMETERS)
    _widen_rows(rows)
    line = Assembler(core, _LINE_PARAMETERS)
    _widen_line(line)
    texts = function_text("utvm_widen", rows), function_text("utvm_widen_line", line)
    return "\n".join([*texts, helper("utvm_gather")])


def _widen_rows(a: Assembler) -> None:
    """Widen ``rows`` of ``quads`` times four bytes, ``pitch`` bytes apart."""
    a.enter(("r4-r10", "lr"))
    a.ldr("r9", a.stack_argument("pitch"))
    a.mov("r8", "r1")
    with a.loop("ne"):  # a row
        a.subs("r10", "r2", 4)
        a.mov("r1", "r8")
        with a.unless("lt"), a.loop("ge", aligned=True), a.scheduled(is_loop=True):
            tile.widen(a, [*_PAIRS, _PAIRS[0]], "r1", "r0", "r10", _PHASE_BYTES)
        a.adds("r10", 4)
        with a.unless("eq"), a.loop("ne", aligned=True), a.scheduled(is_loop=True):
            tile.widen(a, _PAIRS[:1], "r1", "r0", "r10", _PHASE_BYTES)
        a.add("r8", "r9")
        a.subs("r3", 1)
    a.leave()


def _widen_line(a: Assembler) -> None:
    """Copy ``rows`` of ``run`` bytes to ``line``, by up to three bytes more, and widen that."""
    a.enter(("r3-r11", "lr"))  # r3: the quads, for the end
    a.load(r7=a.stack_argument("rows"), r8=a.stack_argument("pitch"), r9=a.stack_argument("run"))
    a.add("r10", "r9", 3)
    a.lsr("r10", "r10", 2)  # words of a row
    a.mov("r11", "r2")
    with a.loop("ne"):  # a row; r12 is where it is read, lr where it is written
        a.mov("r12", "r1")
        a.mov("lr", "r11")
        a.subs("r6", "r10", 4)
        with a.unless("lt"), a.loop("ge", aligned=True), a.scheduled(is_loop=True):
            for number, register in enumerate(("r3", "r4", "r5", "r3")):
                a.ldr(register, at("r12", 4 * number))
                a.str(register, at("lr", 4 * number))
            a.add("r12", "r12", 16)
            a.add("lr", "lr", 16)
            a.subs("r6", "r6", 4)
        a.tst("r6", 2)
        with a.unless("eq"), a.scheduled():
            for number, register in enumerate(("r3", "r4")):
                a.ldr(register, at("r12", 4 * number))
            for number, register in enumerate(("r3", "r4")):
                a.str(register, at("lr", 4 * number))
            a.add("r12", "r12", 8)
            a.add("lr", "lr", 8)
        a.tst("r6", 1)
        with a.unless("eq"):
            a.ldr("r3", at("r12"))
            a.str("r3", at("lr"))
        a.add("r11", "r11", "r9")
        a.add("r1", "r1", "r8")
        a.subs("r7", "r7", 1)
    a.mov("r1", "r2")
    a.ldr("r10", at("sp"))
    with a.loop("gt", aligned=True), a.scheduled(is_loop=True):
        tile.widen(a, _PAIRS[:2], "r1", "r0", "r10", _PHASE_BYTES)
    a.leave()
