"""Estimates against ``profile``, and what they say of themselves."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import utvm_deploy
from utvm_deploy.api import estimate_function
from utvm_deploy.cli.main import main
from utvm_deploy.results.estimating import shape_plan
from utvm_deploy.results.estimating.formulas import formulas_of

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "models"
BOARD = "mps2_an500"

sys.path.append(str(ROOT / "benchmarks" / "estimate"))

from nets import write  # noqa: E402


@pytest.mark.tools
@pytest.mark.parametrize("name", ["digits", "cifar10_cnn", "100203", "700010", "700012"])
def test_profile_is_within_the_stated_error(name: str, tmp_path: Path) -> None:
    path = MODELS / f"{name}.tflite"
    if name.isdigit():  # the seed of a net: the last two have weights of int4, and an LSTM
        path = write(int(name), tmp_path / "net.tflite")
    found = utvm_deploy.estimate(path, BOARD).found
    real = utvm_deploy.profile(path, BOARD).found
    assert (
        found.unit == real.tick_unit and not found.notes and len(found.layers) == len(real.layers)
    )
    pairs = {
        "ticks": (found.ticks, real.ticks),
        "ram": (found.ram_bytes, real.ram_bytes),
        "flash": (found.flash_bytes, real.flash_bytes),
    }
    for figure, (estimate, measured) in pairs.items():
        assert abs(estimate / measured - 1) <= found.errors[figure].worst, figure


def test_the_stated_errors_are_small_enough_to_choose_by() -> None:
    known = formulas_of("cortex-m7")
    assert known is not None and known.board == BOARD and known.nets >= 200
    for name, error in known.errors.items():
        assert error.median <= 0.05 and error.worst <= 0.2, name


def test_a_model_is_read_once_and_a_layer_is_lowered_once(tmp_path: Path) -> None:
    path = tmp_path / "again.tflite"
    path.write_bytes((MODELS / "digits.tflite").read_bytes())
    first = utvm_deploy.estimate(path, BOARD)
    layers = dict(shape_plan._KEPT)
    models = dict(estimate_function._KEPT)
    second = utvm_deploy.estimate(path, BOARD)
    assert first.table == second.table
    assert (layers, models) == (shape_plan._KEPT, estimate_function._KEPT)
    path.write_bytes((MODELS / "cifar10_cnn.tflite").read_bytes())
    assert len(utvm_deploy.estimate(path, BOARD).table) == 7  # another model under the same name


@pytest.mark.tools
def test_what_is_chosen_of_a_file_counts() -> None:
    path = MODELS / "cifar10_cnn.tflite"
    images = (None, "rgb565 256x192 crop", "rgb565 320x240 crop")
    plain, small, large = (
        utvm_deploy.estimate(path, BOARD, image_input=image).ram for image in images
    )
    assert plain < small < large


def test_what_the_formulas_do_not_know_has_no_error() -> None:
    found = utvm_deploy.estimate(MODELS / "digits_float.tflite", BOARD)
    assert found.found.errors == {} and found.found.unlike
    assert "CONV_2D" in found.found.notes[0] and found.cycles
    other = utvm_deploy.estimate(MODELS / "digits.tflite", "stm32f746g_disco").found
    assert other.errors == {} and BOARD in other.notes[0] and other.unit == "cycles"


def test_a_core_without_a_cycle_model_has_instructions() -> None:
    found = utvm_deploy.estimate(MODELS / "digits.tflite", "microbit")
    assert found.instructions and found.cycles is None and found.milliseconds is None
    assert "cortex-m0" in found.found.notes[0]


def test_inspect_tells_of_a_board(capsys: pytest.CaptureFixture[str]) -> None:
    path = MODELS / "digits.tflite"
    assert main(["inspect", str(path), "--board", BOARD]) == 0
    assert "digits on mps2_an500, estimated: " in capsys.readouterr().out
    assert main(["inspect", str(path), "--board", BOARD, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["estimate"]
    result = utvm_deploy.estimate(path, BOARD)
    assert told == result.to_dict()
    assert sum(row["cycles"] for row in result.table) == pytest.approx(result.cycles, abs=10)


def test_kernels_of_others_are_not_estimated(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--board", BOARD, "--plugin", "other.py"]
    assert main(["inspect", str(MODELS / "digits.tflite"), *options]) == 2
    assert "--board estimates our kernels, and --plugin has others" in capsys.readouterr().err


@pytest.mark.tools
def test_a_module_takes_what_its_quantized_form_takes() -> None:
    class Block(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            wide = 2 * channels
            self.inner = nn.Sequential(
                *(nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()),
                *(nn.Conv2d(wide, wide, 3, padding=1, groups=wide), nn.BatchNorm2d(wide)),
                *(nn.ReLU6(), nn.Conv2d(wide, channels, 1), nn.BatchNorm2d(channels)),
            )

        def forward(self, x):
            return x + self.inner(x)

    torch.manual_seed(1)
    module = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), Block(8)),
        *(nn.MaxPool2d(2), nn.Conv2d(8, 12, 3), nn.Hardswish(), nn.AdaptiveAvgPool2d(1)),
        *(nn.Flatten(), nn.Linear(12, 5), nn.Softmax(dim=1)),
    ).eval()
    data = torch.randn(8, 3, 16, 16)
    by_shapes = utvm_deploy.estimate(module, BOARD, inputs=data[:1])
    quantized = utvm_deploy.estimate(utvm_deploy.quantize(module, data), BOARD)
    kinds = [[row["operator"] for row in one.table] for one in (by_shapes, quantized)]
    assert kinds[0] == kinds[1]
    assert by_shapes.ram == quantized.ram
    assert by_shapes.flash == pytest.approx(quantized.flash, rel=0.02)
    assert by_shapes.cycles == pytest.approx(quantized.cycles, rel=0.02)


class Named(nn.Module):
    """A module with an output in a dict."""

    def __init__(self, constant: torch.Tensor | None) -> None:
        super().__init__()
        self.constant = constant

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": x * 2 if self.constant is None else self.constant}


def test_outputs_of_a_module_may_be_in_a_dict() -> None:
    example = torch.zeros(1, 4)
    kinds = [
        row["operator"] for row in utvm_deploy.estimate(Named(None), BOARD, inputs=example).table
    ]
    assert kinds == ["QUANTIZE", "MUL", "DEQUANTIZE"]
    with pytest.raises(utvm_deploy.UtvmError, match="an output of Named is not a tensor that it"):
        utvm_deploy.estimate(Named(torch.ones(1, 4)), BOARD, inputs=example)
    with pytest.raises(utvm_deploy.UtvmError, match="stream and image_input are for files"):
        utvm_deploy.estimate(Named(None), BOARD, inputs=example, stream=2)


def test_a_module_of_unknown_calls_is_refused() -> None:
    class Odd(torch.nn.Module):
        def forward(self, x):
            return torch.erfinv(x)

    with pytest.raises(utvm_deploy.UtvmError, match=r"aten\.erfinv .* quantize the module"):
        utvm_deploy.estimate(Odd(), BOARD, inputs=torch.zeros(1, 4))
    with pytest.raises(utvm_deploy.UtvmError, match="give an example"):
        utvm_deploy.estimate(Odd(), BOARD)
