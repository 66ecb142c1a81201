"""The C of a model that takes a step, or a block of steps: ``NAME_step``, ``NAME_prefill``.

Both read and write the same states in the arena, and share the constants. ``NAME_run`` takes a step
and then a block, as verification does.
"""

from __future__ import annotations

from utvm_deploy.base.errors import ModelError
from utvm_deploy.compiler.compiled.model import CompiledModel, PrefillPart
from utvm_deploy.compiler.emission.pools import pool_arguments, pool_parameters
from utvm_deploy.compiler.lowering.program import Program


def prefill_of(program: Program) -> PrefillPart | None:
    """The two parts of a program; None if it has one.

    Raises ModelError if a layer of one part needs what the other one computes, except for states.
    """
    graph = program.graph
    if graph.prefill is None:
        return None
    cut, count = graph.prefill.operators, graph.prefill.inputs
    in_block = [max(layer.step.operator.sources) >= cut for layer in program.layers]
    first = in_block.count(False)
    kept = {number for pair in graph.states for number in pair}
    made = {i for layer in program.layers[:first] for i in layer.step.operator.outputs}
    made |= set(graph.inputs[:-count])
    for layer in program.layers[first:]:
        taken = (made - kept).intersection(layer.step.operator.inputs)
        if taken or not max(layer.step.operator.sources) >= cut:
            raise ModelError(
                f"the block of steps needs '{graph.tensors[min(taken)].name}' of the step"
                if taken
                else "the layers of the step and of the block are mixed"
            )
    return PrefillPart(count, first)


def parts_text(model: CompiledModel) -> str:
    """Defines what runs each part; empty for a model without a block."""
    part, pools = model.prefill, model.pools
    if part is None:
        return ""
    count = f"{model.name.upper()}_LAYER_COUNT"
    return "".join(
        f"""
void {model.name}_{name}(uint8_t *arena{pool_parameters(pools)}) {{
    for (uint32_t index = {first}; index < {end}; index++) {{
        layers[index](arena{pool_arguments(pools)});
    }}
}}
"""
        for name, first, end in (
            ("step", 0, part.step_layers),
            ("prefill", part.step_layers, count),
        )
    )


def parts_header(model: CompiledModel) -> str:
    """Declares it."""
    part, name, taken = model.prefill, model.name, pool_parameters(model.pools)
    if part is None:
        return ""
    first = len(model.step_inputs)
    return f"""
// Take a step: write the inputs below {first} before.
void {name}_step(uint8_t *arena{taken});

// Take a block of steps, which leaves in the arena what the single steps would: write the inputs
// from {first} on before. It has no output; the last step of a prompt makes the first one.
void {name}_prefill(uint8_t *arena{taken});
#define {name.upper()}_PREFILL_INPUT_COUNT {part.inputs}
"""
