"""Which core has which timing: for what stands here there is a cycle model."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from utvm_deploy.cores.timing import Timing
from utvm_deploy.cores.timing_m4 import CORTEX_M4
from utvm_deploy.cores.timing_m7 import CORTEX_M7

#: The Cortex-M3 has the M4's pipeline without its DSP instructions.
TIMINGS: Mapping[str, Timing] = MappingProxyType(
    {"cortex-m3": CORTEX_M4, "cortex-m4": CORTEX_M4, "cortex-m7": CORTEX_M7}
)
