"""Operators that compute the same: common subexpressions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from utvm_deploy.graph.attributes import Add, External, Multiply
from utvm_deploy.graph.model import Graph, Operator, Tensor


def equal_operators(graph: Graph) -> Iterator[tuple[int, int]]:
    """Positions of operators, each with the output of an earlier operator that has the same bytes.

    Both have the same kind, attributes and activations, equal constants, and one output of the same
    type. A backend's operators are left out, because they may keep state.
    """
    kept = {left for _, left in graph.states}
    earlier: dict[object, list[Operator]] = {}
    for position, operator in enumerate(graph.operators):
        operator = _ordered(graph, operator)
        is_plain = len(operator.outputs) == 1 and not isinstance(operator.attributes, External)
        if not is_plain or operator.outputs[0] in kept:
            continue
        try:
            found = earlier.setdefault(_key(graph, operator), [])
        except TypeError:
            continue  # attributes that cannot be compared
        for other in found:
            if _has_equal_constants(graph, operator, other):
                yield position, other.outputs[0]
                break
        else:
            found.append(operator)


def _ordered(graph: Graph, operator: Operator) -> Operator:
    """The operator with its operands in one order, if their order changes no byte.

    ADD and MUL of int8 and int16 are exact sums and products of both. ADD by shifts is left out,
    because its attributes say which operand is shifted.
    """
    a, inputs = operator.attributes, operator.inputs
    is_sum = isinstance(a, Add) and a.shifts is None
    if not (is_sum or isinstance(a, Multiply)) or len(inputs) != 2:
        return operator
    numbers = [number for number in inputs if number is not None]
    tensors = [graph.tensors[number] for number in numbers]
    if len(numbers) != 2 or any(tensor.dtype not in ("int8", "int16") for tensor in tensors):
        return operator
    swapped = sorted(numbers, key=lambda n: (graph.tensors[n].data is not None, n))
    return replace(operator, inputs=tuple(swapped))


def _key(graph: Graph, operator: Operator) -> object:
    """What equal operators have in common, their constants aside."""
    inputs = tuple(
        None if i is None or graph.tensors[i].data is not None else i for i in operator.inputs
    )
    output = graph.tensors[operator.outputs[0]]
    made = output.shape, output.dtype, output.quantization
    return operator.kind, inputs, operator.attributes, made


def _has_equal_constants(graph: Graph, operator: Operator, other: Operator) -> bool:
    pairs = zip(operator.inputs, other.inputs, strict=True)
    return all(
        one is another
        or (one is not None and another is not None and _is_equal(graph, one, another))
        for one, another in pairs
    )


def _is_equal(graph: Graph, one: int, another: int) -> bool:
    """Whether two inputs are the same tensor, or constants of the same bytes."""
    if one == another:
        return True
    left, right = graph.tensors[one], graph.tensors[another]
    if left.data is None or right.data is None or _type(left) != _type(right):
        return False
    return left.data.tobytes() == right.data.tobytes()


def _type(tensor: Tensor) -> object:
    return tensor.shape, tensor.dtype, tensor.quantization
