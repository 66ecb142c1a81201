"""The C of a model that calls backends: their check, their states and their start."""

from __future__ import annotations

from utvm_deploy.compiler.compiled.model import Span
from utvm_deploy.compiler.lowering.program import Program

#: Bytes of an int64_t.
STACK_WORD = 8


def arena_bytes_with_state(program: Program) -> int:
    """The plan's bytes; after them each layer's status and the backends' states."""
    status = len(program.layers) if program.libraries else 0
    ends = (span.offset + span.size_bytes for span in states_of(program).values())
    return max((program.plan.arena_bytes + status, *ends))


def states_of(program: Program) -> dict[str, Span]:
    """Name of each backend that keeps a state -> where in the arena it is."""
    found: dict[str, Span] = {}
    end = program.plan.arena_bytes + len(program.layers)
    for library in program.libraries:
        if library.state_bytes:
            start = -(-end // STACK_WORD) * STACK_WORD
            found[library.name] = Span(start, library.state_bytes)
            end = start + library.state_bytes
    return found


def state_text(program: Program, backend: str) -> str:
    """The C expression for the state of a backend."""
    state = states_of(program).get(backend)
    return "(void *)0" if state is None else f"(void *)(arena + {state.offset})"


def library_parts(program: Program) -> str:
    """What a model that calls backends has in addition."""
    if not program.libraries:
        return ""
    prepared = [one for one in program.libraries if one.initialize]
    if not prepared:
        return _library_check(program)
    declared = "".join(
        f"// Of {one.name}.\nextern int32_t {one.initialize}(void *state);\n" for one in prepared
    )
    unused = "" if any(one.state_bytes for one in prepared) else "    (void)arena;\n"
    first, *others = (f"{one.initialize}({state_text(program, one.name)})" for one in prepared)
    more = "".join(
        f"    if (*status == 0) {{\n        *status = {call};\n    }}\n" for call in others
    )
    return f"""{_library_check(program)}
{declared}
void {program.name}_initialize(uint8_t *arena, int32_t *status) {{
{unused}    *status = {first};
{more}}}
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
