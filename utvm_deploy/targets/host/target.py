"""This computer: images are processes."""

from __future__ import annotations

from utvm_deploy.targets.contract.core import Core
from utvm_deploy.targets.contract.target import Target, Templates, Toolchain
from utvm_deploy.targets.host.fault import FAULTS

HOST = Target(
    name="host",
    tag=0,
    faults=FAULTS,
    cores=(Core(name="host", architecture="host", fpus=("double",), cache_line_bytes=64),),
    toolchain=Toolchain(
        compiler="cc",
        flags=lambda core, fpu, mve, dsp: (),
        machines=("EM_X86_64", "EM_AARCH64", "EM_386", "EM_RISCV", "EM_PPC64", "EM_S390"),
        programs={"cc": ("compile for this computer", "sudo apt install gcc")},
    ),
    templates=Templates(
        folders={"host": ("host",)},
        guard_of=lambda core: ("guard.c",),
        are_processes=True,
    ),
)
