"""DSP assembly of the ``dot`` intrinsic: rows of ``a`` times rows of ``b``, added to ``c``.

One or two rows of ``a`` are widened once, into a table on the stack. Then each pair of rows of
``b`` goes by. SXTB16 splits four bytes into two words with two values each, and SMLAD multiplies
such words. A quad is four values of a row. The table has its even values first, then its odd ones:

    table  int16  [quad][even, odd][row of a][two values]

The last values of a row need not fill a quad. They come from the row's last four bytes, shifted.
"""

from __future__ import annotations

from utvm_deploy.kernels.isa.assembler import Assembler, StackFrame, words
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.dsp import CONDITION
from utvm_deploy.kernels.isa.mnemonics import Slot, at, post
from utvm_deploy.targets.arm_m.timing_m7 import CORTEX_M7

#: Rows of ``b`` in registers.
COLUMNS = 2
#: The core whose timing orders the instructions. It suits the Cortex-M4, too.
_CORE = CORTEX_M7.core
#: Quads of the inner loop. Eight quads are half a kilobyte of code.
_STEP = 8
_SUMS = (("r4", "r5"), ("r6", "r7"))  # [row of a][row of b]
_EVEN = ("r8", "r9")  # of both rows of b
_ODD = ("r10", "r11")
_VALUES = ("r3", "r12", "lr")  # of rows of a, in turn


@code_cache
def dot_text(name: str, parameters: tuple[str, ...], rows: int, depth: int, portable: str) -> str:
    """The C function ``name``, which takes ``rows`` (1 or 2) rows of ``a`` at a time.

    ``portable`` is its body in C for other cores.
    """
    a = Assembler(_CORE, parameters)
    _Dot(a, rows, depth).emit()
    return a.c_function(name, portable, CONDITION)


