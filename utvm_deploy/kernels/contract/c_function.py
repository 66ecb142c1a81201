"""What a kernel becomes: one C function, and the working memory that it asks for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

#: Working memory up to this size stays on the C stack; more is scratch in the arena.
STACK_BUFFER_LIMIT_BYTES = 256

#: Emitted C is broken into lines of at most this length.
LINE_LENGTH = 100
_COMMA_BREAK = ",\n    "


@dataclass(frozen=True)
class Scratch:
    """Working memory of one function, passed as its last parameters in this order."""

    name: str
    dtype: str
    size_bytes: int


@dataclass(frozen=True)
class CFunction:
    """The C text of one kernel."""

    name: str
    # Helper definitions that the body calls; equal texts are needed once.
    imports: tuple[str, ...]
    # "void f(const int8_t *restrict x, int8_t *restrict y)", without semicolon; long ones are
    # broken into lines.
    signature: str
    # The definition, signature included.
    text: str
    scratch: tuple[Scratch, ...]

    @property
    def prototype(self) -> str:
        """The declaration."""
        return self.signature + ";"

    @property
    def scratch_bytes(self) -> int:
        """Bytes of all scratch."""
        return sum(scratch.size_bytes for scratch in self.scratch)


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
    return signature, f"{signature} {{\n{''.join(unused)}{body}"
