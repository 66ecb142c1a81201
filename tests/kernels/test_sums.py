"""SUM, SQUARED_DIFFERENCE and L2_NORMALIZATION against the reference."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from kernel_harness import check, check_model
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.device import Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.reference import run_reference

# shape, axes
SUMS = [
    ((1, 4, 5, 3), (1, 2)),
    ((1, 4, 5, 3), (3,)),
    ((2, 3, 4), (0, 2)),
    ((2, 3, 4), (-2,)),
    ((7,), (0,)),
    ((1, 3), (0,)),
    ((40, 50), (0,)),
]


def _sum(m: ModelWriter, x: int, axes: tuple[int, ...], keep: bool, scale: float, zero: int) -> int:
    shape = m.tensors[x].shape
    reduced = {axis % len(shape) for axis in axes}
    made = [1 if i in reduced else d for i, d in enumerate(shape) if keep or i not in reduced]
    options = ("ReducerOptions", {"KeepDims": keep})
    constant = m.constant(np.array(axes, np.int32))
    return m.node("SUM", [x, constant], made, options, scale=scale, zero_point=zero)


@pytest.mark.parametrize("keep", [False, True])
def test_sum(keep: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    m = ModelWriter()
    for (shape, axes), factor in itertools.product(SUMS, (1.0, 3.3, 0.2, 40.0, 1000.0)):
        if not keep and len(axes) == len(shape):
            continue
        zeros = [int(z) for z in rng.integers(-128, 128, 2)]
        x = m.input(shape, 0.05, zeros[0])
        # Equal scales with equal zero points, too: the reference treats them alike.
        zero = zeros[0] if factor == 1.0 else zeros[1]
        m.output(_sum(m, x, axes, keep, 0.05 * factor, zero))
    assert check(m, tmp_path) == len(m.inputs)


def test_sum_of_int16(tmp_path: Path) -> None:
    m = ModelWriter()
    for (shape, axes), factor in itertools.product(SUMS, (1.0, 3.3, 0.2, 1000.0)):
        x = m.tensor(shape, "int16", 0.0005, 0)
        m.inputs.append(x)
        m.output(_sum(m, x, axes, True, 0.0005 * factor, 0))
    assert check(m, tmp_path) == len(m.inputs)


def test_sums_of_int16_that_may_overflow_are_refused(tmp_path: Path) -> None:
    m = ModelWriter()
    x = m.tensor((2, 32768), "int16", 0.1, 0)
    m.inputs.append(x)
    m.output(_sum(m, x, (0, 1), True, 0.1, 0))
    with pytest.raises(UnsupportedOperator, match="more than 65,535 elements"):
        load_model(m.save(tmp_path / "model.tflite"))


def test_sum_adds_what_the_bytes_mean(tmp_path: Path) -> None:
    """LiteRT's reference kernel reads unsigned bytes: it makes 3 of the first column."""
    m = ModelWriter()
    x = m.input((4, 3), 0.05, 3)
    m.output(_sum(m, x, (0,), False, 0.1, 2))
    rows = np.array([[3, 90, -1], [10, 100, -5], [-50, -20, 9], [7, -31, 1]], np.int8)
    path = m.save(tmp_path / "model.tflite")
    assert check_model(path, [[rows]], tmp_path) == 1
    ((found,),) = run_reference(path, [rows]).outputs
    real = (rows.astype(int) - 3).sum(axis=0) / 2 + 2
    np.testing.assert_array_equal(found, np.floor(real + 0.5))


@pytest.mark.spread(2, among=("mps2_an500", "mps3_an547"))
def test_sums_of_the_largest_bytes(device: Device, tmp_path: Path) -> None:
    """Routines add bytes in halves of words, of which each has room for 256 of them."""
    m = ModelWriter()
    shapes = [(1100, 1), (1100, 2), (1100, 3), (700, 5), (600, 17)]
    for rows, columns in shapes:
        for shape, axis in (((1, rows, columns), 1), ((1, columns, rows), 2)):
            x = m.input(shape, 0.05, 1)
            m.output(m.mean(x, (axis,), scale=0.051, zero_point=2))
            m.output(_sum(m, x, (axis,), False, 0.051 * rows, 2))
    path = m.save(tmp_path / "model.tflite")
    samples = [
        [np.full(m.tensors[x].shape, value, np.int8) for x in m.inputs] for value in (-128, 127)
    ]
    loaded = device.load(utvm_deploy.compile(path, device.board), into="ram")
    for sample, wanted in zip(samples, run_reference(path, samples).outputs, strict=True):
        for one, other in zip(loaded(*sample), wanted, strict=True):
            np.testing.assert_array_equal(one, other)


def test_squared_difference(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    m = ModelWriter()
    shapes = [
        ((1, 4, 3, 5), (1, 4, 3, 5)),
        ((1, 4, 3, 5), (5,)),
        ((3, 1), (1, 4)),
        ((2, 7), (2, 1)),
    ]
    cases = list(itertools.product(shapes, (0.001, 0.03, 1.0, 20.0), (0.02, 1.0, 100.0)))
    for (left, right), scale, factor in cases:
        zeros = [int(z) for z in rng.integers(-128, 128, 3)]
        other = scale * float(rng.uniform(0.3, 2.0))
        x = m.input(left, scale, zeros[0])
        y = m.input(right, other, zeros[1])
        made = max(scale, other) ** 2 * 120 * factor
        shape = np.broadcast_shapes(left, right)
        options = ("SquaredDifferenceOptions", {})
        m.output(
            m.node("SQUARED_DIFFERENCE", [x, y], shape, options, scale=made, zero_point=zeros[2])
        )
    assert check(m, tmp_path) == len(cases)


def test_squared_difference_of_a_scale_that_the_reference_aborts_on(tmp_path: Path) -> None:
    m = ModelWriter()
    x = m.input((4,), 1.0, 0)
    m.output(m.node("SQUARED_DIFFERENCE", [x, x], (4,), scale=2.0**-12, zero_point=0))
    with pytest.raises(UnsupportedOperator, match="too small"):
        load_model(m.save(tmp_path / "model.tflite"))


def test_l2_normalization(tmp_path: Path) -> None:
    m = ModelWriter()
    options = ("L2NormOptions", {"FusedActivationFunction": 0})
    shapes = [(1, 1), (4, 7), (2, 3, 4, 5), (1, 300), (6, 2), (1, 9000)]
    for shape, zero_point in itertools.product(shapes, (-128, 0, 5, 127)):
        x = m.input(shape, 0.05, zero_point)
        m.output(m.node("L2_NORMALIZATION", [x], shape, options, scale=1 / 128, zero_point=0))
    assert check(m, tmp_path, samples=4) == len(m.inputs)


def test_l2_normalization_of_small_sums(tmp_path: Path) -> None:
    """Sums of squares from 0 on, where the first guess is shifted most."""
    m = ModelWriter()
    x = m.input((256, 2), 0.05, 0)
    m.output(m.node("L2_NORMALIZATION", [x], (256, 2), scale=1 / 128, zero_point=0))
    m.operators[-1].options = ("L2NormOptions", {"FusedActivationFunction": 0})
    rows = np.stack(np.meshgrid(np.arange(16), np.arange(-8, 8)), -1).reshape(256, 2)
    path = m.save(tmp_path / "model.tflite")
    assert check_model(path, [[rows.astype(np.int8)]], tmp_path) == 1
