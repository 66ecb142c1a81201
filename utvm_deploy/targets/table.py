"""The table of targets: a new architecture is a folder here and one row."""

from __future__ import annotations

from collections.abc import Mapping

from utvm_deploy.base.errors import BoardError
from utvm_deploy.targets.arm_m.target import ARM_M
from utvm_deploy.targets.contract.core import Core
from utvm_deploy.targets.contract.target import Target
from utvm_deploy.targets.contract.timing import Timing
from utvm_deploy.targets.host.target import HOST
from utvm_deploy.targets.x86.target import X86

#: Name -> target.
TARGETS: Mapping[str, Target] = {target.name: target for target in (HOST, X86, ARM_M)}
#: Name -> core, of all targets.
CORES: Mapping[str, Core] = {
    core.name: core for target in TARGETS.values() for core in target.cores
}
#: Core -> its timing: for what is here, there is a cycle model.
TIMINGS: Mapping[str, Timing] = {
    core: timing for one in TARGETS.values() for core, timing in one.timings.counting.items()
}
#: Core -> the table that orders its code.
ORDERING: Mapping[str, Timing] = {
    core: timing for one in TARGETS.values() for core, timing in one.timings.ordering.items()
}


def target_of(core: str) -> Target:
    """The target of a core; BoardError if no target has it."""
    for target in TARGETS.values():
        if any(one.name == core for one in target.cores):
            return target
    raise BoardError(f"no target has the core {core!r}; there are {', '.join(CORES)}")
