"""Float32 on boards: the bits of the reference, also for numbers that are seldom met."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from float_writer import FloatWriter

import utvm_deploy
from utvm_deploy.oracle.reference import run_reference

RNG = np.random.default_rng(4)


def drawn(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def windows_and_products(path: Path) -> Path:
    """Operators of each kind side by side, with windows that reach outside of the image."""
    m = FloatWriter()
    x = m.input((1, 6, 8, 4))
    m.output(
        m.conv2d(x, drawn(8, 3, 3, 4), drawn(8)),
        m.conv2d(x, drawn(6, 2, 2, 2), drawn(6), stride=2, activation="RELU"),
        m.depthwise_conv2d(x, drawn(1, 3, 3, 8), drawn(8), activation="RELU6"),
        m.transpose_conv(x, drawn(4, 3, 3, 4), drawn(4), stride=2),
        m.average_pool(x, 3, stride=2, padding="SAME"),
        m.max_pool(x, 2),
        m.l2_pool(x, 2, activation="RELU_N1_TO_1"),
        m.resize(x, (9, 5), half_pixel_centers=True),
        m.fully_connected(m.reshape(x, (2, 96)), drawn(8, 96), drawn(8)),
        m.batch_matmul(m.reshape(x, (6, 32)), m.constant(drawn(32, 6))),
    )
    return m.save(path)


@pytest.mark.tools
@pytest.mark.parametrize("name", ["host", "mps2_an500"])
def test_denormals_and_infinities(name: str, tmp_path: Path) -> None:
    """No core flushes denormals to zero; -0, infinities and what is not a number come up, too."""
    path = windows_and_products(tmp_path / "model.tflite")
    small = drawn(1, 6, 8, 4) * np.float32(1e-39)
    assert (np.abs(small) < np.finfo(np.float32).tiny).all()
    odd = drawn(1, 6, 8, 4)
    for place, value in zip(RNG.permutation(odd.size), (np.inf, np.nan, -0.0, 3e38), strict=False):
        odd.flat[place] = value
    samples = [[small], [odd], [drawn(1, 6, 8, 4)]]
    wanted = run_reference(path, samples).outputs
    with utvm_deploy.connect(name, timing="instructions") as device:
        model = device.load(utvm_deploy.compile(path, device.board))
        for sample, expected in zip(samples, wanted, strict=True):
            found = model(*sample)
            for ours, theirs in zip(found, expected, strict=True):
                np.testing.assert_array_equal(bits(ours), bits(theirs))


def bits(array: np.ndarray) -> np.ndarray:
    """Bits of floats; what is not a number has one form, because its sign depends on the core."""
    one_form = np.where(np.isnan(array), np.float32(np.nan), array)
    return one_form.astype(np.float32).view(np.uint32)
