"""The C of a model that calls a backend's library: its check, its state and its start."""

from __future__ import annotations

from utvm_deploy.compiler.compiled.model import Span
from utvm_deploy.compiler.lowering.program import Program

#: Bytes of an int64_t.
STACK_WORD = 8


def arena_bytes_with_state(program: Program) -> int:
    """The plan's bytes; after them each layer's status and the backend's state."""
    if program.library is None:
        return program.plan.arena_bytes
    state = state_of(program)
    return program.plan.arena_bytes + len(program.layers) if state is None else _end(state)


def state_of(program: Program) -> Span | None:
    """Where in the arena the backend's state is; None if it keeps none."""
    if program.library is None or not program.library.state_bytes:
        return None
    end = program.plan.arena_bytes + len(program.layers)
    return Span(-(-end // STACK_WORD) * STACK_WORD, program.library.state_bytes)


def _end(span: Span) -> int:
    return span.offset + span.size_bytes


def state_text(program: Program) -> str:
    """The C expression for the backend's state."""
    state = state_of(program)
    return "(void *)0" if state is None else f"(void *)(arena + {state.offset})"


def library_parts(program: Program) -> str:
    """What a model that calls a backend has in addition."""
    library = program.library
    if library is None:
        return ""
    if not library.initialize:
        return _library_check(program)
    unused = "" if library.state_bytes else "    (void)arena;\n"
    return f"""{_library_check(program)}
// Of {library.name}.
extern int32_t {library.initialize}(void *state);

void {program.name}_initialize(uint8_t *arena, int32_t *status) {{
{unused}    *status = {library.initialize}({state_text(program)});
}}
"""


def _library_check(program: Program) -> str:
    """The function that asks the library, layer by layer, whether its scratch is enough."""
    first: dict[str, tuple[int, int]] = {}
    for index, layer in enumerate(program.layers):
        if layer.kernel.wanted is not None:
            first.setdefault(layer.kernel.wanted, (index, layer.kernel.function.scratch_bytes))
    checks = "".join(
        f"    if ({wanted}() > {planned}) {{\n        *layer = {index};\n        return;\n    }}\n"
        for wanted, (index, planned) in first.items()
    )
    return f"""
void {program.name}_check_library(int32_t *layer) {{
{checks}    *layer = -1;
}}
"""
