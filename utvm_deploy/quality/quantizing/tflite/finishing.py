"""The last steps of a file that was converted from another format's quantized model."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.quality.quantizing.facts import Range, Recipe
from utvm_deploy.quality.quantizing.tflite.clean import clean
from utvm_deploy.quality.quantizing.tflite.equivalents import replace_by_equivalents
from utvm_deploy.quality.quantizing.tflite.rewrite import Rewriting


def without_float_ends(data: bytes, inputs: Collection[str], outputs: Collection[int]) -> bytes:
    """A .tflite file without QUANTIZE and DEQUANTIZE at these inputs and output positions."""
    model = schema.read_model(data)
    remove_float_ends(model, inputs, outputs)
    clean(model)
    return schema.model_bytes(model)


def remove_float_ends(
    model: Any, only: Collection[str] | None = None, at: Collection[int] | None = None
) -> None:
    """Remove QUANTIZE behind inputs, and DEQUANTIZE before outputs.

    ``only`` names the inputs, and ``at`` has the positions of the outputs: None for all. An input
    that another operator reads, too, stays float.
    """
    graph = model.subgraphs[0]
    outputs = schema.numbers(graph.outputs)
    inputs, removed = [], []
    for number in schema.numbers(graph.inputs):
        readers = [one for one in graph.operators if number in schema.numbers(one.inputs)]
        is_free = graph.tensors[number].type == schema.FLOAT32 and number not in outputs
        is_free = is_free and (only is None or schema.name_of(model, number) in only)
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
        source = sources.get(number) if at is None or place in at else None
        if source is None or source in outputs or source in inputs:
            continue
        if graph.tensors[source].type in schema.INTEGERS:
            name = graph.tensors[number].name
            graph.tensors[number].name = name + b"_float"
            graph.tensors[source].name = name
            outputs[place] = source
    graph.inputs, graph.outputs = inputs, outputs
    graph.operators = [one for one in graph.operators if not any(one is other for other in removed)]


def finished(
    data: bytes, recipe: Recipe, ranges: Mapping[str, Range] | None = None
) -> tuple[bytes, list[tuple[str, str]]]:
    """The .tflite file with float operators as integer ones, where the scales are known.

    These are between two quantized tensors, or ``ranges`` has the names of their tensors. Also
    returns the kind and the first output of each.
    """
    model = schema.read_model(data)
    if not recipe.operators:
        replace_by_equivalents(model)
    known = _with_limits(ranges or {})
    # The source's names of operators are lost: only its scheme counts here.
    rewriting = Rewriting(model, recipe.scheme, known, Recipe(recipe.scheme))
    if not recipe.operators:
        rewriting.run()
    if not recipe.float_ends:
        remove_float_ends(model)
    clean(model)
    return schema.model_bytes(model), rewriting.rewritten


def has_integers(data: bytes) -> bool:
    """Whether a .tflite file has any quantized tensor."""
    tensors = schema.read_model(data).subgraphs[0].tensors
    return any(tensor.type in schema.INTEGERS for tensor in tensors)


def _with_limits(ranges: Mapping[str, Range]) -> dict[str, Range]:
    """The ranges, also by the names that the converter gives to the parts of a Clip."""
    parts = ("maximum", "minimum")
    return {**{f"{name}_{part}": ranges[name] for name in ranges for part in parts}, **ranges}
