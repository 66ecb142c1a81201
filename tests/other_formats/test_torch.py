"""PyTorch exports quantized by PT2E: what they become, and how far that is from PyTorch."""

from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import utvm_deploy
from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.frontend.torch import export as torch_export
from utvm_deploy.frontend.torch.export import torch_to_model
from utvm_deploy.oracle.origin import difference
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.results.verifying.on_board import verify


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        pytest.skip(f"{name} is not installed: pip install 'utvm-deploy[torch]' runs these")


def _quantized(
    module: Any, shape: tuple[int, ...], path: Path, *, dynamic_shapes: Any = None
) -> Path:
    torch = _import("torch")
    pt2e = _import("torchao.quantization.pt2e.quantize_pt2e")
    xnnpack = _import("torchao.testing.pt2e._xnnpack_quantizer")
    torch.manual_seed(0)
    example = (torch.randn(shape),)
    quantizer = xnnpack.XNNPACKQuantizer().set_global(
        xnnpack.get_symmetric_quantization_config(is_per_channel=True)
    )
    program = torch.export.export(module.eval(), example, dynamic_shapes=dynamic_shapes)
    exported = program.module()
    prepared = pt2e.prepare_pt2e(exported, quantizer)
    for _ in range(8):
        prepared(torch.randn(shape))
    converted = pt2e.convert_pt2e(prepared)
    program = torch.export.export(converted, example, dynamic_shapes=dynamic_shapes)
    torch.export.save(program, path)
    return path


def _network() -> Any:
    torch = _import("torch")
    nn = torch.nn

    class Network(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(1, 8, 3, 2, 1)
            self.norm = nn.BatchNorm2d(8)
            self.depthwise = nn.Conv2d(8, 8, 3, 1, 1, groups=8)
            self.pointwise = nn.Conv2d(8, 8, 1)
            self.pool = nn.AdaptiveAvgPool2d(1)
            self.dense = nn.Linear(160, 10)
            self.head = nn.Linear(8, 3)

        def forward(self, x: Any) -> Any:
            functional = torch.nn.functional
            x = functional.relu(self.norm(self.first(x)))
            x = x + self.pointwise(functional.relu(self.depthwise(x)))
            x = functional.max_pool2d(x, 2)
            head = self.head(self.pool(x).flatten(1))
            shares = functional.softmax(head, -1), functional.log_softmax(head, -1)
            return self.dense(x.flatten(1)), *shares

    return Network()


@pytest.mark.filterwarnings("ignore")
def test_network_equals_the_reference_on_the_device(tmp_path: Path) -> None:
    path = _quantized(_network(), (1, 1, 20, 16), tmp_path / "network.pt2")
    graph = load_model(path)
    samples = random_samples(graph, 3)
    reference = run_reference(path, samples.inputs)
    with utvm_deploy.connect("host") as device:
        model = device.load(utvm_deploy.compile(path, "host"), into="ram")
        assert verify(model, path, samples, reference=reference).ok
    found = difference(path, graph, samples.inputs, reference.outputs)
    assert found is not None and found.elements == 48
    assert found.largest_steps <= 3


@pytest.mark.filterwarnings("ignore")
def test_the_dynamic_batch_of_a_quantized_network_is_bound_to_one(tmp_path: Path) -> None:
    batch = _import("torch").export.Dim("batch", min=2, max=16)
    file = tmp_path / "network.pt2"
    path = _quantized(_network(), (2, 1, 20, 16), file, dynamic_shapes=({0: batch},))
    graph = load_model(path)
    assert graph.tensors[graph.inputs[0]].shape == (1, 1, 20, 16)
    samples = random_samples(graph, 3)
    reference = run_reference(path, samples.inputs)
    found = difference(path, graph, samples.inputs, reference.outputs)
    assert found is not None and found.elements == 48
    assert found.largest_steps <= 3


def _many_operators() -> Any:
    torch = _import("torch")
    nn = torch.nn

    class Many(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.image = nn.Sequential(
                nn.Conv2d(2, 8, 3),
                nn.GroupNorm(2, 8),
                nn.SiLU(),
                nn.ConvTranspose2d(8, 4, 3, 2, 1, 1),
                nn.InstanceNorm2d(4),
                nn.Hardsigmoid(),
                nn.Conv2d(4, 4, 1),
                nn.ELU(),
            )
            self.row = nn.Sequential(nn.Linear(8, 12), nn.LayerNorm(12), nn.GELU())
            self.attention = nn.MultiheadAttention(12, 2, batch_first=True)
            self.recurrent = nn.LSTM(12, 5, batch_first=True)

        def forward(self, x: Any) -> Any:
            x = self.image(x).flatten(2).transpose(1, 2)[:, :6]
            x = self.row(x.repeat(1, 1, 2) / 1.5)
            x = x + self.attention(x, x, x, need_weights=False)[0]
            x = torch.where(x > 0.1, x, x.masked_fill(x < -1.0, -1.0))
            x = torch.stack([self.recurrent(x)[0], x[:, :, 1:6]], 1)
            return x.var(1), x.amin(2), x.argmax(3)

    return Many()


@pytest.mark.filterwarnings("ignore")
def test_operators_as_wide_as_those_of_tflite(tmp_path: Path) -> None:
    path = _quantized(_many_operators(), (1, 2, 7, 6), tmp_path / "many.pt2")
    graph = load_model(path)
    samples = random_samples(graph, 2)
    reference = run_reference(path, samples.inputs)
    with utvm_deploy.connect("host") as device:
        model = device.load(utvm_deploy.compile(path, "host"), into="ram")
        assert verify(model, path, samples, reference=reference).ok
    found = difference(path, graph, samples.inputs, reference.outputs)
    assert found is not None and found.elements > 100


@pytest.mark.filterwarnings("ignore")
def test_unsupported_operators_are_refused(tmp_path: Path) -> None:
    torch = _import("torch")

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return torch.acosh(x + x), torch.sinh(x + x)

    with pytest.raises(UnsupportedOperator, match=r"2 operators .*\(acosh\).*\(sinh\)"):
        load_model(_quantized(Model(), (1, 4), tmp_path / "unsupported.pt2"))


@pytest.mark.filterwarnings("ignore")
def test_other_bytes_are_refused(tmp_path: Path) -> None:
    _import("torch")
    path = tmp_path / "model.pt2"
    path.write_bytes(b"nonsense")
    with pytest.raises(
        ModelError, match=r"cannot be read as a file that torch\.export\.save wrote"
    ):
        load_model(path)


def test_only_files_that_may_be_quantized_load_pt2e(tmp_path: Path) -> None:
    torch = _import("torch")
    plain, packed, zipped = (tmp_path / name for name in ("a.pt2", "b.pt2", "c.pt2"))
    torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.zeros(1, 4),)), plain)
    packed.write_bytes(plain.read_bytes() + b"quantized_decomposed")
    with zipfile.ZipFile(plain) as source, zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as to:
        for name in source.namelist():
            to.writestr(name, source.read(name))
    asked = [torch_export._names_quantizers(path) for path in (plain, packed, zipped)]
    assert asked == [False, True, True]
    (tmp_path / "bad.pt2").write_bytes(b"no archive")
    assert not torch_export._names_quantizers(tmp_path / "bad.pt2")
    assert not torch_export._names_quantizers(tmp_path / "absent.pt2")


def test_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    path = tmp_path / "model.pt2"
    path.write_bytes(b"")
    with pytest.raises(ModelError, match=r"pip install 'utvm-deploy\[torch\]'"):
        torch_to_model(path)
