"""Products of matrices read their right side as it is stored.

A file may turn K before it multiplies Q by it. Kernels of BATCH_MATMUL multiply rows by rows, so
they would turn it back.
"""

from __future__ import annotations

from dataclasses import replace

from utvm_deploy.graph.attributes import BatchMatmul, Rearrange
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.graph.rewrite import changed_operators, compacted, consumers, producers


def fold_turn(graph: Graph) -> Graph:
    """Drop a TRANSPOSE of the two last dimensions that only makes the right side of a product."""
    made, read = producers(graph), consumers(graph)
    kept = {*graph.outputs, *(number for pair in graph.states for number in pair)}
    changes: dict[int, Operator] = {}
    gone = set[int]()
    for position, operator in enumerate(graph.operators):
        a = operator.attributes
        if not isinstance(a, BatchMatmul) or a.right_turned:
            continue
        left, right = operator.inputs
        assert right is not None, "check_graph demands it"
        before = graph.operators[made[right]] if right in made else None
        if before is None or not _turns(graph, before) or read[right] != [position]:
            continue
        if left == right or right in kept:
            continue
        changes[position] = replace(
            operator,
            inputs=(left, before.inputs[0]),
            attributes=replace(a, right_turned=True),
            sources=(*before.sources, *operator.sources),
        )
        gone.add(made[right])
    return compacted(changed_operators(graph, changes, gone)) if gone else graph


def _turns(graph: Graph, operator: Operator) -> bool:
    """Whether an operator only exchanges the two last dimensions."""
    a, number = operator.attributes, operator.inputs[0]
    if not isinstance(a, Rearrange) or number is None:
        return False
    shape, rank = graph.tensors[number].shape, len(a.view)
    whole = tuple(tuple(range(extent)) for extent in shape)
    turned = (*range(rank - 2), rank - 1, rank - 2)
    is_whole = a.view == shape and a.indices == whole
    return is_whole and a.order == turned and a.shape == tuple(shape[axis] for axis in turned)
