"""What each pass removes."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_models import build_model

from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.passes import PASSES, simplify
from utvm_deploy.inspecting.pass_effects import GraphSizes, graph_sizes, pass_effects

NOTHING = GraphSizes(0, 0, 0, 0)


@pytest.mark.parametrize("name", ["branches", "conv_dilated", "pad"])
def test_the_passes_add_up(name: str, tmp_path: Path) -> None:
    graph = load_model(build_model(name).save(tmp_path / "m.tflite"))
    found = pass_effects(graph)
    assert list(found.removed) == [name for name, _ in PASSES]
    assert found.before == graph_sizes(graph)
    assert found.after == graph_sizes(simplify(graph))
    assert sum(found.removed.values(), NOTHING) == found.before - found.after


def test_dead_channels_of_the_public_mobilenet(shared_models: Path) -> None:
    found = pass_effects(load_model(shared_models / "vww_96_int8.tflite"))
    assert (found.before.macs, found.after.macs) == (7_489_664, 3_766_476)
    dead = found.removed["drop_dead_channels"]
    assert dead.macs == found.before.macs - found.after.macs
    assert dead.layers == 0 and dead.weights_bytes > 170_000
    assert found.removed["share_equal"] == NOTHING
