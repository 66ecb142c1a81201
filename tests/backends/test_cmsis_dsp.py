"""The example of spectra by CMSIS-DSP, with a stand-in for it and with the user's own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from vendor_library import COMPILE_TIMEOUT_S, EXAMPLES, FOR_HOST

import utvm_deploy
from utvm_deploy.base.errors import PluginError

PLUGIN = EXAMPLES / "cmsis_dsp" / "plugin.py"
NAMES = ("CMSIS_DSP", "CMSIS_CORE", "CMSIS_DSP_LIBRARY")
# Read before the tests' clean environment takes it away.
USERS: Mapping[str, str] = {name: os.environ[name] for name in NAMES if name in os.environ}

HEADER = """
#include <stdint.h>
typedef float float32_t;
enum { ARM_MATH_SUCCESS = 0 };
typedef struct { uint16_t length; } arm_rfft_fast_instance_f32;
int arm_rfft_fast_init_64_f32(arm_rfft_fast_instance_f32 *s);
void arm_rfft_fast_f32(arm_rfft_fast_instance_f32 *s, float *x, float *y, uint8_t inverse);
void arm_mult_f32(const float *a, const float *b, float *y, uint32_t count);
void arm_cmplx_mag_squared_f32(const float *x, float *y, uint32_t count);
"""
#: A transform by its definition, with cosines by their series.
CODE = """
#include "arm_math.h"
static double cosine(uint32_t turn, uint32_t whole) {
    double x = 6.283185307179586 * (double)(turn % whole) / (double)whole - 3.141592653589793;
    double sum = 0, term = -1;
    for (int n = 1; n < 40; n += 2) {
        sum += term;
        term *= -x * x / (n * (n + 1));
    }
    return sum;
}
int arm_rfft_fast_init_64_f32(arm_rfft_fast_instance_f32 *s) {
    s->length = 64;
    return ARM_MATH_SUCCESS;
}
void arm_rfft_fast_f32(arm_rfft_fast_instance_f32 *s, float *x, float *y, uint8_t inverse) {
    const uint32_t n = s->length;
    (void)inverse;
    for (uint32_t k = 0; k <= n / 2; k++) {
        double real = 0, imaginary = 0;
        for (uint32_t i = 0; i < n; i++) {
            real += x[i] * cosine(4 * i * k, 4 * n);
            imaginary += x[i] * cosine(4 * i * k + n, 4 * n);
        }
        y[k == n / 2 ? 1 : 2 * k] = (float)real;
        if (k > 0 && k < n / 2) {
            y[2 * k + 1] = (float)imaginary;
        }
    }
}
void arm_mult_f32(const float *a, const float *b, float *y, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        y[i] = a[i] * b[i];
    }
}
void arm_cmplx_mag_squared_f32(const float *x, float *y, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        y[i] = x[2 * i] * x[2 * i] + x[2 * i + 1] * x[2 * i + 1];
    }
}
"""


class Spectrum(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Squared amounts, and complex numbers as pairs, of frames that overlap."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length
        self.register_buffer("window", torch.hann_window(40).clone())

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        one = torch.stft(x, self.length, 20, 40, window=self.window, return_complex=True)
        other = torch.stft(x + 1, self.length, 8, 40, window=self.window, return_complex=True)
        return one.abs().pow(2.0), torch.view_as_real(other)


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A library of the functions that the plug-in calls, built for this computer."""
    folder = tmp_path_factory.mktemp("dsp")
    (folder / "Include").mkdir()
    (folder / "Include" / "arm_math.h").write_text(HEADER)
    (folder / "dsp.c").write_text(CODE)
    compile_it = ["cc", "-O2", "-Wall", "-Werror", "-IInclude", *FOR_HOST, "-c", "dsp.c"]
    for command in (compile_it, ["ar", "rcs", "libdsp.a", "dsp.o"]):
        subprocess.run(command, cwd=folder, check=True, timeout=COMPILE_TIMEOUT_S)
    paths = folder, folder / "Include", folder / "libdsp.a"
    return dict(zip(NAMES, map(str, paths), strict=True))


def verified(
    given: Mapping[str, str], board: str, folder: Path, patch: pytest.MonkeyPatch
) -> list[str]:
    """The engines of the spectra in a file that ``verify`` finds right."""
    for name, value in given.items():
        patch.setenv(name, value)
    path = folder / "spectrum.pt2"
    module = Spectrum(64).eval()
    torch.export.save(torch.export.export(module, (torch.zeros(1, 200),)), path)
    result = utvm_deploy.verify(path, board, plugin=PLUGIN)
    assert result.ok, result.headline
    layers = [one.layer for one in result.found.layers]
    return [one.engine for one in layers if one.kind == "SignalSpectrogram"]


@pytest.mark.tools
def test_spectra_of_a_program_are_computed_by_the_library(
    stand_in: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert verified(stand_in, "host", tmp_path, monkeypatch) == ["CMSIS-DSP"] * 2


@pytest.mark.emulator
@pytest.mark.skipif(len(USERS) < len(NAMES), reason=f"set {', '.join(NAMES)} to your CMSIS-DSP")
@pytest.mark.skipif(
    shutil.which("qemu-system-arm") is None, reason="qemu-system-arm is not installed"
)
def test_spectra_by_the_users_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert verified(USERS, "mps2_an500", tmp_path, monkeypatch) == ["CMSIS-DSP"] * 2


@pytest.mark.tools
def test_what_it_does_not_do_is_ours(
    stand_in: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in stand_in.items():
        monkeypatch.setenv(name, value)
    module = Spectrum(60).eval()
    compiled = utvm_deploy.compile(module, "host", inputs=(torch.zeros(1, 200),), plugin=PLUGIN)
    layers = [one for one in compiled.layers if one.kind == "SignalSpectrogram"]
    assert [one.engine for one in layers] == ["generic"] * 2
    assert all("has no length of 60" in one.why for one in layers)


def test_a_missing_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(PluginError, match="set CMSIS_DSP to the part"):
        utvm_deploy.compile(EXAMPLES.parents[1] / "models/digits.tflite", "host", plugin=PLUGIN)
