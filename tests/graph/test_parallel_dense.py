"""Dense layers of one row become one where nothing can be lost by that, and no byte changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from graph_interpreter import run_graph
from small_models import int8, int32, sample_inputs, scales
from tflite_writer import ModelWriter

from utvm_deploy.api.verify_function import verify
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.arena.shared_bytes import BUFFER_ALIGNMENT
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.liveness import live_bytes
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.passes.parallel_dense import ALIGNMENT
from utvm_deploy.graph.passes.simplify import UNJOINED, simplify
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.results.inspecting.pass_effects import pass_effects

Rng = np.random.Generator
Build = Callable[[ModelWriter, Rng], None]


def _dense(m: ModelWriter, x: int, rng: Rng, outputs: int, **options: object) -> int:
    """A layer with a scale for each output, if ``weight_scale`` does not say otherwise."""
    inputs = int(np.prod(m.tensors[x].shape))
    options = {"weight_scale": scales(rng, outputs), "bias": int32(rng, outputs)} | options
    return m.fully_connected(x, int8(rng, outputs, inputs), **options)  # type: ignore[arg-type]


def _three(m: ModelWriter, rng: Rng) -> None:
    """Each has another scale of its output; one is read and an output, one is an output."""
    x = m.input((1, 24), 0.05, 9)
    q, k, v = (_dense(m, x, rng, 32, scale=scale, zero_point=5) for scale in (0.2, 0.3, 0.31))
    m.output(m.add(q, k, scale=0.4), k, v)


def _apart(m: ModelWriter, rng: Rng) -> None:
    """Two heads of two layers each."""
    x = m.relu(m.input((1, 64), 0.05, 9), scale=0.05, zero_point=9)
    heads = [_dense(m, _dense(m, x, rng, 16, activation="RELU"), rng, 5) for _ in range(2)]
    m.output(*heads)


def _any_number_of_outputs(m: ModelWriter, rng: Rng) -> None:
    """One part need not end at an aligned address: the last one. A second such stays apart."""
    x = m.input((1, 20), 0.05, 9)
    m.output(*(_dense(m, x, rng, outputs) for outputs in (10, 16, 7, 32)))


def _one_scale(m: ModelWriter, rng: Rng) -> None:
    x = m.input((1, 20), 0.05, 9)
    m.output(*(_dense(m, x, rng, 16, weight_scale=0.01) for _ in range(2)))


def _some_biases(m: ModelWriter, rng: Rng) -> None:
    x = m.input((1, 20), 0.05, 9)
    m.output(*(_dense(m, x, rng, 16, bias=b) for b in (None, int32(rng, 16), None)))


def _no_biases(m: ModelWriter, rng: Rng) -> None:
    x = m.input((1, 20), 0.05, 9)
    m.output(*(_dense(m, x, rng, 16, bias=None, scale=scale) for scale in (0.1, 0.2)))


def _two_kinds(m: ModelWriter, rng: Rng) -> None:
    """Two of each zero point and clamp: two layers are left of four."""
    x = m.input((1, 20), 0.05, 9)
    ends = ({"zero_point": 4}, {"zero_point": -128, "activation": "RELU"})
    m.output(*(_dense(m, x, rng, 16, **ends[i % 2]) for i in range(4)))


def _with_rank(m: ModelWriter, rng: Rng) -> None:
    """Outputs of three dimensions and of two."""
    x = m.input((1, 1, 20), 0.05, 9)
    m.output(*(_dense(m, x, rng, 16, keep_num_dims=keeps) for keeps in (True, False)))


JOINED: dict[str, tuple[Build, list[str]]] = {
    "three": (_three, ["FULLY_CONNECTED", *["SPLIT"] * 3, "ADD"]),
    "apart": (_apart, ["RELU", "FULLY_CONNECTED", *["SPLIT"] * 2, *["FULLY_CONNECTED"] * 2]),
    "any_number": (
        _any_number_of_outputs,
        ["FULLY_CONNECTED", *["SPLIT"] * 3, "FULLY_CONNECTED"],
    ),
    "one_scale": (_one_scale, ["FULLY_CONNECTED", *["SPLIT"] * 2]),
    "some_biases": (_some_biases, ["FULLY_CONNECTED", *["SPLIT"] * 3]),
    "no_biases": (_no_biases, ["FULLY_CONNECTED", *["SPLIT"] * 2]),
    "two_kinds": (_two_kinds, ["FULLY_CONNECTED", *["SPLIT"] * 2] * 2),
    "with_rank": (_with_rank, ["FULLY_CONNECTED", *["SPLIT"] * 2]),
}


def _two_scales(m: ModelWriter, rng: Rng) -> None:
    """A kernel that looks up scales takes longer than two that need not."""
    x = m.input((1, 20), 0.05, 9)
    m.output(*(_dense(m, x, rng, 16, weight_scale=scale) for scale in (0.01, 0.02)))


def _zero_points(m: ModelWriter, rng: Rng) -> None:
    x = m.input((1, 20), 0.05, 9)
    m.output(*(_dense(m, x, rng, 16, zero_point=zero) for zero in (3, 4)))


def _clamps(m: ModelWriter, rng: Rng) -> None:
    x = m.input((1, 20), 0.05, 9)
    m.output(*(_dense(m, x, rng, 16, activation=name) for name in ("NONE", "RELU")))


def _shared_weights(m: ModelWriter, rng: Rng) -> None:
    """Equal weights would be there twice; so would those of two layers with another bias."""
    x = m.input((1, 20), 0.05, 9)
    weights, each = int8(rng, 16, 20), scales(rng, 16)
    m.output(*(m.fully_connected(x, weights, int32(rng, 16), weight_scale=each) for _ in "ab"))


def _rows(m: ModelWriter, rng: Rng) -> None:
    x = m.input((2, 20), 0.05, 9)
    weights = [int8(rng, 16, 20) for _ in "ab"]
    m.output(*(m.fully_connected(x, one, weight_scale=scales(rng, 16)) for one in weights))


def _unaligned(m: ModelWriter, rng: Rng) -> None:
    x = m.input((1, 20), 0.05, 9)
    m.output(*(_dense(m, x, rng, 10) for _ in range(2)))


def _concatenated(m: ModelWriter, rng: Rng) -> None:
    """A concatenation's parts are made at their places there."""
    x = m.input((1, 20), 0.05, 9)
    parts = [m.reshape(_dense(m, x, rng, 16), (1, 1, 16)) for _ in range(2)]
    options = ("ConcatenationOptions", {"Axis": 2, "FusedActivationFunction": 0})
    m.output(m.node("CONCATENATION", parts, (1, 1, 32), options, scale=0.1))


