"""PyTorch modules in memory: quantized, compiled and called with tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import utvm_deploy
from utvm_deploy.base.errors import ModelError, UtvmError
from utvm_deploy.device import Device
from utvm_deploy.oracle.reference import run_reference

torch = pytest.importorskip(
    "torch",
    reason="PyTorch is not installed; pytorch.org has CPU builds, which these tests use",
)
pytest.importorskip("torchao", reason="torchao is not installed: pip install torchao")

from torch_modules import MODULES, module_named  # noqa: E402

#: A seeded few of all, with each kind of layer: the whole runs under -m soak.
FEW = ("gru", "residual", "attention", "decoder")


@pytest.fixture(scope="module")
def host() -> Iterator[Device]:
    with utvm_deploy.connect("host") as device:
        yield device


def check_module(name: str, scheme: str, device: Device, folder: Path) -> float:
    """Quantize and run; the least SQNR against eager, in dB, of a sample that was calibrated on."""
    module, shape = module_named(name)
    torch.manual_seed(1)
    data = torch.randn(16, *shape[1:])
    quantized = utvm_deploy.quantize(module, data, scheme=scheme)
    path = folder / f"{name}.tflite"
    quantized.save(path)
    samples = [data[i : i + 1] for i in range(4)]
    reference = run_reference(path, [[x.numpy()] for x in samples])
    model = device.load(utvm_deploy.compile(quantized, device.board, name=name))
    with torch.no_grad():
        found = [model(x) for x in samples]
        real = [module(x) for x in samples]
    for ours, theirs in zip(found, reference.outputs, strict=True):
        assert isinstance(ours, torch.Tensor)
        np.testing.assert_array_equal(ours.numpy(), theirs[0])
    noise = sum(float(((y - e) ** 2).sum()) for y, e in zip(found, real, strict=True))
    power = sum(float((e**2).sum()) for e in real)
    ratio = 10 * math.log10(power / noise)
    print(f"{name} {scheme} on {device.board.name}: {ratio:.1f} dB")
    return ratio


@pytest.mark.tools
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FEW)
def test_modules_equal_the_reference_of_the_file(name: str, host: Device, tmp_path: Path) -> None:
    assert check_module(name, "int8", host, tmp_path) >= 20


@pytest.mark.tools
@pytest.mark.filterwarnings("ignore")
def test_int16_is_closer_than_int8(host: Device, tmp_path: Path) -> None:
    assert check_module("layer_norm", "int16x8", host, tmp_path) >= 40


@pytest.mark.tools
@pytest.mark.emulator
@pytest.mark.filterwarnings("ignore")
def test_a_module_on_an_emulated_board(tmp_path: Path) -> None:
    with utvm_deploy.connect("mps2_an500", timing="instructions") as device:
        assert check_module("conv", "int8", device, tmp_path) >= 20


@pytest.mark.soak
@pytest.mark.tools
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("scheme", ["int8", "int16x8"])
@pytest.mark.parametrize("name", MODULES)
def test_every_module(name: str, scheme: str, host: Device, tmp_path: Path) -> None:
    assert check_module(name, scheme, host, tmp_path) >= (20 if scheme == "int8" else 35)


def check_float(name: str, device: Device) -> None:
    module, shape = module_named(name)
    x = torch.randn(shape)
    compiled = utvm_deploy.compile(module, device.board, inputs=(x,), name=name)
    with torch.no_grad():
        found, real = device.load(compiled)(x), module(x)
    torch.testing.assert_close(found, real, atol=1e-5, rtol=1e-4)


@pytest.mark.tools
@pytest.mark.filterwarnings("ignore")
def test_float_modules_equal_eager(host: Device) -> None:
    # Its head reads the last step by the index -1.
    check_float("lstm", host)


@pytest.mark.soak
@pytest.mark.tools
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODULES)
def test_every_float_module(name: str, host: Device) -> None:
    check_float(name, host)


@pytest.mark.tools
@pytest.mark.filterwarnings("ignore")
def test_arrays_stay_arrays_and_gradients_are_refused(host: Device) -> None:
    layer = torch.nn.Linear(4, 2).eval()
    program = torch.export.export(layer, (torch.zeros(1, 4),))
    model = host.load(utvm_deploy.compile(program, "host"))
    x = torch.randn(1, 4)
    y = model(x.numpy())
    assert isinstance(y, np.ndarray)
    torch.testing.assert_close(model(x), torch.from_numpy(y.copy()))
    with pytest.raises(ModelError, match=r"input 0 requires a gradient.*torch\.no_grad"):
        model(x.requires_grad_())


class Pairs:
    """A dataset of inputs with labels."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return torch.full((4,), index / 10.0), index % 2


