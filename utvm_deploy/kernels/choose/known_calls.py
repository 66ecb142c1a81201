"""Calls of operators that are equal except for their activations, such as strips of a layer.

To build a call takes up to 20 ms, or more: it goes through all weights and multipliers. A model in
strips has hundreds of operators, a dozen of which differ. The other layers are those of the graph
without strips.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import TypeAlias
from weakref import WeakKeyDictionary

from utvm_deploy.graph.model import Graph, Operator, Tensor
from utvm_deploy.kernels.contract.call import KernelCall, TensorArgument

MakeCall: TypeAlias = Callable[[Operator], KernelCall]


@dataclass
class _Known:
    """The calls of a graph."""

    #: By the operator's identity and the wish; the operator is kept, so that its identity is.
    own: dict[Hashable, tuple[Operator, KernelCall]] = field(default_factory=dict)
    #: By what a call depends on. The tensors are kept, for the identity of constants.
    equal: dict[Hashable, tuple[Operator, tuple[Tensor, ...], KernelCall]] = field(
        default_factory=dict
    )
    #: Whether ``equal`` is that of several graphs.
    is_shared: bool = False


_KNOWN: WeakKeyDictionary[Graph, _Known] = WeakKeyDictionary()


def share_calls(graph: Graph, made: Graph) -> None:
    """Let the graph ``made`` of ``graph`` have the calls of layers that both have."""
    known = _KNOWN.setdefault(graph, _Known())
    known.is_shared = True
    _KNOWN[made] = _Known(equal=known.equal, is_shared=True)


def known_call(
    graph: Graph,
    operator: Operator,
    wish: Hashable,
    build: Callable[[], KernelCall],
    *,
    is_trial: bool = False,
) -> KernelCall:
    """The call of ``operator``; ``build`` makes it unless that of an equal operator is known.

    ``wish`` is all that the call depends on besides the operator. Whole layers of one graph are not
    compared: they are hardly ever equal. ``is_trial``: that of a whole layer is kept only for the
    graphs made of this one, because there are many such calls and each has the layer's weights.
    """
    known = _KNOWN.setdefault(graph, _Known())
    own = (id(operator), wish)
    if own in known.own and known.own[own][0] is operator:
        return known.own[own][1]
    like = likeness(graph, operator)
    if like is None and not known.is_shared:
        call = build()
        if is_trial:
            return call
    else:
        # Messages about a whole layer say where in the file it is.
        place = () if like is not None else operator.sources
        key = (like or _facts_of(graph, operator), place, wish)
        if key not in known.equal:
            numbers = (*operator.inputs, *operator.outputs)
            tensors = tuple(graph.tensors[one] for one in numbers if one is not None)
            known.equal[key] = operator, tensors, build()
        other, _, call = known.equal[key]
        call = call if other is operator else renamed(call, other, operator)
    known.own[own] = operator, call
    return call


def likeness(graph: Graph, operator: Operator) -> Hashable:
    """What the call of a strip depends on: equal ones have equal calls. None: it is not a strip."""
    is_strip = any(graph.tensors[number].rows is not None for number in operator.outputs)
    return _facts_of(graph, operator) if is_strip else None


def once_for_equals(graph: Graph, make: MakeCall) -> MakeCall:
    """The function ``make``, which is asked once for all equal strips."""
    known: dict[Hashable, tuple[Operator, KernelCall]] = {}

    def call_of(operator: Operator) -> KernelCall:
        like = likeness(graph, operator)
        if like is None:
            return make(operator)
        if like not in known:
            known[like] = operator, make(operator)
        other, call = known[like]
        return call if other is operator else renamed(call, other, operator)

    return call_of


def _facts_of(graph: Graph, operator: Operator) -> Hashable:
    """What a call depends on of an operator and its tensors."""
    numbers = [*operator.inputs, *operator.outputs]
    tensors = tuple(
        None if number is None else (numbers.index(number), _facts(graph.tensors[number]))
        for number in numbers
    )
    return operator.kind, operator.attributes, tensors


def _facts(tensor: Tensor) -> Hashable:
    if tensor.data is not None:
        return id(tensor)
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
            argument = TensorArgument(number)
        arguments.append(argument)
    pairs = [(numbers[output], numbers[source]) for output, source in call.in_place]
    in_place = tuple(
        (out, source) for out, source in pairs if out is not None and source is not None
    )
    return replace(call, arguments=tuple(arguments), in_place=in_place)
