"""State that a model keeps between runs: what a run finds, and what it writes for the next run.

A file has one variable tensor for it, which an operator reads and writes. In the graph every tensor
is made once. So the operator reads one tensor and makes another, and the two are a pair.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from utvm_deploy.base.errors import ModelError
from utvm_deploy.graph.attributes import Lstm, Svdf
from utvm_deploy.graph.model import Array, Graph, Operator
from utvm_deploy.graph.signals.attributes import Signal


@dataclass(frozen=True, eq=False)
class KeptState:
    """A state: the names of its input and its output, and its real numbers before the first run."""

    found: str
    left: str
    first: Array


def with_states(graph: Graph) -> Graph:
    """The graph with an output for every state that an operator keeps."""
    tensors = list(graph.tensors)
    made = {number for operator in graph.operators for number in operator.outputs}
    operators: list[Operator] = []
    states = list(graph.states)
    for operator in graph.operators:
        for position in state_inputs(operator):
            number = operator.inputs[position]
            assert number is not None, "importers demand it"
            tensor = tensors[number]
            known = number in made or number in graph.inputs or tensor.data is not None
            if known or any(number == read for read, _ in states):
                raise ModelError(
                    f"operator {operator.sources[0]} ({operator.kind}) keeps its state in "
                    f"'{tensor.name}', which is not its own"
                )
            states.append((number, len(tensors)))
            operator = replace(operator, outputs=(*operator.outputs, len(tensors)))
            tensors.append(replace(tensor, name=f"{tensor.name} (next)", source=None))
        operators.append(operator)
    return graph.replaced(tensors=tuple(tensors), operators=tuple(operators), states=tuple(states))


def state_inputs(operator: Operator) -> tuple[int, ...]:
    """Which of an operator's inputs it finds as it left them."""
    if isinstance(operator.attributes, Lstm):
        return (13, 14)
    if isinstance(operator.attributes, Signal):
        return (len(operator.inputs) - 1,) if operator.attributes.keeps_state else ()
    return (4,) if isinstance(operator.attributes, Svdf) else ()
