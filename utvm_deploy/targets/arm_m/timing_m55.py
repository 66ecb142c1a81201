"""The Cortex-M55's instruction timing, from LLVM's schedule of it. Nobody measured it.

LLVM: llvm/lib/Target/ARM/ARMScheduleM55.td of LLVM 19.1.7, which Arm's engineers wrote. A vector
instruction holds its pipe for two cycles, one for each half of the vector. Instructions on other
pipes continue meanwhile. The file gives each instruction its pipe and its latency. It leaves out
what several registers and branches cost, which is assumed here. The script
``benchmarks/cycle_model/llvm_mca.py`` compares this table with ``llvm-mca``, which reads that file.
That checks the copy, not the chip.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from utvm_deploy.targets.contract.timing import (
    ASSUMED,
    AnyKind,
    Kind,
    Latency,
    Need,
    Result,
    Row,
    Slot,
    Timing,
    Unit,
    VectorKind,
)

LLVM = "LLVM ARMScheduleM55.td"
ARM = "Arm DDI 0553, low-overhead loops"

_LOADS = (Kind.LOAD_WORD, Kind.LOAD_PART, Kind.LOAD_DOUBLE, Kind.LOAD_MULTIPLE, Kind.EXCLUSIVE)
_STORES = (Kind.STORE_WORD, Kind.STORE_PART, Kind.STORE_MULTIPLE)
_NO_RESULT = (
    *(Kind.UNKNOWN, Kind.NOP, Kind.IT, Kind.PRELOAD, Kind.BRANCH, Kind.BRANCH_CONDITIONAL),
    *(Kind.COMPARE_BRANCH, Kind.CALL, Kind.BRANCH_INDIRECT, Kind.TABLE_BRANCH, Kind.SYSTEM),
)
#: The classes of two cycles of latency; sel and clz, which have one, are among them.
_SLOW: tuple[AnyKind, ...] = (
    *(Kind.SHIFTED_OPERAND, Kind.EXTEND_ADD, Kind.FIELD_EXTRACT, Kind.PACK, Kind.PACK_TOP),
    *(Kind.SATURATE, Kind.SIMD, Kind.SIMD_SATURATE, Kind.MULTIPLY, Kind.MULTIPLY_ADD),
    *(Kind.MULTIPLY_LONG, Kind.MULTIPLY_ADD_LONG, Kind.DIVIDE, Kind.STORE_DOUBLE, Kind.BARRIER),
    VectorKind.LONG_SHIFT,
)
_MULTIPLE = (
    *(Kind.LOAD_MULTIPLE, Kind.STORE_MULTIPLE),
    *(Kind.FP_LOAD_MULTIPLE, Kind.FP_STORE_MULTIPLE),
)
# Of doubles: their latency, as LLVM has no pipe that they would hold longer.
_DOUBLES = {
    Kind.FP64_ADD: Result.FP_SUM,
    Kind.FP64_MULTIPLY: Result.FP_LONG,
    Kind.FP64_FUSED: Result.FP_FUSED,
    Kind.FP64_DIVIDE: Result.FP_CHAINED,
    Kind.FP_DIVIDE: Result.QUOTIENT,
    Kind.FP_ROOT: Result.QUOTIENT,
}
_OF_ONE_CYCLE = (Kind.FP_CONSTANT, Kind.FP_MOVE, Kind.FP_TO_CORE, Kind.FP_STATUS)


def _core(kind: AnyKind) -> Row:
    """The row of an instruction on core registers."""
    if kind in _MULTIPLE:
        return Row(
            kind,
            (),
            f"{ASSUMED}: two words a cycle, as LDRD; {LLVM} does not count registers",
            cycles=0,
            registers_per_cycle=2,
            result=Result.LOADED if kind in _LOADS else Result.NONE,
        )
    if kind in _LOADS:
        result = Result.LOADED
    elif kind in _SLOW:
        result = Result.PRODUCT
    else:
        result = Result.NONE if kind in (*_STORES, *_NO_RESULT) else Result.LATE
    source = f"{ASSUMED}: one cycle" if kind is Kind.UNKNOWN else LLVM
    return Row(kind, (), source, result=result)


def _fp(kind: Kind) -> Row:
    """The row of an instruction of single or double precision, which holds its pipe for a cycle."""
    unit = Unit.LOAD if kind.name.startswith(("FP_LOAD", "FP_STORE")) else Unit.MAC
    if kind in _DOUBLES:
        result = _DOUBLES[kind]
    elif kind.name.startswith("FP_STORE"):
        result = Result.NONE
    elif kind is Kind.FP_CHAINED:
        result = Result.VECTOR_4
    else:
        result = Result.VECTOR_1 if kind in _OF_ONE_CYCLE else Result.VECTOR_2
    return replace(_core(kind), units=(unit,), busy_cycles=1, result=result)


#: Pipe and latency of each class of vectors.
_VECTORS: dict[VectorKind, tuple[Unit, Result]] = {
    VectorKind.VECTOR_LOAD: (Unit.LOAD, Result.VECTOR_1),
    VectorKind.VECTOR_LOAD_PARTS: (Unit.LOAD, Result.VECTOR_1),
    VectorKind.VECTOR_GATHER: (Unit.LOAD, Result.VECTOR_2),
    VectorKind.VECTOR_STORE: (Unit.LOAD, Result.NONE),
    VectorKind.VECTOR_STORE_PARTS: (Unit.LOAD, Result.NONE),
    VectorKind.VECTOR_SCATTER: (Unit.LOAD, Result.NONE),
    VectorKind.VECTOR_SIMPLE: (Unit.SIMD, Result.VECTOR_1),
    VectorKind.VECTOR_SHIFT: (Unit.SIMD, Result.VECTOR_2),
    VectorKind.VECTOR_NARROW: (Unit.SIMD, Result.VECTOR_3),
    VectorKind.VECTOR_ACROSS_8: (Unit.SIMD, Result.VECTOR_4),
    VectorKind.VECTOR_ACROSS_16: (Unit.SIMD, Result.VECTOR_3),
    VectorKind.VECTOR_ACROSS_32: (Unit.SIMD, Result.VECTOR_2),
    VectorKind.VECTOR_CONSTANT: (Unit.MAC, Result.VECTOR_2),
    VectorKind.VECTOR_COMPARE: (Unit.MAC, Result.VECTOR_1),
    VectorKind.VECTOR_MULTIPLY: (Unit.MAC, Result.VECTOR_2),
    VectorKind.VECTOR_DOT: (Unit.MAC, Result.VECTOR_2),
    VectorKind.VECTOR_FP_ADD: (Unit.MAC, Result.VECTOR_1),
    VectorKind.VECTOR_FP_ADD_CORE: (Unit.MAC, Result.VECTOR_2),
    VectorKind.VECTOR_FP_SIMPLE: (Unit.MAC, Result.VECTOR_1),
    VectorKind.VECTOR_FP_MULTIPLY: (Unit.MAC, Result.VECTOR_2),
    VectorKind.VECTOR_FP_FUSED: (Unit.MAC, Result.VECTOR_2),
    VectorKind.VECTOR_CONVERT: (Unit.MAC, Result.VECTOR_2),
    VectorKind.VECTOR_TO_CORE: (Unit.MAC, Result.VECTOR_1),
}
_BY_VECTOR = (VectorKind.VECTOR_GATHER, VectorKind.VECTOR_SCATTER)


def _vector(kind: VectorKind) -> Row:
    if kind is VectorKind.LOOP_END:
        return Row(
            kind,
            (),
            f"{ARM}: the core keeps where the loop ends; {ASSUMED}: in no cycle, in every turn",
            Slot.ALONE,
            cycles=0,
        )
    if kind is VectorKind.VECTOR_FROM_CORE:
        units = (Unit.SIMD, Unit.MAC)  # either
        return Row(kind, units, LLVM, busy_cycles=2, result=Result.VECTOR_1)
    if kind not in _VECTORS:
        return _core(kind)
    unit, result = _VECTORS[kind]
    return Row(
        kind,
        (unit,),
        LLVM,
        busy_cycles=2,
        result=result,
        second=Need.VECTOR_ADDRESS if kind in _BY_VECTOR else Need.LATE,
        stored=Need.VECTOR_STORED if kind is VectorKind.VECTOR_STORE else Need.STORED,
    )


_LATENCIES = {
    Result.LOADED: 2,
    Result.PRODUCT: 2,
    Result.FP_SUM: 15,
    Result.FP_LONG: 21,
    Result.FP_FUSED: 24,
    Result.FP_CHAINED: 30,
    Result.QUOTIENT: 16,
    Result.ADDRESS: 1,
    Result.VECTOR_1: 1,
    Result.VECTOR_2: 2,
    Result.VECTOR_3: 3,
    Result.VECTOR_4: 4,
}
_NEEDS = (
    *(Need.LATE, Need.ADDRESS, Need.ACCUMULATOR, Need.STORED),
    *(Need.VECTOR_ADDRESS, Need.VECTOR_STORED),
)
#: An address in a vector is needed so much earlier.
_EARLIER = 4


def _latency(result: Result, need: Need) -> int:
    if need is Need.VECTOR_ADDRESS:
        return _LATENCIES[result] + _EARLIER
    if need is Need.VECTOR_STORED and result is Result.VECTOR_2:
        return 1  # forwarded
    return _LATENCIES[result]


CORTEX_M55 = Timing(
    core="cortex-m55",
    width=2,
    capacity=MappingProxyType({}),
    rows=(
        *(_fp(kind) if kind.name.startswith("FP") else _core(kind) for kind in Kind),
        *map(_vector, VectorKind),
    ),
    latencies=tuple(
        Latency(result, need, _latency(result, need), LLVM)
        for result in _LATENCIES
        for need in _NEEDS
        if _latency(result, need) != 1
    ),
    exclusions=(),
    pessimistic=(),
    mispredict_cycles=3,
    mispredict_early_cycles=3,
    flags_early_cycles=0,
    predicts_branches=True,
    taken_branch_cycles=0,
    load_banks=1,
    unaligned_load_cycles=0,
    store_buffer_entries=0,
    partial_store_cycles=0,
    products=8,
    access_bytes=8,
    narrow_pairs=True,
    results_in_order=True,
    sources=MappingProxyType(
        {
            "width": f"{LLVM}: some dual issue",
            "narrow_pairs": f"{LLVM}: two instructions of 16 bits, one of them ADD or SUB of a "
            "constant, MOV, SXT or UXT",
            "results_in_order": f"{LLVM}: in order, as llvm-mca reads it: no result before an "
            "earlier instruction's",
            "mispredict_cycles": f"{LLVM}: MispredictPenalty",
            "predicts_branches": f"{ASSUMED}: two-bit counters of any number; the schedule gives "
            "the penalty alone",
        }
    ),
)
