"""Float .pt2 files: PyTorch exports that were not quantized become firmware by way of Relax."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import utvm_deploy
from utvm_deploy.base.errors import ModelError
from utvm_deploy.cli.main import main
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.frontend.torch.export import torch_to_model
from utvm_deploy.quality.quantizing.model_steps import opened
from utvm_deploy.quality.quantizing.tflite.calibrate import outputs_of

torch = pytest.importorskip(
    "torch",
    reason="PyTorch is not installed; its installation page has builds for the CPU",
)

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.tools]


@pytest.fixture(scope="module", autouse=True)
def with_torchao() -> None:
    """Loaded when these tests run, and not by each process that lists them."""
    pytest.importorskip("torchao", reason="torchao is not installed: pip install torchao")


def network() -> Any:
    nn = torch.nn
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64, 5)),
    ).eval()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small convolutional network, as ``torch.export.save`` writes it."""
    made = tmp_path_factory.mktemp("float") / "network.pt2"
    torch.export.save(torch.export.export(network(), (torch.zeros(1, 3, 8, 8),)), made)
    return made


def test_inspect_shows_the_table(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(path)]) == 0
    told = capsys.readouterr().out
    assert "CONV_2D" in told and "FULLY_CONNECTED" in told
    # The counts are of PyTorch's operators, and not of TVM's, as in the table.
    assert "operators become integers" in told and "stay float32" not in told


def test_verify_names_the_oracle_and_compares_with_torch(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(path), "--board", "host", "--samples", "2"]) == 0
    told = capsys.readouterr().out
    assert "float32 outputs within" in told and "LLVM" in told and "compared with torch" in told


