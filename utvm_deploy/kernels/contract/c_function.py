"""What a kernel becomes: one C function, and the scratch that it needs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import NativeKernel
from utvm_deploy.kernels.contract.driver import LINE_LENGTH, Driver, Operand

_COMMA_BREAK = ",\n    "
_FLOAT = re.compile(r"\bfloat\b")


@dataclass(frozen=True)
class CFunction:
    """The C text of one kernel."""

    name: str
    # Definitions of what the body calls; equal texts are needed once.
    imports: tuple[str, ...]
    # "void f(const int8_t *restrict x, int8_t *restrict y)", without semicolon; long ones are
    # broken into lines.
    signature: str
    # The definition, signature included.
    text: str
    # In the arena; its addresses are the last parameters, in this order.
    scratch: tuple[Operand, ...]

    @property
    def prototype(self) -> str:
        """The declaration."""
        return self.signature + ";"

    @property
    def scratch_bytes(self) -> int:
        """The size of all scratch in the arena."""
        return sum(one.size_bytes for one in self.scratch)


@dataclass(frozen=True)
class Parameter:
    """A parameter of a C function: a pointer if ``is_pointer``, else a value."""

    name: str
    ctype: str  # of the value, or of what the pointer points to
    is_pointer: bool
    is_written: bool


def signature_and_text(
    name: str, parameters: Sequence[Parameter], body: str, may_alias: bool
) -> tuple[str, str]:
    """The signature of ``void name(...)`` and the whole definition.

    ``body`` ends with the closing brace. Pointers that are not written become const; all become
    restrict unless ``may_alias``. A parameter that the body does not use is cast to void.
    """
    declared, unused = [], []
    for one in parameters:
        declaration = f"{one.ctype} {one.name}"
        if one.is_pointer:
            const = "" if one.is_written else "const "
            restrict = "" if may_alias else "restrict "
            declaration = f"{const}{one.ctype} *{restrict}{one.name}"
        declared.append(declaration)
        if not re.search(rf"\b{one.name}\b", body):
            unused.append(f"  (void){one.name};\n")
    signature = f"void {name}({', '.join(declared)})"
    if len(signature) > LINE_LENGTH:
        signature = f"void {name}(\n    {_COMMA_BREAK.join(declared)})"
    exact = "UTVM_EXACT_FLOAT " if _FLOAT.search(signature) or _FLOAT.search(body) else ""
    return signature, f"{exact}{signature} {{\n{''.join(unused)}{body}"


def exact_float_texts(text: str) -> tuple[str, ...]:
    """The C that a definition of a kernel with float32 needs to keep every bit."""
    return (shared_text("utvm_exact_float"),) if text.startswith("UTVM_EXACT_FLOAT ") else ()


def native_function(
    kernel: NativeKernel, name: str, core: str, *, outputs: int = 1, may_alias: bool = False
) -> CFunction:
    """The C function ``name`` of a kernel.

    It writes the last ``outputs`` of its buffer parameters; the others are const. ``may_alias``
    says that an output may have the address of an input, which forbids ``restrict``.
    """
    pointers = [one.name for one in kernel.parameters if not isinstance(one, str)]
    written = pointers[len(pointers) - outputs :]
    parameters = [
        Parameter(one, "int32_t", False, True)
        if isinstance(one, str)
        else Parameter(one.name, one.ctype, True, one.name in written)
        for one in kernel.parameters
    ]
    scratch = tuple(one for one in kernel.scratch if not one.is_on_stack)
    parameters += [Parameter(one.name, one.ctype, True, True) for one in scratch]
    driver = Driver()
    kernel.drive(driver)
    local = [one for one in kernel.scratch if one.is_on_stack]
    arrays = [f"  {one.ctype} {one.name}[{one.elements}];" for one in local]
    body = "".join(f"{line}\n" for line in (*arrays, *driver.lines, "}"))
    signature, text = signature_and_text(name, parameters, body, may_alias)
    imports = tuple(dict.fromkeys((*exact_float_texts(text), *kernel.texts(core))))
    return CFunction(name, imports, signature, text, scratch)
