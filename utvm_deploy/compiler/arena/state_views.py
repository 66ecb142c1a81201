"""Which variables are read and assigned without a copy, in the bytes of the state.

A run's old and new state share their bytes. READ_VARIABLE is a view if all its readers run before
the state is written. ASSIGN_VARIABLE is a view if its tensor is made after everything that reads
the old state. The tensor is then made in the state. Otherwise both are copies, which is always
right, because assignments are last in the graph.
"""

from __future__ import annotations

from collections.abc import Collection

from utvm_deploy.compiler.arena.plan import View, is_view
from utvm_deploy.graph.attributes import Variable
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.rewrite import consumers, producers


def state_views(graph: Graph, in_place: Collection[tuple[int, int, int]]) -> dict[int, View]:
    """Position -> view, of each READ_VARIABLE and ASSIGN_VARIABLE that needs no copy.

    ``in_place``: (position of an operator, output, input) if the output may replace the input.
    """
    read = consumers(graph)
    made = producers(graph)
    found: dict[int, View] = {}
    placed: set[int] = set()

    def uses(tensor: int) -> list[tuple[int, int]]:
        """(position, tensor) of all that reads a tensor, or a view of it in another shape."""
        used = [(len(graph.operators), tensor)] if tensor in graph.outputs else []
        for position in read.get(tensor, ()):
            if is_view(graph, graph.operators[position]):
                used += uses(graph.operators[position].outputs[0])
            else:
                used.append((position, tensor))
        return used

    for state, left in graph.states:
        assigning = made.get(left)
        if assigning is None or not isinstance(graph.operators[assigning].attributes, Variable):
            continue
        value = graph.operators[assigning].inputs[0]
        assert value is not None
        reads = {position: graph.operators[position].outputs[0] for position in read.get(state, ())}
        producer = made.get(value)
        # An output must outlive a reset.
        is_output = any(position == len(graph.operators) for position, _ in uses(value))
        may_stay = value not in placed and not is_output
        if producer is not None and may_stay and _computes(graph, producer):
            late = [use for tensor in reads.values() for use in uses(tensor) if use[0] >= producer]
            # A second input in the same bytes might be read in another order.
            if not late or (len(late) == 1 and (producer, value, late[0][1]) in in_place):
                placed.add(value)
                found[assigning] = View(graph.operators[assigning], value, left)
                assigning = len(graph.operators)
        for position, tensor in reads.items():
            if all(use < assigning for use, _ in uses(tensor)):
                found[position] = View(graph.operators[position], state, tensor)
    return found


def _computes(graph: Graph, position: int) -> bool:
    """Whether an operator's output has separate bytes."""
    operator = graph.operators[position]
    return not is_view(graph, operator) and not isinstance(operator.attributes, Variable)
