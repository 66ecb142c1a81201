"""Which core has which timing: for what stands here there is a cycle model."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from utvm_deploy.targets.cores.timing import Timing
from utvm_deploy.targets.cores.timing_m3 import CORTEX_M3
from utvm_deploy.targets.cores.timing_m4 import CORTEX_M4
from utvm_deploy.targets.cores.timing_m7 import CORTEX_M7
from utvm_deploy.targets.cores.timing_m55 import CORTEX_M55

TIMINGS: Mapping[str, Timing] = MappingProxyType(
    {timing.core: timing for timing in (CORTEX_M3, CORTEX_M4, CORTEX_M7)}
)
#: Core -> the table that orders its code.
ORDERING: Mapping[str, Timing] = MappingProxyType({**TIMINGS, CORTEX_M55.core: CORTEX_M55})
