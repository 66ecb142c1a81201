"""PyTorch modules are quantized by PT2E or as .tflite files, as held-out data say."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import utvm_deploy
from utvm_deploy.base.progress import no_progress, shown_progress

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

pytestmark = [pytest.mark.tools, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module", autouse=True)
def with_torchao() -> None:
    """Loaded when these tests run, and not by each process that lists them."""
    pytest.importorskip("torchao", reason="torchao is not installed: pip install torchao")


@pytest.fixture(scope="module")
def uneven() -> Any:
    """Two layers. The channels between them differ by factors that the second undoes."""
    torch.manual_seed(6)
    first, last = torch.nn.Conv2d(3, 16, 1), torch.nn.Conv2d(16, 4, 1)
    with torch.no_grad():
        factors = torch.exp2(torch.linspace(-6, 6, 16))
        first.weight.mul_(factors.view(-1, 1, 1, 1))
        first.bias.mul_(factors)
        last.weight.div_(factors.view(1, -1, 1, 1))
    return torch.nn.Sequential(first, torch.nn.ReLU(), last).eval()


@pytest.fixture(scope="module")
def pictures() -> Any:
    return torch.tensor(np.random.default_rng(6).normal(0, 1, (80, 3, 4, 4)), dtype=torch.float32)


def test_channels_of_very_different_ranges_are_equalized(uneven: Any, pictures: Any) -> None:
    made = utvm_deploy.quantize(uneven, pictures)
    assert made.converting is not None and made.calibration.equalized == 1
    own, other = made.converting
    assert own is not None and other is not None and other > own + 10
    assert made.outputs[0].sqnr_db is not None and made.outputs[0].sqnr_db > 25
    assert made.samples == 80 and made.calibration.held_out == 20 and not made.warnings


@pytest.mark.parametrize("scheme", ["int8", "int16x8"])
def test_norms_and_activations_have_no_float_step(scheme: str, tmp_path: Path) -> None:
    nn = torch.nn
    net = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 16))
    net = nn.Sequential(net, nn.SiLU(), nn.RMSNorm(16, eps=1e-3), nn.Linear(16, 4)).eval()
    samples = torch.tensor(np.random.default_rng(6).normal(0, 1, (40, 4, 16)), dtype=torch.float32)
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(net, (samples[:1],)), path)
    for source, data in ((net, samples), (path, samples.numpy()[:, np.newaxis])):
        made = utvm_deploy.quantize(source, data, scheme=scheme)
        assert made.calibration.form == "pt2" and not made.float_operators
        least = {"int8": 20, "int16x8": 45}[scheme]
        assert made.outputs[0].sqnr_db is not None and made.outputs[0].sqnr_db > least


def test_a_bad_output_is_told_with_the_layers_that_cost_most(uneven: Any, pictures: Any) -> None:
    samples = [{"input": one, "label": 0} for one in pictures[:40].split(1)]
    made = utvm_deploy.quantize(uneven, samples, equalize=False)
    assert made.calibration.form == "pt2" and made.samples == 40
    (warning,) = made.warnings
    assert "these cost most" in warning and "CONV_2D" in warning


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_line_that_goes_away_in_a_terminal_only() -> None:
    terminal, file = _Terminal(), io.StringIO()
    with shown_progress(None, terminal) as progress:
        progress("calibrate", 2, 2)
    assert terminal.getvalue() == f"\rcalibrate 2/2\r{'':13}\r"
    with shown_progress(None, file) as progress:
        assert progress is no_progress
    with shown_progress(print, terminal) as progress:
        assert progress is print
