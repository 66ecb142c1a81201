"""The Cortex-M7's pipeline: latencies, what pairs, branches. Sources as in timing_m7_rows.py.

The stages follow from the measurements: a first ALU (shifter, addresses), a second ALU one cycle
later, the multiplier's accumulator another cycle later. Most latencies follow from that order.
"""

from __future__ import annotations

from types import MappingProxyType

from utvm_deploy.targets.arm_m.timing_m7_rows import JNK, LLVM, QUIN, ROWS, TRM
from utvm_deploy.targets.contract.timing import (
    ASSUMED,
    Exclusion,
    Kind,
    Latency,
    Need,
    Result,
    Timing,
    Unit,
)

_INLINE = (Kind.SHIFTED_OPERAND, Kind.SHIFTED_CONSTANT)
_MACS = (Kind.MULTIPLY, Kind.MULTIPLY_ADD, Kind.MULTIPLY_LONG, Kind.MULTIPLY_ADD_LONG)
_LOADS = (Kind.LOAD_WORD, Kind.LOAD_PART, Kind.FP_LOAD, Kind.PRELOAD)
_STORES = (Kind.STORE_WORD, Kind.STORE_PART, Kind.FP_STORE)

_INTEGER_NEEDS = (
    Need.LATE,
    Need.EARLY,
    Need.ADDRESS,
    Need.FACTOR,
    Need.ACCUMULATOR,
    Need.STORED,
    Need.BESIDE_EARLY,
)
_FP_NEEDS = (Need.FP_TERM, Need.FP_FACTOR, Need.FP_ACCUMULATOR, Need.FP_STORED)


def _cells(
    result: Result, needs: tuple[Need, ...], cycles: tuple[int, ...], source: str
) -> tuple[Latency, ...]:
    return tuple(
        Latency(result, need, count, source) for need, count in zip(needs, cycles, strict=True)
    )


def _integer(result: Result, cycles: tuple[int, ...], source: str) -> tuple[Latency, ...]:
    """Cycles to the second ALU, the first, an address, a factor, an accumulator, a store.

    Together with an operand of the first ALU, a loaded value comes a cycle later; other values do
    not.
    """
    beside = 2 if result is Result.LOADED else cycles[0]
    return _cells(result, _INTEGER_NEEDS, (*cycles, beside), source)


def _fp(result: Result, cycles: tuple[int, ...], source: str) -> tuple[Latency, ...]:
    """Cycles to a term, a factor, an accumulator, a store."""
    return _cells(result, _FP_NEEDS, cycles, source)


LATENCIES = (
    *_integer(Result.EARLY, (0, 1, 1, 0, 0, 0), f"{JNK}, overall: to the late ALU in 0 cycles"),
    *_integer(
        Result.LATE,
        (1, 2, 2, 1, 0, 0),
        f"{JNK}, bitfield (address +1), operand2 (shifted +1), multiplication, stores",
    ),
    *_integer(Result.REVERSED, (0, 2, 2, 0, 0, 0), f"{JNK}, overall: rev and similar"),
    *_integer(
        Result.LOADED,
        (1, 2, 2, 2, 0, 0),
        f"{JNK}, loads and multiplication; to an address: {LLVM}, and {QUIN}, a load and a load "
        f"from what it loaded take 3; together with an early operand: {JNK}, loads, and {LLVM}",
    ),
    *_integer(
        Result.LOADED_PART,
        (2, 3, 3, 2, 1, 0),
        f"{JNK}, loads and multiplication; to an address: {LLVM}",
    ),
    *_integer(
        Result.PRODUCT,
        (2, 3, 3, 2, 1, 1),
        f"{JNK}, multiplication: 1 more than the late ALU, accumulators every cycle",
    ),
    *_integer(
        Result.SATURATED,
        (2, 3, 3, 2, 1, 0),
        f"{LLVM}: latency 2; to a store: {JNK}, stores: any result in the same cycle",
    ),
    # From the last of the division's cycles.
    *_integer(Result.QUOTIENT, (1, 2, 2, 1, 0, 1), f"{LLVM}: latency 7"),
    *_integer(Result.ADDRESS, (0, 1, 1, 0, 0, 0), f"{JNK}, overall: AGU as early ALU"),
    *_fp(Result.FP_SUM, (3, 3, 2, 1), f"{JNK}, fpu: table of latencies"),
    *_fp(Result.FP_FUSED, (5, 5, 3, 3), f"{JNK}, fpu: table; {ASSUMED}: as a term 5"),
    *_fp(Result.FP_CHAINED, (6, 6, 3, 4), f"{JNK}, fpu: table; {ASSUMED}: as a term 6"),
    *_fp(Result.FP_LOADED, (1, 1, 3, 1), f"{JNK}, fpu: vldr.f"),
    *_fp(Result.FP_MOVED, (3, 3, 3, 3), f"{JNK}, fpu: vmov s, r and vmov s, s"),
    *_integer(Result.FP_MOVED, (1, 2, 2, 1, 0, 0), ASSUMED),
    *_integer(Result.FP_TO_CORE, (1, 2, 2, 1, 0, 0), f"{JNK}, fpu: vmov r, s"),
)

