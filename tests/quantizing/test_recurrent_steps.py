"""GRU, LSTM and RNN of PyTorch: equal ranges in each step, so that the steps become a loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import utvm_deploy
from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.program import Program

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

STEPS, INPUTS, CELLS = 5, 6, 16


@pytest.fixture(scope="module", autouse=True)
def with_torchao() -> None:
    """Loaded when these tests run, and not by each process that lists them."""
    pytest.importorskip("torchao", reason="torchao is not installed: pip install torchao")


def layer(kind: str, **options: Any) -> Any:
    """A recurrent layer with a dense one, whose first state is zero."""
    torch.manual_seed(2)

    class Recurrent(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.cells = getattr(torch.nn, kind)(INPUTS, CELLS, batch_first=True, **options)
            self.dense = torch.nn.Linear(CELLS * (1 + self.cells.bidirectional), 3)

        def forward(self, x: Any) -> Any:
            return self.dense(self.cells(x)[0][:, -1])

    return Recurrent().eval()


def data(count: int = 16) -> Any:
    rng = np.random.default_rng(5)
    return torch.from_numpy(rng.normal(0, 1, (count, STEPS, INPUTS)).astype(np.float32))


@pytest.mark.tools
@pytest.mark.parametrize(
    ("kind", "scheme", "options", "loops"),
    [
        ("GRU", "int8", {}, 1),
        ("LSTM", "int8", {"num_layers": 2}, 2),
        ("RNN", "int16x8", {"bidirectional": True}, 2),
    ],
)
def test_steps_are_a_loop(
    kind: str, scheme: str, options: dict[str, Any], loops: int, tmp_path: Path
) -> None:
    made = utvm_deploy.quantize(layer(kind, **options), data(), scheme=scheme)
    path = tmp_path / "cells.tflite"
    made.save(path)
    assert made.outputs[0].sqnr_db is not None and made.outputs[0].sqnr_db > 20
    compiled = utvm_deploy.compile(path, "mps2_an500")
    # The first step begins from zeros, so it lacks a product, and is apart.
    assert [loop.steps for loop in compiled.loops] == [STEPS - 1] * loops
    assert utvm_deploy.verify(path, "host", samples=2).ok


@pytest.mark.tools
def test_equal_steps_have_equal_scales(tmp_path: Path) -> None:
    """A part of a split tensor keeps its scale, and a sigmoid that of its kernel."""
    path = tmp_path / "gru.tflite"
    utvm_deploy.quantize(layer("GRU"), data()).save(path)
    graph = load_model(path)
    inside = [op for op in graph.operators if op.kind == "QUANTIZE"]
    assert len(inside) == 1  # of the input
    sums = [graph.tensors[op.outputs[0]] for op in graph.operators if op.kind == "SUB"]
    assert len(sums) == STEPS and len({one.quantization for one in sums}) == 1


@pytest.mark.tools
def test_parts_of_channels_are_no_steps(tmp_path: Path) -> None:
    """Products that are cut into channels keep a scale for each of these."""
    torch.manual_seed(2)

    class Parts(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.dense = torch.nn.Linear(INPUTS, 2 * CELLS)

        def forward(self, x: Any) -> Any:
            made = self.dense(x)
            return made[..., :CELLS] * made[..., CELLS:]

    path = tmp_path / "parts.tflite"
    utvm_deploy.quantize(Parts().eval(), data()).save(path)
    graph = load_model(path)
    (dense,) = (op for op in graph.operators if op.kind == "FULLY_CONNECTED")
    quantization = graph.tensors[dense.inputs[1] or 0].quantization
    assert quantization is not None and len(quantization.scales) == 2 * CELLS


@pytest.mark.tools
def test_state_of_several_layers_as_an_input() -> None:
    """Its first axis counts layers, not samples."""

    class Stacked(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.cells = torch.nn.GRU(INPUTS, CELLS, 2, batch_first=True)

        def forward(self, x: Any, state: Any) -> Any:
            return self.cells(x, state)

    states = torch.rand(16, 2, 1, CELLS) - 0.5
    whole = [(x[None], state) for x, state in zip(data(), states, strict=True)]
    module = Stacked().eval()
    # PT2E alone, without a comparison of ways.
    listed = utvm_deploy.quantize(module, whole, equalize="no")
    stacked = utvm_deploy.quantize(module, (data(), states), example_inputs=whole[0], equalize="no")
    assert listed.data == stacked.data
    assert [one.sqnr_db > 20 for one in listed.outputs if one.sqnr_db] == [True, True]


def onnx_layer(kind: str, folder: Path, *, has_state: bool) -> Path:
    """A layer of two directions; its state may be an input."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    rng, gates = np.random.default_rng(3), {"GRU": 3, "LSTM": 4, "RNN": 1}[kind]

    def normal(*shape: int) -> Any:
        return rng.normal(0, 0.3, shape).astype(np.float32)

    weights = {
        "w": normal(2, gates * CELLS, INPUTS),
        "r": normal(2, gates * CELLS, CELLS),
        "b": normal(2, 2 * gates * CELLS),
    }
    states = ["h", "c"][: 2 if kind == "LSTM" else 1] if has_state else []
    helper, float32 = onnx.helper, onnx.TensorProto.FLOAT
    last = ["y_h", "y_c"][: max(len(states), 1)]
    node = helper.make_node(
        kind,
        ["x", *weights, "", *states],
        ["", *last],
        hidden_size=CELLS,
        direction="bidirectional",
    )
    graph = helper.make_graph(
        [node],
        "cells",
        [
            helper.make_tensor_value_info("x", float32, (STEPS, 1, INPUTS)),
            *(helper.make_tensor_value_info(one, float32, (2, 1, CELLS)) for one in states),
        ],
        [helper.make_tensor_value_info(one, float32, (2, 1, CELLS)) for one in last],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    path = folder / f"{kind}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


@pytest.mark.tools
@pytest.mark.parametrize(("kind", "has_state"), [("GRU", True), ("LSTM", True), ("RNN", False)])
def test_steps_of_onnx_are_a_loop(kind: str, has_state: bool, tmp_path: Path) -> None:
    path = onnx_layer(kind, tmp_path, has_state=has_state)
    rng = np.random.default_rng(6)
    names = {"x": (STEPS, 1, INPUTS), "h": (2, 1, CELLS), "c": (2, 1, CELLS)}
    given = ["x", *(["h", "c"][: 2 if kind == "LSTM" else 1] if has_state else [])]
    samples = {n: rng.uniform(-1, 1, (12, *names[n])).astype(np.float32) for n in given}
    made = utvm_deploy.quantize(path, samples)
    assert made.outputs[0].sqnr_db is not None and made.outputs[0].sqnr_db > 20
    made.save(tmp_path / "cells.tflite")
    compiled = utvm_deploy.compile(tmp_path / "cells.tflite", "host")
    # One loop may have both directions.
    assert all(loop.steps >= STEPS - 1 for loop in compiled.loops)
    rolled = sum(loop.steps * loop.period for loop in compiled.loops)
    assert rolled > len(compiled.layers) // 2
    assert utvm_deploy.verify(tmp_path / "cells.tflite", "host", samples=2).ok


@pytest.mark.tools
def test_a_state_that_the_model_keeps(tmp_path: Path) -> None:
    """``--state`` gives both ends one scale, and the kept state is what a caller would hand on."""
    path, states = onnx_layer("GRU", tmp_path, has_state=True), {"h": "y_h"}
    rng = np.random.default_rng(6)
    samples = {
        "x": rng.uniform(-1, 1, (12, STEPS, 1, INPUTS)).astype(np.float32),
        "h": rng.uniform(-0.1, 0.1, (12, 2, 1, CELLS)).astype(np.float32),
    }
    with pytest.raises(ModelError, match="no output 'h' for --state; its outputs: y_h"):
        utvm_deploy.quantize(path, samples, states={"h": "h"})
    explicit, kept = tmp_path / "cells.tflite", tmp_path / "kept.tflite"
    utvm_deploy.quantize(path, samples, states=states).save(explicit)
    utvm_deploy.convert(explicit, kept, states=states)
    one, other = Program(kept.read_bytes()), Program(explicit.read_bytes())
    (shape, dtype), (_, _) = other.forms
    state = np.full((2, 1, CELLS), other.quantized(other.inputs[1]).zero_point, dtype)
    for step in range(4):
        x = rng.integers(-90, 90, shape).astype(dtype)
        state = other.one([x, state])[other.outputs[0]]
        assert np.array_equal(one.one([x])[one.outputs[0]], state), step
    # The float model keeps it, too.
    assert len(utvm_deploy.compile(path, "host", states=states).states) == 1