@pytest.mark.filterwarnings("ignore")
def test_what_data_may_be() -> None:
    layer = torch.nn.Linear(4, 2)
    loader = torch.utils.data.DataLoader(Pairs(), batch_size=7)
    whole = torch.stack([Pairs()[i][0] for i in range(40)])
    made = [
        utvm_deploy.quantize(layer, data)
        for data in (loader, whole, whole.numpy(), iter(whole.split(8)))
    ]
    assert [one.samples for one in made] == [40] * 4
    assert len({one.data for one in made}) == 1
    assert not made[0].warnings and not made[0].float_operators
    assert layer.training, "it was in training before"
    assert "calibrated on 3 samples" in utvm_deploy.quantize(layer, whole[:3]).warnings[0]


def nan_weights() -> Any:
    layer = torch.nn.Linear(4, 2)
    with torch.no_grad():
        layer.weight[0, 0] = math.nan
    return layer


REFUSALS = {
    "empty": (lambda: torch.nn.Linear(4, 2), lambda: torch.zeros(0, 4), "are empty"),
    "nan": (
        lambda: torch.nn.Linear(4, 2),
        lambda: torch.full((3, 4), math.nan),
        "sample 0 has NaN or infinity in input 0",
    ),
    "weights": (nan_weights, lambda: torch.zeros(3, 4), "'weight' has NaN or infinity"),
    "shape": (
        lambda: torch.nn.Linear(4, 2),
        lambda: [torch.zeros(2, 4), torch.zeros(2, 5)],
        r"sample 2 has \(1, 5\) for input 0, which takes \(1, 4\)",
    ),
    "kind": (lambda: torch.nn.Linear(4, 2), lambda: 7, "of type int cannot be read"),
    "inputs": (
        lambda: torch.nn.Bilinear(4, 4, 2),
        lambda: [torch.zeros(2, 4)],
        "1 tensors for 2 inputs",
    ),
    "export": (lambda: torch.nn.Linear(4, 2), lambda: torch.zeros(3, 9), "cannot export"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", REFUSALS)
def test_bad_data_and_modules_get_a_sentence(kind: str) -> None:
    make, data, told = REFUSALS[kind]
    with pytest.raises(ModelError, match=told):
        utvm_deploy.quantize(make(), data())


def test_unknown_schemes_and_missing_shapes_get_a_sentence() -> None:
    layer = torch.nn.Linear(4, 2)
    with pytest.raises(UtvmError, match="'int4' is not a scheme"):
        utvm_deploy.quantize(layer, torch.zeros(3, 4), scheme="int4")
    with pytest.raises(ModelError, match="a module says no shapes"):
        utvm_deploy.compile(layer, "host")


@pytest.mark.filterwarnings("ignore")
def test_dead_channels_keep_a_sane_scale(tmp_path: Path) -> None:
    layer = torch.nn.Linear(4, 3)
    with torch.no_grad():
        layer.weight[1] = 0
        layer.bias[:] = torch.tensor([0.1, 0.9, -0.2])
    data = torch.rand(40, 4) / 100
    quantized = utvm_deploy.quantize(layer, data)
    assert quantized.outputs[0].largest < 0.02
    quantized.save(tmp_path / "dead.tflite")
    (y,) = run_reference(tmp_path / "dead.tflite", [[data[:1].numpy()]]).outputs[0]
    assert abs(float(y[0, 1]) - 0.9) < 0.02
