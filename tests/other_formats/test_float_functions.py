"""Functions of one element that TFLite has no operator of: what they become computes the same."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from onnx_writer import OnnxWriter

from utvm_deploy.cli.main import main
from utvm_deploy.quality.quantizing.model_steps import opened
from utvm_deploy.quality.quantizing.tflite.calibrate import outputs_of

pytestmark = pytest.mark.tools
pytest.importorskip("onnx", reason="pip install 'utvm-deploy[onnx]' brings it")

#: Ends, halves, and the neighbors of 0, 1 and 2^22.
VALUES = np.array(
    [
        *(0.0, 1e-45, -1e-45, 1e-38, -1e-38, 0.1, -0.1, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.5, -2.5),
        *(0.49999997, 1.0000001, 0.99999994, 3.7, -3.7, 9.25, -9.25, 100.4, -100.4, 4194303.5),
        *(4194304.5, -4194303.5, 8388609.0, 3e9, -3e9, 1e30, -1e30),
    ],
    np.float32,
)
_erf = np.vectorize(math.erf)
#: Kind -> its attributes, what numpy makes of x, and the largest difference.
FUNCTIONS = {
    "Atan": ({}, np.arctan, 3e-7),
    "Ceil": ({}, np.ceil, 0),
    "Erf": ({}, _erf, 5e-7),
    "Round": ({}, np.rint, 0),
    "Shrink": (
        {"lambd": 1.0, "bias": 0.5},
        lambda x: np.where(x < -1, x + 0.5, np.where(x > 1, x - 0.5, 0)),
        0,
    ),
    "Sign": ({}, np.sign, 0),
    "ThresholdedRelu": ({"alpha": 1.0}, lambda x: np.where(x > 1, x, 0), 0),
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_the_function_is_that_of_numpy(kind: str, tmp_path: Path) -> None:
    attributes, function, bound = FUNCTIONS[kind]
    writer = OnnxWriter((1, len(VALUES)))
    path = tmp_path / "function.onnx"
    writer.save(path, writer.add(kind, "x", **attributes))
    (found,) = outputs_of(opened(path, is_converted=True).data, [VALUES[np.newaxis, np.newaxis]])
    wanted = function(VALUES)
    finite = np.abs(VALUES) < 1e8 if kind in ("Atan", "Erf") else np.isfinite(VALUES)
    np.testing.assert_allclose(found.reshape(-1)[finite], wanted[finite], rtol=0, atol=bound)


def test_such_a_layer_stays_float_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = OnnxWriter((1, 8))
    path, target = tmp_path / "net.onnx", tmp_path / "net.tflite"
    hidden = writer.add("Erf", writer.add("Gemm", "x", writer.normal(8, 8)))
    writer.save(path, writer.add("Gemm", hidden, writer.normal(8, 8)))
    data = tmp_path / "data.npy"
    np.save(data, np.random.default_rng(1).normal(0, 1, (40, 8)).astype(np.float32))
    argv = ["quantize", str(path), "--data", str(data), "-o", str(target)]
    assert main([*argv, "--no-float"]) == 1
    assert "1 EXP" in capsys.readouterr().out
    assert main(["verify", str(target), "--board", "host", "--samples", "1"]) == 0
