"""The facts about a model, and its picture."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from small_models import MODELS, build_model, built, int8
from tflite_writer import ModelWriter

from utvm_deploy.compiler.stages.first_look import least_activation_bytes
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.results.inspecting.facts import graph_svg, inspect_model
from utvm_deploy.results.inspecting.graph_layout import lay_out

_SVG = "{http://www.w3.org/2000/svg}"


def test_facts(tmp_path: Path) -> None:
    graph = load_model(build_model("branches").save(tmp_path / "branches.tflite"))
    facts = inspect_model(graph)
    assert facts.name == "branches" and facts.digest == graph.digest
    assert facts.kinds["CONV_2D"] == 1 and sum(facts.kinds.values()) == 8
    first = facts.operators[0]
    assert (first.kind, first.detail) == ("CONV_2D", "3×3, stride 2, pad 0 1 0 1, clamp 0..127")
    assert first.weights_bytes == 8 * 3 * 3 * 4 + 8 * 4 and first.clamp == (0, 127)
    assert [t.is_constant for t in first.inputs] == [False, True, True]
    assert facts.weights_bytes == sum(op.weights_bytes for op in facts.operators)
    # While CONV_2D runs: its input of 8x8x4 and its output of 4x4x8.
    assert (facts.peak_activation_bytes, facts.peak_operator) == (256 + 128, 0)
    # ADD reads two tensors and makes one; its first input is still needed by MAX_POOL_2D.
    assert facts.operators[2].live_bytes == 3 * 128
    assert json.loads(json.dumps(asdict(facts)))["macs"] == facts.macs > 0


def test_per_channel_scales(tmp_path: Path) -> None:
    graph = load_model(build_model("conv_same").save(tmp_path / "m.tflite"))
    weights = inspect_model(graph).operators[0].inputs[1]
    assert weights.scales == 4 and weights.scale is not None and weights.scale_max is not None
    assert 0.001 < weights.scale < weights.scale_max < 0.02


@pytest.mark.parametrize(
    ("name", "peak", "least", "macs"),
    [
        ("ad01_int8", 768, 768, 264192),
        ("kws_ref_model", 16000, 8064, 2656768),
        ("pretrainedResnet_quant", 49152, 33280, 12501632),
        ("vww_96_int8", 55296, 36864, 7489664),
    ],
)
def test_shared_models(name: str, peak: int, least: int, macs: int, shared_models: Path) -> None:
    graph = load_model(shared_models / f"{name}.tflite")
    facts = inspect_model(graph)
    assert (facts.peak_activation_bytes, facts.macs) == (peak, macs)
    assert least_activation_bytes(graph) == least
    _boxes_apart(graph_svg(graph))


def _boxes_apart(svg: str) -> list[ET.Element]:
    """The groups of an SVG that parses, fits its page and whose boxes do not overlap."""
    root = ET.fromstring(svg)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    groups = root.findall(f"{_SVG}g")
    places = []
    for group in groups:
        rectangle = group.find(f"{_SVG}rect")
        assert rectangle is not None
        x, y, w, h = (float(rectangle.attrib[k]) for k in ("x", "y", "width", "height"))
        assert x >= 0 and y >= 0 and x + w <= width and y + h <= height
        assert all(abs(x - a) >= w or abs(y - b) >= h for a, b in places)
        places.append((x, y))
    return groups


@pytest.mark.parametrize("name", MODELS)
def test_picture_of_every_operator(name: str, tmp_path: Path) -> None:
    graph = load_model(build_model(name).save(tmp_path / "m.tflite"))
    for version in (graph, simplify(graph)):
        groups = _boxes_apart(graph_svg(version))
        ends = len(version.inputs) + len(version.outputs)
        assert len(groups) == len(version.operators) + ends


def test_picture_escapes_names_and_refers_to_nothing(tmp_path: Path) -> None:
    def build(m: ModelWriter, rng: object) -> None:
        x = m.input((1, 4), name='<script>alert("&")</script>')
        m.output(m.softmax(x))

    svg = graph_svg(load_model(built(build).save(tmp_path / "a<b>.tflite")))
    assert "<script" not in svg and "&lt;script&gt;" in svg
    assert "a&lt;b&gt;" in svg
    assert "href" not in svg and svg.count("http") == 1  # the namespace


def test_constant_only_operands_have_no_edge(tmp_path: Path) -> None:
    def build(m: ModelWriter, rng: object) -> None:
        import numpy as np

        c = m.constant(int8(np.random.default_rng(0), 1, 4), 0.1)
        m.output(m.add(m.input((1, 4)), c, scale=0.2))

    svg = graph_svg(load_model(built(build).save(tmp_path / "m.tflite")))
    assert svg.count("marker-end") == 2


def test_layout_keeps_long_edges_clear_of_boxes() -> None:
    layout = lay_out(6, [(0, 1), (1, 2), (2, 3), (0, 3), (3, 4), (0, 4), (4, 5)])
    assert layout.rows == (0, 1, 2, 3, 4, 5)
    assert len(layout.waypoints[0, 4]) == 3 and layout.waypoints[0, 1] == ()
    for (start, end), waypoints in layout.waypoints.items():
        for column, row in waypoints:
            assert layout.rows[start] < row < layout.rows[end]
            (node,) = (n for n in range(6) if layout.rows[n] == row)
            assert abs(layout.columns[node] - column) > 0.5
    # What has a single way in and out stays in one column.
    assert layout.columns[1] == pytest.approx(layout.columns[2], abs=0.01)
    assert layout.columns[4] == pytest.approx(layout.columns[5], abs=0.01)


def test_layout_of_nothing_and_of_many() -> None:
    assert lay_out(0, []).height == 0
    wide = lay_out(40, [(0, n) for n in range(1, 39)] + [(n, 39) for n in range(1, 39)])
    assert wide.height == 3 and wide.width == pytest.approx(38)


def test_shared_weights_count_once(tmp_path: Path) -> None:
    """As of a recurrent cell that is written step by step: each step reads the same weights."""
    m = ModelWriter()
    x = m.input((1, 16), 0.05, 0)
    weights = np.arange(256, dtype=np.int8).reshape(16, 16) // 2
    for _ in range(3):
        x = m.fully_connected(x, weights, np.zeros(16, np.int32))
    m.output(x)
    facts = inspect_model(load_model(m.save(tmp_path / "steps.tflite")))
    assert facts.weights_bytes == facts.operators[0].weights_bytes == 256 + 64
