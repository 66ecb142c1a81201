"""RISC-V: bare 32-bit cores with multiplication, with vectors or without."""

from __future__ import annotations

from utvm_deploy.targets.contract.debugger import Debugger
from utvm_deploy.targets.contract.target import Libraries, Target
from utvm_deploy.targets.riscv import library
from utvm_deploy.targets.riscv.costs import COSTS
from utvm_deploy.targets.riscv.fault import FAULTS
from utvm_deploy.targets.riscv.sequences import SEQUENCES
from utvm_deploy.targets.riscv.templates import TEMPLATES
from utvm_deploy.targets.riscv.timings import TIMINGS
from utvm_deploy.targets.riscv.toolchain import CORES, TOOLCHAIN, core_advice

RISCV = Target(
    name="riscv",
    tag=3,
    faults=FAULTS,
    cores=CORES,
    toolchain=TOOLCHAIN,
    core_advice=core_advice,
    templates=TEMPLATES,
    libraries=Libraries(
        library.built_for,
        library.why_not,
        vector_build="clang-19, -march=rv32imc_zve32x_zvl128b -mabi=ilp32",
    ),
    emulators=("qemu-system-riscv32",),
    families_of=lambda core: ("rvv", "scalar") if core.vectors else ("scalar",),
    costs=COSTS,
    sequences=SEQUENCES,
    timings=TIMINGS,
    debugger=Debugger(
        architecture="riscv:rv32",
        registers=frozenset({"ra", "sp", "pc"}),
        # Servers for these cores describe their registers, and know how their chip is reset.
        assumed={},
        start={},
        reset=None,
        # A compressed instruction.
        breakpoint_kind=2,
    ),
)
