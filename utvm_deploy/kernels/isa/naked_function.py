"""The C text of a routine: a naked function with the assembly, and C that computes the same.

The preprocessor chooses one of them by the macros that describe the core.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_SYNTAX = '        ".syntax unified\\n"\n'
#: Between two statements of assembly, of which the second continues the first.
NEXT_STATEMENT = f");\n    __asm__(\n{_SYNTAX}"
#: C99 promises no longer strings.
LONGEST_STRING = 4095


class Around(NamedTuple):
    """What each statement of assembly begins and ends with, as strings of C."""

    first: str
    last: str = ""


_ARM = Around(_SYNTAX)
# Clang forgets the condition of a block where its statement ends.
_BLOCK = re.compile(r"(?:it|vpt|vpst)([te]*)\b")
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


def naked_function(
    name: str,
    parameters: Sequence[str],
    lines: Sequence[str],
    portable: str,
    condition: str,
    attribute: str = "",
    around: Around = _ARM,
) -> str:
    """The static function ``name``: its assembly where ``condition`` holds, else its C.

    ``portable`` is the body in C, and ``attribute`` that of its function; the parameters are C
    declarations. ``around`` has the directives of the assembler, those of Arm by default.
    """
    declared = ",\n    ".join(parameters)
    naked = ",\n    ".join(f"{parameter} UTVM_UNUSED" for parameter in parameters)
    # GCC numbers the copies of a function that it makes; %= would not do in basic assembly.
    body = f"{around.last});\n    __asm__(\n{around.first}".join(
        "\n".join(f'        "{line}\\n"' for line in statement)
        for statement in _statements(lines, len(around.first) + len(around.last))
    )
    return (
        f"{_ATTRIBUTES}\n#if {condition}\n"
        f"UTVM_NAKED static void {name}(\n    {naked}) {{\n"
        f"    __asm__(\n{around.first}{body}{around.last});\n}}\n"
        f"#else\n{attribute}static void {name}(\n    {declared}) {{\n{portable}}}\n#endif\n"
    )


def _statements(lines: Sequence[str], around: int) -> Iterator[list[str]]:
    """The lines of each statement: its string is not too long, and no block is cut.

    ``around``: the length of what it begins and ends with.
    """
    statement: list[str] = []
    room = most = LONGEST_STRING - around
    for block in _blocks(lines):
        size = sum(len(line) + 1 for line in block)
        if size > room:
            yield statement
            statement, room = [], most
        statement += block
        room -= size
    yield statement


def _blocks(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    """Lines one by one, and those together of which the first gives the others a condition."""
    at = 0
    while at < len(lines):
        block = _BLOCK.match(lines[at].strip())
        end = at + (1 if block is None else 2 + len(block[1]))
        yield lines[at:end]
        at = end
