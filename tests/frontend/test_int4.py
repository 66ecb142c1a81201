"""Weights of int4 are read, sized and shown."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.frontend import tflite_tables
from utvm_deploy.frontend.files.limits import Budget
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.attributes import Convolution
from utvm_deploy.graph.model import Graph, Tensor
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.kernels.choose.space import weights_type
from utvm_deploy.oracle.reference import run_reference

RNG = np.random.default_rng(4)
KINDS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
WEIGHTS = {
    "CONV_2D": RNG.integers(-8, 8, (5, 3, 3, 3)).astype(np.int8),
    "DEPTHWISE_CONV_2D": RNG.integers(-8, 8, (1, 3, 3, 3)).astype(np.int8),
    "FULLY_CONNECTED": RNG.integers(-8, 8, (5, 75)).astype(np.int8),
}


def packed(values: np.ndarray) -> bytes:
    """As ai-edge-quantizer writes them: the low half of each byte first."""
    nibbles = [int(value) % 16 for value in values.reshape(-1)]
    nibbles += [0] * (len(nibbles) % 2)
    return bytes(low | high << 4 for low, high in zip(nibbles[::2], nibbles[1::2], strict=True))


def model(kind: str, dtype: str = "int4") -> ModelWriter:
    """One layer, with scales of channels."""
    m, weights = ModelWriter(), WEIGHTS[kind]
    x = m.input((1, 5, 5, 3), scale=0.05, zero_point=3)
    make = {
        "CONV_2D": m.conv2d,
        "DEPTHWISE_CONV_2D": m.depthwise_conv2d,
        "FULLY_CONNECTED": m.fully_connected,
    }[kind]
    channels = weights.shape[3 if kind == "DEPTHWISE_CONV_2D" else 0]
    scales = [0.01 * (1 + channel) for channel in range(channels)]
    bias = np.arange(channels, dtype=np.int32)
    m.output(make(x, weights, bias, weight_scale=scales, scale=0.2, zero_point=-4))
    if dtype == "int4":
        m.tensors[1].dtype, m.tensors[1].data = dtype, packed(weights)
    return m


def weights_of(graph: Graph) -> Tensor:
    number = graph.operators[0].inputs[1]
    assert number is not None
    return graph.tensors[number]


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_has_packed_weights(kind: str, tmp_path: Path) -> None:
    graph = simplify(load_model(model(kind).save(tmp_path / "model.tflite")))
    found = weights_of(graph)
    assert (found.dtype, found.element.in_unit) == ("int4", 2)
    assert found.size_bytes == (WEIGHTS[kind].size + 1) // 2
    np.testing.assert_array_equal(found.data, WEIGHTS[kind])
    assert weights_type(graph, graph.operators[0]) == "int4"


@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_reads_the_same_weights(kind: str, tmp_path: Path) -> None:
    """So int8 weights of the same values may stand for these."""
    samples = [[RNG.integers(-128, 128, (1, 5, 5, 3)).astype(np.int8)]]
    outputs = [
        run_reference(model(kind, dtype).save(tmp_path / f"{dtype}.tflite"), samples).tensors[0]
        for dtype in ("int4", "int8")
    ]
    last = max(outputs[0])
    np.testing.assert_array_equal(outputs[0][last], outputs[1][last])


def test_inspect_shows_it(tmp_path: Path) -> None:
    found = utvm_deploy.inspect(model("CONV_2D").save(tmp_path / "model.tflite"))
    (operator,) = found.to_dict()["operators"]
    assert found.ok
    weights = operator["inputs"][1]
    assert (weights["dtype"], weights["bytes"]) == ("int4", 68)
    assert operator["weights_bytes"] == 68 + 5 * 4


def test_activations_may_be_int16(tmp_path: Path) -> None:
    m = model("CONV_2D")
    for number in (0, 3):
        m.tensors[number].dtype, m.tensors[number].zero_points = "int16", (0,)
    bias = np.arange(5, dtype=np.int64)
    m.tensors[2].dtype, m.tensors[2].data = "int64", bias.tobytes()
    graph = load_model(m.save(tmp_path / "model.tflite"))
    assert weights_type(graph, graph.operators[0]) == "int4"


def product(**given: Any) -> ModelWriter:
    """A BATCH_MATMUL by int4 whose tensor is as ``given``."""
    m = ModelWriter()
    sides = [m.input((3, 4)), m.constant(np.zeros((4, 2), np.int8), 0.1)]
    options = ("BatchMatMulOptions", {"AdjX": False, "AdjY": False})
    m.output(m.node("BATCH_MATMUL", sides, (3, 2), options, scale=0.1))
    m.pack_weights()
    for name, value in given.items():
        setattr(m.tensors[1], name, value)
    return m


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"zero_points": (3,)}, "has the zero point 3; only 0 is supported with int16, or of int4"),
        ({"data": None}, "'tensor_1' of int4 is computed; it must be constant"),
    ],
)
def test_other_products_by_int4_are_refused(
    given: dict[str, Any], told: str, tmp_path: Path
) -> None:
    load_model(product().save(tmp_path / "model.tflite"))
    m = product(**given)
    if "data" in given:
        m.inputs.append(1)
    with pytest.raises(UnsupportedOperator, match=told):
        load_model(m.save(tmp_path / "model.tflite"))


def test_a_buffer_of_another_size_is_refused(tmp_path: Path) -> None:
    m = model("CONV_2D")
    m.tensors[1].data = WEIGHTS["CONV_2D"].tobytes()
    with pytest.raises(ModelError, match="type int4 needs 68 bytes, but its buffer has 135"):
        load_model(m.save(tmp_path / "model.tflite"))


def test_copies_of_shared_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    data = model("CONV_2D").to_bytes()
    monkeypatch.setattr(tflite_tables, "Budget", partial(Budget, copied=135))
    assert tflite_tables.read_file(data).tensors[1].dtype == "int4"
    monkeypatch.setattr(tflite_tables, "Budget", partial(Budget, copied=134))
    with pytest.raises(ModelError, match="of int4, of booleans, and without zeros, have more"):
        tflite_tables.read_file(data)


def test_usual_weights_are_not_in_the_identity(tmp_path: Path) -> None:
    graph = load_model(model("CONV_2D", "int8").save(tmp_path / "model.tflite"))
    assert isinstance(graph.operators[0].attributes, Convolution)
    assert weights_type(graph, graph.operators[0]) == ""
