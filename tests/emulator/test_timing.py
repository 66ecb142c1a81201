"""The timing tables: complete, sourced, and what the documentation says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from utvm_deploy.kernels.isa.assembler import Assembler
from utvm_deploy.kernels.isa.instructions import Instruction
from utvm_deploy.kernels.isa.list_scheduler import cycles, ordered
from utvm_deploy.kernels.isa.mnemonics import Operand, at
from utvm_deploy.kernels.isa.mnemonics import instruction as one
from utvm_deploy.targets.arm_m.timing_m3 import CORTEX_M3
from utvm_deploy.targets.arm_m.timing_m4 import CORTEX_M4
from utvm_deploy.targets.arm_m.timing_m7 import CORTEX_M7
from utvm_deploy.targets.arm_m.timing_m55 import CORTEX_M55
from utvm_deploy.targets.contract.timing import (
    ALL_KINDS,
    ASSUMED,
    Kind,
    Need,
    Result,
    Timing,
    VectorKind,
)
from utvm_deploy.targets.emulator.counters import FIRST_MIX, MIX_GROUPS, NAMES
from utvm_deploy.targets.table import TIMINGS

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("timing", TIMINGS.values(), ids=lambda timing: timing.core)
def test_every_class_has_one_row_with_a_source(timing: Timing) -> None:
    assert sorted(row.kind for row in timing.rows if row.kind in list(Kind)) == sorted(Kind)
    assert all(row.source for row in timing.rows)
    assert all(cell.source for cell in timing.latencies)
    assert all(rule.source for rule in timing.exclusions + timing.pessimistic)
    cells = [(cell.result, cell.need) for cell in timing.latencies]
    assert len(cells) == len(set(cells))
    # Assumptions are the exception.
    assert sum(row.source.startswith(ASSUMED) for row in timing.rows) < len(Kind) / 4


def test_the_pipeline_of_the_cortex_m7() -> None:
    pair = CORTEX_M7.can_pair
    assert pair(Kind.MULTIPLY_ADD, Kind.LOAD_WORD)
    assert not pair(Kind.MULTIPLY_ADD, Kind.LOAD_WORD, pessimistic=True)
    assert not pair(Kind.LOAD_WORD, Kind.MULTIPLY_ADD, pessimistic=True)
    assert pair(Kind.EXTEND, Kind.MULTIPLY_ADD)
    assert not pair(Kind.MULTIPLY_ADD, Kind.EXTEND)
    assert not any(pair(Kind.LOAD_MULTIPLE, kind) for kind in Kind)
    assert not any(pair(kind, Kind.LOAD_MULTIPLE) for kind in Kind)
    assert CORTEX_M7.latency(Result.LOADED, Need.LATE) == 1
    assert CORTEX_M7.latency(Result.PRODUCT, Need.ACCUMULATOR) == 1


def test_saturation_is_on_the_shifter() -> None:
    pair = CORTEX_M7.can_pair
    assert pair(Kind.SATURATE, Kind.ADD_SUB)
    assert not pair(Kind.SATURATE, Kind.SHIFTED_OPERAND)
    assert pair(Kind.SIMD_SATURATE, Kind.SHIFTED_OPERAND)
    assert not pair(Kind.SIMD_SATURATE, Kind.EXTEND)


@pytest.mark.parametrize(
    ("code", "taken"),
    [
        ((one("ssat", "r4", 8, "r4"),) * 4, 10),
        ((one("mul", "r4", "r2", "r3"), one("ssat", "r5", 8, "r4")), 4),
        ((one("ssat", "r4", 8, "r2"), one("add", "r5", "r4", "r3")), 3),
        ((one("ssat", "r4", 8, "r2"), one("add", "r5", "r3", "r2", "lsl #3")), 2),
        ((one("qadd", "r4", "r2", "r3"), one("add", "r5", "r4", "r3")), 3),
        ((one("sadd16", "r4", "r2", "r3"), one("add", "r5", "r4", "r3")), 2),
        ((one("ldr", "r4", at("r0")), one("add", "r5", "r4", "r2", "lsl #3")), 3),
        # The younger of a pair, which has no shifter left in the first ALU.
        (
            (
                one("add", "r4", "r2", "r2", "lsl #3"),
                one("asr", "r5", "r2", 12),
                one("add", "r6", "r2", "r5", "lsl #1"),
            ),
            3,
        ),
    ],
)
def test_code_is_ordered_by_the_same_rules(code: tuple[Instruction, ...], taken: int) -> None:
    """The scheduler of the kernels counts as the model does (arm_m/sequences.py)."""
    assert cycles(code, CORTEX_M7) == taken


def test_the_cortex_m4_issues_one_at_a_time() -> None:
    assert not any(CORTEX_M4.can_pair(older, younger) for older in Kind for younger in Kind)


def test_only_the_multiplier_of_the_cortex_m3_is_slower() -> None:
    pairs = zip(CORTEX_M3.rows, CORTEX_M4.rows, strict=True)
    slower = {m3.kind: m3.cycles - m4.cycles for m3, m4 in pairs if m3 != m4}
    assert slower == {Kind.MULTIPLY_ADD: 1, Kind.MULTIPLY_LONG: 4, Kind.MULTIPLY_ADD_LONG: 6}


def test_vectors_have_rows_where_a_core_has_vectors() -> None:
    assert [row.kind for row in CORTEX_M55.rows] == list(ALL_KINDS)
    assert [kind.value for kind in ALL_KINDS] == list(range(len(ALL_KINDS)))
    assert CORTEX_M7.row(VectorKind.VECTOR_FROM_CORE) is CORTEX_M7.row(Kind.FP_FROM_CORE)
    assert CORTEX_M7.row(VectorKind.VECTOR_DOT) is CORTEX_M7.row(Kind.UNKNOWN)


@pytest.mark.parametrize(
    ("lines", "taken"),
    [
        # A unit is busy for two cycles, another one starts in the next.
        ((("vldrb.8", "q0", at("r0")), ("vldrb.8", "q1", at("r1"))), 3),
        ((("vldrb.8", "q0", at("r0")), ("vmul.i8", "q1", "q2", "q3")), 2),
        ((("vldrb.8", "q0", at("r0")), ("vstrb.8", "q1", at("r1"))), 3),
        # A product is there two cycles later, for a store in the next one.
        ((("vmul.i8", "q1", "q2", "q3"), ("vadd.i8", "q0", "q1", "q1")), 3),
        ((("vmul.i8", "q1", "q2", "q3"), ("vstrb.8", "q1", at("r0"))), 2),
        # A sum of products reaches its core register two cycles later.
        ((("vmladava.s8", "r0", "q1", "q2"), ("add", "r1", "r0", "r2")), 3),
    ],
)
def test_vectors_occupy_their_unit(lines: tuple[tuple[Operand, ...], ...], taken: int) -> None:
    code = [one(str(mnemonic), *operands) for mnemonic, *operands in lines]
    assert cycles(code, CORTEX_M55) == taken


def test_a_loop_over_vectors_gets_shorter() -> None:
    """Loads and maxima of a pool take turns, so that both units work."""
    a = Assembler(CORTEX_M55)
    a.vldrb_8("q2", at("r7"))
    a.vldrb_8("q3", at("r7", 16))
    a.add("r7", "r5")
    a.vmax_s8("q0", "q0", "q2")
    a.vmax_s8("q1", "q1", "q3")
    found = ordered(a.code, CORTEX_M55, is_loop=True)
    assert sorted(i.text for i in found) == sorted(i.text for i in a.code)
    assert [cycles(code, CORTEX_M55, repeat=10) for code in (a.code, found)] == [70, 50]


def test_counters_have_one_order() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert NAMES[0] == "memory"  # what a runtime's timer reads
    assert NAMES[FIRST_MIX:] == tuple(MIX_GROUPS)
    members = [kind for kinds in MIX_GROUPS.values() for kind in kinds]
    assert len(set(members)) == len(members)


def test_the_page_shows_the_tables() -> None:
    script = REPOSITORY / "benchmarks" / "cycle_model" / "document.py"
    assert subprocess.run([sys.executable, str(script), "--check"]).returncode == 0


@pytest.mark.parametrize(
    "timing", [CORTEX_M3, CORTEX_M4, CORTEX_M7, CORTEX_M55], ids=lambda one: one.core
)
def test_turns_that_are_alike_are_counted_once(timing: Timing) -> None:
    rng = np.random.default_rng(5)
    # Mnemonic, the letter of its registers, and how many it reads; those that read none load.
    forms = [("ldr", "r", 0), ("mul", "r", 2), ("mla", "r", 3), ("add", "r", 2), ("sdiv", "r", 2)]
    if timing is CORTEX_M55:
        forms += [("vldrb.8", "q", 0), ("vmul.i8", "q", 2), ("vadd.i8", "q", 2)]
    for _ in range(40):
        code = []
        for form in rng.integers(0, len(forms), rng.integers(1, 9)):
            name, letter, reads = forms[form]
            to, *others = (f"{letter}{number}" for number in rng.integers(2, 8, 1 + reads))
            code.append(one(name, to, *others) if reads else one(name, to, at("r0", 4)))
        for turns in (1, 2, 3, 9):
            assert cycles(code, timing, repeat=turns) == cycles(code * turns, timing)
