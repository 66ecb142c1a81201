"""A target that only the tests have: this computer's compiler, a core of its own, no guard."""

from __future__ import annotations

from pathlib import Path

from utvm_deploy.targets.contract.core import Core
from utvm_deploy.targets.contract.target import Target, Templates, Toolchain

HERE = Path(__file__).parent
PRETEND = Target(
    name="pretend",
    tag=99,
    cores=(Core(name="pretend-1", architecture="pretend"),),
    toolchain=Toolchain(
        compiler="cc",
        flags=lambda core, fpu, mve, dsp: ("-DPRETEND",),
        machines=("EM_X86_64", "EM_AARCH64"),
    ),
    templates=Templates(
        # The port of the host; ``templates`` adds what it lacks.
        folders={"host": ("host", str(HERE / "templates"))},
        guard_of=lambda core: None,
        are_processes=True,
    ),
)