def test_a_float_file_equals_eager(path: Path) -> None:
    x = torch.randn(1, 3, 8, 8)
    with utvm_deploy.connect("host") as device, torch.no_grad():
        found = device.load(utvm_deploy.compile(path, "host"), into="ram")(x)
        torch.testing.assert_close(found, network()(x), atol=1e-6, rtol=1e-5)


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network with a batch of two and more, called by the name of its argument."""
    made = tmp_path_factory.mktemp("dynamic") / "network.pt2"
    batch = torch.export.Dim("batch", min=2, max=64)
    example = {"input": torch.zeros(2, 3, 8, 8)}
    program = torch.export.export(network(), (), example, dynamic_shapes={"input": {0: batch}})
    torch.export.save(program, made)
    return made


def test_a_dynamic_batch_is_bound_to_one(
    dynamic: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    x = torch.randn(1, 3, 8, 8)
    for model in (dynamic, torch.export.load(dynamic)):
        caplog.clear()
        with utvm_deploy.connect("host") as device, torch.no_grad():
            found = device.load(utvm_deploy.compile(model, "host"), into="ram")(x)
        torch.testing.assert_close(found, network()(x), atol=1e-6, rtol=1e-5)
        assert "the batch of input 'input' is bound to 1" in caplog.text
    assert main(["verify", str(dynamic), "--board", "host", "--samples", "2"]) == 0
    assert "compared with torch" in capsys.readouterr().out


def test_a_dynamic_batch_is_quantized_as_one(
    dynamic: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, made = tmp_path / "data.npy", tmp_path / "network.tflite"
    np.save(data, np.random.default_rng(0).normal(size=(20, 1, 3, 8, 8)).astype(np.float32))
    assert main(["quantize", str(dynamic), "--data", str(data), "-o", str(made)]) == 0
    told = capsys.readouterr()
    assert "the batch of input 'input' is bound to 1" in told.out + told.err
    graph = load_model(made)
    assert graph.tensors[graph.inputs[0]].shape == (1, 3, 8, 8)
    assert any(one.kind == "CONV_2D" for one in graph.operators)


def test_other_dynamic_shapes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "dynamic.pt2"
    dynamic = ({1: torch.export.Dim("rows", min=2, max=64)},)
    module = torch.nn.ReLU()
    example = (torch.zeros(1, 4, 4),)
    torch.export.save(torch.export.export(module, example, dynamic_shapes=dynamic), path)
    with pytest.raises(ModelError, match="dimension 1 of input 'input' has no fixed size"):
        torch_to_model(path)


def test_quantize_makes_a_tflite_file(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, made = tmp_path / "calib.npz", tmp_path / "out.tflite"
    samples = np.random.default_rng(0).standard_normal((40, 3, 8, 8)).astype(np.float32)
    np.savez(data, inputs=samples)
    argv = ["quantize", str(path), "--data", str(data), "--input-range=-8,8", "-o", str(made)]
    assert main([*argv, "--no-float", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["samples"] == 40 and told["compared_samples"] == 40 and not told["held_out"]
    assert not told["float_operators"]
    assert told["outputs"][0]["sqnr_db"] > 20
    graph = load_model(made)
    (source,) = (graph.tensors[i] for i in graph.inputs)
    assert source.dtype == "int8" and source.quantization is not None
    assert source.quantization.scale == pytest.approx(16 / 255)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float64"])
def test_other_floats_are_refused_by_each_verb(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dtype, path = getattr(torch, name), tmp_path / "other.pt2"
    module = torch.nn.Linear(8, 4).to(dtype)
    torch.export.save(torch.export.export(module, (torch.zeros(1, 8, dtype=dtype),)), path)
    with pytest.raises(ModelError, match=rf"weight 'weight' is {name}, .*; call model\.float\(\)"):
        torch_to_model(path)
    if name != "float64":
        return
    data = tmp_path / "calib.npz"
    np.savez(data, inputs=np.zeros((4, 8), np.float32))
    assert main(["quantize", str(path), "--data", str(data), "-o", str(tmp_path / "o.tflite")]) == 1
    assert "other.pt2: weight 'weight' is float64, and only" in capsys.readouterr().err


def test_an_input_of_float64_is_named(tmp_path: Path) -> None:
    path = tmp_path / "input.pt2"
    example = (torch.zeros(1, 8, dtype=torch.float64),)
    torch.export.save(torch.export.export(torch.nn.ReLU(), example), path)
    with pytest.raises(ModelError, match=r"input\.pt2: input 'input' is float64, and only float32"):
        torch_to_model(path)


def test_files_of_torch_save_are_named(tmp_path: Path) -> None:
    path = tmp_path / "state.pt2"
    torch.save(network().state_dict(), path)
    with pytest.raises(
        ModelError, match=r"torch\.save wrote, and no program; .*torch\.export\.sav"
    ):
        torch_to_model(path)


def test_torchscript_is_named(tmp_path: Path) -> None:
    path = tmp_path / "traced.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("traced/data.pkl", "traced/constants.pkl", "traced/version"):
            archive.writestr(name, "")
    with pytest.raises(ModelError, match=r"is TorchScript, .*torch\.export\.save"):
        torch_to_model(path)


@pytest.mark.parametrize(
    ("part", "told"),
    [("data/weights/weight_0", "data/weights/weight_0: file not found"), ("version", "version")],
)
def test_the_cause_of_a_damaged_file_is_told(part: str, told: str, tmp_path: Path) -> None:
    """PyTorch only logs it, and raises "check the warnings above"."""
    whole, damaged = tmp_path / "whole.pt2", tmp_path / "damaged.pt2"
    torch.export.save(torch.export.export(torch.nn.Linear(2, 2), (torch.zeros(1, 2),)), whole)
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(damaged, "w") as copy:
        for name in source.namelist():
            if not name.endswith(part):
                copy.writestr(name, source.read(name))
    with pytest.raises(ModelError, match=r"as a file that torch\.export\.save wrote: ") as caught:
        torch_to_model(damaged)
    assert told in str(caught.value)
    assert "warnings above" not in str(caught.value)


def test_a_shape_for_a_pt2_file_is_refused(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(path), "--shape", "x=1,3,8,8"]) == 1
    assert "network.pt2 has fixed shapes, so --shape does not apply" in capsys.readouterr().err


class _Functions(torch.nn.Module):  # type: ignore[name-defined,misc]
    """Functions that TFLite has no operator of, each of the same input."""

    def forward(self, x: Any) -> Any:
        places = torch.tensor([3, 1, 0, 2])
        made = [torch.ceil(x), torch.round(x), torch.trunc(x), torch.sign(x), torch.erf(x)]
        made += [torch.exp2(x), torch.expm1(x), torch.log1p(x.abs()), torch.atan(x), x[:, places]]
        return torch.cat(made, 1)


def test_functions_that_tflite_lacks_equal_eager(tmp_path: Path) -> None:
    samples = np.array([[[0.0, 0.5, -1.5, 2.5]], [[-0.3, 1.2, 3.7, -4.6]]], np.float32)
    module = _Functions().eval()
    path = tmp_path / "functions.pt2"
    torch.export.save(torch.export.export(module, (torch.from_numpy(samples[0]),)), path)
    (found,) = outputs_of(opened(path, is_converted=True).data, [samples])
    for sample, output in zip(samples, found, strict=True):
        wanted = module(torch.from_numpy(sample)).numpy()
        np.testing.assert_allclose(output, wanted, rtol=1e-6, atol=1e-6)