def _much_is_live(m: ModelWriter, rng: Rng) -> None:
    """The second layer's output would be needed where most bytes are."""
    x = m.relu(m.input((1, 4), 0.05, 9), scale=0.05, zero_point=9)
    wide = _dense(m, _dense(m, x, rng, 64), rng, 256)
    m.output(_dense(m, wide, rng, 4), m.relu(_dense(m, x, rng, 64)))


def _int16(m: ModelWriter, rng: Rng) -> None:
    x = m.tensor((1, 20), "int16", 0.001)
    m.inputs.append(x)
    weights = [int8(rng, 16, 20) for _ in "ab"]
    bias = np.zeros(16, np.int64)
    m.output(*(m.fully_connected(x, one, bias, weight_scale=scales(rng, 16)) for one in weights))


APART = (
    *(_two_scales, _zero_points, _clamps, _shared_weights, _rows, _unaligned, _concatenated),
    *(_much_is_live, _int16),
)


def _random(m: ModelWriter, rng: Rng) -> None:
    """Layers of a few inputs, whose parameters are equal more often than not."""
    x = m.input((1, int(rng.integers(1, 40))), 0.05, int(rng.integers(-128, 128)))
    made = []
    for _ in range(rng.integers(2, 7)):
        outputs = int(rng.choice((1, 7, 16, 16, 32, 48)))
        options: dict[str, object] = {
            "scale": float(rng.choice((0.1, 0.1, 0.23))),
            "zero_point": int(rng.choice((0, 0, 0, -60))),
            "activation": str(rng.choice(("NONE", "NONE", "RELU"))),
        }
        if rng.random() < 0.3:
            options["weight_scale"] = float(rng.choice((0.01, 0.013)))
        if rng.random() < 0.3:
            options["bias"] = None
        made.append(_dense(m, x, rng, outputs, **options))
    is_output = rng.random(len(made)) < 0.5
    for number, is_end in zip(made, is_output, strict=True):
        spec = m.tensors[number]
        ends = {"scale": spec.scales[0], "zero_point": spec.zero_points[0]}
        m.output(number if is_end else m.relu6(number, **ends))


