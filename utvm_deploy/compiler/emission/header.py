"""NAME.h: the interface of a generated model, and its manual."""

from __future__ import annotations

from collections.abc import Iterator

from utvm_deploy import __version__
from utvm_deploy.compiler.c_text import c_type, comment, float_literal
from utvm_deploy.compiler.compiled.model import Buffer, CompiledModel
from utvm_deploy.compiler.emission.places import places_header
from utvm_deploy.compiler.emission.pools import (
    load_call,
    load_header,
    pool_arguments,
    pool_macros,
    pool_manual,
    pool_parameters,
)
from utvm_deploy.compiler.emission.prefill import parts_header
from utvm_deploy.compiler.emission.rows import push_header
from utvm_deploy.compiler.emission.training import training_header
from utvm_deploy.compiler.options import MODEL_STACK_BYTES
from utvm_deploy.kernels.contract.call import OTHER_STATUS, SCRATCH_OVERRUN
from utvm_deploy.kernels.contract.external_library import LAYER_STATUS

#: What --input ends the name of an input with -> the byte of a pixel that has the red.
_PLACES_OF_RED = {"(rgb565)": "first", "(rgb565le)": "second"}


def emit_header(model: CompiledModel) -> str:
    """The text of the public header."""
    return "".join(_parts(model))


def _parts(model: CompiledModel) -> Iterator[str]:
    inputs = [("input", i, b) for i, b in enumerate(model.taken)]
    outputs = [("output", i, b) for i, b in enumerate(model.outputs)]
    yield from _manual(model)
    yield from _macros(model)
    for direction, index, buffer in inputs + outputs:
        yield "\n"
        has_place = model.input_rows is None or direction == "output"
        macro = f"{model.name.upper()}_{direction.upper()}_{index}"
        yield from _buffer_macros(macro, buffer, has_place=has_place)
    yield from _run_functions(model)
    yield parts_header(model)
    yield load_header(model.name, model.pools)
    yield _reset_function(model)
    yield places_header(model)
    yield training_header(model)
    yield from _library_functions(model)
    for direction, index, buffer in (inputs if model.input_rows is None else []) + outputs:
        yield "\n"
        yield from _accessor(model.name, direction, index, buffer)
    yield """
#ifdef __cplusplus
}
#endif

#endif
"""


def _macros(model: CompiledModel) -> Iterator[str]:
    """The guard of the header, and sizes of the whole model."""
    upper = model.name.upper()
    yield f"""
#ifndef {upper}_H
#define {upper}_H

#include <stdint.h>

#ifdef __cplusplus
#define {upper}_AT(type, place) static_cast<type *>(static_cast<void *>(place))
extern "C" {{
#else
#define {upper}_AT(type, place) (type *)(void *)(place)
#endif

#define {upper}_GENERATOR "utvm_deploy {__version__}"
#define {upper}_MODEL_SHA256 "{model.model_digest}"

#define {upper}_ARENA_BYTES {model.arena_bytes}
#define {upper}_ARENA_ALIGNMENT {model.arena_alignment}
#define {upper}_WEIGHTS_BYTES {model.weights_bytes}
#define {upper}_LAYER_COUNT {len(model.layers)}
#define {upper}_INPUT_COUNT {len(model.taken)}
#define {upper}_OUTPUT_COUNT {len(model.outputs)}
"""
    yield from pool_macros(model.name, model.pools)


def _run_functions(model: CompiledModel) -> Iterator[str]:
    """What runs the whole model or a layer, or takes rows of its input."""
    name, upper, rows = model.name, model.name.upper(), model.input_rows
    if rows is not None:
        yield f"#define {upper}_INPUT_ROWS {rows.count}\n"
        yield f"#define {upper}_INPUT_ROW_BYTES {rows.row_bytes}\n"
        yield push_header(name, rows, model.pools)
        return
    taken = pool_parameters(model.pools)
    part = model.training
    runs = "them" if part is None else f"the first {part.forward_layers}"
    yield f"""
// Run the whole model.
void {name}_run(uint8_t *arena{taken});

// Run one layer, 0 to {upper}_LAYER_COUNT - 1; {name}_run() runs {runs} in this
// order. Other indices do nothing.
void {name}_run_layer(uint32_t index, uint8_t *arena{taken});
"""


