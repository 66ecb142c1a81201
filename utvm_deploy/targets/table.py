"""The table of targets: a new architecture is a folder here and one row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType

from utvm_deploy.base import process
from utvm_deploy.base.errors import BoardError
from utvm_deploy.targets.arm_m.costs import CORTEX_M7
from utvm_deploy.targets.arm_m.target import ARM_M
from utvm_deploy.targets.contract.core import Core
from utvm_deploy.targets.contract.costs import CostTable
from utvm_deploy.targets.contract.target import Target
from utvm_deploy.targets.contract.timing import Timing
from utvm_deploy.targets.host.target import HOST
from utvm_deploy.targets.riscv.target import RISCV
from utvm_deploy.targets.unsupported import PAGE, unsupported
from utvm_deploy.targets.wasm.target import WASM
from utvm_deploy.targets.x86.target import X86

_targets: dict[str, Target] = {}
_cores: dict[str, Core] = {}
_timings: dict[str, Timing] = {}
_owners: dict[str, Target] = {}
#: Name -> target.
TARGETS: Mapping[str, Target] = MappingProxyType(_targets)
#: Name -> core, of all targets.
CORES: Mapping[str, Core] = MappingProxyType(_cores)
#: Of cores whose costs nobody counted: those of the Cortex-M7, as a rough estimate.
ESTIMATED: CostTable = replace(CORTEX_M7, unit="instructions")
#: Core -> its timing: for what is here, there is a cycle model.
TIMINGS: Mapping[str, Timing] = MappingProxyType(_timings)


def target_of(core: str) -> Target:
    """The target of a core; BoardError if no target has it."""
    if core not in _owners:
        raise BoardError(f"no target has the core {core!r}; there are {', '.join(CORES)}")
    return _owners[core]


def why_no_core(name: str) -> str:
    """A sentence for a name that no core has: why, and what to write; empty if nothing is known."""
    kind = unsupported(name)
    if kind is not None:
        return kind.sentence
    advice = next(filter(None, (one.core_advice(name) for one in TARGETS.values())), "")
    return f"no core is called {name!r} here: {advice} (utvm docs {PAGE})" if advice else ""


def _add(target: Target) -> None:
    _targets[target.name] = target
    _timings.update(target.timings)
    process.TOOLS.update(target.toolchain.programs)
    for core in target.cores:
        _cores[core.name] = core
        _owners[core.name] = target


@contextmanager
def registered(target: Target) -> Iterator[Target]:
    """Within the block the table has one more row, as it is for a target of a test.

    Raises BoardError if the table has a target of its name.
    """
    if target.name in _targets:
        raise BoardError(f"the table has a target {target.name!r} already; take another name")
    tools = dict(process.TOOLS)
    _add(target)
    try:
        yield target
    finally:
        process.TOOLS.clear()
        process.TOOLS.update(tools)
        del _targets[target.name]
        for core in target.cores:
            del _cores[core.name], _owners[core.name]
            _timings.pop(core.name, None)


for _target in (HOST, X86, ARM_M, RISCV, WASM):
    _add(_target)
