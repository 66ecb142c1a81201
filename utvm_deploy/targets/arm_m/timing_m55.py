"""The Cortex-M55's instruction timing, for the order of Helium code only. Nobody measured it.

Arm publishes no such table. This one follows SLOTHY: the model in the file
"slothy/targets/arm_v81m/cortex_m55r1.py" of github.com/slothy-optimizer/slothy. Its authors call it
approximate. In that model, one instruction issues in a cycle. A vector instruction occupies its
unit for two cycles, one for each half of the vector; other units work meanwhile. There are three
units: for loads and stores, for multiplication, and for other arithmetic.

The core has no cycle model, so nothing reports cycles by this table.
"""

from __future__ import annotations

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
    Unit,
    VectorKind,
)

SLOTHY = "SLOTHY cortex_m55r1.py"
_LIKE_OTHERS = f"{ASSUMED}: one cycle, as the core instructions in {SLOTHY}"


def _vector(kind: VectorKind, unit: Unit, result: Result, source: str = SLOTHY) -> Row:
    return Row(kind, (unit,), source, Slot.ALONE, busy_cycles=2, result=result)


_VECTOR_ROWS = (
    _vector(VectorKind.VECTOR_LOAD, Unit.LOAD, Result.LOADED),
    _vector(VectorKind.VECTOR_STORE, Unit.LOAD, Result.NONE),
    _vector(VectorKind.VECTOR_SIMPLE, Unit.SIMD, Result.EARLY),
    _vector(VectorKind.VECTOR_SHIFT, Unit.SIMD, Result.LATE),
    _vector(VectorKind.VECTOR_MULTIPLY, Unit.MAC, Result.PRODUCT),
    _vector(
        VectorKind.VECTOR_DOT,
        Unit.MAC,
        Result.FP_TO_CORE,
        f"{SLOTHY}: VMLALDAVA; {ASSUMED}: VMLADAVA takes as long",
    ),
    Row(
        VectorKind.VECTOR_MOVE,
        (Unit.SIMD,),
        f"{SLOTHY}: VMOV from lanes; {ASSUMED}: VMOV to lanes takes as long",
        Slot.ALONE,
        result=Result.EARLY,
    ),
)


def _row(kind: Kind) -> Row:
    """The row of an instruction on core registers."""
    if kind is Kind.LOAD_DOUBLE:
        return Row(kind, (Unit.LOAD,), f"{SLOTHY}: LDRD", Slot.ALONE, result=Result.LOADED_PART)
    units = (Unit.LOAD,) if kind.name.startswith(("LOAD", "STORE")) else ()
    return Row(kind, units, _LIKE_OTHERS, Slot.ALONE, result=Result.EARLY)


def _latencies() -> tuple[Latency, ...]:
    """Those of more than one cycle."""
    cells = []
    for need in Need:
        cells += [
            Latency(Result.LATE, need, 2, SLOTHY),
            Latency(Result.LOADED_PART, need, 2, f"{SLOTHY}: LDRD"),
            Latency(Result.FP_TO_CORE, need, 3, f"{SLOTHY}: VMLALDAVA"),
        ]
        if need is not Need.STORED:  # a store takes a product in the next cycle
            cells.append(Latency(Result.PRODUCT, need, 2, SLOTHY))
    return tuple(cells)


CORTEX_M55 = Timing(
    core="cortex-m55",
    width=1,
    capacity=MappingProxyType({}),
    rows=(*(_row(kind) for kind in Kind), *_VECTOR_ROWS),
    latencies=_latencies(),
    exclusions=(),
    pessimistic=(),
    mispredict_cycles=0,
    mispredict_early_cycles=0,
    flags_early_cycles=0,
    predicts_branches=False,
    taken_branch_cycles=0,
    load_banks=1,
    unaligned_load_cycles=0,
    store_buffer_entries=0,
    partial_store_cycles=0,
    sources=MappingProxyType({"width": SLOTHY}),
)
