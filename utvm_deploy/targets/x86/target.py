"""x86 with 32 bits, under Zephyr only."""

from __future__ import annotations

from utvm_deploy.targets.contract.core import Core
from utvm_deploy.targets.contract.target import Target
from utvm_deploy.targets.x86.fault import FAULTS

X86 = Target(
    name="x86",
    tag=2,
    faults=FAULTS,
    cores=(
        Core(
            name="i386",
            architecture="x86",
            compiler="gcc",
            gcc_options=("-m32", "-march=i686"),
            fpus={"double": ""},
            has_dwt=False,
        ),
    ),
)
