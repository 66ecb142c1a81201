"""Which layers of a model are wrong by themselves, not because of a wrong one before them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from utvm_deploy.compiler.model import Layer
from utvm_deploy.device import DeviceModel, LayerRun
from utvm_deploy.graph.model import Array
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.verifying.on_board import Mismatch, first_difference


@dataclass(frozen=True)
class WrongLayer:
    """A layer that makes wrong bytes of right ones."""

    layer: Layer
    mismatch: Mismatch


@dataclass(frozen=True)
class Bisection:
    """What ``bisect`` found; ``passes`` is how often the model ran."""

    model: str
    board: str
    reference: str
    wrong: tuple[WrongLayer, ...]  # in order
    passes: int


def bisect(model: DeviceModel, model_path: Path, *inputs: Array) -> Bisection:
    """Find every layer that is wrong by itself.

    The first layer that differs from the reference is wrong: all before it were right. With it
    replaced by the reference, the next one that differs is, too, and so on.
    """
    computed = run_reference(model_path, [list(inputs)])
    reference = computed.tensors[0]
    wrong: list[WrongLayer] = []
    while True:
        model.reset_state()  # the reference began with none
        replace = {found.layer.index: "reference" for found in wrong}
        runs = model.run_layers(*inputs, replace=replace, reference=reference)
        found = _first_wrong(runs, reference)
        if found is None:
            compiled = model.compiled
            passes = len(wrong) + 1
            return Bisection(
                compiled.name, compiled.board, computed.reference, tuple(wrong), passes
            )
        wrong.append(found)


def _first_wrong(runs: list[LayerRun], reference: Mapping[int, Array]) -> WrongLayer | None:
    for run in runs:
        for buffer, array in zip(run.layer.outputs, run.outputs, strict=True):
            # Tensors that a pass made have no counterpart; a wrong one shows in the next layer.
            if buffer.source is None or run.is_replaced:
                continue
            mismatch = first_difference(0, buffer.name, array, reference[buffer.source])
            if mismatch is not None:
                return WrongLayer(run.layer, mismatch)
    return None
