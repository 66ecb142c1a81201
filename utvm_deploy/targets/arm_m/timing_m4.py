"""The Cortex-M4's instruction timing: one instruction at a time.

ARM: Cortex-M4 Technical Reference Manual, Arm DDI 0439, "Instruction set summary" and "Load/store
timings"; the same tables are in TI's SWCU192.
JNK: github.com/jnk0le/random, "pipeline cycle test/doc/cortex_m3m4.md" (STM32F407, DWT counter).
"""

from __future__ import annotations

from types import MappingProxyType

from utvm_deploy.targets.contract.timing import ASSUMED, Kind, Row, Slot, Timing

ARM = "Arm DDI 0439, instruction set summary"
JNK = "jnk0le cortex_m3m4.md"
LOADS = "Arm DDI 0439, load/store timings"

# The others take one cycle.
_CYCLES = {
    Kind.DIVIDE: (7, f"{ARM}: 2 to 12; {ASSUMED}: the middle"),
    Kind.EXCLUSIVE: (2, ARM),
    Kind.TABLE_BRANCH: (2, f"{ARM}: 2 + refill"),
    Kind.BARRIER: (2, f"{ARM}: as long as it takes; {ASSUMED}"),
    Kind.SYSTEM: (1, f"{ARM}: 1 or 2; {ASSUMED}"),
    Kind.UNKNOWN: (1, ASSUMED),
    Kind.FP_FUSED: (3, f"{ARM}: VFMA 3"),
    Kind.FP_CHAINED: (3, f"{ARM}: VMLA 3"),
    Kind.FP_DIVIDE: (14, f"{ARM}: VDIV 14"),
    Kind.FP_ROOT: (14, f"{ARM}: VSQRT 14"),
    Kind.FP_PAIR: (2, f"{ARM}: 2"),
    Kind.FP_LOAD_DOUBLE: (3, f"{ARM}: 3"),
    Kind.FP_STORE_DOUBLE: (3, f"{ARM}: 3"),
}
# 1 + n registers.
_MULTIPLE = (
    Kind.LOAD_DOUBLE,
    Kind.LOAD_MULTIPLE,
    Kind.STORE_DOUBLE,
    Kind.STORE_MULTIPLE,
    Kind.FP_LOAD_MULTIPLE,
    Kind.FP_STORE_MULTIPLE,
)
_LOADS = (Kind.LOAD_WORD, Kind.LOAD_PART, Kind.FP_LOAD)


def _row(kind: Kind) -> Row:
    if kind in _LOADS:
        return Row(
            kind,
            (),
            f"{LOADS}: 2, or 1 behind another load; not behind a store ({JNK})",
            Slot.ALONE,
            cycles=2,
            pipelined_cycles=1,
            pipelined_after=_LOADS,
        )
    if kind in _MULTIPLE:
        return Row(kind, (), f"{ARM}: 1 + N", Slot.ALONE, registers_per_cycle=1)
    cycles, source = _CYCLES.get(kind, (1, f"{ARM}: 1"))
    return Row(kind, (), source, Slot.ALONE, cycles=cycles)


CORTEX_M4 = Timing(
    core="cortex-m4",
    rows=tuple(_row(kind) for kind in Kind),
    taken_branch_cycles=2,
    unaligned_load_cycles=1,
    sources=MappingProxyType(
        {
            "width": "Arm DDI 0439: single issue",
            "taken_branch_cycles": f"{ARM}: 1 + P, P from 1 to 3; {ASSUMED}: 2",
            "unaligned_load_cycles": "Arm DDI 0439: an unaligned access is split into two",
        }
    ),
)
