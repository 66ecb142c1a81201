"""A model input whose rows come one after the other: the operator that stands for their arrival.

Such an input has no place in the arena. An operator INPUT_ROWS makes the rows that the first layers
read, so that a chain of layers in strips (``chains.py``) begins with it.
"""

from __future__ import annotations

from dataclasses import replace

from utvm_deploy.base.errors import CompileError
from utvm_deploy.graph.attributes import InputRows, Shift
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.graph.names import short_name
from utvm_deploy.graph.rewrite import consumers, renumbered
from utvm_deploy.graph.strips.chains import chain_ends

KIND = "INPUT_ROWS"


def with_input_rows(graph: Graph) -> Graph:
    """The graph with INPUT_ROWS as its first operator, which makes the image of the model's input.

    Where a RESHAPE alone reads the input, its output is that image. Raises CompileError if there
    are several inputs, or if the first layers need all rows at once.
    """
    if len(graph.inputs) != 1:
        raise CompileError(
            f"{graph.name} has {len(graph.inputs)} inputs, and only a single one can come row by "
            "row; leave --input-rows out"
        )
    (given,) = graph.inputs
    graph, image = _image_of(graph, given)
    made = Operator(KIND, (given,), (image,), InputRows(), ())
    streamed = graph.replaced(operators=(made, *graph.operators))
    if next(chain_ends(streamed, 0), None) is None:
        raise CompileError(f"{_why_not(graph, image)}; leave --input-rows out")
    return streamed


def comes_in_rows(graph: Graph) -> bool:
    """Whether the rows of the graph's input come one after the other."""
    return any(graph.tensors[number].is_outside for number in graph.inputs)


def _image_of(graph: Graph, given: int) -> tuple[Graph, int]:
    """The graph with an input from outside, and the tensor that its rows make."""
    outside = replace(graph.tensors[given], is_outside=True)
    readers = consumers(graph).get(given, [])
    first = graph.operators[readers[0]] if len(readers) == 1 else None
    if first is not None and first.kind == "RESHAPE" and first.outputs[0] not in graph.outputs:
        image = first.outputs[0]
        rest = tuple(operator for operator in graph.operators if operator is not first)
        tensors = list(graph.tensors)
    else:
        image = len(graph.tensors)
        rest = tuple(renumbered(operator, {given: image}) for operator in graph.operators)
        # No operator of the file makes it, so there is nothing to compare it with.
        tensors = [*graph.tensors, replace(graph.tensors[given], source=None)]
    tensors[given] = outside
    return graph.replaced(tensors=tuple(tensors), operators=rest), image


def _why_not(graph: Graph, image: int) -> str:
    position = min(consumers(graph).get(image, [0]))
    operator = graph.operators[position]
    name = short_name(graph.tensors[operator.outputs[0]].name)
    shape = graph.tensors[image].shape
    if isinstance(operator.attributes, Shift):
        given = short_name(graph.tensors[graph.inputs[0]].name)
        return (
            f"{graph.name} keeps the last elements of its input '{given}' from run to run, so it "
            "takes the new ones of a run at once"
        )
    if len(shape) != 4 or shape[0] != 1:
        return (
            f"the layer {operator.kind} that makes '{name}' of {graph.name} reads the input "
            f"{list(shape)}, which is not of shape [1, height, width, channels]: its rows "
            "cannot come one by one"
        )
    return (
        f"the layer {operator.kind} that makes '{name}' of {graph.name} needs all rows of the "
        "input at once, or its output must be whole"
    )
