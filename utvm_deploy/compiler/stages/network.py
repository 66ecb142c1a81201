"""The first two stages: a graph of the model's file, and the graph that is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from utvm_deploy.backends.custom import CustomOperators
from utvm_deploy.backends.regions import RegionRecords, partitioned
from utvm_deploy.compiler.c_text import check_prefix, prefix_from_path
from utvm_deploy.compiler.options import OPTIMIZATION_FLAGS
from utvm_deploy.compiler.stages.dump import graph_text
from utvm_deploy.compiler.stages.floats import refuse_float, warn_without_fpu
from utvm_deploy.compiler.stages.planners import planner_of
from utvm_deploy.compiler.stages.request import Request
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.check import check_graph
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.passes.byte_tables import tabulate_bytes
from utvm_deploy.graph.passes.simplify import CHANNEL_KEEPING, PASSES, UNJOINED, Pass, simplify
from utvm_deploy.graph.strips.input_rows import with_input_rows
from utvm_deploy.kernels.choose.arithmetic import with_arithmetic
from utvm_deploy.kernels.contract.format_kernel import check_c


@dataclass(frozen=True)
class Network:
    """The graph of a request, and the prefix of its C symbols."""

    request: Request
    prefix: str
    graph: Graph

    @property
    def text(self) -> str:
        """For people: one line for each operator."""
        return graph_text(self.graph)


def imported(request: Request) -> Network:
    """The graph as the model has it. Raises ModelError if it cannot be used."""
    model, options = request.model, request.options
    if isinstance(model, Graph):
        check_graph(model)
        graph = model
    else:
        # The file's name is what the user calls the model, and what names its C symbols.
        custom = CustomOperators(*request.backends) if request.backends else None
        graph = replace(load_model(Path(model), custom), name=Path(model).stem)
    if graph.number_format is not None:
        check_c(graph.number_format)
        graph = with_arithmetic(graph)
    computed = simplify(graph, (("tabulate_bytes", tabulate_bytes),))
    if not options.allow_float:
        refuse_float(computed)
    warn_without_fpu(computed, request.board)
    named = options.name
    return Network(
        request, prefix_from_path(graph.name) if named is None else check_prefix(named), graph
    )


def simplified(network: Network) -> Network:
    """The graph that is compiled: all passes are done, and backends have their regions."""
    request, backends = network.request, network.request.backends
    options = request.options
    passes = UNJOINED if backends or options.whole_layers else PASSES
    if options.keep_channels or any(one.of_file for one in backends):
        passes = CHANNEL_KEEPING
    graph = checked_passes(network.graph, passes)
    if backends:
        flag = OPTIMIZATION_FLAGS[options.objective]
        known = RegionRecords(request.core, request.known.own, flag)
        cycles = planner_of(request, network.prefix).operator_cycles
        graph = partitioned(graph, backends, request.core, known, cycles)
        check_graph(graph)
    if options.input_rows:
        graph = with_input_rows(graph)
        check_graph(graph)
    return replace(network, graph=graph)


def checked_passes(graph: Graph, passes: Sequence[tuple[str, Pass]] = PASSES) -> Graph:
    """The graph after passes. Raises ModelError where they cannot do with it."""
    simpler = simplify(graph, passes)
    check_graph(simpler)
    return simpler
