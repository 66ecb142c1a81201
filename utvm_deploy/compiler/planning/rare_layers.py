"""At level size, the kinds of layers that hardly count are computed in plain C.

A routine in assembly takes about a kilobyte, even if one small layer needs it. Plain C takes a few
hundred bytes, and about five times as long. That matters little where a kind's layers do little of
a model's work, such as the average pool and the fully connected layer that end a network.
"""

from __future__ import annotations

import math
from collections import Counter

from utvm_deploy.graph.attributes import Pool
from utvm_deploy.graph.macs import macs
from utvm_deploy.graph.model import Graph, Operator

#: Kinds whose plain C is smaller than their assembly, however few layers a model has of them.
_KINDS = frozenset({"AVERAGE_POOL_2D", "FULLY_CONNECTED", "MAX_POOL_2D"})
#: A kind is rare if it has at most this share of the model's products and comparisons.
_MOST_SHARE = 0.01
#: Plain C does not write onto its input. So both must fit the model's largest activation, and this
#: part of it.
_SPARE_PART = 64


def rare_kinds(graph: Graph) -> frozenset[str]:
    """The kinds of int8 layers that plain C may compute at a small loss."""
    work, live = Counter[str](), Counter[str]()
    for operator in graph.operators:
        work[operator.kind] += _work(graph, operator)
        live[operator.kind] = max(live[operator.kind], _live_bytes(graph, operator))
    largest = max(one.size_bytes for one in graph.tensors if one.data is None)
    most_work, most_live = _MOST_SHARE * work.total(), largest + largest // _SPARE_PART
    return frozenset(
        kind for kind in _KINDS & work.keys() if work[kind] <= most_work and live[kind] <= most_live
    )


def is_rare(graph: Graph, operator: Operator, kinds: frozenset[str]) -> bool:
    """Whether ``operator`` is an int8 layer of these kinds."""
    source = operator.inputs[0]
    is_int8 = source is not None and graph.tensors[source].dtype == "int8"
    return is_int8 and operator.kind in kinds


def _live_bytes(graph: Graph, operator: Operator) -> int:
    """The bytes of an operator's first input and its outputs."""
    both = (*operator.inputs[:1], *operator.outputs)
    return sum(graph.tensors[one].size_bytes for one in both if one is not None)


def _work(graph: Graph, operator: Operator) -> int:
    """Products of an operator; of a pool, the values that its windows hold."""
    if isinstance(operator.attributes, Pool):
        output = graph.tensors[operator.outputs[0]]
        return math.prod(output.shape) * math.prod(operator.attributes.window)
    return macs(graph, operator)
