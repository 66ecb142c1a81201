"""Portable kernels that read weights in a number format."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from utvm_deploy.base.process import is_dry_run
from utvm_deploy.graph.number_formats import OPERATIONS, NumberFormat
from utvm_deploy.graph.number_formats.formats import all_codes, packed, same, sample_floats
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import (
    AnyKernel,
    Argument,
    ConstantArgument,
    Kernel,
    KernelCall,
    LibraryKernel,
    is_native,
)
from utvm_deploy.kernels.contract.host_c import Call, computed_by_c

#: Operands of each operation that C and NumPy are compared with.
_MOST_OPERANDS = 1 << 18


@dataclass(frozen=True)
class FormatKernel:
    """A kernel of float32 with numbers of a format in some parameters, in the place of floats."""

    kernel: Kernel
    number_format: NumberFormat
    #: The positions of these parameters.
    numbers: frozenset[int]

    @property
    def name(self) -> str:
        return f"{self.kernel.name}_{self.number_format.name}"

    def prim_func(self) -> Any:
        """That of float32: the numbers come in when loops are lowered to C."""
        return self.kernel.prim_func()

    def schedule(self, sch: Any, core: str) -> str:
        return f"{self.kernel.schedule(sch, core)}, weights are {self.number_format.name}"


def format_kernel_of(kernel: object) -> FormatKernel | None:
    """The kernel with numbers that a kernel is, or whose loops it shapes; None if there is none."""
    while kernel is not None and not isinstance(kernel, FormatKernel):
        kernel = getattr(kernel, "kernel", None)
    return kernel


def with_numbers(call: KernelCall, own: NumberFormat | None) -> KernelCall:
    """The call with its tables of weights in a format, where their values are its numbers."""
    kernel: AnyKernel = call.kernel
    if own is None or own.computes or isinstance(kernel, LibraryKernel) or is_native(kernel):
        return call
    arguments: list[Argument] = list(call.arguments)
    numbers = set()
    for position, argument in enumerate(arguments):
        if isinstance(argument, ConstantArgument):
            codes = packed(argument.data, own)
            if codes is not None:
                arguments[position] = replace(argument, data=codes)
                numbers.add(position)
    if not numbers:
        return call
    made = FormatKernel(kernel, own, frozenset(numbers))
    return replace(call, kernel=made, arguments=tuple(arguments))


def c_text_of(own: NumberFormat) -> str:
    """The C of a format's functions, and of what they may call."""
    return shared_text("math/bits") + own.c_text()


@lru_cache(maxsize=4)
def check_c(own: NumberFormat) -> None:
    """PluginError unless C and NumPy give equal bits, on this computer.

    For all numbers of the format, floats of all kinds, and a sample of operands.
    """
    if is_dry_run():
        return  # no compiler is started
    codes, random = all_codes(own), np.random.default_rng(22)
    calls = {"encode": (sample_floats(),), "decode": (codes,)}
    for name in own.operations:
        shape = (len(OPERATIONS[name]), _MOST_OPERANDS)
        calls[name] = tuple(random.choice(codes, shape))
    results = {name: "float32" if name == "decode" else own.dtype for name in calls}
    made = computed_by_c(
        c_text_of(own),
        [Call(own.symbol(name), given, results[name]) for name, given in calls.items()],
        f"number format {own.name}",
    )
    for (name, given), of_c in zip(calls.items(), made, strict=True):
        of_numpy = own.by_numpy(name, *given).astype(results[name])
        wrong = np.flatnonzero(~same(of_c, of_numpy))
        if wrong.size:
            first = wrong[0]
            operands = ", ".join(f"{one[first]:g}" for one in given)
            raise own.wrong(
                f"{name}({operands}) is {of_c[first]:g} in C and {of_numpy[first]:g} in NumPy; "
                "correct one of them"
            )
