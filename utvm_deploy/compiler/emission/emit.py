"""A program -> the compiled model: the C files and the facts about them.

NAME.h is the only file that users include (``emit_header``); NAME.c calls the kernels layer by
layer; NAME_kernels.c holds the kernels, NAME_weights.c the constants, NAME_private.h what the three
share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from utvm_deploy.compiler.arena.constants import (
    TABLE_ALIGNMENT,
    ConstantTables,
    aligned_macro,
)
from utvm_deploy.compiler.arena.memory_map import memory_map
from utvm_deploy.compiler.arena.plan import ARENA_ALIGNMENT
from utvm_deploy.compiler.c_text import (
    KERNEL_SECTION,
    WEIGHTS_SECTION,
    c_type,
    comment,
    integer,
    placed,
)
from utvm_deploy.compiler.compiled.memory_use import MemoryPool
from utvm_deploy.compiler.compiled.model import CompiledModel, InputRows, TrainedPart, first_bytes
from utvm_deploy.compiler.emission.engines import blobs_of
from utvm_deploy.compiler.emission.facts import buffer_of, inputs_of, layer_facts
from utvm_deploy.compiler.emission.header import emit_header
from utvm_deploy.compiler.emission.library import (
    STACK_WORD,
    arena_bytes_with_state,
    library_parts,
    state_of,
    state_text,
)
from utvm_deploy.compiler.emission.loops import LoopText, loops_of, loops_text, own_functions
from utvm_deploy.compiler.emission.places import places_text
from utvm_deploy.compiler.emission.pools import (
    copies_of,
    load_text,
    mentions,
    pool_arguments,
    pool_parameters,
    unused_memories,
)
from utvm_deploy.compiler.emission.prefill import parts_text, prefill_of
from utvm_deploy.compiler.emission.rows import input_rows_of, push_text
from utvm_deploy.compiler.emission.training import step_text, trained_part_of
from utvm_deploy.compiler.lowering.program import Program, ScheduledStep, constant_of
from utvm_deploy.compiler.planning.pool_planning import scratch_offsets
from utvm_deploy.compiler.row_state import ROW_STATE_BYTES
from utvm_deploy.kernels.contract.c_texts import VECTORS, VECTORS_ON, shared_text
from utvm_deploy.kernels.contract.call import ScalarArgument, TensorArgument
from utvm_deploy.kernels.contract.requantization import header as kernel_header

_STRING_HEADER = "\n#include <string.h>\n"

# What gives a state its first bytes.
_RESETTING = {
    "fill": """
static void fill(uint8_t *at, uint32_t count, uint8_t value) {
    for (uint32_t i = 0; i < count; i++) {
        at[i] = value;
    }
}
""",
    "copy": """
