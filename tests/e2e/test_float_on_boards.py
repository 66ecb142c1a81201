"""Float32 on boards: the bits of the reference, also for numbers that are seldom met."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from float_writer import FloatWriter

import utvm_deploy
from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.results.verifying.on_board import first_difference, verify

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


def test_the_sign_of_what_is_not_a_number_is_no_difference() -> None:
    """x86 and Arm make different ones; zeros of different sign differ."""
    expected = np.array([np.nan, 0.0, 1.0], np.float32)
    ours = np.array([-np.nan, 0.0, 1.0], np.float32)
    assert ours.tobytes() != expected.tobytes()
    assert first_difference(0, "y", ours, expected) is None
    mismatch = first_difference(0, "y", np.array([np.nan, -0.0, 1.0], np.float32), expected)
    assert mismatch is not None and mismatch.element == (1,) and mismatch.wrong_elements == 1
    assert first_difference(0, "y", np.zeros(3, np.float32), expected) is not None


@pytest.mark.tools
@pytest.mark.parametrize(
    "name", ["pretrainedResnet_float", pytest.param("vww_96_float", marks=pytest.mark.soak)]
)
def test_float_models_of_the_converter(name: str, shared_models: Path) -> None:
    """Those of MLPerf Tiny, whose operators the converter has fused; every layer is equal."""
    path = shared_models / "float" / f"{name}.tflite"
    with utvm_deploy.connect("host") as device:
        model = device.load(utvm_deploy.compile(path, "host"))
        found = verify(model, path, random_samples(load_model(path), 1))
    assert found.ok and len(found.layers) > 10
    assert all(layer.samples == 1 for layer in found.layers)


def test_hybrid_models_are_refused(shared_models: Path) -> None:
    with pytest.raises(UnsupportedOperator, match="start from the float model"):
        load_model(shared_models / "float" / "kws_ref_model_hybrid.tflite")


def test_only_sums_of_int8_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    m = FloatWriter()
    axes = m.constant(np.array([1], np.int32))
    m.output(m.node("SUM", [m.input((2, 3)), axes], (2,), ("ReducerOptions", {"KeepDims": False})))
    load_model(m.save(tmp_path / "sum.tflite"))
    assert not caplog.records


def bits(array: np.ndarray) -> np.ndarray:
    """Bits of floats; what is not a number has one form, because its sign depends on the core."""
    one_form = np.where(np.isnan(array), np.float32(np.nan), array)
    return one_form.astype(np.float32).view(np.uint32)
