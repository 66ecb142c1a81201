"""What a model needs of a board's memory: at least, before its kernels are made, and then exactly.

Making the kernels takes most of the time of a compilation. What cannot fit is refused before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from utvm_deploy.compiler.arena.constants import ConstantTables
from utvm_deploy.compiler.arena.lifetimes import alive_bytes
from utvm_deploy.compiler.arena.plan import ArenaPlan, Step, View, is_view
from utvm_deploy.compiler.memory_needs import MemoryNeeds
from utvm_deploy.graph.attributes import (
    Concatenation,
    Convolution,
    FullyConnected,
    Rearrange,
    TransposeConvolution,
    Variable,
)
from utvm_deploy.graph.element_type import ElementType
from utvm_deploy.graph.model import Array, Graph, Operator
from utvm_deploy.graph.shapes import input_tensor
from utvm_deploy.kernels.contract.call import ConstantArgument, TensorArgument

# Operators that some plans do without code: slices, what is joined, variables.
_PERHAPS_VIEWS = (Rearrange, Concatenation, Variable)


def least_needs(name: str, graph: Graph) -> MemoryNeeds:
    """No compilation of the graph takes less, whichever kernels it ends up with."""
    return MemoryNeeds(name, _least_arena(graph), _least_weights(graph), is_least=True)


def planned_needs(
    name: str, graph: Graph, sequence: Sequence[Step | View], plan: ArenaPlan
) -> MemoryNeeds:
    """What the kernels and the arena plan take; scratch on the stack is not known here."""
    tables = ConstantTables()
    for item in sequence:
        for argument in item.call.arguments if isinstance(item, Step) else ():
            if isinstance(argument, ConstantArgument):
                tables.add("table", argument.data, argument.alignment)
            elif isinstance(argument, TensorArgument):
                data = graph.tensors[argument.tensor].data
                if data is not None:
                    tables.add("table", data)
    return MemoryNeeds(name, plan.arena_bytes, tables.total_bytes)


def _least_arena(graph: Graph) -> int:
    """The most bytes of tensors that hold values at the same time.

    An output may replace an input that is no longer needed. So a step's inputs are counted with the
    tensors that outlive them, and its outputs with the same tensors, but never inputs and outputs
    together.
    """
    first, last, steps = _lifetimes(graph)
    sizes = [graph.tensors[tensor].size_bytes for tensor in first]
    before = [(made + 1, last[tensor]) for tensor, made in first.items()]
    after = [(made, max(made, last[tensor] - 1)) for tensor, made in first.items()]
    needed = (alive_bytes(lifetimes, sizes, range(steps + 1)) for lifetimes in (before, after))
    return max(map(max, needed))


def _lifetimes(graph: Graph) -> tuple[dict[int, int], dict[int, int], int]:
    """The steps at which each tensor gets its value and is last needed; the number of steps.

    Copies that depend on other layers are left out, which only makes the result smaller.
    """
    starting = (*graph.inputs, *graph.found_states)
    first = dict.fromkeys(starting, -1)
    last = dict.fromkeys(starting, 0)
    holder = {tensor: tensor for tensor in starting}  # whose bytes a tensor is
    step = 0
    for operator in graph.operators:
        source, output = operator.inputs[0], operator.outputs[0]
        if is_view(graph, operator):
            if source in holder:
                holder[output] = holder[source]
            continue
        if isinstance(operator.attributes, _PERHAPS_VIEWS):
            continue
        used = (holder[tensor] for tensor in operator.inputs if tensor in holder)
        last.update(dict.fromkeys(used, step))
        for made in operator.outputs:
            first[made] = last[made] = step
            holder[made] = made
        step += 1
    kept = (*graph.outputs, *graph.left_states)
    last.update((holder[tensor], step) for tensor in kept if tensor in holder)
    return first, last, step


def _least_weights(graph: Graph) -> int:
    """Bytes of the weights, equal ones once.

    Kernels may have them in another order, and leave out zeros and taps that never meet the input.
    """
    found: dict[tuple[int, bytes], int] = {}
    for operator in graph.operators:
        for element, weights in _weights(graph, operator):
            values, counts = np.unique(weights[weights != 0], return_counts=True)
            key = (weights.size, values.tobytes() + counts.tobytes())
            found[key] = element.size_bytes(int(counts.sum()))
    return sum(found.values())


def _weights(graph: Graph, operator: Operator) -> Iterator[tuple[ElementType, Array]]:
    attributes = operator.attributes
    if not isinstance(attributes, Convolution | FullyConnected | TransposeConvolution):
        return
    weights = input_tensor(graph, operator, 1)
    if weights.data is None:
        return
    data = weights.data
    if isinstance(attributes, Convolution):
        data = _seen(graph, operator, attributes, data)
    yield weights.element, data


def _seen(graph: Graph, operator: Operator, attributes: Convolution, weights: Array) -> Array:
    """The taps that meet the input for at least one output."""
    assert operator.inputs[0] is not None
    image, out = graph.tensors[operator.inputs[0]].shape, graph.tensors[operator.outputs[0]].shape
    for axis in (0, 1):
        before = attributes.padding[2 * axis]
        starts = np.arange(out[1 + axis]) * attributes.strides[axis] - before
        taps = np.arange(weights.shape[1 + axis]) * attributes.dilations[axis]
        places = starts[:, np.newaxis] + taps
        is_seen = ((places >= 0) & (places < image[1 + axis])).any(axis=0)
        weights = weights.compress(is_seen, axis=1 + axis)
    return weights
