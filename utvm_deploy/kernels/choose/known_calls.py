"""Calls of operators that are equal except for their activations, such as strips of a layer.

To build a call takes up to 20 ms: it goes through all weights and multipliers. A model in strips
has hundreds of operators, a dozen of which differ.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from weakref import WeakKeyDictionary

from utvm_deploy.graph.model import Graph, Operator, Tensor
from utvm_deploy.kernels.contract.call import KernelCall, TensorArgument

#: Of each graph: what a call depends on -> an operator and its call.
_KNOWN: WeakKeyDictionary[Graph, dict[Hashable, tuple[Operator, KernelCall]]] = WeakKeyDictionary()


def known_call(
    graph: Graph,
    operator: Operator,
    wish: Hashable,
    build: Callable[[], KernelCall],
    *,
    is_trial: bool = False,
) -> KernelCall:
    """The call of ``operator``; ``build`` makes it unless that of an equal operator is known.

    ``wish`` is all that the call depends on besides the operator. Only strips are compared: whole
    layers are hardly ever equal. ``is_trial``: that of a whole layer is not kept, because there are
    many such calls and each has the layer's weights.
    """
    calls = _KNOWN.setdefault(graph, {})
    own = (id(operator), wish)
    if own in calls and calls[own][0] is operator:
        return calls[own][1]
    if any(graph.tensors[number].rows is not None for number in operator.outputs):
        key = (operator.kind, operator.attributes, _tensors(graph, operator), wish)
        if key not in calls:
            calls[key] = operator, build()
        other, call = calls[key]
        call = call if other is operator else renamed(call, other, operator)
    else:
        call = build()
        if is_trial:
            return call
    calls[own] = operator, call
    return call


def _tensors(graph: Graph, operator: Operator) -> tuple[Hashable, ...]:
    """What a call depends on of an operator's tensors."""
    numbers = [*operator.inputs, *operator.outputs]
    return tuple(
        None if number is None else (numbers.index(number), _facts(number, graph.tensors[number]))
        for number in numbers
    )


def _facts(number: int, tensor: Tensor) -> Hashable:
    if tensor.data is not None:
        return number
    return tensor.shape, tensor.dtype, tensor.quantization


def renamed(call: KernelCall, other: Operator, operator: Operator) -> KernelCall:
    """The call of ``other`` with the activations of ``operator``."""
    numbers = dict(
        zip((*other.inputs, *other.outputs), (*operator.inputs, *operator.outputs), strict=True)
    )
    arguments = []
    for argument in call.arguments:
        if isinstance(argument, TensorArgument):
            number = numbers[argument.tensor]
            assert number is not None, "an operand that is there has a number"
            argument = replace(argument, tensor=number)
        arguments.append(argument)
    pairs = [(numbers[output], numbers[source]) for output, source in call.in_place]
    in_place = tuple(
        (out, source) for out, source in pairs if out is not None and source is not None
    )
    return replace(call, arguments=tuple(arguments), in_place=in_place)
