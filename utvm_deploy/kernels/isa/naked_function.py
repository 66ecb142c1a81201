"""The C text of a routine: a naked function with the assembly, and C that computes the same.

The preprocessor chooses one of them by the macros that describe the core.
"""

from __future__ import annotations

from collections.abc import Sequence

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
) -> str:
    """The static function ``name``: its assembly where ``condition`` holds, else its C.

    ``portable`` is the body in C, and ``attribute`` that of its function; the parameters are C
    declarations.
    """
    declared = ",\n    ".join(parameters)
    naked = ",\n    ".join(f"{parameter} UTVM_UNUSED" for parameter in parameters)
    # GCC numbers the copies of a function that it makes; %= would not do in basic assembly.
    body = "\n".join(f'        "{line}\\n"' for line in [".syntax unified", *lines])
    return (
        f"{_ATTRIBUTES}\n#if {condition}\n"
        f"UTVM_NAKED static void {name}(\n    {naked}) {{\n    __asm__(\n{body});\n}}\n"
        f"#else\n{attribute}static void {name}(\n    {declared}) {{\n{portable}}}\n#endif\n"
    )
