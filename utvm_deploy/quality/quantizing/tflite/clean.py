"""Removes conversions that cancel each other, and what nothing reads any more."""

from __future__ import annotations

from typing import Any

from utvm_deploy.frontend.files import tflite_schema as schema


def clean(model: Any) -> None:
    """Join DEQUANTIZE with QUANTIZE; remove unused operators, tensors and buffers."""
    graph = model.subgraphs[0]
    _join(model, graph)
    schema.remove_unused(model, graph)
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
