"""The C of a model that trains: ``NAME_train_step``, ``NAME_store`` and ``NAME_restore``.

The layers of the model itself come first. Those of the loss follow, then those that change weights.
So a step that ends after the loss has changed nothing, and one that ends before an update leaves
the weights that follow as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from utvm_deploy.compiler.arena.plan import is_view
from utvm_deploy.compiler.c_text import c_type
from utvm_deploy.compiler.compiled.memory_use import MemoryPool, Span
from utvm_deploy.compiler.compiled.model import Buffer, CompiledModel, TrainedPart
from utvm_deploy.compiler.emission.facts import buffer_of
from utvm_deploy.compiler.emission.pools import pool_arguments, pool_parameters
from utvm_deploy.compiler.lowering.program import Program
from utvm_deploy.graph.rewrite import producers


def trained_part_of(program: Program) -> TrainedPart | None:
    """What trains in a program; None if nothing does."""
    graph = program.graph
    training = graph.training
    if training is None:
        return None
    states = [buffer_of(program, found) for found, _ in graph.states]
    first, last = states[0], states[training.blob - 1]
    end = last.offset + last.size_bytes
    return TrainedPart(
        label=buffer_of(program, graph.inputs[-1]),
        loss=buffer_of(program, graph.outputs[-1]),
        forward_layers=_end_of(program, graph.outputs[:-1]),
        loss_layers=_end_of(program, graph.outputs),
        stored=Span(first.offset, end - first.offset),
        weights=training.weights,
        classes=training.classes,
    )


def _end_of(program: Program, tensors: Sequence[int]) -> int:
    """The layers after which these tensors are made."""
    graph, made = program.graph, producers(program.graph)
    layer_of = {
        number: index
        for index, layer in enumerate(program.layers)
        for number in layer.step.operator.outputs
    }
    ends = [0]
    for tensor in tensors:
        while tensor not in layer_of and is_view(graph, graph.operators[made[tensor]]):
            (source,) = graph.operators[made[tensor]].inputs[:1]
            assert source is not None
            tensor = source
        ends.append(layer_of.get(tensor, -1) + 1)
    return max(ends)


def step_text(model: CompiledModel) -> str:
    """What runs the model, trains it, stores and restores its weights; empty if none trains."""
    part, inputs, pools = model.training, model.inputs, model.pools
    if part is None:
        return ""
    name, upper, rate = model.name, model.name.upper(), model.states[part.updates_rate].offset
    taken, passed = pool_parameters(pools), pool_arguments(pools)
    copies = "".join(
        f"    take(arena + {one.offset}, {argument}, {one.size_bytes});\n"
        for one, argument in (*_arguments(inputs), (part.label, "label"))
    )
    return f"""\
static void run_layers(uint8_t *arena{taken}, uint32_t first, uint32_t end) {{
    for (uint32_t index = first; index < end; index++) {{
        layers[index](arena{passed});
    }}
}}

void {name}_run(uint8_t *arena{taken}) {{
    run_layers(arena{passed}, 0, {part.forward_layers});
}}

// Infinities and NaN have all bits of the exponent.
static int32_t are_finite(const float *values, uint32_t count) {{
    for (uint32_t i = 0; i < count; i++) {{
        uint32_t bits;
        memcpy(&bits, values + i, 4);
        if ((bits & 0x7F800000u) == 0x7F800000u) {{
            return 0;
        }}
    }}
    return 1;
}}

// What is given may be in its place already.
static void take(void *to, const void *from, uint32_t count) {{
    if (to != from) {{
        memcpy(to, from, count);
    }}
}}

int32_t {name}_train_step(
    {_parameters(part, inputs, pools)}) {{
{_checks(upper, part, inputs)}{copies}\
    memcpy(arena + {rate}, arena + {model.states[part.weights + 1].offset}, 4);
    run_layers(arena{passed}, 0, {part.loss_layers});
    take(loss, arena + {part.loss.offset}, 4);
    if (!are_finite(loss, 1)) {{
        return {upper}_LOSS_NOT_FINITE;
    }}
    for (uint32_t index = {part.loss_layers}; index < {upper}_LAYER_COUNT; index++) {{
        layers[index](arena{passed});
        if (!are_finite((const float *)(void *)(arena + {rate}), 1)) {{
            return {upper}_UPDATE_NOT_FINITE;
        }}
    }}
    return 0;
}}

{_stored_text(name, part, model)}"""


def _checks(upper: str, part: TrainedPart, inputs: Sequence[Buffer]) -> str:
    """What refuses a label or an input before anything is changed."""
    given = (*_arguments(inputs), (part.label, "label"))
    floats = " || ".join(
        f"!are_finite({name}, {one.size_bytes // 4})"
        for one, name in given
        if one.dtype == "float32"
    )
    text = f"    if ({floats}) {{\n        return {upper}_INPUT_NOT_FINITE;\n    }}\n"
    text = text if floats else ""
    if part.classes is None:
        return text
    return f"""\
{text}\
    for (uint32_t i = 0; i < {part.label.size_bytes // 4}; i++) {{
        if (label[i] < 0 || label[i] >= {part.classes}) {{
            return {upper}_LABEL_OUT_OF_RANGE;
        }}
    }}
