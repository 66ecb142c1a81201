"""Importing models: the graph that comes out computes what the oracle does, byte for byte."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from graph_interpreter import run_graph
from small_models import MODELS, build_model, int8, int32, sample_inputs
from tflite_serializer import CODE_FIELDS
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.frontend.operators.importers import IMPORTERS
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.attributes import Convolution
from utvm_deploy.oracle.reference import run_reference

#: What tests/kernels alone compares with the oracle, operator by operator.
COMPARED_AS_KERNELS = {
    *("ASSIGN_VARIABLE", "CAST", "EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"),
    *("LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR", "NOT_EQUAL", "READ_VARIABLE", "SELECT"),
    *("REDUCE_ALL", "REDUCE_ANY", "REDUCE_PROD", "SELECT_V2"),
    *(
        "ADD_N",
        "BATCH_TO_SPACE_ND",
        "BITWISE_XOR",
        "BROADCAST_TO",
        "CUMSUM",
        "DIV",
        "DYNAMIC_UPDATE_SLICE",
        "ELU",
        "EMBEDDING_LOOKUP",
        "EXP",
        "FILL",
        "FLOOR_MOD",
        "GATHER_ND",
        "GELU",
        "L2_NORMALIZATION",
        "LOG",
        "LOG_SOFTMAX",
        "ONE_HOT",
    ),
    *(
        "REVERSE_V2",
        "RIGHT_SHIFT",
        "RSQRT",
        "SIGN",
        "SPACE_TO_BATCH_ND",
        "SQRT",
        "SQUARED_DIFFERENCE",
        "SUM",
    ),
    *("TILE", "TOPK_V2", "UNIDIRECTIONAL_SEQUENCE_LSTM"),
}
SHARED = ("ad01_int8", "kws_ref_model", "pretrainedResnet_quant", "vww_96_int8")


@pytest.mark.parametrize("name", MODELS)
def test_imported_graph_computes_what_the_oracle_does(name: str, tmp_path: Path) -> None:
    model = build_model(name)
    path = model.save(tmp_path / "model.tflite")
    samples = [sample_inputs(model, seed) for seed in range(3)]
    reference = run_reference(path, samples)
    graph = load_model(path)
    compared, states = 0, {}
    for inputs, expected in zip(samples, reference.tensors, strict=True):
        values = run_graph(graph, inputs, states)
        for operator in graph.operators:
            source = graph.tensors[operator.outputs[0]].source
            assert source is not None
            np.testing.assert_array_equal(
                values[operator.outputs[0]].view(np.uint8), expected[source].view(np.uint8)
            )
            compared += 1
    assert compared == 3 * sum(len(operator.outputs) for operator in model.operators)


def test_small_models_hold_every_operator() -> None:
    kinds = {op.kind for name in MODELS for op in build_model(name).operators}
    assert not kinds & COMPARED_AS_KERNELS
    assert kinds | COMPARED_AS_KERNELS == set(IMPORTERS)


def test_graph_keeps_what_the_file_says(tmp_path: Path) -> None:
    path = build_model("branches").save(tmp_path / "two_ways.tflite")
    graph = load_model(path)
    assert graph.name == "two_ways"
    assert graph.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert [op.sources for op in graph.operators] == [(i,) for i in range(len(graph.operators))]
    first = graph.operators[0]
    assert first.attributes == Convolution(
        (2, 2), (1, 1), (0, 1, 0, 1), (0, 127), limits=(0.0, 6.0)
    )
    weights = graph.tensors[first.inputs[1] or 0]
    assert weights.shape == (8, 3, 3, 4)
    assert weights.quantization is not None and weights.quantization.scales == (
        float(np.float32(0.01)),
    )


def test_constants_cannot_be_changed(tmp_path: Path) -> None:
    graph = load_model(build_model("dense").save(tmp_path / "m.tflite"))
    constants = [t.data for t in graph.tensors if t.data is not None]
    assert len(constants) == 2
    assert not any(data.flags.writeable for data in constants)


@pytest.mark.parametrize("name", SHARED)
def test_shared_model(name: str, shared_models: Path) -> None:
    graph = load_model(shared_models / f"{name}.tflite")
    operators = {"ad01_int8": 10, "kws_ref_model": 13, "pretrainedResnet_quant": 16}
    assert len(graph.operators) == operators.get(name, 31)
    golden = np.load(shared_models / f"{name}.golden.npz")
    values = run_graph(graph, [golden["inputs"][0]])
    np.testing.assert_array_equal(values[graph.outputs[0]], golden["outputs"][0])


def test_absent_bias_may_also_be_written_as_minus_one(tmp_path: Path) -> None:
    model = build_model("dense_no_bias")
    model.operators[0].inputs.append(-1)
    path = model.save(tmp_path / "model.tflite")
    graph = load_model(path)
    assert graph.operators[0].inputs[2] is None
    inputs = sample_inputs(model)
    expected = run_reference(path, [inputs]).outputs[0][0]
    np.testing.assert_array_equal(run_graph(graph, inputs)[graph.outputs[0]], expected)


def _of_many_codes() -> ModelWriter:
    """Operators with small numbers, QUANTIZE (114), and one (150) beyond the old field."""
    m, rng = ModelWriter(), np.random.default_rng(5)
    x = m.conv2d(m.input((1, 4, 4, 3), 0.04, 5), int8(rng, 4, 3, 3, 3), int32(rng, 4), scale=0.3)
    x = m.add(x, m.quantize(x, scale=0.2, zero_point=3), scale=0.4)
    options = ("GeluOptions", {"Approximate": True})
    m.output(m.dequantize(m.node("GELU", [x], (1, 4, 4, 4), options)))
    return m


def test_operators_named_by_the_new_field_alone(tmp_path: Path) -> None:
    """As ai-edge-quantizer writes them."""
    m = _of_many_codes()
    m.operator_codes = CODE_FIELDS[:1]
    path = m.save(tmp_path / "model.tflite")
    assert [operator.kind for operator in load_model(path).operators] == [
        *("CONV_2D", "QUANTIZE", "ADD", "GELU", "DEQUANTIZE")
    ]
    inputs = sample_inputs(m)
    both = replace(m, operator_codes=CODE_FIELDS).save(tmp_path / "both.tflite")
    assert path.read_bytes() != both.read_bytes()
    found, expected = (run_reference(file, [inputs]).outputs[0][0] for file in (path, both))
    np.testing.assert_array_equal(found, expected)


def test_operators_named_by_the_old_field_alone(tmp_path: Path) -> None:
    """As converters wrote them before 2020."""
    m = build_model("float_ends")
    m.operator_codes = CODE_FIELDS[1:]
    kinds = [operator.kind for operator in m.operators]
    assert {"QUANTIZE", "DEQUANTIZE"} <= set(kinds)
    graph = load_model(m.save(tmp_path / "model.tflite"))
    assert [operator.kind for operator in graph.operators] == kinds


@pytest.mark.parametrize("fields", [CODE_FIELDS, CODE_FIELDS[:1], CODE_FIELDS[1:]])
def test_a_custom_operator_is_named(fields: tuple[str, ...], tmp_path: Path) -> None:
    m = build_model("add")
    m.operators[0].kind, m.operator_codes = "MyOp", fields
    with pytest.raises(UnsupportedOperator, match="CUSTOM 'MyOp'"):
        load_model(m.save(tmp_path / "model.tflite"))
