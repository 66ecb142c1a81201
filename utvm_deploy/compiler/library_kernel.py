"""A call of the library -> its C functions: the call itself, and the question about scratch."""

from __future__ import annotations

from utvm_deploy.compiler.program import ScheduledKernel
from utvm_deploy.kernels.contract.c_function import CFunction
from utvm_deploy.kernels.contract.call import LibraryKernel
from utvm_deploy.kernels.contract.driver import Operand


def schedule_library_kernel(kernel: LibraryKernel, symbol: str) -> ScheduledKernel:
    """The kernel under its symbol; there is nothing to choose."""
    parameters = list(kernel.parameters)
    scratch: list[Operand] = []
    if kernel.scratch_bytes:
        scratch.append(Operand("scratch", (kernel.scratch_bytes,), "int8"))
        parameters.append("int8_t *scratch")
    signature = f"int32_t {symbol}(\n    {_JOINED.join(parameters)})"
    wanted = f"{symbol}_scratch" if kernel.wanted else None
    text = f"{signature} {{\n{kernel.body}}}\n"
    if wanted:
        text += f"\nint32_t {wanted}(void) {{\n{kernel.wanted}}}\n"
    function = CFunction(
        symbol, (f'#include "{kernel.include}"\n',), signature, text, tuple(scratch)
    )
    return ScheduledKernel(function, kernel.function, text, kernel.function, wanted)


_JOINED = ",\n    "
