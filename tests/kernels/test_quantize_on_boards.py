"""QUANTIZE of float32 by a floating-point unit: as the reference's quotient rounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kernel_harness import check
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.device import INSTRUCTIONS, Device
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.requantization import header
from utvm_deploy.kernels.native.fpu.conversions import quantize_texts
from utvm_deploy.oracle.samples import Samples
from utvm_deploy.results.verifying.on_board import verify

pytestmark = pytest.mark.tools

COUNT = """
void count_wrong(const float *input, const float *scale, int32_t zero_point, int8_t *output,
                 int32_t count, int32_t *wrong) {
    utvm_quantize_floats(input, scale, zero_point, output, count);
    for (int32_t i = 0; i < count; i++) {
        int32_t value = utvm_quantize(input[i] / scale[0]) + zero_point;
        *wrong += output[i] != utvm_clamp(value, -128, 127);
    }
}
"""


def values(scale: np.float32, rng: np.random.Generator) -> Array:
    """Near halves, of all sizes, of all patterns of bits, and an odd number of them."""
    with np.errstate(all="ignore"):
        halves = ((rng.integers(-400, 400, 300) + 0.5) * scale).astype(np.float32)
        sizes = (scale * 2.0 ** rng.uniform(-40, 40, 300)).astype(np.float32)
        usual = (scale * rng.uniform(-140, 140, 999)).astype(np.float32)
    near = halves.view(np.int32)[:, None] + np.arange(-3, 4, dtype=np.int32)
    words = rng.integers(0, 2**32, 301, np.uint32).view(np.float32)
    ends = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3e38, -3e38], np.float32)
    return np.concatenate([near.reshape(-1).view(np.float32), sizes, -sizes, words, usual, ends])


@pytest.mark.parametrize(("on", "core"), [("mps2_an500", "cortex-m7"), ("mps2_an386", "cortex-m4")])
def test_values(on: str, core: str) -> None:
    rng = np.random.default_rng(3)
    scales = [1 / 255, 0.5, 1.0, 3e-38, 8e37, *(10 ** rng.uniform(-6, 3, 7))]
    text = "\n".join(["#include <stdint.h>", header(), *quantize_texts(core), COUNT])
    with utvm_deploy.connect(on, timing=INSTRUCTIONS) as device:
        module = device.load_module(text)
        wrong = device.tensor(np.zeros(len(scales), np.int32))
        for number, scale in enumerate(map(np.float32, scales)):
            given = values(scale, rng)
            buffers = [
                device.tensor(one)
                for one in (
                    given,
                    np.array([scale, np.float32(1) / scale], np.float32),
                    np.zeros(given.size, np.int8),
                )
            ]
            x, both, y = (one.address for one in buffers)
            zero_point, place = int(rng.integers(-128, 128)), wrong.address + 4 * number
            module["count_wrong"](x, both, zero_point, y, given.size, place, timeout_s=30)
            device.sync()
        np.testing.assert_array_equal(wrong.numpy(), 0)


def conversions() -> ModelWriter:
    m = ModelWriter()
    for count, scale, zero_point in ((1, 0.03, -128), (7, 0.5, 127), (40, 1e-3, 3)):
        x = m.quantize(m.float_input((1, count)), scale=scale, zero_point=zero_point)
        m.output(m.dequantize(x))
    return m


def test_the_c_is_byte_exact(tmp_path: Path) -> None:
    assert check(conversions(), tmp_path, core="cortex-m7") == 6


def test_models(device: Device, tmp_path: Path) -> None:
    m, rng = conversions(), np.random.default_rng(1)
    path = m.save(tmp_path / "conversions.tflite")
    shapes = [m.tensors[one].shape for one in m.inputs]
    inputs = tuple(rng.uniform(-5, 5, one).astype(np.float32) for one in shapes)
    model = device.load(utvm_deploy.compile(path, device.board), into="ram")
    assert verify(model, path, Samples((inputs,), outputs=None, origin="random")).ok
