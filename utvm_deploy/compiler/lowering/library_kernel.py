"""A call of a backend -> its C functions: the call itself, and the question about scratch."""

from __future__ import annotations

import re
from collections.abc import Sequence

from utvm_deploy.compiler.lowering.program import ScheduledKernel
from utvm_deploy.kernels.contract.c_function import CFunction
from utvm_deploy.kernels.contract.call import (
    GUARD_BYTES,
    OTHER_STATUS,
    SCRATCH_OVERRUN,
    LibraryKernel,
)
from utvm_deploy.kernels.contract.driver import Operand

_JOINED = ",\n    "


def schedule_library_kernel(kernel: LibraryKernel, symbol: str) -> ScheduledKernel:
    """The kernel under its symbol; there is nothing to choose."""
    scratch = tuple(Operand("scratch", (size,), "int8") for size in scratch_sizes(kernel))
    parameters = [*kernel.parameters, *("int8_t *scratch" for _ in scratch)]
    if kernel.has_state:
        parameters.append("void *state")
    signature = f"int32_t {symbol}(\n    {_JOINED.join(parameters)})"
    wanted = f"{symbol}_scratch" if kernel.wanted else None
    if kernel.is_guarded:
        text = _guarded(kernel, symbol, signature, parameters)
    else:
        text = f"{signature} {{\n{_unused(kernel, parameters)}{kernel.body}}}\n"
    if wanted:
        text += f"\nint32_t {wanted}(void) {{\n{kernel.wanted}}}\n"
    include = f'#include "{kernel.include}"\n' if kernel.include else ""
    text_of_backend = _of_backend(kernel.text) if kernel.text else ""
    imports = tuple(filter(None, (include, text_of_backend)))
    function = CFunction(symbol, imports, signature, text, scratch)
    return ScheduledKernel(
        *(function, kernel.function, text, kernel.function, wanted),
        has_state=kernel.has_state,
        backend=kernel.backend,
        engine=kernel.engine,
        state_bytes=kernel.state_bytes,
    )


def scratch_sizes(kernel: LibraryKernel) -> tuple[int, ...]:
    """The bytes of the only piece of scratch, with its guards; empty without scratch."""
    if not kernel.scratch_bytes:
        return ()
    return (kernel.scratch_bytes + (2 * GUARD_BYTES if kernel.is_guarded else 0),)


def _of_backend(text: str) -> str:
    """A backend's C text, of which a model may use a part of the functions."""
    return f"""\
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#endif
{text}
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
"""


def _names(parameters: Sequence[str]) -> list[str]:
    return [parameter.rsplit(" ", 1)[1].lstrip("*") for parameter in parameters]


def _unused(kernel: LibraryKernel, parameters: Sequence[str]) -> str:
    """Statements for the parameters that the body does not name: compilers warn of them."""
    named = set(re.findall(r"\w+", kernel.body))
    return "".join(
        f"    (void){name};\n"
        for name in _names(parameters)
        if name not in named or name == "state"
    )


def _guarded(kernel: LibraryKernel, symbol: str, signature: str, parameters: Sequence[str]) -> str:
    """The call, whose status fits a byte, between guards of its scratch that are read again."""
    arguments = ", ".join(
        f"scratch + {GUARD_BYTES}" if name == "scratch" else name for name in _names(parameters)
    )
    filled, read = _guards(GUARD_BYTES + kernel.scratch_bytes) if kernel.scratch_bytes else ("", "")
    return f"""\
static int32_t {symbol}_inside(
    {_JOINED.join(parameters)}) {{
{_unused(kernel, parameters)}{kernel.body}}}

{signature} {{
{filled}    int32_t status = {symbol}_inside(
        {arguments});
    if (status < -100 || status > 100) {{
        status = {OTHER_STATUS};
    }}
{read}    return status;
}}
"""


def _guards(behind: int) -> tuple[str, str]:
    """Statements that fill the guards at the scratch's ends, and those that read them again."""
    filled = f"""\
    for (int32_t i = 0; i < {GUARD_BYTES}; i++) {{
        scratch[i] = (int8_t)(i * 7 + 85);
        scratch[{behind} + i] = (int8_t)(i * 7 + 86);
    }}
"""
    read = f"""\
    for (int32_t i = 0; i < {GUARD_BYTES}; i++) {{
        if (scratch[i] != (int8_t)(i * 7 + 85) || scratch[{behind} + i] != (int8_t)(i * 7 + 86)) {{
            status = {SCRATCH_OVERRUN};
        }}
    }}
"""
    return filled, read
