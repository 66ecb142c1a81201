"""Weights in a number format: the bytes of the float32 model whose weights were rounded."""

from __future__ import annotations

from pathlib import Path

import pytest
import tvm
from float_writer import FloatWriter
from format_models import SHAPES, drawn, module, network
from sparse_writer import sparsified

import utvm_deploy
from utvm_deploy.base.errors import UsageError
from utvm_deploy.device import Device
from utvm_deploy.frontend.files.given_shapes import with_chosen
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.number_formats import known_format

pytestmark = pytest.mark.tools


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_bytes_are_those_of_rounded_weights(device: Device, tmp_path: Path, name: str) -> None:
    path = network(tmp_path / "net.tflite")
    found = utvm_deploy.verify(path, device, samples=2, number_format=name)
    assert found.ok
    assert all(check.bound.is_exact for check in found.found.layers)
    compiled = utvm_deploy.compile(path, device.board, number_format=name)
    whole = utvm_deploy.compile(path, device.board)
    floats = 4 * (8 * 27 + 72 + 2880 + 10)
    assert floats // 2 <= compiled.weights_bytes < 0.51 * whole.weights_bytes
    assert {layer.engine for layer in compiled.layers if layer.kind != "RESHAPE"} == {"generic"}


@pytest.mark.parametrize(("where", "name"), [("host", "float16"), ("mps2_an500", "bfloat16")])
def test_relax_modules_have_the_bytes_of_rounded_weights(
    where: str, name: str, tmp_path: Path
) -> None:
    """Also of weights in a function of TVM's."""
    own, x = known_format(name), drawn(1, 3, 8, 8)
    weights = [drawn(*shape) for shape in SHAPES]
    compiled = utvm_deploy.compile(module(weights), where, number_format=name)
    rounded = utvm_deploy.compile(module([own.rounded(one) for one in weights]), where)
    assert compiled.weights_bytes < 0.55 * rounded.weights_bytes
    path = tmp_path / "module.relax"
    path.write_text(tvm.ir.save_json(module(weights)))
    with utvm_deploy.connect(where, timing="instructions") as device:
        ours, theirs = (device.load(one)(x) for one in (compiled, rounded))
        assert ours.tobytes() == theirs.tobytes()
        assert utvm_deploy.verify(path, device, samples=1, number_format=name).ok


def test_weights_that_are_stored_without_zeros_are_rounded(tmp_path: Path) -> None:
    weights = drawn(6, 8)
    weights[:, ::2] = 0
    m = FloatWriter()
    m.output(m.fully_connected(m.input((1, 8)), weights, drawn(6)))
    (operator,) = m.operators
    stored = m.tensors[operator.inputs[1]]
    stored.sparsity, stored.data = sparsified(weights, (1,))
    path = m.save(tmp_path / "sparse.tflite")
    with with_chosen(number_format="bfloat16"):
        graph = load_model(path)
    found = graph.tensors[graph.operators[0].inputs[1] or 0].data
    assert found is not None
    assert found.tobytes() == known_format("bfloat16").rounded(weights).tobytes()
    assert utvm_deploy.verify(path, "host", samples=2, number_format="bfloat16").ok


def test_the_graph_says_the_format(tmp_path: Path) -> None:
    path = network(tmp_path / "net.tflite")
    assert load_model(path).number_format is None
    with with_chosen(number_format="bfloat16"):
        graph = load_model(path)
    assert graph.number_format is known_format("bfloat16")
    with pytest.raises(UsageError, match="number_format is for files and Relax modules"):
        import torch

        utvm_deploy.compile(
            torch.nn.Linear(4, 2), "host", inputs=(torch.zeros(1, 4),), number_format="bfloat16"
        )