static void copy(uint8_t *at, uint32_t count, const uint8_t *from) {
    for (uint32_t i = 0; i < count; i++) {
        at[i] = from[i];
    }
}
""",
}


def emit(program: Program) -> CompiledModel:
    """Write the C; ``seconds`` is left empty for the pipeline to fill."""
    name = program.name
    tables, calls, layers = ConstantTables(), [], []
    # Where there is a library, the bytes after the plan take its status, layer by layer.
    status = program.plan.arena_bytes if program.libraries else None
    pools = program.pools
    copies = copies_of(pools)
    loops = [LoopText(loop) for loop in loops_of(program)]
    in_loop = {index: text for text in loops for index in text.calls_of_step}
    for index, layer in enumerate(program.layers):
        loop = in_loop.get(index)
        arguments, members = _arguments(program, index, layer, tables, copies, loop)
        calls.append(_layer_function(program, index, layer, arguments, status, pools, bool(loops)))
        constants = tuple(tables.span(member) for member in sorted(members))
        layers.append(layer_facts(program, index, layer, constants))
    rows = input_rows_of(program)
    trained = trained_part_of(program)
    resets = _resets(program, tables, rows, trained)
    parts = load_text(name, pools) + library_parts(program, blobs_of(program, tables))
    ends = slice(None, None if trained is None else -1)  # without the label and the loss
    compiled = CompiledModel(
        name=name,
        board=program.board,
        core=program.core,
        sources={},
        layers=tuple(layers),
        inputs=() if rows else inputs_of(program, program.graph.inputs[ends]),
        outputs=tuple(buffer_of(program, tensor) for tensor in program.graph.outputs[ends]),
        arena_bytes=arena_bytes_with_state(program),
        arena_alignment=ARENA_ALIGNMENT,
        weights_bytes=tables.total_bytes,
        macs=sum(layer.macs for layer in layers),
        model_digest=program.graph.digest,
        kernel_ir={k.function.name: k.ir for k in program.kernels() if k.calls is None},
        seconds={},
        external=next(iter(program.libraries), None),
        more_external=program.libraries[1:],
        status_offset=status,
        states=tuple(buffer_of(program, found) for found in program.graph.found_states),
        stream=program.graph.stream,
        memory=memory_map(program.plan),
        stack_bytes=max(
            (sum(_on_stack(program, i, layer)) for i, layer in enumerate(program.layers)), default=0
        ),
        input_rows=rows,
        pools=pools,
        loops=tuple(text.loop for text in loops),
        training=trained,
        prefill=prefill_of(program),
    )
    kernels = "".join(_kernels_parts(program))
    sources = {
        f"{name}.h": emit_header(compiled),
        f"{name}.c": _main_file(program, calls, resets, compiled, loops, parts),
        f"{name}_kernels.c": kernels,
        f"{name}_weights.c": _weights_file(name, tables),
        f"{name}_private.h": _private_header(program, tables, VECTORS in kernels),
    }
    return replace(compiled, sources=sources)


def _arguments(
    program: Program,
    index: int,
    layer: ScheduledStep,
    tables: ConstantTables,
    copies: Mapping[str, str],
    loop: LoopText | None = None,
) -> tuple[list[str], set[str]]:
    """C expressions for a call's arguments, and the constant tables among them.

    ``loop`` is the one that has the call in its first step.
    """
    written = set(layer.step.operator.outputs)
    texts: list[str] = []
    members: set[str] = set()
    same = [index] if loop is None else loop.calls(index)
    for position, argument in enumerate(layer.step.call.arguments):
        if isinstance(argument, ScalarArgument):
            text = _number_text(loop, _numbers(program, same, position))
            texts.append(f"(int32_t)({text})" if "step" in text else text)
            continue
        constant = constant_of(program, index, argument)
        if constant is None:
            assert isinstance(argument, TensorArgument)
            tensor = program.graph.tensors[argument.tensor]
            const = "" if argument.tensor in written else "const "
            offset = _number_text(loop, _numbers(program, same, position))
            base = "arena"
            if argument.tensor in program.plan.in_pool:
                base = f"pool_{program.near_pool}"
            texts.append(f"({const}{c_type(tensor.dtype)} *)(void *)({base} + {offset})")
            continue
        member = tables.add(*constant)
        members.add(member)
        place = f"{program.name}_weights.{member}"
        if member in copies:
            place = f"(const {c_type(constant[1].dtype.name)} *){copies[member]}"
        texts.append(place)
    scratch_of_steps = zip(*(program.plan.scratch[one] for one in same), strict=True)
    places = [f"(arena + {_number_text(loop, offsets)})" for offsets in scratch_of_steps]
    in_pool = scratch_offsets(program, index, layer) or ()
    places += [f"(pool_{program.near_pool} + {offset})" for offset in in_pool]
    places += [f"scratch_{number}" for number in range(len(_on_stack(program, index, layer)))]
    for scratch, place in zip(layer.kernel.function.scratch, places, strict=True):
        texts.append(f"({c_type(scratch.dtype)} *)(void *){place}")
    if layer.kernel.has_state:
        texts.append(state_text(state_of(program, index)))
    return texts, members


def _numbers(program: Program, calls: Iterable[int], position: int) -> list[int]:
    """An argument in each of some equal calls: its value, or where its tensor is."""
    found = []
    for one in calls:
        argument = program.layers[one].step.call.arguments[position]
        if isinstance(argument, ScalarArgument):
            found.append(argument.value)
        elif isinstance(argument, TensorArgument):
            found.append(program.plan.tensors[argument.tensor])
    return found


def _number_text(loop: LoopText | None, numbers: Sequence[int]) -> str:
    return integer(numbers[0]) if loop is None else loop.number(numbers)


def _on_stack(program: Program, index: int, layer: ScheduledStep) -> list[int]:
    """Bytes of the layer's scratch buffers if they are on the stack, in words of eight."""
    if program.plan.scratch[index] or program.has_scratch_in_pool:
        return []
    return [-(-s.size_bytes // STACK_WORD) * STACK_WORD for s in layer.kernel.function.scratch]


def _layer_function(
    program: Program,
    index: int,
    layer: ScheduledStep,
    arguments: list[str],
    status: int | None,
    pools: Sequence[MemoryPool],
    has_step: bool,
) -> str:
    output = program.graph.tensors[layer.step.operator.outputs[0]]
    separated = ",\n        ".join(arguments)
    # Of the type that the strictest loads and stores want.
    scratch = "".join(
        f"    int64_t scratch_{number}[{size // STACK_WORD}];\n"
        for number, size in enumerate(_on_stack(program, index, layer))
    )
    result = "" if layer.kernel.calls is None else f"arena[{status} + {index}] = (uint8_t)"
    step = ", uint32_t step" if has_step else ""
    unused = "    (void)step;\n" if has_step and not mentions(separated, "step") else ""
    return (
        f"// {layer.step.operator.kind}: {comment(output.name)} {list(output.shape)}\n"
        f"static void layer_{index}(uint8_t *arena{step}{pool_parameters(pools)}) {{\n{scratch}"
        f"{unused}{unused_memories(pools, result + separated)}"
        f"    {result}{layer.kernel.function.name}(\n        {separated});\n}}\n"
    )


def _main_file(
    program: Program,
    calls: list[str],
    resets: list[str],
    compiled: CompiledModel,
    loops: Sequence[LoopText],
    parts: str,
) -> str:
    name, pools, rows = program.name, program.pools, compiled.input_rows
    own = own_functions(len(calls), [text.loop for text in loops])
    table = "".join(f"    layer_{index},\n" for index in own)
    count = f"{name.upper()}_LAYER_COUNT" if not loops else f"{len(own)}"
    body = "".join(text.table for text in loops) + "\n".join(calls[index] for index in own)
    step = ", uint32_t step" if loops else ""
    taken = pool_parameters(pools)
    if loops:
        run = loops_text(name, len(calls), [text.loop for text in loops], pools)
    else:
        run = _run_layer_text(name, count, pools)
        if compiled.training is not None:
            run += step_text(compiled)
        else:
            run += _run_text(name, count, pools) if rows is None else push_text(name, rows, pools)
        run += parts_text(compiled)
    return f"""\
// {name}: the layers, in order. Generated by utvm_deploy; do not edit.

#include "{name}.h"

#include "{name}_private.h"
{_STRING_HEADER if rows is not None or "memcpy(" in parts + run else ""}
{body}
static void (*const layers[{count}])(uint8_t *arena{step}{taken}) = {{
{table}}};

{run}{parts}{_reset(program, resets)}{places_text(compiled)}"""


def _run_layer_text(name: str, count: str, pools: Sequence[MemoryPool]) -> str:
    return f"""\
void {name}_run_layer(uint32_t index, uint8_t *arena{pool_parameters(pools)}) {{
    if (index < {count}) {{
        layers[index](arena{pool_arguments(pools)});
    }}
}}

"""


def _run_text(name: str, count: str, pools: Sequence[MemoryPool]) -> str:
    return f"""\
void {name}_run(uint8_t *arena{pool_parameters(pools)}) {{
    for (uint32_t index = 0; index < {count}; index++) {{
        layers[index](arena{pool_arguments(pools)});
    }}
}}
"""


def _resets(
    program: Program, tables: ConstantTables, rows: InputRows | None, trained: TrainedPart | None
) -> list[str]:
    """A C call for each state that gives it its first bytes: one value, or a table's."""
    calls = []
    if rows is not None:
        calls.append(f"fill(arena + {rows.state_offset}, {ROW_STATE_BYTES}, 0);")
    if trained is not None:  # the bytes between weights are stored, too
        calls.append(f"fill(arena + {trained.stored.offset}, {trained.stored.size_bytes}, 0);")
    for index, found in enumerate(program.graph.found_states):
        state = buffer_of(program, found)
        first, place = first_bytes(state), f"arena + {state.offset}, {state.size_bytes}"
        if first == first[:1] * len(first):
            calls.append(f"fill({place}, {first[0]});")
        else:
            member = tables.add(f"state_{index}", np.frombuffer(first, np.uint8))
            calls.append(f"copy({place}, {program.name}_weights.{member});")
    return calls


def _reset(program: Program, resets: Sequence[str]) -> str:
    """The function that gives every state its first value; empty without states."""
    if not resets:
        return ""
    used = [text for name, text in _RESETTING.items() if any(r.startswith(name) for r in resets)]
    calls = "".join(f"    {reset}\n" for reset in resets)
    return f"""{"".join(used)}
void {program.name}_reset(uint8_t *arena) {{
{calls}}}
"""


def _kernels_parts(program: Program) -> Iterator[str]:
    functions = [kernel.function for kernel in program.kernels()]
    imports = list(dict.fromkeys(text for f in functions for text in f.imports))
    if program.is_fused:
        exact, fused = shared_text("utvm_exact_float"), shared_text("utvm_fused_float")
        imports = [fused if text == exact else text for text in imports]
    yield f"// {program.name}: the kernels. Generated by utvm_deploy; do not edit.\n\n"
    yield f'#include "{program.name}_private.h"\n\n'
    code = "".join(f.text for f in functions) + "".join(imports)
    if "memcpy" in code or "memset" in code:
        yield "#include <string.h>\n\n"
    if "bool" in code:
        yield "#include <stdbool.h>\n\n"
    yield placed("\n".join([*imports, *(function.text for function in functions)]))


def _weights_file(name: str, tables: ConstantTables) -> str:
    definition = "" if tables.is_empty() else "\n" + tables.definition(name)
    return (
        f"// {name}: weights, biases and requantization tables. Generated by utvm_deploy; do not "
        f'edit.\n\n#include "{name}_private.h"\n{definition}'
    )


def _private_header(program: Program, tables: ConstantTables, has_vectors: bool) -> str:
    name, upper = program.name, program.name.upper()
    kernels = program.kernels()
    prototypes = "\n".join(f"{KERNEL_SECTION} {kernel.function.prototype}\n" for kernel in kernels)
    prototypes += "".join(f"\nint32_t {k.wanted}(void);\n" for k in kernels if k.wanted)
    weights = "" if tables.is_empty() else tables.declaration(name) + "\n"
    gnu, standard = (
        "\n".join(
            f"#define {aligned_macro(upper, one)} {text}({one or TABLE_ALIGNMENT}){end}"
            for one in (0, *tables.large_alignments)
        )
        for text, end in (("__attribute__((aligned", "))"), ("_Alignas", ""))
    )
    return f"""\
// {name}: what its own C files share; include {name}.h instead.
// Generated by utvm_deploy; do not edit.

#ifndef {upper}_PRIVATE_H
#define {upper}_PRIVATE_H

#include <stdint.h>

{VECTORS_ON if has_vectors else ""}// C++ compilers know this keyword of C by another name.
#ifdef __cplusplus
#define restrict __restrict
#endif

// Kernels load words from the tables.
#if defined(__GNUC__)
{gnu}
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
{standard}
#else
#error "no way known to align a table with this compiler: define {upper}_ALIGNED"
#endif

// Attributes that put the kernels or the weights into a section of yours.
#ifndef {KERNEL_SECTION}
#define {KERNEL_SECTION}
#endif
#ifndef {WEIGHTS_SECTION}
#define {WEIGHTS_SECTION}
#endif

{weights}{prototypes}
{placed(kernel_header())}
#endif
"""
