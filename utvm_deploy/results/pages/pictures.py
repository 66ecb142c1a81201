"""Pictures of the things that know no page; ``.svg`` of these gives them."""

from __future__ import annotations

from utvm_deploy.base.results import picture
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.device.layer_runs import LayerRuns
from utvm_deploy.results.pages.bars_picture import bars_svg
from utvm_deploy.results.pages.memory_picture import memory_values
from utvm_deploy.results.pages.render import render


@picture.register
def arena_svg(compiled: CompiledModel) -> str | None:
    """The arena over time; None for a model that was read from an archive."""
    if not compiled.memory:
        return None
    uses = [use.to_dict() for use in compiled.memory]
    operators = [layer.kind for layer in compiled.layers]
    return render(
        "memory_picture.svg",
        found={"model": compiled.name, "board": compiled.board},
        map=memory_values(uses, compiled.arena_bytes, operators),
    )


@picture.register
def layers_svg(runs: LayerRuns) -> str:
    """Bars of the ticks of each layer."""
    rows = [(f"{one.layer.index} {one.layer.kind}", [float(one.ticks)]) for one in runs]
    return bars_svg("ticks of each layer", rows, ["ticks"])
