"""Gives a model integer inputs and outputs in the place of float ones."""

from __future__ import annotations

from typing import Any

from utvm_deploy.frontend.files import tflite_schema as schema


def remove_float_ends(model: Any) -> None:
    """Remove QUANTIZE behind inputs, and DEQUANTIZE before outputs.

    An input that another operator reads, too, stays float.
    """
    graph = model.subgraphs[0]
    outputs = schema.numbers(graph.outputs)
    inputs, removed = [], []
    for number in schema.numbers(graph.inputs):
        readers = [one for one in graph.operators if number in schema.numbers(one.inputs)]
        is_free = graph.tensors[number].type == schema.FLOAT32 and number not in outputs
        if is_free and len(readers) == 1 and schema.kind_of(model, readers[0]) == "QUANTIZE":
            (target,) = schema.numbers(readers[0].outputs)
            removed.append(readers[0])
            graph.tensors[target].name = graph.tensors[number].name
            graph.tensors[number].name += b"_float"
            number = target
        inputs.append(number)
    sources = {
        int(one.outputs[0]): int(one.inputs[0])
        for one in graph.operators
        if schema.kind_of(model, one) == "DEQUANTIZE"
    }
    for place, number in enumerate(outputs):
        source = sources.get(number)
        if source is None or source in outputs or source in inputs:
            continue
        if graph.tensors[source].type in schema.INTEGERS:
            name = graph.tensors[number].name
            graph.tensors[number].name = name + b"_float"
            graph.tensors[source].name = name
            outputs[place] = source
    graph.inputs, graph.outputs = inputs, outputs
    graph.operators = [one for one in graph.operators if not any(one is other for other in removed)]
