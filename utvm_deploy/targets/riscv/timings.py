"""The timing of RISC-V cores whose makers publish it: one instruction at a time, in order.

CV: the CV32E40P user manual, "Pipeline Details" (openhwgroup/cv32e40p, docs/source/pipeline.rst at
6033d2b1). The core has no floating-point unit and no PULP extensions here, as by default. On
hazards:

    "the CV32E40P experiences a 1-cycle penalty on the following hazards: Load data hazard in case
    the instruction immediately following a load uses the result of that load; Jump register (jalr)
    data hazard in case that a jalr depends on the result of an immediately preceding instruction"

IBEX: the Ibex documentation, "Pipeline Details" (lowRISC/ibex, doc/03_reference/
pipeline_details.rst at 8b8ee086), of two stages, without the branch target ALU and without branch
prediction. This is the configuration ``small``; ``ibex-single-cycle`` has another multiplier
(RV32MSingleCycle). Its words: "when an instruction stalls for X cycles X + 1 cycles pass before a
new instruction enters the ID/EX stage".

Both tables are of memories that answer at once, as tightly coupled ones do: "zero stall on the
instruction-side interface and zero stall on the data-side memory interface" (CV).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from utvm_deploy.targets.contract.timing import (
    ASSUMED,
    Kind,
    Latency,
    Need,
    Result,
    Row,
    Slot,
    Timing,
)

CV = "CV32E40P manual, cycle counts per instruction type"
HAZARDS = "CV32E40P manual, hazards"
CV_RTL = "CV32E40P, rtl/cv32e40p_controller.sv"
IBEX = "Ibex documentation, stall cycles"
MULT_DIV = "Ibex documentation, multiplier/divider block"
#: A multiplication and an addition: no core here has both in one.
NO_ACCUMULATOR = "a multiplication and an addition"
NOT_THERE = "not in RV32IMC"

_LOADS = (Kind.LOAD_WORD, Kind.LOAD_PART)
_STORES = (Kind.STORE_WORD, Kind.STORE_PART)
#: What the decoder finds.
KINDS = (
    *(Kind.UNKNOWN, Kind.NOP, Kind.ADD_SUB, Kind.MOVE, Kind.SHIFT, Kind.LOGIC),
    *(Kind.MULTIPLY, Kind.MULTIPLY_LONG, Kind.DIVIDE, *_LOADS, *_STORES),
    *(Kind.BRANCH, Kind.BRANCH_CONDITIONAL, Kind.CALL, Kind.BRANCH_INDIRECT),
    *(Kind.BARRIER, Kind.SYSTEM),
)
_Cycles = Mapping[Kind, tuple[int, str]]


def _rows(cycles: _Cycles, source: str) -> tuple[Row, ...]:
    """A row for each class; those that ``cycles`` leaves out take one cycle."""
    return tuple(_row(kind, *cycles.get(kind, (1, source))) for kind in Kind)


def _row(kind: Kind, cycles: int, source: str) -> Row:
    result = Result.LOADED if kind in _LOADS else Result.LATE
    # A jump wants its register a stage earlier than others.
    first = Need.EARLY if kind is Kind.BRANCH_INDIRECT else Need.LATE
    if kind not in (*KINDS, Kind.MULTIPLY_ADD):
        source = NOT_THERE
    return Row(kind, (), source, Slot.ALONE, cycles=cycles, result=result, first=first)


_CV_CYCLES: _Cycles = {
    Kind.UNKNOWN: (1, ASSUMED),
    Kind.MULTIPLY: (1, f"{CV}: mul 1"),
    Kind.MULTIPLY_ADD: (2, NO_ACCUMULATOR),
    Kind.MULTIPLY_LONG: (5, f"{CV}: mulh, mulhsu, mulhu 5"),
    Kind.DIVIDE: (
        31,
        f"{CV}: 3..35, by the number of leading bits at 0 of the divisor; {ASSUMED}: one of 4 bits",
    ),
    **dict.fromkeys((*_LOADS, *_STORES), (1, f"{CV}: load/store 1")),
    **dict.fromkeys(
        (Kind.BRANCH, Kind.CALL, Kind.BRANCH_INDIRECT), (1, f"{CV}: jump 2, with what jumps lose")
    ),
    Kind.BRANCH_CONDITIONAL: (1, f"{CV}: branch not taken 1"),
    Kind.BARRIER: (4, "CV32E40P, its RTL in simulation: 4; the manual says fence.i 2"),
    Kind.SYSTEM: (4, f"{CV}: CSR access 4, of some 1; {ASSUMED}: the most, and for ecall and mret"),
}
_LOADED = "the instruction immediately following a load uses the result"

CV32E40P = Timing(
    core="cv32e40p",
    rows=_rows(_CV_CYCLES, f"{CV}: integer 1"),
    latencies=(
        *(
            Latency(Result.LOADED, need, 2, f"{HAZARDS}: {_LOADED}")
            for need in (Need.LATE, Need.ADDRESS, Need.STORED)
        ),
        Latency(Result.LATE, Need.EARLY, 2, f"{HAZARDS}: jalr behind its register"),
        Latency(Result.LOADED, Need.EARLY, 3, f"{CV_RTL}: jr_stall until the load has left WB"),
    ),
    taken_branch_cycles=2,
    jump_cycles=1,
    straddling_target_cycles=1,
    split_access_cycles=1,
    products=2,
    sources=MappingProxyType(
        {
            "width": "CV32E40P manual: capable of fetching 1 instruction per cycle",
            "taken_branch_cycles": f"{CV}: taken 3, not taken 1",
            "jump_cycles": f"{CV}: jump 2",
            "straddling_target_cycles": f"{CV}: jump 3 and branch 4 where the target is a "
            "non-word-aligned non-RVC instruction",
            "split_access_cycles": f"{CV}: 2 for a non-word-aligned word transfer, and for a "
            "halfword transfer crossing a word boundary",
        }
    ),
)

_IBEX_CYCLES: _Cycles = {
    Kind.UNKNOWN: (1, ASSUMED),
    Kind.MULTIPLY: (3, f"{IBEX}: MUL 2 (fast multi-cycle multiplier)"),
    Kind.MULTIPLY_ADD: (4, NO_ACCUMULATOR),
    Kind.MULTIPLY_LONG: (4, f"{IBEX}: MULH 3 (fast multi-cycle multiplier)"),
    # The table of stall cycles has 37, which would be 38 cycles in all. The states of
    # rtl/ibex_multdiv_fast.sv are 37.
    Kind.DIVIDE: (37, f"{MULT_DIV}: 37 cycles, or 2 for a divisor of 0; {ASSUMED}: never 0"),
    **dict.fromkeys((*_LOADS, *_STORES), (2, f"{IBEX}: 1 to await a response")),
    **dict.fromkeys(
        (Kind.BRANCH, Kind.CALL, Kind.BRANCH_INDIRECT), (1, f"{IBEX}: what jumps lose")
    ),
    Kind.BRANCH_CONDITIONAL: (1, f"{IBEX}: branch not taken 0"),
    Kind.BARRIER: (2, f"{IBEX}: fence.i 1, as a jump; {ASSUMED}: fence too"),
    Kind.SYSTEM: (1, f"{IBEX}: CSR access 0; {ASSUMED}: ecall and mret, too"),
}

IBEX_FAST = replace(
    CV32E40P,
    core="ibex",
    rows=_rows(_IBEX_CYCLES, f"{IBEX}: integer 0"),
    latencies=(),  # the stage that computes writes the register
    sources=MappingProxyType(
        {
            "width": "Ibex documentation: the maximum IPC is 1",
            "taken_branch_cycles": f"{IBEX}: branch taken 2",
            "jump_cycles": f"{IBEX}: jump 1",
            "straddling_target_cycles": "Ibex documentation, instruction fetch: misaligned "
            "fetches are two word-aligned fetches",
            "split_access_cycles": "Ibex documentation, load-store unit: two word-aligned accesses",
        }
    ),
)

_SINGLE_CYCLE: _Cycles = {
    **_IBEX_CYCLES,
    Kind.MULTIPLY: (1, f"{IBEX}: MUL 0 (single-cycle multiplier)"),
    Kind.MULTIPLY_ADD: (2, NO_ACCUMULATOR),
    Kind.MULTIPLY_LONG: (2, f"{IBEX}: MULH 1 (single-cycle multiplier)"),
}

IBEX_SINGLE_CYCLE = replace(
    IBEX_FAST, core="ibex-single-cycle", rows=_rows(_SINGLE_CYCLE, f"{IBEX}: integer 0")
)

#: The tables of the cycle model.
TIMINGS: Mapping[str, Timing] = {one.core: one for one in (CV32E40P, IBEX_FAST, IBEX_SINGLE_CYCLE)}