def _saved(tmp_path: Path, build: Build, seed: int = 0) -> tuple[ModelWriter, Path, Graph]:
    writer = ModelWriter()
    build(writer, np.random.default_rng(seed))
    path = writer.save(tmp_path / "model.tflite")
    return writer, path, load_model(path)


def _check_bytes(model: ModelWriter, path: Path, graph: Graph) -> None:
    """Each tensor of the file that the graph still makes has the bytes of the oracle's."""
    samples = [sample_inputs(model, seed) for seed in range(3)]
    for inputs, expected in zip(samples, run_reference(path, samples).tensors, strict=True):
        values = run_graph(graph, inputs)
        for number in (number for operator in graph.operators for number in operator.outputs):
            source = graph.tensors[number].source
            if source is not None:
                np.testing.assert_array_equal(values[number], expected[source])


@pytest.mark.parametrize("name", JOINED)
def test_layers_are_one_and_no_byte_changes(name: str, tmp_path: Path) -> None:
    build, kinds = JOINED[name]
    model, path, graph = _saved(tmp_path, build)
    joined = simplify(graph)
    assert [operator.kind for operator in joined.operators] == kinds
    assert max(live_bytes(joined)) <= max(live_bytes(simplify(graph, UNJOINED)))
    _check_bytes(model, path, joined)


@pytest.mark.parametrize("build", APART)
def test_other_layers_stay_apart(build: Build, tmp_path: Path) -> None:
    _, _, graph = _saved(tmp_path, build)
    assert "SPLIT" not in [operator.kind for operator in simplify(graph).operators]


def test_random_layers_keep_their_bytes(tmp_path: Path) -> None:
    count = 0
    for seed in range(25):
        model, path, graph = _saved(tmp_path, _random, seed)
        joined = simplify(graph)
        count += "SPLIT" in [operator.kind for operator in joined.operators]
        _check_bytes(model, path, joined)
    assert count > 12


def test_parts_begin_where_views_can() -> None:
    assert ALIGNMENT == BUFFER_ALIGNMENT


def test_what_the_pass_removes(tmp_path: Path) -> None:
    _, _, graph = _saved(tmp_path, _three)
    removed = pass_effects(graph).removed["join_dense"]
    # Two of three layers; a part is no layer.
    assert (removed.layers, removed.macs, removed.weights_bytes) == (2, 0, 0)


@pytest.mark.parametrize("name", ["host", "mps2_an500"])
def test_the_layers_of_the_file_are_the_outputs_of_one_call(name: str, tmp_path: Path) -> None:
    """They are verified as if each had its own call."""
    _, path, graph = _saved(tmp_path, _three)
    compiled = compile_model(path, load_board(name))
    first = compiled.layers[0]
    assert [one.name for one in first.outputs] == ["tensor_3", "tensor_6", "tensor_9"]
    assert [one.offset - first.outputs[0].offset for one in first.outputs] == [0, 32, 64]
    assert [one.scale for one in first.outputs] == pytest.approx([0.2, 0.3, 0.31])
    assert first.operators == (0, 1, 2)
    assert len(compiled.layers) == len(graph.operators) - 2
    found = verify(path, name).found
    assert found.ok
    assert found.layers[0].bytes_each == 3 * 32 and found.layers[0].samples
