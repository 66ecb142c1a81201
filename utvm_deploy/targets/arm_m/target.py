"""Arm's M profile: the Cortex-M cores."""

from __future__ import annotations

from utvm_deploy.targets.arm_m.cores import CORES
from utvm_deploy.targets.arm_m.fault import FAULTS
from utvm_deploy.targets.arm_m.timing_m3 import CORTEX_M3
from utvm_deploy.targets.arm_m.timing_m4 import CORTEX_M4
from utvm_deploy.targets.arm_m.timing_m7 import CORTEX_M7
from utvm_deploy.targets.arm_m.timing_m55 import CORTEX_M55
from utvm_deploy.targets.contract.target import Target, Timings

_COUNTING = {timing.core: timing for timing in (CORTEX_M3, CORTEX_M4, CORTEX_M7)}

ARM_M = Target(
    name="arm_m",
    tag=1,
    faults=FAULTS,
    cores=CORES,
    timings=Timings(counting=_COUNTING, ordering={**_COUNTING, CORTEX_M55.core: CORTEX_M55}),
)