def _reset_function(model: CompiledModel) -> str:
    """What forgets earlier runs; nothing for a model that keeps nothing."""
    if model.input_rows is not None:
        also = ", and what earlier inputs\n// left" if model.states else ""
        told = f"the rows that were pushed{also}: call it once before the first row."
    elif model.training is not None:
        told = "all training: call it once before the first run or step."
    elif model.states:
        told = (
            "what earlier runs left: call it once before the first run, and where a\n"
            "// new sequence begins."
        )
    else:
        return ""
    return f"\n// Forget {told}\nvoid {model.name}_reset(uint8_t *arena);\n"


def _library_functions(model: CompiledModel) -> Iterator[str]:
    """What asks and prepares the library of a backend."""
    library, name = model.external, model.name
    if library is None:
        return
    upper = name.upper()
    yield f"""
// Ask {library.name} whether it is content with the scratch memory that was planned for
// it. Writes -1, or the first layer that wants more: then do not run the model.
void {name}_check_library(int32_t *layer);

// Layer i that calls {library.name} leaves its status in arena[{upper}_STATUS_OFFSET + i]:
// 0 for success, {OTHER_STATUS} for a status that is not in -100 to 100, {SCRATCH_OVERRUN} if it
// wrote beyond its scratch.
#define {upper}_STATUS_OFFSET {model.status_offset}
"""
    if model.initialized:
        named = ", ".join(one.name for one in model.initialized)
        yield f"""
// Prepare the device and the arena for {named}: call it once after each reset, before
// the first run. Writes 0 for success; with another value, do not run the model.
void {name}_initialize(uint8_t *arena, int32_t *status);
"""
    if any(one.engines for one in model.externals):
        yield f"""
// A status from {LAYER_STATUS} on is of a layer whose bytes in flash were refused:
// {LAYER_STATUS}, plus 256 times its number, plus a byte. The byte is 124 for torn bytes, 125 for
// those of another engine, 126 if the engine is older than their format, {OTHER_STATUS} if the
// engine returned a status that is not in -100 to 100, else what the engine returned.
//
// End what that prepared, before the arena is used for something else.
void {name}_release(uint8_t *arena);
"""


def _manual(model: CompiledModel) -> Iterator[str]:
    name, upper = model.name, model.name.upper()
    yield f"// {name}: a quantized neural network as plain C99.\n"
    yield f"// Generated by utvm_deploy {__version__} for {model.core}; do not edit.\n//\n"
    for direction, buffers in (("input", model.taken), ("output", model.outputs)):
        for index, buffer in enumerate(buffers):
            yield f"// {direction} {index}: {comment(buffer.name)}\n"
            yield f"//     {c_type(buffer.dtype)} {list(buffer.shape)}, {buffer.size_bytes} bytes"
            if buffer.scale is not None:
                yield f",\n//     real = {float_literal(buffer.scale)[:-1]} * "
                yield f"(q - {_parenthesized(buffer.zero_point)})"
            place = _PLACES_OF_RED.get(buffer.name.rpartition(" ")[2])
            yield (
                f",\n//     two for each pixel, of which the {place} has the red\n"
                if place
                else "\n"
            )
    if model.stream is not None:
        yield from ("//\n", *(f"// {line}\n" for line in model.stream.manual))
    result = model.outputs[0]
    own = ", and pools" if any(pool.is_written for pool in model.pools) else ""
    held = "inputs" if model.inputs else "windows of the input's rows"
    yield f"""\
//
// The only memory it writes is the arena, {model.arena_bytes} bytes that you own: {held},
// outputs and everything between. {model.weights_bytes} bytes of constants stay in flash.
//
//     static uint8_t arena[{upper}_ARENA_BYTES]
//         __attribute__((aligned({upper}_ARENA_ALIGNMENT)));
//
{"".join(pool_manual(name, model.pools))}\
{_use(model)}\
//     const {c_type(result.dtype)} *output = {name}_output_0(arena);
//     // ... read {upper}_OUTPUT_0_ELEMENTS values from output ...
//
{_care(model)}\
// - The arena must be aligned to {upper}_ARENA_ALIGNMENT bytes. {_kept(model)}
// - Reentrant: no other state exists, so threads and interrupts may run the
//   model at the same time on arenas of their own{own}.
"""
    if model.external is None:
        yield f"""\
// - Needs no heap, and of the C library at most memcpy and memset. Stack use is
//   below {_stack(model)}.
"""
    elif not model.external.is_linked:
        yield f"""\
// - Holds code of {model.external.name}, which {len(model.external.functions)} of its functions
//   are. Stack use without that of {model.external.name} is below
//   {_stack(model)}.
"""
    else:
        yield f"""\
// - Calls {model.external.name}{_origin(model.external.url)}, which must be linked
//   with it: {len(model.external.functions)} functions, such as {model.external.functions[0]}.
//   Call {name}_check_library() once, before the first run.
// - Needs no heap. Stack use without that of {model.external.name} is below
//   {_stack(model)}.
"""