class _Dot:
    def __init__(self, a: Assembler, rows: int, depth: int) -> None:
        self.a, self.rows = a, rows
        self.quads, self.rest = divmod(depth, 4)
        self.depth = depth
        count = 2 * rows * (self.quads + (self.rest > 0))

        class Slots(StackFrame):
            table: Slot = words(count)
            a: Slot  # the next rows
            rows: Slot  # that are left
            c: Slot  # where the sums of the next rows begin
            c_bytes: Slot  # from row to row
            b: Slot
            a_pitch: Slot
            columns: Slot

        self.slots = Slots
        self.quad_bytes = 8 * rows

    def emit(self) -> None:
        """All of the routine."""
        a, slots = self.a, self.slots
        a.enter(("r4-r11", "lr"), slots)
        a.store(r0=slots.a, r1=slots.b, r2=slots.c, r3=slots.a_pitch)
        a.ldr("r4", a.stack_argument("c_pitch"))
        a.lsl("r4", "r4", 2)
        a.str("r4", slots.c_bytes)
        a.copy_arguments("r4", slots, "rows", "columns")
        with a.loop("gt"):
            self._widen()
            self._columns()
            a.load(r0=slots.a, r1=slots.a_pitch, r2=slots.c, r3=slots.c_bytes, r4=slots.rows)
            for _ in range(self.rows):
                a.add("r0", "r0", "r1")
                a.add("r2", "r2", "r3")
            a.store(r0=slots.a, r2=slots.c)
            a.subs("r4", "r4", self.rows)
            a.str("r4", slots.rows)
        a.leave()

    def _widen(self) -> None:
        """Fill the table; r0 and r1 point at the rows, and r2 into the table."""
        a = self.a
        a.load(r0=self.slots.a, r1=self.slots.a_pitch)
        if self.rows == 2:
            a.add("r1", "r0", "r1")
        a.add("r2", "sp", self.slots.table.offset)
        step = next(n for n in (4, 3, 2, 1) if self.quads % n == 0)
        if self.quads:
            a.mov("r3", self.quads // step)
            with a.loop("gt", aligned=True), a.scheduled(is_loop=True):
                for quad in range(step):
                    self._widen_quad(0, quad * self.quad_bytes)
                a.add("r2", "r2", step * self.quad_bytes)
                a.subs("r3", "r3", 1)
        if self.rest:
            self._widen_quad(self.rest)

    def _widen_quad(self, rest: int, offset: int = 0) -> None:
        a = self.a
        for row in range(self.rows):
            even, odd = (("r4", "r5"), ("r6", "r7"))[row]
            if rest:
                a.ldr(even, at(f"r{row}", rest - 4))
                a.lsr(even, even, 8 * (4 - rest))
            else:
                a.ldr(even, post(f"r{row}", 4))
            a.sxtb16(odd, even, "ror #8")
            a.sxtb16(even, even)
            a.str(even, at("r2", offset + 4 * row))
            a.str(odd, at("r2", offset + 4 * (self.rows + row)))

    def _columns(self) -> None:
        """Add the products of the rows in the table with all rows of ``b``.

        r1 points at ``b``, r2 is its pitch, r0 points into the table.
        """
        a, slots = self.a, self.slots
        a.ldr("r1", slots.b)
        a.ldr("r2", a.stack_argument("b_pitch"))
        with a.loop("gt"):
            a.load(r3=slots.c, r12=slots.c_bytes)
            a.ldrd(*_SUMS[0], at("r3"))
            if self.rows == 2:
                a.add("r12", "r3", "r12")
                a.ldrd(*_SUMS[1], at("r12"))
            a.add("r0", "sp", slots.table.offset)
            self._products()
            a.load(r3=slots.c, r8=slots.c_bytes, r9=slots.columns)
            a.strd(*_SUMS[0], at("r3"))
            if self.rows == 2:
                a.add("r8", "r3", "r8")
                a.strd(*_SUMS[1], at("r8"))
            a.add("r3", "r3", 4 * COLUMNS)
            # r1 is at the end of its row.
            a.sub("r1", "r1", self.depth)
            a.add("r1", "r1", "r2", "lsl #1")
            a.subs("r9", "r9", COLUMNS)
            a.store(r3=slots.c, r9=slots.columns)
        # Back to the first columns of these rows.
        a.ldr("r4", a.stack_argument("columns"))
        a.str("r4", slots.columns)
        a.sub("r3", "r3", "r4", "lsl #2")
        a.str("r3", slots.c)

    def _products(self) -> None:
        a = self.a
        turns, left = divmod(self.quads, _STEP)
        if turns == 1:
            turns, left = 0, self.quads
        if turns:
            end = self.slots.table.offset + turns * _STEP * self.quad_bytes
            with a.loop("ne", aligned=True), a.scheduled(is_loop=True):
                self._quads(_STEP)
                a.add("r3", "sp", end)
                a.cmp("r0", "r3")
        with a.scheduled():
            self._quads(left)
            if self.rest:
                self._rest()

    def _quads(self, count: int) -> None:
        a = self.a
        for quad in range(count):
            a.ldr(_EVEN[1], at("r1", "r2"))
            a.ldr(_EVEN[0], post("r1", 4))
            self._split()
            self._multiply(quad * self.quad_bytes)
        if count:
            a.add("r0", "r0", count * self.quad_bytes)

    def _rest(self) -> None:
        """The last one to three values of each row."""
        a = self.a
        a.add("r1", "r1", self.rest)
        a.sub("r3", "r1", 4)
        for column, source in enumerate((at("r3"), at("r3", "r2"))):
            a.ldr(_EVEN[column], source)
            a.lsr(_EVEN[column], _EVEN[column], 8 * (4 - self.rest))
        self._split()
        self._multiply(0)

    def _split(self) -> None:
        for even, odd in zip(_EVEN, _ODD, strict=True):
            self.a.sxtb16(odd, even, "ror #8")
            self.a.sxtb16(even, even)

    def _multiply(self, offset: int) -> None:
        a, number = self.a, 0
        for phase, weights in enumerate((_EVEN, _ODD)):
            for row, sums in enumerate(_SUMS[: self.rows]):
                value = _VALUES[number % len(_VALUES)]
                number += 1
                a.ldr(value, at("r0", offset + 4 * (phase * self.rows + row)))
                for total, weight in zip(sums, weights, strict=True):
                    a.smlad(total, value, weight, total)
