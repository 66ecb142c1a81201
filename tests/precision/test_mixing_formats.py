"""Schemes for each layer of ONNX and PyTorch models, which become float .tflite files first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from other_formats.onnx_writer import OnnxWriter

import utvm_deploy
from utvm_deploy.base.errors import ModelError
from utvm_deploy.cli.main import main
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.quality.precision.steps import MixedModel, quantize_mixed, sensitivities
from utvm_deploy.quality.quantizing.facts import QuantizedModel
from utvm_deploy.quality.quantizing.model_steps import quantize_model
from utvm_deploy.quality.quantizing.torch.calibration import labelled_samples
from utvm_deploy.quality.quantizing.torch.files import file_of_module

pytestmark = pytest.mark.tools

SAMPLES = np.random.default_rng(3).normal(size=(40, 3, 8, 8)).astype(np.float32)


def _onnx(path: Path) -> Path:
    w = OnnxWriter((1, 3, 8, 8), seed=2)
    y = w.add("Relu", w.conv("x", 3, 8, 3, 3, pads=[1, 1, 1, 1]))
    y = w.add("GlobalAveragePool", w.conv(y, 8, 8, 3, 3))
    y = w.add("LeakyRelu", w.add("Gemm", w.add("Flatten", y), w.normal(8, 4)), alpha=0.1)
    return w.save(path, w.add("Softmax", y))


def network() -> Any:
    """Convolutions with batch normalizations that are not trivial, a pool and a dense layer."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("torchao")
    nn = torch.nn
    torch.manual_seed(4)
    norms = [nn.BatchNorm2d(8) for _ in range(2)]
    for norm in norms:
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
        norm.weight.data.uniform_(0.5, 2)
        norm.bias.data.normal_()
    before = (nn.Conv2d(3, 8, 3, padding=1), norms[0], nn.ReLU())
    behind = (nn.Conv2d(8, 8, 3, groups=8, bias=False), norms[1], nn.AdaptiveAvgPool2d(1))
    return nn.Sequential(*before, *behind, nn.Flatten(), nn.Linear(8, 4), nn.Softmax(-1)).eval()


def _pt2(path: Path) -> Path:
    module = network()
    torch = pytest.importorskip("torch")
    torch.export.save(torch.export.export(module, (torch.zeros(1, 3, 8, 8),)), path)
    return path


def _check(made: MixedModel, folder: Path, board: str) -> None:
    """The bytes are those of the reference, and the outputs no worse than those of int8."""
    assert made.mixed.loss <= made.mixed.losses["int8"]
    assert not made.float_operators
    assert all((one.sqnr_db or 100.0) > 40 for one in made.outputs)
    path = folder / "mixed.tflite"
    made.save(path)
    graph = load_model(path)
    # The shape is that of the source.
    assert graph.tensors[graph.inputs[0]].shape == (1, 3, 8, 8)
    assert {"int8", "int16"} <= {tensor.dtype for tensor in graph.tensors}
    assert main(["verify", str(path), "--board", board, "--samples", "2"]) == 0


def test_an_onnx_model_is_mixed(tmp_path: Path) -> None:
    made = utvm_deploy.quantize(_onnx(tmp_path / "net.onnx"), SAMPLES, scheme="mixed", max_loss=9.0)
    assert isinstance(made, MixedModel) and made.mixed.loss_unit == "dB"
    assert 0 < len(made.mixed.wide) < len(made.rows)
    _check(made, tmp_path, "mps2_an500")


def test_a_program_is_mixed(tmp_path: Path) -> None:
    made = quantize_mixed(_pt2(tmp_path / "net.pt2"), SAMPLES, max_loss=3.0)
    # Batch normalizations became part of the layers before them.
    assert [row.kind for row in made.rows] == [
        *("CONV_2D", "DEPTHWISE_CONV_2D", "MEAN", "FULLY_CONNECTED", "SOFTMAX")
    ]
    _check(made, tmp_path, "host")


def test_with_labels_the_loss_is_in_points(tmp_path: Path) -> None:
    data = {"inputs": SAMPLES, "labels": np.arange(40) % 4}
    found = sensitivities(_onnx(tmp_path / "net.onnx"), data)
    assert all(row.points is not None for row in found.rows)


def test_the_weights_of_an_onnx_model_are_equalized(tmp_path: Path) -> None:
    made = quantize_model(_onnx(tmp_path / "net.onnx"), SAMPLES, equalize="yes")
    assert made.equalizing is not None and not made.float_operators


def test_the_clippings_of_a_module_are_compared() -> None:
    made = utvm_deploy.quantize(network(), SAMPLES, clipping="auto")
    assert isinstance(made, QuantizedModel)
    assert set(made.clippings) == {"min-max", "percentile", "mse"}


def test_a_module_is_mixed_by_the_labels_of_a_loader(tmp_path: Path) -> None:
    module = network()
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(SAMPLES)
    with torch.no_grad():
        labels = module(x).argmax(-1)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(x, labels), batch_size=8, shuffle=True
    )
    made = utvm_deploy.quantize(module, loader, scheme="mixed", max_loss=5.0)
    assert isinstance(made, MixedModel) and made.mixed.loss_unit == "percentage points"
    assert made.mixed.loss <= 5.0 and (made.outputs[0].sqnr_db or 100.0) > 40
    path = tmp_path / "mixed.tflite"
    made.save(path)
    rows = [x[i : i + 1] for i in range(3)]
    reference = run_reference(path, [[row.numpy()] for row in rows])
    with utvm_deploy.connect("host") as device:
        model = device.load(utvm_deploy.compile(made, "host", name="mixed"))
        found = [model(row) for row in rows]
    for ours, theirs in zip(found, reference.outputs, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs[0])


def test_labels_are_integers_behind_the_inputs() -> None:
    torch = pytest.importorskip("torch")
    x, example, layer = torch.zeros(5, 3), (torch.zeros(1, 3),), torch.nn.Linear(3, 2)
    _, labels = labelled_samples(layer, [(x, torch.arange(5))], example)
    assert labels is not None and labels.tolist() == [0, 1, 2, 3, 4]
    samples, labels = labelled_samples(layer, [(x[:1], 4), (x[:1], 2)], example)
    assert labels is not None and labels.tolist() == [4, 2] and len(samples) == 2
    named = [{"input": x[:1], "label": 3}]
    _, labels = labelled_samples(layer, named, example)
    assert labels is not None and labels.tolist() == [3]
    for data in ([(x, torch.ones(5))], [(x, torch.ones(5, 2, dtype=torch.int64))], x, [x]):
        assert labelled_samples(layer, data, example)[1] is None


def test_data_that_say_no_shape_need_examples() -> None:
    with (
        pytest.raises(ModelError, match=r"do not say the shapes .* give example_inputs, too"),
        file_of_module(network(), {"x": SAMPLES}, None),
    ):
        pass


def test_an_operator_without_a_form_in_tflite_is_named(tmp_path: Path) -> None:
    w = OnnxWriter((1, 3, 8, 8), seed=2)
    y = w.add("Det", w.conv("x", 3, 8, 3, 3, pads=[1, 1, 1, 1]))
    path = w.save(tmp_path / "net.onnx", y)
    with pytest.raises(ModelError, match=r"net\.onnx: .*\(Det\).* there is no such operator"):
        sensitivities(path, SAMPLES)
