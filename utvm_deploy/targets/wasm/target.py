"""WebAssembly: images are modules without imports, which run within this process."""

from __future__ import annotations

from pathlib import Path

from utvm_deploy.base.errors import MissingTool
from utvm_deploy.targets.contract.binary import BinaryFormat
from utvm_deploy.targets.contract.core import Core
from utvm_deploy.targets.contract.machine import Machine, MachineKind
from utvm_deploy.targets.contract.target import Target, Templates, Toolchain
from utvm_deploy.targets.wasm import toolchain
from utvm_deploy.targets.wasm.binary import placed, read_binary
from utvm_deploy.targets.wasm.fault import FAULTS
from utvm_deploy.targets.wasm.machine import WasmtimeMachine


def _open(image: Path) -> Machine:
    _check()
    return WasmtimeMachine(image)


def _check() -> None:
    if not toolchain.is_installed("wasmtime"):
        raise MissingTool("wasmtime", "run WebAssembly", toolchain.EXTRA)


WASM = Target(
    name="wasm",
    tag=4,
    faults=FAULTS,
    cores=(Core(name="wasm32", architecture="wasm32", fpus=("double",)),),
    toolchain=Toolchain(
        compiler=toolchain.COMPILER,
        flags=toolchain.flags,
        machines=(),
        link_flags=toolchain.link_flags,
        prepare=toolchain.prepare,
        call_graph=(),
        binaries=BinaryFormat(
            read_binary,
            toolchain.module_arguments,
            placed,
            toolchain.standalone_arguments,
            toolchain.VARIANTS,
            # Loops of MobileNet's layers: 23 % fewer bytes, 14 % more time in V8.
            smaller=("-fno-unroll-loops",),
        ),
        programs={Path(toolchain.COMPILER).name: ("compile for WebAssembly", toolchain.INSTALL)},
    ),
    templates=Templates(
        folders={"host": ("wasm",)},
        # A trap ends a call, and the runtime is not in the image's memory.
        guard_of=lambda core: (),
        are_processes=True,
    ),
    families_of=lambda core: ("simd",),
    machine=MachineKind("wasmtime", _check, _open),
)