def _use(model: CompiledModel) -> str:
    """How a caller gives the inputs and runs the model."""
    name, upper, kind = model.name, model.name.upper(), c_type(model.taken[0].dtype)
    pools = pool_arguments(model.pools)
    load = "" if model.load_function is None else f"//     {load_call(model)}  // once\n"
    if model.input_rows is None:
        return f"""\
{load}\
//     {kind} *input = {name}_input_0(arena);
//     // ... write {upper}_INPUT_0_ELEMENTS values to input ...
//     {name}_run(arena{pools});
"""
    return f"""\
{load}\
//     {name}_reset(arena);  // once
//     {kind} row[{upper}_INPUT_ROW_BYTES / sizeof({kind})];
//     do {{
//         // ... write the next row of the input to row ...
//     }} while ({name}_push_rows(arena{pools}, row, 1) > 0);
"""


def _care(model: CompiledModel) -> str:
    """What a caller must heed."""
    if model.input_rows is None:
        return """\
// - Write every input before each run: a run may reuse the inputs' bytes once
//   they have been read. Outputs stay until the next run or write to an input.
"""
    return f"""\
// - The input never lies whole in memory: push its {model.input_rows.count} rows one by one or
//   several at a time. Outputs stay until the first row of the next input.
"""


def _origin(url: str) -> str:
    return f" ({url})" if url else ""


def _kept(model: CompiledModel) -> str:
    if model.initialized:
        return f"Call {model.name}_initialize() before\n//   the first run."
    if not model.states and model.input_rows is None:
        return "It needs no\n//   initialization and keeps nothing between runs."
    size = sum(state.size_bytes for state in model.states)
    if model.training is not None:
        return (
            f"It keeps\n//   {size} bytes of weights and training there: call {model.name}_reset()"
            " once."
        )
    if model.input_rows is not None:
        kept = f"\n//   between inputs {size} bytes of state, and" if size else ""
        return f"It keeps{kept}\n//   how many rows were pushed: call {model.name}_reset() once."
    return (
        f"It keeps\n//   {size} bytes of state between runs: call {model.name}_reset() before the"
        " first\n//   run, and change only the inputs between runs."
    )


def _stack(model: CompiledModel) -> str:
    if not model.stack_bytes:
        return "one kilobyte"
    return f"{MODEL_STACK_BYTES + model.stack_bytes} bytes, scratch of the layers included"


def _parenthesized(value: int | None) -> str:
    assert value is not None
    return f"({value})" if value < 0 else str(value)


def _buffer_macros(macro: str, buffer: Buffer, *, has_place: bool) -> Iterator[str]:
    elements = 1
    for extent in buffer.shape:
        elements *= extent
    yield f"// {comment(buffer.name)}: {c_type(buffer.dtype)} {list(buffer.shape)}\n"
    if has_place:
        yield f"#define {macro}_OFFSET {buffer.offset}\n"
    yield f"#define {macro}_BYTES {buffer.size_bytes}\n"
    yield f"#define {macro}_ELEMENTS {elements}\n"
    yield f"#define {macro}_RANK {len(buffer.shape)}\n"
    for axis, extent in enumerate(buffer.shape):
        yield f"#define {macro}_DIMENSION_{axis} {extent}\n"
    if buffer.scale is not None and buffer.zero_point is not None:
        yield f"#define {macro}_SCALE {float_literal(buffer.scale)}\n"
        yield f"#define {macro}_ZERO_POINT {_parenthesized(buffer.zero_point)}\n"


def _accessor(name: str, direction: str, index: int, buffer: Buffer) -> Iterator[str]:
    kind = c_type(buffer.dtype)
    upper = name.upper()
    macro = f"{upper}_{direction.upper()}_{index}_OFFSET"
    yield f"static inline {kind} *{name}_{direction}_{index}(uint8_t *arena) {{\n"
    yield f"    return {upper}_AT({kind}, arena + {macro});\n}}\n"
