"""What is known of a graph before it is compiled for a board."""

from __future__ import annotations

from collections.abc import Iterable

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.compiler.arena.plan import plan_arena
from utvm_deploy.compiler.planning.planner import lowered_steps
from utvm_deploy.compiler.stages.network import checked_passes
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.names import with_short_names
from utvm_deploy.kernels.choose.lowering import families_for, lower
from utvm_deploy.targets.table import CORES


def least_activation_bytes(graph: Graph) -> int:
    """The least arena that activations take with any family's kernels, scratch aside.

    Some kernels put their outputs on what of their inputs is done with. Raises ModelError or
    CompileError where the graph cannot be compiled.
    """
    simpler = checked_passes(graph)

    def arena_bytes(core: str) -> int:
        sequence = lowered_steps(simpler, core, lambda operator: lower(simpler, operator, core))
        return plan_arena(simpler, sequence).arena_bytes

    return min(map(arena_bytes, _a_core_of_each_family()))


def lowering_problems(graph: Graph) -> dict[int, str]:
    """Position in the file of each operator that no kernel can be made for -> why.

    Raises ModelError where the passes cannot do with the graph.
    """
    simpler = checked_passes(graph)
    found: dict[int, str] = {}
    for operator in simpler.operators:
        try:
            for core in _a_core_of_each_family():
                lower(simpler, operator, core)
        except UtvmError as error:
            names = (tensor.name for tensor in simpler.tensors)
            found[operator.sources[0]] = with_short_names(str(error), names)
    return found


def _a_core_of_each_family() -> Iterable[str]:
    return {families_for(core): core for core in CORES}.values()