"""


def _stored_text(name: str, part: TrainedPart, model: CompiledModel) -> str:
    """The header is 32 bytes: magic, 16 of the model's digest, size, CRC-32 of what follows."""
    upper = name.upper()
    expected = b"utvmW1\0\0" + bytes.fromhex(model.model_digest)[:16]
    listed = ", ".join(str(one) for one in expected)
    cleared = "".join(
        f"    memset(arena + {state.offset}, 0, {state.size_bytes});\n"
        for state in model.states[part.updates_rate + 1 :]
    )
    return f"""\
static const uint8_t stored_first[24] = {{{listed}}};

// CRC-32 of IEEE 802.3.
static uint32_t crc_of(const uint8_t *at, uint32_t count) {{
    uint32_t crc = 0xFFFFFFFFu;
    for (uint32_t i = 0; i < count; i++) {{
        crc ^= at[i];
        for (uint32_t bit = 0; bit < 8; bit++) {{
            crc = (crc >> 1) ^ (0xEDB88320u & (0u - (crc & 1u)));
        }}
    }}
    return ~crc;
}}

const uint8_t *{name}_store(uint8_t *arena, uint32_t *bytes) {{
    uint8_t *stored = arena + {part.stored.offset};
    const uint32_t size = {upper}_STORED_BYTES;
    const uint32_t crc = crc_of(stored + 32, size - 32);
    memcpy(stored, stored_first, sizeof(stored_first));
    memcpy(stored + 24, &size, 4);
    memcpy(stored + 28, &crc, 4);
    *bytes = size;
    return stored;
}}

int32_t {name}_restore(uint8_t *arena, const uint8_t *stored, uint32_t bytes) {{
    uint32_t size;
    uint32_t crc;
    for (uint32_t i = 0; i < sizeof(stored_first); i++) {{
        if (bytes < 32 || stored[i] != stored_first[i]) {{
            return {upper}_OTHER_MODEL;
        }}
    }}
    memcpy(&size, stored + 24, 4);
    memcpy(&crc, stored + 28, 4);
    if (size != {upper}_STORED_BYTES || bytes != size || crc != crc_of(stored + 32, size - 32)) {{
        return {upper}_TORN;
    }}
    take(arena + {part.stored.offset}, stored, size);
{cleared}\
    return 0;
}}
"""


def _arguments(inputs: Sequence[Buffer]) -> list[tuple[Buffer, str]]:
    names = ["input"] if len(inputs) == 1 else [f"input_{i}" for i in range(len(inputs))]
    return list(zip(inputs, names, strict=True))


def _parameters(part: TrainedPart, inputs: Sequence[Buffer], pools: Sequence[MemoryPool]) -> str:
    given = [
        f"const {c_type(one.dtype)} *{argument}"
        for one, argument in (*_arguments(inputs), (part.label, "label"))
    ]
    return ", ".join([f"uint8_t *arena{pool_parameters(pools)}", *given, "float *loss"])


def training_header(model: CompiledModel) -> str:
    """What the header says of training; empty if the model does not train."""
    part, name, upper = model.training, model.name, model.name.upper()
    if part is None:
        return ""
    what = "target, of the output's shape" if part.classes is None else "class of each input"
    return f"""
// Train by one step: the inputs, and the label, which is the {what}.
// Returns 0, and writes the loss before the step. Otherwise no weight has changed: a label is
// out of range, an input is infinite or NaN, or the loss is. After UPDATE_NOT_FINITE, all weights
// are finite: the update of one might have overflowed. It and those in front of it are as before.
int32_t {name}_train_step(
    {_parameters(part, model.inputs, model.pools)});
#define {upper}_LABEL_OUT_OF_RANGE 1
#define {upper}_LOSS_NOT_FINITE 2
#define {upper}_INPUT_NOT_FINITE 3
#define {upper}_UPDATE_NOT_FINITE 4

// The weights as bytes to store, in the arena until the next step.
const uint8_t *{name}_store(uint8_t *arena, uint32_t *bytes);
#define {upper}_STORED_BYTES {part.stored.size_bytes}

// Take weights that {name}_store() gave, and forget what the optimizer knows. Returns 0, or
// changes nothing: the bytes are of another model, or they are not as they were stored.
int32_t {name}_restore(uint8_t *arena, const uint8_t *stored, uint32_t bytes);
#define {upper}_OTHER_MODEL 1
#define {upper}_TORN 2

// The learning rate; {name}_reset() sets the one that was compiled.
static inline float *{name}_learning_rate(uint8_t *arena) {{
    return {upper}_AT(float, arena + {model.states[part.weights + 1].offset});
}}
"""
