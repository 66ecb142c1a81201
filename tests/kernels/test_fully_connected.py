"""FULLY_CONNECTED over sizes, batches, scales and clamps."""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_harness import check
from tflite_writer import ModelWriter

from utvm_deploy.kernels.contract.requantization import exact_multiplier

pytestmark = pytest.mark.tools

# input shape, outputs, keep_num_dims
LAYERS = [
    ((1, 1), 1, False),
    ((1, 640), 128, False),
    ((1, 128), 8, False),
    ((1, 8), 128, False),
    ((1, 64), 10, False),
    ((1, 64), 12, False),
    ((1, 17), 13, False),
    ((1, 3), 11, False),
    ((2, 9), 6, False),
    ((3, 9), 7, False),
    ((4, 16), 4, False),
    ((5, 5), 5, False),
    ((8, 12), 3, False),
    ((1, 4, 4, 3), 9, False),
    ((2, 3, 8), 4, True),
    ((1, 7, 10), 3, True),
    ((1, 1000), 2, False),
]


@pytest.mark.parametrize("per_channel", [False, True])
def test_shapes(per_channel: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    m = ModelWriter()
    activations = itertools.cycle(("NONE", "RELU", "RELU6"))
    for shape, outputs, keep in LAYERS:
        inputs = shape[-1] if keep or len(shape) == 2 else int(np.prod(shape[1:]))
        weights = rng.integers(-127, 128, (outputs, inputs), dtype=np.int8)
        bias = rng.integers(-9000, 9000, outputs, dtype=np.int32)
        scale = float(rng.uniform(0.01, 0.1))
        x = m.input(shape, scale, int(rng.integers(-128, 128)))
        m.output(
            m.fully_connected(
                x,
                weights,
                bias if rng.random() < 0.8 else None,
                weight_scale=rng.uniform(0.005, 0.02, outputs) if per_channel else 0.01,
                activation=next(activations),
                keep_num_dims=keep,
                scale=float(scale * 0.01 * 74 * 74 * np.sqrt(inputs) / 50),
                zero_point=int(rng.integers(-128, 128)),
            )
        )
    assert check(m, tmp_path) == len(LAYERS)


@pytest.mark.parametrize("per_channel", [False, True])
def test_extreme_scales(per_channel: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    m = ModelWriter()
    exponents = range(-38, 12)
    for exponent in exponents:
        limit = 127 if exponent < -4 else 2
        weights = rng.integers(-limit, limit + 1, (16, 4), dtype=np.int8)
        largest_bias = 2**30 if exponent < -22 else 3
        bias = rng.integers(-largest_bias, largest_bias, 16, dtype=np.int32)
        x = m.input((4, 4), 1.0, 0)
        factor = 1.0 if exponent % 2 else float(rng.uniform(0.5, 1.0))
        m.output(
            m.fully_connected(
                x,
                weights,
                bias,
                weight_scale=[factor] * 16 if per_channel else factor,
                scale=2.0**-exponent,
                zero_point=int(rng.integers(-60, 60)),
            )
        )
    assert check(m, tmp_path) == len(exponents)


def test_ties_go_away_from_zero(tmp_path: Path) -> None:
    m = ModelWriter()
    x = m.input((256, 1), 1.0, 0)
    weights = np.array([[1], [-1], [3], [5]], np.int8)
    m.output(m.fully_connected(x, weights, weight_scale=0.5, scale=1.0, zero_point=2))
    m.output(m.fully_connected(x, weights, weight_scale=0.25, scale=1.0, zero_point=-1))
    assert check(m, tmp_path) == 2


@given(st.floats(min_value=1e-30, max_value=1000.0))
def test_exact_multiplier_is_exact(scale: float) -> None:
    multiplier = exact_multiplier(scale)
    assert 0 <= multiplier.high < 2**31
    assert 0 <= multiplier.low < 2**26
    assert 1 <= multiplier.shift <= 62
    value = Fraction(multiplier.high * 2**26 + multiplier.low, 2 ** (multiplier.shift + 26))
    assert value == Fraction(scale) or (value == 0 and scale < 2.0**-35)
