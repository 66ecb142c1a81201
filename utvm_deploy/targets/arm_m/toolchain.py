"""The GNU toolchain for Cortex-M."""

from __future__ import annotations

from collections.abc import Mapping

from utvm_deploy.targets.contract.core import Core
from utvm_deploy.targets.contract.target import Toolchain

#: Core -> precision of its floating-point unit -> GCC's -mfpu.
_FPUS: Mapping[str, Mapping[str, str]] = {
    "cortex-m4": {"single": "fpv4-sp-d16"},
    "cortex-m7": {"single": "fpv5-sp-d16", "double": "fpv5-d16"},
    "cortex-m33": {"single": "fpv5-sp-d16"},
    "cortex-m55": {"double": "auto"},
}


def has_extremes(core: str) -> bool:
    """Whether a core has VMAXNM and VMINNM: FPv5, not FPv4."""
    return not any(name.startswith("fpv4") for name in _FPUS.get(core, {}).values())


def flags(core: Core, fpu: str, mve: bool, dsp: bool) -> tuple[str, ...]:
    """``-mcpu`` with what the silicon lacks, and how floating-point values are passed."""
    lacks = ""
    if core.as_without_mve and not mve:
        lacks = "+nomve"
    if core.as_without_dsp and not dsp:
        lacks = "+nodsp"  # it takes Helium with it
    machine = (f"-mcpu={core.name}{lacks}", "-mthumb")
    if fpu == "none":
        return (*machine, "-mfloat-abi=soft")
    return (*machine, f"-mfpu={_FPUS[core.name][fpu]}", "-mfloat-abi=hard")


_EMULATOR = ("run emulated boards", "sudo apt install qemu-system-arm")
TOOLCHAIN = Toolchain(
    compiler="arm-none-eabi-gcc",
    flags=flags,
    machines=("EM_ARM",),
    prefix="arm-none-eabi-",
    system=("set(CMAKE_SYSTEM_NAME Generic)", "set(CMAKE_SYSTEM_PROCESSOR arm)"),
    links_c_library=True,
    compiles_assembly=True,
    unwind_sections=".ARM",
    programs={
        "arm-none-eabi-gcc": (
            "compile for Arm Cortex-M boards",
            "sudo apt install gcc-arm-none-eabi libnewlib-arm-none-eabi",
        ),
        "arm-none-eabi-objcopy": ("convert images", "sudo apt install binutils-arm-none-eabi"),
        "qemu-system-arm": _EMULATOR,
    },
)
