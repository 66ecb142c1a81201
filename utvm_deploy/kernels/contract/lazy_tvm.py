"""TVM's modules, loaded when one of them is first used.

Loading TVM takes most of a second. A model whose kernels are all native never needs it, and yet
every portable kernel's module must be there to choose among them. Take ``te`` and the others from
here, and use their names only inside functions.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from utvm_deploy.base.process import interrupts_held
from utvm_deploy.base.without_torch import without_torch

__all__ = ["ir_builder", "meta_schedule", "s_tir", "script", "te", "tirx", "tvm"]


class _LazyModule:
    """Stands for a module until an attribute of it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        with interrupts_held(), without_torch():
            found = getattr(import_module(self._name), attribute)
        # Found without this method from now on.
        setattr(self, attribute, found)
        return found


tvm: Any = _LazyModule("tvm")
ir_builder: Any = _LazyModule("tvm.script.ir_builder")
meta_schedule: Any = _LazyModule("tvm.s_tir.meta_schedule")
s_tir: Any = _LazyModule("tvm.s_tir")
script: Any = _LazyModule("tvm.tirx.script.builder")
te: Any = _LazyModule("tvm.te")
tirx: Any = _LazyModule("tvm.tirx")
