"""``NAME_push_rows``: the C that takes rows of the input, and runs the layers that waited for them.

The number of pushed rows is at the end of the arena. So a model has no other state.
"""

from __future__ import annotations

from collections.abc import Sequence

from utvm_deploy.compiler.c_text import c_type
from utvm_deploy.compiler.compiled.memory_use import MemoryPool
from utvm_deploy.compiler.compiled.model import InputRows, PushedStrip
from utvm_deploy.compiler.emission.facts import buffer_of
from utvm_deploy.compiler.emission.pools import pool_arguments, pool_parameters
from utvm_deploy.compiler.lowering.program import Program
from utvm_deploy.compiler.row_state import ROW_STATE_BYTES
from utvm_deploy.graph.attributes import InputRows as Arrival


def input_rows_of(program: Program) -> InputRows | None:
    """The rows of a program's input; None if the arena has its inputs."""
    strips, end, row_bytes = list[PushedStrip](), 0, 0
    for index, layer in enumerate(program.layers):
        if isinstance(layer.step.operator.attributes, Arrival):
            (number,) = layer.step.operator.outputs
            rows = program.graph.tensors[number]
            end, row_bytes = end + rows.shape[1], rows.size_bytes // rows.shape[1]
            strips.append(PushedStrip(end, program.plan.tensors[number], index))
    if not strips:
        return None
    (number,) = program.graph.inputs
    buffer = buffer_of(program, number)
    state = program.plan.arena_bytes - ROW_STATE_BYTES
    return InputRows(buffer, buffer.size_bytes // row_bytes, row_bytes, state, tuple(strips))


def push_text(name: str, rows: InputRows, pools: Sequence[MemoryPool]) -> str:
    """The C of ``NAME_push_rows``; it calls ``layers``."""
    upper = name.upper()
    arguments = _push_arguments(rows, pools)
    strips = "".join(f"    {{{one.end}u, {one.offset}u, {one.layer}u}},\n" for one in rows.strips)
    count = len(rows.strips)
    return f"""\
// Strips of the input: the rows that are there after one, where its first row goes, and the layer
// that stands for its rows. The layers behind that one run then.
static const struct {{
    uint32_t end;
    uint32_t offset;
    uint32_t layer;
}} strips[{count}] = {{
{strips}}};

int32_t {name}_push_rows({arguments}) {{
    uint32_t *pushed = (uint32_t *)(void *)(arena + {rows.state_offset});
    const uint8_t *from = (const uint8_t *)(const void *)rows;
    uint32_t at = *pushed;
    uint32_t first = 0;
    if (!rows || n == 0 || at >= {upper}_INPUT_ROWS || n > {upper}_INPUT_ROWS - at) {{
        return -1;
    }}
    const uint32_t end = at + n;
    for (uint32_t i = 0; i < {count} && at < end; i++) {{
        if (at < strips[i].end) {{
            const uint32_t last = strips[i].end < end ? strips[i].end : end;
            const uint32_t size = (last - at) * {upper}_INPUT_ROW_BYTES;
            memcpy(arena + strips[i].offset + (at - first) * {upper}_INPUT_ROW_BYTES, from, size);
            from += size;
            at = last;
            if (at == strips[i].end) {{
                const uint32_t stop = i + 1 < {count} ? strips[i + 1].layer : {upper}_LAYER_COUNT;
                for (uint32_t layer = strips[i].layer + 1; layer < stop; layer++) {{
                    layers[layer](arena{pool_arguments(pools)});
                }}
            }}
        }}
        first = strips[i].end;
    }}
    *pushed = end == {upper}_INPUT_ROWS ? 0 : end;
    return (int32_t)({upper}_INPUT_ROWS - end);
}}
"""


def _push_arguments(rows: InputRows, pools: Sequence[MemoryPool]) -> str:
    taken = pool_parameters(pools)
    return f"uint8_t *arena{taken}, const {c_type(rows.buffer.dtype)} *rows, uint32_t n"


def push_header(name: str, rows: InputRows, pools: Sequence[MemoryPool]) -> str:
    """What the header says of ``NAME_push_rows``."""
    upper = name.upper()
    return f"""
// Push the next n rows of the input, {upper}_INPUT_ROW_BYTES bytes each, and run the layers
// that waited for them. Returns the rows that are missing, 0 when the outputs are there. The
// next row then begins another input. Returns -1, and writes nothing, if n is 0 or more than
// are missing, if rows is null, or if {name}_reset() was not called on an arena.
int32_t {name}_push_rows({_push_arguments(rows, pools)});

// Run one layer, 0 to {upper}_LAYER_COUNT - 1, for tests. Layers of kind INPUT_ROWS do
// nothing: their rows must be at their place. Other indices do nothing.
void {name}_run_layer(uint32_t index, uint8_t *arena{pool_parameters(pools)});
"""
