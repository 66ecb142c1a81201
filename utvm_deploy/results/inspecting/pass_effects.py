"""What each pass over the graph removes, for ``utvm inspect --passes``."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from operator import add, sub

from utvm_deploy.graph.liveness import joined_parts, live_bytes
from utvm_deploy.graph.macs import total_macs
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.passes.simplify import PASSES, simplify


@dataclass(frozen=True)
class GraphSizes:
    """What a graph takes."""

    layers: int  # operators, apart from those that take parts out of a joined layer
    macs: int
    weights_bytes: int  # all constants, each once
    # The most that is live at once, as ``Inspection`` has it.
    peak_activation_bytes: int

    def __add__(self, other: GraphSizes) -> GraphSizes:
        return GraphSizes(*map(add, astuple(self), astuple(other)))

    def __sub__(self, other: GraphSizes) -> GraphSizes:
        return GraphSizes(*map(sub, astuple(self), astuple(other)))


@dataclass(frozen=True)
class PassEffects:
    """The sizes before and after all passes, and what each pass removed.

    ``removed`` has every pass in the order they run. A number below 0 was added. The differences
    of all passes sum up to ``before - after``, the peaks among them.
    """

    before: GraphSizes
    after: GraphSizes
    removed: dict[str, GraphSizes]


def pass_effects(graph: Graph) -> PassEffects:
    """Simplify a graph and measure it after each pass that changes it.

    Raises ModelError where the passes cannot do with the graph.
    """
    removed = {name: GraphSizes(0, 0, 0, 0) for name, _ in PASSES}

    def observe(name: str, before: Graph, after: Graph) -> None:
        removed[name] += graph_sizes(before) - graph_sizes(after)

    simpler = simplify(graph, observe=observe)
    return PassEffects(graph_sizes(graph), graph_sizes(simpler), removed)


def graph_sizes(graph: Graph) -> GraphSizes:
    """The sizes of a graph."""
    return GraphSizes(
        layers=len(graph.operators) - sum(map(len, joined_parts(graph).values())),
        macs=total_macs(graph),
        weights_bytes=graph.constants_bytes,
        peak_activation_bytes=max(live_bytes(graph), default=0),
    )
