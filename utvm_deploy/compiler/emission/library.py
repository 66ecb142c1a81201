"""The C of a model that calls backends: their check, their states and their start."""

from __future__ import annotations

from collections.abc import Mapping

from utvm_deploy.compiler.compiled.memory_use import Span
from utvm_deploy.compiler.emission.engines import (
    engine_declarations,
    engine_ends,
    engine_starts,
    release_text,
)
from utvm_deploy.compiler.lowering.program import Program

#: Bytes of an int64_t.
STACK_WORD = 8


def arena_bytes_with_state(program: Program) -> int:
    """The plan's bytes; after them each layer's status and the backends' states."""
    status = len(program.layers) if program.libraries else 0
    ends = (span.offset + span.size_bytes for span in states_of(program).values())
    return max((program.plan.arena_bytes + status, *ends))


def states_of(program: Program) -> dict[str | int, Span]:
    """Where in the arena states are: by the name of a backend, or the layer of a region."""
    wanted: list[tuple[str | int, int]] = [(one.name, one.state_bytes) for one in program.libraries]
    if any(one.engines for one in program.libraries):
        wanted += [(i, one.kernel.state_bytes) for i, one in enumerate(program.layers)]
    found: dict[str | int, Span] = {}
    end = program.plan.arena_bytes + len(program.layers)
    for name, size in wanted:
        if size:
            start = -(-end // STACK_WORD) * STACK_WORD
            found[name] = Span(start, size)
            end = start + size
    return found


def state_of(program: Program, index: int) -> Span | None:
    """The state that a layer works with: its region's, or its backend's."""
    kernel = program.layers[index].kernel
    if not kernel.has_state:
        return None
    return states_of(program).get(index if kernel.engine else kernel.backend)


def state_text(state: Span | None) -> str:
    """The C expression for a state."""
    return "(void *)0" if state is None else f"(void *)(arena + {state.offset})"


def library_parts(program: Program, blobs: Mapping[int, tuple[str, int]]) -> str:
    """What a model that calls backends has in addition; ``blobs`` are of serialized regions."""
    if not program.libraries:
        return ""
    if not any(one.is_prepared for one in program.libraries):
        return _library_check(program)
    prepared = [one for one in program.libraries if one.initialize]
    engines = tuple(dict.fromkeys(name for one in program.libraries for name in one.engines))
    states = states_of(program)

    def state(index: int) -> str:
        return state_text(state_of(program, index))

    declared = "".join(
        f"// Of {one.name}.\nextern int32_t {one.initialize}(void *state);\n" for one in prepared
    )
    first, *others = [
        f"{one.initialize}({state_text(states.get(one.name))})" for one in prepared
    ] or ["0"]
    more = "".join(
        f"    if (*status == 0) {{\n        *status = {call};\n    }}\n" for call in others
    )
    unused = "" if states else "    (void)arena;\n"
    return f"""{_library_check(program)}
{declared}{engine_declarations(engines)}{engine_ends(program, state)}
void {program.name}_initialize(uint8_t *arena, int32_t *status) {{
{unused}    *status = {first};
{more}{engine_starts(program, blobs, state)}}}
{release_text(program)}"""


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
