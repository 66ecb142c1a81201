"""One range for what a recurrent layer computes in each of its steps.

A GRU, an LSTM, or a cell in a loop of Python is a graph of equal steps. With equal ranges the steps
have equal tables, and the compiler makes a loop of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from utvm_deploy.base.repeats import Repeat, joined, repeats
from utvm_deploy.frontend.torch.calls import aten_name
from utvm_deploy.quality.quantizing.torch.quantizer import MOVING, SPLITTING, WEIGHTED


def share_ranges(prepared: Any) -> None:
    """Give the observers of equal steps the range of them all, in place.

    Steps are equal if they compute the same with the same weights, and each but the first reads
    what the one before made.
    """
    nodes = [node for node in prepared.graph.nodes if _computes(node)]
    keys = [_key(node) for node in nodes]
    pairs = [
        pair
        for one in repeats(keys)
        if _is_recurrent(one, nodes)
        for position in range(one.first, one.end - one.period)
        for pair in _pairs(nodes[position], nodes[position + one.period], prepared)
    ]
    for names in joined(pairs):
        _unite([prepared.get_submodule(name) for name in names])


def tie_ends(torch: Any, prepared: Any, pairs: Iterable[tuple[int, int]]) -> None:
    """Give an input and an output, by their positions, the range of both, in place."""
    nodes = list(prepared.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    outputs = torch.utils._pytree.tree_leaves(nodes[-1].args)
    for first, last in pairs:
        left = outputs[last]
        names = [*_behind(inputs[first]), *([str(left.target)] if left.op == "call_module" else [])]
        if names:
            _unite([prepared.get_submodule(name) for name in names if _is_free(prepared, name)])


def _computes(node: Any) -> bool:
    if node.op != "call_function" or "aten" not in str(node.target):
        return False
    return aten_name(node.target) not in MOVING | SPLITTING


def _key(node: Any) -> tuple[Any, ...]:
    """What equal steps have in common: the operator, its weights and its numbers."""
    kind = aten_name(node.target)
    weights = node.args[1:] if kind in WEIGHTED else ()
    names = tuple(str(getattr(_origin(one), "target", one)) for one in weights)
    numbers = tuple(one for one in node.args if isinstance(one, int | float))
    return (kind, names, numbers)


def _origin(node: Any) -> Any:
    """What an observer observes."""
    while getattr(node, "op", "") == "call_module":
        node = node.args[0]
    return node


def _source(node: Any) -> Any:
    """The operator that computed a value, before it was moved."""
    while True:
        node = _origin(node)
        is_call = node.op == "call_function"
        if not is_call or _computes(node) or not node.all_input_nodes:
            return node
        node = node.all_input_nodes[0]


def _is_recurrent(one: Repeat, nodes: list[Any]) -> bool:
    period = one.period
    first = nodes[one.first : one.first + period]
    second = nodes[one.first + period : one.first + 2 * period]
    has_weights = any(aten_name(node.target) in WEIGHTED for node in first)
    reads = {_source(source) for node in second for source in node.all_input_nodes}
    return has_weights and not reads.isdisjoint(first)


def _pairs(node: Any, other: Any, prepared: Any) -> Iterator[tuple[str, str]]:
    """The observers of two copies of an operator that have one place."""
    mine, theirs = _observers(node, prepared), _observers(other, prepared)
    yield from ((mine[place], theirs[place]) for place in mine.keys() & theirs.keys())


def _observers(node: Any, prepared: Any) -> Mapping[Any, str]:
    """The observers before and behind an operator, by their places."""
    found: dict[Any, str] = {}
    for place, source in enumerate(node.all_input_nodes):
        if source.op == "call_module":
            found[place] = str(source.target)
    for name in _behind(node):
        found["made"] = name
    return {place: name for place, name in found.items() if _is_free(prepared, name)}


def _behind(node: Any) -> Iterator[str]:
    yield from (str(user.target) for user in node.users if user.op == "call_module")


def _is_free(prepared: Any, name: str) -> bool:
    """Whether an observer has one range, which samples say: not that of weights or of a sigmoid."""
    low = getattr(prepared.get_submodule(name), "min_val", None)
    return low is not None and low.dim() == 0


def _unite(observers: list[Any]) -> None:
    low, high = (
        min(float(one.min_val) for one in observers),
        max(float(one.max_val) for one in observers),
    )
    for one in observers:
        one.min_val.fill_(low)
        one.max_val.fill_(high)
