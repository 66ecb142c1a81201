"""A kernel as C: a native one by its driver, a portable one by TVM's schedule and C generator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from utvm_deploy.kernels.contract.c_function import CFunction, native_function
from utvm_deploy.kernels.contract.call import OwnKernel, is_native
from utvm_deploy.kernels.contract.format_kernel import format_kernel_of
from utvm_deploy.kernels.contract.lazy_tvm import s_tir


@dataclass(frozen=True)
class LoweredKernel:
    """A kernel's C function, and what the report says of it."""

    function: CFunction
    why: str  # what was chosen
    ir: str  # TensorIR; of a native kernel its driver


def lower_kernel(
    kernel: OwnKernel, name: str, core: str, *, outputs: int = 1, may_alias: bool = False
) -> LoweredKernel:
    """The C function ``name`` of a kernel with its default schedule for ``core``.

    The last ``outputs`` buffer parameters are written. ``may_alias`` says that an output may lie
    exactly on an input, which forbids ``restrict``.
    """
    if is_native(kernel):
        function = native_function(kernel, name, core, outputs=outputs, may_alias=may_alias)
        return LoweredKernel(function, kernel.why, function.text)
    schedule: Any = s_tir.Schedule(kernel.prim_func())
    from utvm_deploy.compiler.lowering.lower_c import lower_to_c  # which loads TVM

    why = kernel.schedule(schedule, core)
    func = schedule.mod["main"]
    numbers = format_kernel_of(kernel)
    function = lower_to_c(func, name, core, outputs=outputs, may_alias=may_alias, numbers=numbers)
    return LoweredKernel(function, why, str(func.script()))
