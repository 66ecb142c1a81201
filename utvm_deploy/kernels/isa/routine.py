"""A routine of ordered assembly, and its C text: a naked function beside C that computes the same.

Which of the two is compiled, the preprocessor decides by what the core's compiler says of itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from utvm_deploy.cores.timing import Timing
from utvm_deploy.kernels.isa.instructions import Instruction
from utvm_deploy.kernels.isa.list_scheduler import ordered

_ATTRIBUTES = """\
// A naked function's parameters look unused: nothing may be derived from that.
#if !defined(UTVM_NAKED) && defined(__GNUC__)
#if defined(__clang__)
#define UTVM_NAKED __attribute__((naked, noinline, used))
#else
#define UTVM_NAKED __attribute__((naked, noinline, noclone, noipa, used))
#endif
#define UTVM_UNUSED __attribute__((unused))
#endif
"""


@dataclass
class Routine:
    """Assembly in the making: straight pieces, which are ordered, between labels and branches."""

    timing: Timing
    lines: list[str] = field(default_factory=list)

    def plain(self, *lines: str) -> None:
        """Lines that stay as they are."""
        self.lines += lines

    def label(self, name: str, *, is_loop: bool = False) -> None:
        """A place to branch to; loops begin at a whole fetch."""
        if is_loop:
            self.lines.append(".balign 8")
        self.lines.append(f"{name}:")

    def straight(self, code: Sequence[Instruction], *, is_loop: bool = False) -> None:
        """Code without branches."""
        self.lines += [i.text for i in ordered(code, self.timing, is_loop=is_loop)]


def naked_function(
    name: str, parameters: Sequence[str], lines: Sequence[str], portable: str, condition: str
) -> str:
    """The static function ``name``: its assembly where ``condition`` holds, else its C.

    ``portable`` is the body in C; the parameters are C declarations.
    """
    declared = ",\n    ".join(parameters)
    naked = ",\n    ".join(f"{parameter} UTVM_UNUSED" for parameter in parameters)
    # GCC numbers the copies of a function that it makes; %= would not do in basic assembly.
    body = "\n".join(f'        "{line}\\n"' for line in [".syntax unified", *lines])
    return (
        f"{_ATTRIBUTES}\n#if {condition}\n"
        f"UTVM_NAKED static void {name}(\n    {naked}) {{\n    __asm__(\n{body});\n}}\n"
        f"#else\nstatic void {name}(\n    {declared}) {{\n{portable}}}\n#endif\n"
    )
