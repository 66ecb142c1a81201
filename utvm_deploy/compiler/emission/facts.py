"""What a compiled model says of its tensors and layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from utvm_deploy.compiler.compiled.memory_use import Span
from utvm_deploy.compiler.compiled.model import Buffer, Layer
from utvm_deploy.compiler.emission.library import state_of
from utvm_deploy.compiler.lowering.program import Program, ScheduledStep
from utvm_deploy.compiler.planning.pool_planning import scratch_offsets
from utvm_deploy.graph.liveness import joined_parts
from utvm_deploy.graph.model import Operator, Tensor
from utvm_deploy.graph.user_arrays import greatest_places
from utvm_deploy.kernels.contract.call import TensorArgument
from utvm_deploy.records import DEFAULT


def buffer_of(program: Program, number: int) -> Buffer:
    """Where a tensor is, and what its elements are."""
    tensor = program.graph.tensors[number]
    quantization = tensor.quantization if tensor.dtype != "float32" else None
    return Buffer(
        name=tensor.name,
        dtype=tensor.dtype,
        shape=tensor.shape,
        scale=quantization.scale if quantization else None,
        zero_point=quantization.zero_point if quantization else None,
        offset=0 if tensor.is_outside else program.plan.tensors[number],
        size_bytes=tensor.size_bytes,
        source=tensor.source,
        first=_first(tensor),
        channels=tensor.channels,
        rows=tensor.rows,
        pool=program.near_pool if number in program.plan.in_pool else "",
    )


def inputs_of(program: Program, numbers: Sequence[int]) -> tuple[Buffer, ...]:
    """Where these inputs are, and which places they may say."""
    places = greatest_places(program.graph)
    return tuple(replace(buffer_of(program, i), most=places.get(i)) for i in numbers)


def _first(tensor: Tensor) -> str:
    """The bytes of ``Tensor.first``, hexadecimal, if its zero point does not say the same."""
    if tensor.first is None:
        return ""
    value = tensor.quantization.zero_point if tensor.dtype == "int8" and tensor.quantization else 0
    return "" if (tensor.first == value).all() else tensor.first.tobytes().hex()


def layer_facts(
    program: Program, index: int, layer: ScheduledStep, constants: tuple[Span, ...]
) -> Layer:
    """The report of a layer; ``constants`` are its tables."""
    operator = layer.step.operator
    outputs = tuple(buffer_of(program, tensor) for tensor in _made(program, operator))
    return Layer(
        index=index,
        kind=operator.kind,
        name=outputs[0].name,
        kernel=layer.kernel.function.name,
        why=_why(layer),
        operators=operator.sources,
        outputs=outputs,
        macs=layer.step.call.macs,
        scratch_bytes=layer.kernel.function.scratch_bytes,
        weights_bytes=sum(span.size_bytes for span in constants),
        engine=_engine(layer),
        origin=layer.step.call.origin,
        is_external=layer.kernel.calls is not None,
        arena=_arena_spans(program, index, layer),
        pool=_pool_spans(program, index, layer),
        constants=constants,
        products=layer.step.call.products,
        npu_cycles=layer.step.call.npu_cycles,
    )


def _made(program: Program, operator: Operator) -> tuple[int, ...]:
    """The outputs of a layer; of one that a pass joined, the tensors of the file in its output.

    A part that another call copies is the output of that call.
    """
    if program.graph.tensors[operator.outputs[0]].source is not None:
        return operator.outputs
    parts = joined_parts(program.graph).get(operator.outputs[0], ())
    copied = {number for layer in program.layers for number in layer.step.operator.outputs}
    return operator.outputs if not parts or copied.intersection(parts) else parts


def _arena_spans(program: Program, index: int, layer: ScheduledStep) -> tuple[Span, ...]:
    """Inputs, outputs and scratch of a layer, as far as they are in the arena."""
    tensors, plan = program.graph.tensors, program.plan
    used = {a.tensor for a in layer.step.call.arguments if isinstance(a, TensorArgument)}
    spans = [
        Span(plan.tensors[number], tensors[number].size_bytes)
        for number in sorted(used)
        if tensors[number].data is None and number not in plan.in_pool
    ]
    if plan.scratch[index]:
        pieces = zip(plan.scratch[index], layer.kernel.function.scratch, strict=True)
        spans += [Span(offset, piece.size_bytes) for offset, piece in pieces]
    state = state_of(program, index)
    if state is not None:
        spans.append(state)
    return tuple(spans)


def _pool_spans(program: Program, index: int, layer: ScheduledStep) -> tuple[Span, ...]:
    """Activations and scratch of a layer, as far as they are in the pool."""
    plan = program.plan
    used = {a.tensor for a in layer.step.call.arguments if isinstance(a, TensorArgument)}
    sizes = {number: program.graph.tensors[number].size_bytes for number in used & plan.in_pool}
    spans = [Span(plan.tensors[number], sizes[number]) for number in sorted(sizes)]
    offsets = scratch_offsets(program, index, layer) or ()
    pieces = zip(offsets, layer.kernel.function.scratch, strict=bool(offsets))
    return (*spans, *(Span(offset, piece.size_bytes) for offset, piece in pieces))


def _engine(layer: ScheduledStep) -> str:
    if layer.kernel.calls is None:
        return layer.step.call.family
    return layer.kernel.backend


def _why(layer: ScheduledStep) -> str:
    call = layer.step.call
    by_record = f"by a {call.origin}" if call.origin != DEFAULT else ""
    return "; ".join(filter(None, (layer.kernel.why, call.why_not, by_record)))
