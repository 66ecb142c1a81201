"""Relax modules from Python: shapes, refusals, and the same bits as NumPy where both only add."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

import utvm_deploy
from utvm_deploy.base.errors import ModelError
from utvm_deploy.cli.main import main


def module(*extents: int | tirx.Var) -> tvm.IRModule:
    """relu(x) + 1, as a module with one input ``x``."""
    x = relax.Var("x", relax.TensorType(extents, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            positive = builder.emit(relax.op.nn.relu(x))
            sums = relax.op.add(positive, relax.const(np.ones(4, np.float32)))
            output = builder.emit_output(sums)
        builder.emit_func_output(output)
    return builder.get()


def symbolic() -> tvm.IRModule:
    return module(tirx.Var("n", "int64"), tirx.Var("steps", "int64"), 4)


def test_shapes_and_arrays_bind_symbols() -> None:
    for given, expected in (((1, 6, 4), (1, 6, 4)), (np.zeros((2, 5, 4)), (2, 5, 4))):
        graph = utvm_deploy.from_relax(symbolic(), inputs={"x": given})
        assert graph.tensors[graph.inputs[0]].shape == expected
        assert graph.tensors[graph.outputs[0]].shape == expected


def test_a_batch_becomes_one_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    graph = utvm_deploy.from_relax(module(tirx.Var("n", "int64"), 4))
    assert graph.tensors[graph.inputs[0]].shape == (1, 4)
    assert "the batch 'n' of input 'x' is bound to 1" in caplog.text


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({}, r"'x' has the symbolic shape \(1, steps, 4\); give it one with --shape x="),
        ({"y": (1,)}, "has no input 'y'; its inputs: x"),
        ({"x": (1, 6, 5)}, r"the shape \(n, steps, 4\), which 1,6,5 does not fit"),
        ({"x": (1, 6)}, "has 3 dimensions"),
        ({"x": (1, 0, 4)}, "extents are at least 1"),
        ({"x": "abc"}, "neither a shape"),
        ({"x": (1, 2**31, 4)}, "extents are at most 2,147,483,647"),
        ([(1, 6, 4)], "inputs is of type list; give a dict"),
        ([True, 6, 4], r"the input has neither a shape.*: \[True, 6, 4\]"),
        ({"x": (1, 6, np.True_)}, "input 'x' has neither a shape"),
    ],
)
def test_wrong_shapes(inputs: Any, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        utvm_deploy.from_relax(symbolic(), inputs=inputs)


def test_what_is_no_module() -> None:
    with pytest.raises(ModelError, match="this is an object of type str, not a module"):
        utvm_deploy.from_relax("model")
    with pytest.raises(ModelError, match="no Relax function 'main'; its Relax functions: none"):
        utvm_deploy.from_relax(tvm.IRModule())


@pytest.mark.tools
def test_a_module_on_the_host() -> None:
    x = np.random.default_rng(3).standard_normal((2, 3, 4)).astype(np.float32)
    with utvm_deploy.connect("host") as device:
        compiled = utvm_deploy.compile(symbolic(), "host", inputs={"x": x})
        made = device.load(compiled, into="ram")(x)
    assert made.tobytes() == (np.maximum(x, np.float32(0)) + np.float32(1)).tobytes()


@pytest.mark.tools
def test_a_file_with_a_module(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.relax"
    path.write_text(tvm.ir.save_json(symbolic()))
    assert main(["inspect", str(path), "--shape", "x=1,6,4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["inputs"][0]["shape"] == [1, 6, 4]
    assert main(["inspect", str(path)]) == 1
    assert "symbolic shape" in capsys.readouterr().err
    path.write_text("{}")
    assert main(["inspect", str(path)]) == 1
    assert "not a module that tvm.ir.save_json" in capsys.readouterr().err


@pytest.mark.parametrize("given", ["x", "x=", "x=1,a", "x=0", "=1", "x=2147483648"])
def test_options_that_are_no_shapes(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "model.onnx", "--shape", given]) == 2
    assert "--shape" in capsys.readouterr().err


def test_a_shape_for_a_model_whose_shapes_are_fixed(capsys: pytest.CaptureFixture[str]) -> None:
    digits = Path(__file__).parents[2] / "models" / "digits.tflite"
    assert main(["inspect", str(digits), "--shape", "x=1,2"]) == 1
    assert "the model has no input 'x'; its inputs:" in capsys.readouterr().err
    assert main(["inspect", str(digits), "--shape", "1,2"]) == 1
    assert "has 4 dimensions (1, 8, 8, 1), but the given shape 1,2" in capsys.readouterr().err
