"""What each pass removes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_models import build_model, int8
from tflite_writer import ModelWriter

from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.passes.simplify import PASSES, simplify
from utvm_deploy.results.inspecting.pass_effects import GraphSizes, graph_sizes, pass_effects

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


def test_dead_channels_of_joined_layers(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    writer = ModelWriter()
    x = writer.input((1, 4, 4, 3))
    bias = np.zeros(8, np.int32)
    bias[4:] = -(1 << 22)
    parts = [writer.conv2d(x, int8(rng, 8, 1, 1, 3), bias) for _ in range(2)]
    options = ("ConcatenationOptions", {"Axis": 3, "FusedActivationFunction": 0})
    joined = writer.node("CONCATENATION", parts, (1, 4, 4, 16), options, scale=0.1)
    writer.output(writer.conv2d(joined, int8(rng, 4, 1, 1, 16), np.zeros(4, np.int32)))
    found = pass_effects(load_model(writer.save(tmp_path / "m.tflite")))
    dead = found.removed["drop_dead_channels"]
    # Half the channels of both parts, whose biases are equal, and half the weights behind them.
    assert dead == GraphSizes(0, 16 * (2 * 4 * 3 + 4 * 8), 2 * 4 * 3 + 4 * 4 + 4 * 8, 16 * 16)
