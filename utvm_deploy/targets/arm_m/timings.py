"""Which core has which timing."""

from __future__ import annotations

from collections.abc import Mapping

from utvm_deploy.targets.arm_m.timing_m3 import CORTEX_M3
from utvm_deploy.targets.arm_m.timing_m4 import CORTEX_M4
from utvm_deploy.targets.arm_m.timing_m7 import CORTEX_M7
from utvm_deploy.targets.arm_m.timing_m55 import CORTEX_M55
from utvm_deploy.targets.contract.timing import Timing

#: The tables of the cycle model.
TIMINGS: Mapping[str, Timing] = {
    one.core: one for one in (CORTEX_M3, CORTEX_M4, CORTEX_M7, CORTEX_M55)
}
#: Cores whose timing is not known -> the one most like each; the Cortex-M7 for all others.
_LIKE = {"cortex-m33": "cortex-m4"}


def timing_of(core: str) -> Timing:
    """The timing that orders code for a core: its own, or that of the one most like it."""
    return TIMINGS.get(_LIKE.get(core, core), CORTEX_M7)
