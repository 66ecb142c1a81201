"""In a child process: a model's file with the weights that it learned on a device.

    before:  x ──▶ body ──▶ head ──▶ y                       int8 or float32
    after:   x ──▶ body ──▶ DEQUANTIZE ──▶ head ──▶ y        the head in float32

The head of a .tflite file has the operators behind the first weights that trained. LiteRT runs the
result, so every verb and every reference takes it as it is. A Relax model keeps its operators.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from utvm_deploy.base.errors import ModelError
from utvm_deploy.base.files import file_digest
from utvm_deploy.frontend.assemble import assemble
from utvm_deploy.frontend.relax.facts import is_relax, loaded
from utvm_deploy.frontend.relax.road import module_of_text, relax_model
from utvm_deploy.frontend.tflite_tables import read_file
from utvm_deploy.frontend.training.recipe import positions_of
from utvm_deploy.frontend.training.stored import TrainedWeights, fitted
from utvm_deploy.graph.model import Array, Graph, Operator

#: The field of operators' options, and one of its values.
_FUSED, _RELU = "fusedActivationFunction", 1


def with_trained(data: bytes, path: Path, text: str) -> bytes:
    """What the user's file at ``path`` became, with the weights of the text of their file.

    Raises ModelError for weights of another model.
    """
    weights = TrainedWeights.of_text(text)
    if is_relax(data):
        return _relax_with(data, weights, path.name)
    weights.check_of(file_digest(path), path.name)
    return _tflite_with(data, weights, path.name)


def _relax_with(data: bytes, weights: TrainedWeights, name: str) -> bytes:
    from utvm_deploy.frontend.relax.passes import MAIN, prepared_module
    from utvm_deploy.frontend.training.weights import (
        identity_of,
        trainable_layers,
        with_constants,
    )

    model = loaded(data)
    module = module_of_text(model.given)
    weights.check_of(identity_of(module, MAIN), name)
    module = prepared_module(module)
    layers = trainable_layers(module[MAIN], {})
    chosen = positions_of([one.name for one in layers], [], weights.recipe.layers)
    places = [weight for position in chosen for weight in layers[position].weights]
    learned = {
        (place.binding, place.operand): fitted(array, place.values.shape, name)
        for place, array in zip(places, weights.arrays(), strict=True)
    }
    made = relax_model(with_constants(module, MAIN, learned))
    return replace(model, given=made.given, lowered=made.lowered).dumped()


def _tflite_with(data: bytes, weights: TrainedWeights, name: str) -> bytes:
    from utvm_deploy.frontend.files import tflite_schema as schema
    from utvm_deploy.frontend.training.of_graph import CONVERSIONS, floats_of, head_of

    graph, model = assemble(read_file(data), "model", ""), schema.read_model(data)
    if len(model.subgraphs) > 1:
        raise ModelError("--weights is for models without control flow; export it without loops")
    file = model.subgraphs[0]
    chosen, head = head_of(graph, weights.recipe)
    learned = _by_tensor(graph, file, chosen, weights, name)
    known = {one.source: one for one in graph.tensors if one.data is not None}
    operators = {graph.operators[i].sources[0]: graph.operators[i] for i in sorted(head)}
    made = {int(number) for i in operators for number in file.operators[i].outputs}
    instead: dict[int, int] = {}
    written = []

    def of_head(place: int, number: int) -> int:
        """What an operator of the head reads instead of a tensor."""
        tensor = known.get(number)
        if (place, number) in learned:
            return schema.new_constant(model, "learned", learned[place, number])
        if tensor is not None and tensor.quantization is not None and tensor.dtype != "float32":
            return schema.new_constant(model, "constant", floats_of(tensor))
        like = file.tensors[number]
        is_stored = model.buffers[like.buffer].data is not None  # such as a shape
        if is_stored or number in made or like.type == schema.FLOAT32:
            return number
        name = (like.name or b"") + b"_float"
        new = schema.new_tensor(model, file, like, name, schema.FLOAT32, None)
        written.append(schema.operator(model, "DEQUANTIZE", 2, number, new))
        instead[number] = new
        return new

    for place, one in enumerate(file.operators):
        if place in operators:
            inputs = [instead.get(n, n) for n in schema.numbers(one.inputs)]
            one.inputs = [n if n < 0 else of_head(place, n) for n in inputs]
            if operators[place].kind in CONVERSIONS:
                instead[int(one.outputs[0])] = one.inputs[0]
                continue
            _activation(operators[place], graph, one)
            for number in one.outputs:
                file.tensors[number].type = schema.FLOAT32
                file.tensors[number].quantization = None
        written.append(one)
    file.operators = written
    file.outputs = [instead.get(int(number), int(number)) for number in file.outputs]
    for signature in model.signatureDefs or ():
        for output in signature.outputs:
            output.tensorIndex = instead.get(output.tensorIndex, output.tensorIndex)
    return schema.model_bytes(model)


def _by_tensor(
    graph: Graph, file: Any, chosen: Sequence[int], weights: TrainedWeights, name: str
) -> dict[tuple[int, int], Array]:
    """An operator and a tensor of the file -> what the layer learned, as the file has it."""
    from utvm_deploy.frontend.training.of_graph import ORDERS

    layers: list[list[Array]] = []
    for (label, *_), array in zip(weights.parts, weights.arrays(), strict=True):
        if label.endswith(".weight"):
            layers.append([])
        layers[-1].append(array)
    found = {}
    for position, arrays in zip(chosen, layers, strict=True):
        place = graph.operators[position].sources[0]
        order = ORDERS[graph.operators[position].kind]
        numbers = [int(number) for number in file.operators[place].inputs[1:]]
        for number, array in zip(numbers, arrays, strict=False):
            shape = [int(extent) for extent in file.tensors[number].shape]
            if array is arrays[0]:
                turned = fitted(array, [shape[axis] for axis in order], name)
                found[place, number] = turned.transpose(order)
            else:
                found[place, number] = fitted(array, shape, name)
    return found


def _activation(operator: Operator, graph: Graph, written: Any) -> None:
    """Give the file's operator the activation that it has while it trains."""
    from utvm_deploy.frontend.training.of_graph import bounds_of

    bounds = bounds_of(operator.attributes, graph.tensors[operator.outputs[0]])
    if hasattr(written.builtinOptions, _FUSED) and bounds == (0.0, math.inf):
        # Which the range of integers may say instead of the file.
        setattr(written.builtinOptions, _FUSED, _RELU)
