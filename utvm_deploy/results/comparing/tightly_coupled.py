"""The comparison again with everything but weights in tightly coupled RAM, which has no misses.

The board is the same without its other RAM. So images, memory protection and allocation need no
special code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from utvm_deploy.base.errors import CompileError
from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.device import connect
from utvm_deploy.oracle.samples import Samples
from utvm_deploy.results.comparing.facts import Figures, OtherPlacement


def with_tcm_alone(board: Board) -> Board | None:
    """The board with tightly coupled RAM only; None if it has none, or nothing else."""
    others = {region.name for region in board.memory if region.kind == "ram"}
    tcm = max((r for r in board.memory if r.kind == "tcm"), key=lambda r: r.size, default=None)
    # The host's second memory is as fast as its first.
    if tcm is None or not others or board.is_host:
        return None
    return replace(
        board,
        memory=tuple(region for region in board.memory if region.name not in others),
        project=replace(board.project, data=tcm.name),
    )


def compare_elsewhere(
    board: Board,
    ours: CompiledModel,
    theirs: Mapping[str, CompiledModel],
    samples: Samples,
    progress: Progress = no_progress,
) -> OtherPlacement | None:
    """Whole runs on such a board, theirs by the fastest build; None where one does not fit it."""
    region = board.main_ram.name
    progress(f"{ours.name}: both in {region}", 0, 1)
    try:
        our_figures = _run(board, ours, samples)
        found = {label: _run(board, compiled, samples) for label, compiled in theirs.items()}
    except CompileError:
        # It does not fit: an answer, not a failure.
        return None
    headline = next(iter(our_figures))
    fastest = min(found, key=lambda label: found[label][headline])
    return OtherPlacement(region, our_figures, found[fastest], fastest)


def _run(board: Board, compiled: CompiledModel, samples: Samples) -> Figures:
    with connect(board) as device:
        model = device.load(compiled)
        _, ticks = model.run(samples.inputs[0])
        return device.figures([ticks])[0]
