"""Short instruction sequences with the cycles that follow from the makers' tables.

Each is the sum of the table's numbers, worked out by hand and not by the model. The source says
how. Nobody has published a measurement of them here.

Registers: a0 and a1 point to words of two buffers on the stack. Cases may change the temporaries
t0 to t5, and a0. Instructions are of 32 bits; RVC lets the assembler take the short ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from utvm_deploy.targets.contract.sequences import (
    FIRST_BYTES,
    LONG,
    LOOP_LONG,
    LOOP_SHORT,
    SECOND_BYTES,
    SHORT,
    Cached,
    Case,
    Sequences,
)
from utvm_deploy.targets.riscv.timings import CV, CV32E40P, IBEX, IBEX_FAST, IBEX_SINGLE_CYCLE

# Name, instructions, and what each of them takes on the CV32E40P, on Ibex with the multiplier of
# three cycles, and on Ibex with that of one. Waiting counts to the instruction that waits.
_BODIES: tuple[tuple[str, str, tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...] = (
    ("add, add", "add t0, t1, t2; add t1, t0, t2", (1, 1), (1, 1), (1, 1)),
    ("mul chain", "mul t0, t0, t1; mul t0, t0, t1", (1, 1), (3, 3), (1, 1)),
    ("mulh", "mulh t0, t1, t2; add t3, t0, t0", (5, 1), (4, 1), (2, 1)),
    ("div by four bits", "li t1, 9; divu t0, t2, t1", (1, 31), (1, 37), (1, 37)),
    ("lw, use", "lw t0, 0(a0); add t1, t0, t0", (1, 2), (2, 1), (2, 1)),
    ("lb, other, use", "lb t0, 0(a0); add t2, t3, t3; add t1, t0, t0", (1, 1, 1), (2, 1, 1),
     (2, 1, 1)),
    ("lw, lw, use of the second", "lw t0, 0(a0); lw t1, 4(a0); mul t2, t0, t1", (1, 1, 2),
     (2, 2, 3), (2, 2, 1)),
    ("lw, address", "sw a0, 0(a0); lw a0, 0(a0); lw t0, 0(a0)", (1, 1, 2), (2, 2, 2), (2, 2, 2)),
    ("lw, sw", "lw t0, 0(a0); sw t0, 0(a1)", (1, 2), (2, 2), (2, 2)),
    ("address from add, sb", "add t0, a0, zero; sb t1, 1(t0)", (1, 1), (1, 2), (1, 2)),
    ("lw of two words", "lw t0, 1(a0); sw t1, 2(a1)", (2, 2), (3, 3), (3, 3)),
    ("lh of one word, of two", "lh t0, 1(a0); lh t1, 3(a0)", (1, 2), (2, 3), (2, 3)),
    ("j", "j 1f; 1: add t0, t1, t2", (2, 1), (2, 1), (2, 1)),
    ("j to two words", "RVC c.j 1f; 1: add t0, t1, t2; RVC c.nop", (3, 1, 1), (3, 1, 1), (3, 1, 1)),
    ("j to a short one", "RVC c.j 1f; 1: RVC c.nop", (2, 1), (2, 1), (2, 1)),
    ("beq taken", "beq t0, t0, 1f; 1: add t0, t1, t2", (3, 1), (3, 1), (3, 1)),
    ("beq taken, to two words", "RVC c.beqz a5, 1f; 1: add t0, t1, t2; RVC c.nop", (4, 1, 1),
     (4, 1, 1), (4, 1, 1)),
    ("bne not taken", "bne t0, t0, 2f; add t0, t1, t2", (1, 1), (1, 1), (1, 1)),
    ("jr behind its register", "auipc t0, 0; addi t0, t0, 12; jr t0", (1, 1, 3), (1, 1, 2),
     (1, 1, 2)),
    ("jr, one between", "auipc t0, 0; addi t0, t0, 16; nop; jr t0", (1, 1, 1, 2), (1, 1, 1, 2),
     (1, 1, 1, 2)),
    ("jr behind the load of it", "auipc t0, 0; addi t0, t0, 20; sw t0, 0(a0); lw t1, 0(a0); jr t1",
     (1, 1, 1, 1, 4), (1, 1, 2, 2, 2), (1, 1, 2, 2, 2)),
    ("fence.i", "fence.i", (4,), (2,), (2,)),
    ("loop", "add t0, t0, t1; lw t1, 0(a0); addi t5, t5, -1; bnez t5, 1b", (1, 1, 1, 3),
     (1, 2, 1, 3), (1, 2, 1, 3)),
)  # fmt: skip


#: These load or store at addresses that are not multiples of the size.
_ACROSS_WORDS = ("lw of two words", "lh of one word, of two")


def _cases(column: int, source: str) -> tuple[Case, ...]:
    return tuple(
        Case(
            name,
            body,
            sum(cycles[column]),
            f"{source}: {' + '.join(map(str, cycles[column]))}",
            setup="li a5, 0",
            is_loop=name == "loop",
        )
        for name, body, *cycles in _BODIES
    )


_NO_TABLE = "no table is published for cores of this instruction set; one for each instruction"


def _uncharted() -> tuple[Case, ...]:
    """For cores whose maker publishes no table, without what such a core may refuse."""
    cases = _cases(0, _NO_TABLE)
    return tuple(
        replace(case, cycles=len(case.body.split(";")), source=_NO_TABLE)
        for case in cases
        if case.name not in _ACROSS_WORDS
    )


CASES = {
    "rv32imc": _uncharted(),
    CV32E40P.core: _cases(0, CV),
    IBEX_FAST.core: _cases(1, IBEX),
    IBEX_SINGLE_CYCLE.core: _cases(2, IBEX),
}


def assembly(cases: Sequence[Case], cached: Cached | None) -> str:
    """As ``Sequences.assembly`` says; none of these cores has a data cache."""
    lines = [".option arch, +zifencei", ".option norvc", ".text"]
    lines += [".macro RVC line:vararg", ".option rvc", "\\line", ".option norvc", ".endm"]
    frame = FIRST_BYTES + SECOND_BYTES
    for number, case in enumerate(cases):
        for length, times in (("short", SHORT), ("long", LONG)):
            name = f"case_{number}_{length}"
            lines += [".balign 32", f".global {name}", f".type {name}, @function", f"{name}:"]
            lines += [f"li t0, {frame}", "sub sp, sp, t0", "mv a0, sp"]
            lines += [f"li t1, {FIRST_BYTES}", "add a1, sp, t1"]
            lines += [part.strip() for part in case.setup.split(";") if part.strip()]
            body = [part.strip() for part in case.body.split(";")]
            if case.is_loop:
                turns = LOOP_SHORT if length == "short" else LOOP_LONG
                lines += [f"li t5, {turns}", ".balign 32", "1:", *body]
            else:
                lines += [".balign 4", *(body * times)]
            lines += ["2:", f"li t0, {frame}", "add sp, sp, t0", "ret"]
            lines.append(f".size {name}, . - {name}")
    return "\n".join(lines) + "\n"


SEQUENCES = Sequences(CASES, assembly)
