"""Removes conversions that cancel each other, and what nothing reads any more."""

from __future__ import annotations

from typing import Any

from utvm_deploy.frontend.files import tflite_schema as schema


def clean(model: Any) -> None:
    """Join DEQUANTIZE with QUANTIZE; remove unused operators, tensors and buffers."""
    graph = model.subgraphs[0]
    _join(model, graph)
    _remove_unused_operators(graph)
    _remove_unused_tensors(model, graph)
    schema.write_signature(model)


def _join(model: Any, graph: Any) -> None:
    integers: dict[int, int] = {}
    replaced: dict[int, int] = {}
    outputs = schema.numbers(graph.outputs)
    kept = []
    for operator in graph.operators:
        operator.inputs = [replaced.get(n, n) for n in schema.numbers(operator.inputs)]
        kind = schema.kind_of(model, operator)
        if kind == "DEQUANTIZE" and graph.tensors[operator.inputs[0]].type in schema.INTEGERS:
            integers[int(operator.outputs[0])] = int(operator.inputs[0])
        elif kind == "QUANTIZE":
            source, target = (int(one[0]) for one in (operator.inputs, operator.outputs))
            source = integers.get(source, source)
            operator.inputs = [source]
            if _alike(graph.tensors[source], graph.tensors[target]) and not (
                target in outputs and (source in outputs or source in schema.numbers(graph.inputs))
            ):
                replaced[target] = source
                continue
        kept.append(operator)
    graph.operators = kept
    graph.outputs = [replaced.get(number, number) for number in outputs]


def _alike(one: Any, other: Any) -> bool:
    if one.type != other.type or one.quantization is None or other.quantization is None:
        return False
    return schema.is_equal(one.quantization, other.quantization)


def _remove_unused_operators(graph: Any) -> None:
    used = set(schema.numbers(graph.outputs))
    kept = []
    for operator in reversed(graph.operators):
        made = schema.numbers(operator.outputs)
        # An operator without outputs, such as ASSIGN_VARIABLE, has another effect.
        if not made or used.intersection(made):
            used.update(schema.numbers(operator.inputs))
            kept.append(operator)
    graph.operators = kept[::-1]


def _remove_unused_tensors(model: Any, graph: Any) -> None:
    used = {*schema.numbers(graph.inputs), *schema.numbers(graph.outputs)}
    for operator in graph.operators:
        for vector in (operator.inputs, operator.outputs, operator.intermediates):
            used.update(schema.numbers(vector))
    kept = sorted(number for number in used if number >= 0)
    new = {old: number for number, old in enumerate(kept)} | {-1: -1}
    graph.tensors = [graph.tensors[number] for number in kept]
    graph.inputs = [new[number] for number in schema.numbers(graph.inputs)]
    graph.outputs = [new[number] for number in schema.numbers(graph.outputs)]
    for operator in graph.operators:
        operator.inputs = [new[number] for number in schema.numbers(operator.inputs)]
        operator.outputs = [new[number] for number in schema.numbers(operator.outputs)]
        if operator.intermediates is not None:
            operator.intermediates = [new[n] for n in schema.numbers(operator.intermediates)]
    # Buffers keep their numbers, because metadata refers to them; the unused ones become empty.
    buffers = {tensor.buffer for one in model.subgraphs for tensor in one.tensors}
    buffers |= {entry.buffer for entry in model.metadata or ()}
    for number, buffer in enumerate(model.buffers):
        if number not in buffers:
            buffer.data = None
