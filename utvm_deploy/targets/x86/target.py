"""x86 with 32 bits, under Zephyr only."""

from __future__ import annotations

from utvm_deploy.targets.contract.core import Core
from utvm_deploy.targets.contract.target import Target, Templates, Toolchain
from utvm_deploy.targets.x86.fault import FAULTS

X86 = Target(
    name="x86",
    tag=2,
    faults=FAULTS,
    cores=(Core(name="i386", architecture="x86", fpus=("double",)),),
    toolchain=Toolchain(
        compiler="gcc",
        flags=lambda core, fpu, mve, dsp: ("-m32", "-march=i686"),
        machines=("EM_386",),
        programs={
            "gcc": ("compile for this computer", "sudo apt install gcc"),
            "qemu-system-i386": ("run emulated boards", "sudo apt install qemu-system-x86"),
        },
    ),
    templates=Templates(
        folders={"zephyr": ("zephyr", "x86/zephyr")},
        guard_of=lambda core: ("guard.c",),
        zephyr_symbol="X86",
    ),
    emulators=("qemu-system-i386", "qemu-system-x86_64"),
)
