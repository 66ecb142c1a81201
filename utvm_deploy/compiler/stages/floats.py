"""Models that compute in float32: a refusal if none is wanted, and the price without an FPU."""

from __future__ import annotations

import logging

from utvm_deploy.base.errors import ModelError
from utvm_deploy.boards.board import Board
from utvm_deploy.graph.check import place_of, works_in_float
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.quantize_hint import quantize_command

_log = logging.getLogger(__name__)

#: What GCC's library takes for a float32 multiplication and an addition: modelled cycles of
#: FULLY_CONNECTED 64x32 on a Cortex-M3 (229,411), rounded. A Cortex-M0 takes 195 instructions.
SOFTWARE_CYCLES_PER_MAC = 110


def refuse_float(graph: Graph) -> None:
    """Raise ModelError for the first operator that computes in float32."""
    for operator in graph.operators:
        if works_in_float(graph, operator):
            raise ModelError(
                f"the model is not fully quantized: {place_of(graph, operator)}, works in float32; "
                f"quantize it ({quantize_command()}; utvm docs quantization), or allow float32"
            )


def warn_without_fpu(graph: Graph, board: Board) -> None:
    """One line if the board computes float32 in software."""
    count = sum(works_in_float(graph, operator) for operator in graph.operators)
    if board.cpu.fpu != "none" or not count:
        return
    _log.warning(
        "%s has no floating-point unit: float32 (%d of the operators) is computed in software, at "
        "%d cycles or more for each multiplication with an addition",
        board.name,
        count,
        SOFTWARE_CYCLES_PER_MAC,
    )
