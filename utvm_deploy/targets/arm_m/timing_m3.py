"""The Cortex-M3's instruction timing: the M4's, except for the multiplier.

ARM: Cortex-M3 Technical Reference Manual, Arm DDI 0337, "Processor instruction timings": MUL takes
one cycle, MLA two. Products of two words end early where both factors are below 2**16, and take one
cycle more at most when they are interrupted.
"""

from __future__ import annotations

from dataclasses import replace

from utvm_deploy.targets.arm_m.timing_m4 import CORTEX_M4
from utvm_deploy.targets.contract.timing import ASSUMED, AnyKind, Kind, Row

ARM = "Arm DDI 0337, instruction timings"

_CYCLES: dict[AnyKind, tuple[int, str]] = {
    Kind.MULTIPLY_ADD: (2, f"{ARM}: MLA 2"),
    # The factors of requantization fill their words.
    Kind.MULTIPLY_LONG: (5, f"{ARM}: 3 to 5; {ASSUMED}: the most"),
    Kind.MULTIPLY_ADD_LONG: (7, f"{ARM}: 4 to 7; {ASSUMED}: the most"),
}


def _row(row: Row) -> Row:
    cycles, source = _CYCLES.get(row.kind, (row.cycles, row.source))
    return replace(row, cycles=cycles, source=source)


CORTEX_M3 = replace(CORTEX_M4, core="cortex-m3", rows=tuple(_row(row) for row in CORTEX_M4.rows))