_FP_MACS = (Kind.FP_FUSED, Kind.FP_CHAINED)
_FP_MOVES = (Kind.FP_LOAD, Kind.FP_STORE, Kind.FP_TO_CORE, Kind.FP_FROM_CORE, Kind.FP_MOVE)

EXCLUSIONS = (
    Exclusion(
        _FP_MACS, _FP_MOVES, f"{JNK}, fpu: no vldr, vstr or vmov in the same cycle", both_ways=True
    ),
    Exclusion(_MACS, _STORES, f"{JNK}, multiplication: not with stores", both_ways=True),
    Exclusion(
        (Kind.SHIFT,),
        _INLINE,
        f"{JNK}, operand2: pairing matrix, shift before shifted operand",
    ),
    Exclusion(
        (Kind.SHIFT,),
        (Kind.FIELD_EXTRACT, Kind.FIELD_INSERT, Kind.REVERSE),
        f"{JNK}, overall: shifts with bit manipulation",
        both_ways=True,
    ),
)

PESSIMISTIC = (
    Exclusion(
        _MACS,
        _LOADS,
        f"{ASSUMED}: the figure's definition, a multiplication never pairs with a load",
        both_ways=True,
    ),
)

CORTEX_M7 = Timing(
    core="cortex-m7",
    width=2,
    capacity=MappingProxyType(
        {
            Unit.ALU: 2,
            Unit.SHIFTER: 1,
            Unit.SIMD: 1,
            Unit.MAC: 1,
            Unit.LOAD: 2,
            Unit.STORE: 1,
            Unit.BRANCH: 1,
            Unit.FPU: 1,
        }
    ),
    rows=ROWS,
    latencies=LATENCIES,
    exclusions=EXCLUSIONS,
    pessimistic=PESSIMISTIC,
    mispredict_cycles=8,
    mispredict_early_cycles=6,
    flags_early_cycles=3,
    predicts_branches=True,
    taken_branch_cycles=0,
    load_banks=2,
    unaligned_load_cycles=3,
    store_buffer_entries=5,
    partial_store_cycles=4,
    sources=MappingProxyType(
        {
            "width": f"{TRM}: in order, two instructions in a cycle",
            "capacity": f"{TRM}: two ALUs, two load ports; {JNK}: one multiplier, one store",
            "mispredict_cycles": f"{JNK}, branching",
            "mispredict_early_cycles": f"{JNK}, branching: flags three cycles before",
            "predicts_branches": f"{TRM}: branch target address cache; {ASSUMED}: of any size, "
            "two-bit counters, an indirect branch goes where it went last",
            "taken_branch_cycles": f"{JNK}, branching: predicted taken pairs with its target",
            "load_banks": f"{JNK}, loads: even and odd words",
            "unaligned_load_cycles": f"{JNK}, loads: 3 in the older slot, 4 in the younger",
            "store_buffer_entries": f"{JNK}, stores: 5 unaligned stores until it clogs; {ASSUMED}: "
            "as many stores to a line on its way",
            "partial_store_cycles": f"{JNK}, stores: 4 cycles a store in one bank, 2 in two",
        }
    ),
)
