"""utvm inspect of float models: the table, and what `utvm quantize` would do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from float_writer import FloatWriter
from onnx import TensorProto, helper, numpy_helper

from utvm_deploy.cli.main import main

MODELS = Path(__file__).resolve().parents[2] / "models"


def inspected(capsys: pytest.CaptureFixture[str], path: Path) -> dict[str, Any]:
    assert main(["inspect", str(path), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_network_that_can_be_quantized(capsys: pytest.CaptureFixture[str]) -> None:
    found = inspected(capsys, MODELS / "digits_float.tflite")["quantizable"]
    assert (found["operators"], found["int8"], found["int16"]) == (9, 9, 9)
    assert found["float_int8"] == found["float_int16"] == []
    assert main(["inspect", str(MODELS / "digits_float.tflite")]) == 0
    said = capsys.readouterr().out
    assert "utvm quantize --scheme int8: 9 of 9 operators become integers\n" in said
    (row,) = [line for line in said.splitlines() if line.startswith("1 ")]
    assert "int8, int16" in row and "3×3, pad 1, clamp 0.. " in row


def test_what_stays_float_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    m = FloatWriter()
    x = m.input((1, 4))
    for kind in ("EXP", "RSQRT", "SIN"):
        x = m.node(kind, [x], (1, 4), ("ExpOptions", {}) if kind == "EXP" else None)
    m.output(x)
    path = m.save(tmp_path / "net.tflite")
    found = inspected(capsys, path)["quantizable"]
    assert (found["int8"], found["int16"]) == (2, 2)
    assert found["float_int8"] == found["float_int16"] == ["SIN"]
    assert main(["inspect", str(path)]) == 0
    said = capsys.readouterr().out
    assert "2 of 3 operators become integers; these stay float32: SIN\n" in said
    (row,) = [line for line in said.splitlines() if line.startswith("2 ")]
    assert row.split()[:2] == ["2", "SIN"] and "stays float32" in row


@pytest.mark.parametrize("name", ["digits", "digits_int8", "digits_int16x8", "diabetes_int8"])
def test_a_quantized_model_is_not_told(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert inspected(capsys, MODELS / f"{name}.tflite")["quantizable"] is None
    assert main(["inspect", str(MODELS / f"{name}.tflite")]) == 0
    said = capsys.readouterr().out
    assert "utvm quantize" not in said and "clamp -" not in said


@pytest.mark.tools
def test_operators_of_an_onnx_file_are_those_of_the_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """TVM fuses them: the table has others."""
    path = onnx_file(tmp_path, "Sin")
    found = inspected(capsys, path)
    assert "Sin" not in found["kinds"]
    assert found["quantizable"]["types"]["Relu"] == ["int8", "int16"]
    assert (found["quantizable"]["operators"], found["quantizable"]["int8"]) == (3, 2)
    assert found["quantizable"]["float_int8"] == ["Sin"]
    assert found["quantizable"]["refused"] is None
    assert main(["inspect", str(path)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["Relu", "1", "int8,", "int16"] in rows and ["Sin", "1", "stays", "float32"] in rows


@pytest.mark.tools
def test_what_quantize_refuses_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = onnx_file(tmp_path, "Asinh")
    told = inspected(capsys, path)["quantizable"]["refused"]
    assert told is not None and "(Asinh), which makes 'c': there is no such operator here" in told
    assert main(["inspect", str(path)]) == 0
    said = capsys.readouterr().out
    assert f"! utvm quantize refuses the model: {told}\n" in said
    assert "become integers" not in said
    assert ["Asinh", "1", "refused"] in [line.split() for line in said.splitlines()]
    np.save(tmp_path / "x.npy", np.eye(4, dtype=np.float32))
    argv = ["quantize", str(path), "--data", str(tmp_path / "x.npy")]
    assert main([*argv, "-o", str(tmp_path / "out.tflite")]) == 1
    # The quantizers between them count as operators there.
    assert told.partition("(Asinh)")[2] in capsys.readouterr().err


def onnx_file(folder: Path, last: str) -> Path:
    """A float network of three operators."""
    weights = np.random.default_rng(0).normal(0, 1, (4, 4)).astype(np.float32)
    steps = [("MatMul", ["x", "w"], "a"), ("Relu", ["a"], "b"), (last, ["b"], "c")]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xc"]
    graph = helper.make_graph(
        [helper.make_node(kind, inputs, [output]) for kind, inputs, output in steps],
        "net",
        ends[:1],
        ends[1:],
        [numpy_helper.from_array(weights, "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    path = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path
