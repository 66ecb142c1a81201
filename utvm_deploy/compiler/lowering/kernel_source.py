"""Single kernels as C text, for trying them on a device without a model around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from utvm_deploy.base.errors import CompileError
from utvm_deploy.compiler.lowering.lower_c import lower_to_c
from utvm_deploy.compiler.lowering.lowered_kernel import lower_kernel
from utvm_deploy.kernels.contract.c_function import CFunction
from utvm_deploy.kernels.contract.call import Kernel
from utvm_deploy.kernels.contract.requantization import header as kernel_header


@dataclass(frozen=True)
class KernelSource:
    """One C file and what is in it."""

    text: str
    functions: Mapping[str, CFunction]  # by name


def kernel_source(
    kernels: Sequence[Kernel | Any] | Mapping[str, Kernel | Any], core: str
) -> KernelSource:
    """C for kernels (default schedule for ``core``) and PrimFuncs (as they are).

    Each writes its last buffer parameter. A mapping names the functions; otherwise a kernel's own
    name counts, or a PrimFunc's ``global_symbol``.
    """
    named = kernels if isinstance(kernels, Mapping) else {_name(k): k for k in kernels}
    if len(named) != len(kernels):
        raise CompileError("two kernels have the same name; give a mapping of names to kernels")
    functions = {name: _lower(kernel, name, core) for name, kernel in named.items()}
    imports = dict.fromkeys(text for f in functions.values() for text in f.imports)
    parts = [
        "#include <stdbool.h>\n#include <stdint.h>\n#include <string.h>\n",
        kernel_header(),
        *imports,
        *(function.text for function in functions.values()),
    ]
    return KernelSource("\n".join(parts), functions)


def _name(kernel: Kernel | Any) -> str:
    if not isinstance(kernel, tirx.PrimFunc):
        return str(kernel.name)
    symbol = kernel.attrs.get("global_symbol") if kernel.attrs else None
    if symbol is None:
        raise CompileError("a PrimFunc has no global_symbol; give a mapping of names to kernels")
    return str(symbol)


def _lower(kernel: Kernel | Any, name: str, core: str) -> CFunction:
    if isinstance(kernel, tirx.PrimFunc):
        return lower_to_c(kernel, name, core)
    return lower_kernel(kernel, name, core).function
