"""Arm's M profile: the Cortex-M cores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from utvm_deploy.targets.arm_m.cores import CORES
from utvm_deploy.targets.arm_m.costs import COSTS
from utvm_deploy.targets.arm_m.debugger import DEBUGGER
from utvm_deploy.targets.arm_m.fault import FAULTS
from utvm_deploy.targets.arm_m.sequences import SEQUENCES
from utvm_deploy.targets.arm_m.templates import TEMPLATES
from utvm_deploy.targets.arm_m.timings import TIMINGS
from utvm_deploy.targets.arm_m.toolchain import TOOLCHAIN
from utvm_deploy.targets.contract.core import Core
from utvm_deploy.targets.contract.target import BuiltFor, Libraries, Target


def families_of(core: Core) -> tuple[str, ...]:
    """Helium, DSP instructions, floating point; ``thumb`` is for cores without DSP instructions."""
    has = {"mve": core.mve, "dsp": core.dsp, "fpu": bool(core.fpus), "thumb": not core.dsp}
    return tuple(family for family, fits in has.items() if fits)


def _built_for(elf: Any) -> BuiltFor:
    from utvm_deploy.targets.arm_m.library import built_for  # loads elftools

    return built_for(elf)


def _why_not(built: BuiltFor, core: Core, flags: Sequence[str], board: str) -> str:
    from utvm_deploy.targets.arm_m.library import why_not

    return why_not(built, core, flags, board)


ARM_M = Target(
    name="arm_m",
    tag=1,
    # That of Thumb.
    code_bit=1,
    faults=FAULTS,
    debugger=DEBUGGER,
    costs=COSTS,
    cores=CORES,
    toolchain=TOOLCHAIN,
    templates=TEMPLATES,
    families_of=families_of,
    libraries=Libraries(_built_for, _why_not),
    # Arm's memory map for microcontrollers has external memory there, and devices behind it.
    external_begin=0x6000_0000,
    emulators=("qemu-system-arm", "qemu-system-aarch64"),
    sequences=SEQUENCES,
    timings=TIMINGS,
)
