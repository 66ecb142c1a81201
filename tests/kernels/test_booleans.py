"""Booleans: comparisons, AND, OR, NOT, SELECT and CAST, as the reference has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kernel_harness import check_model
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.device import Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.samples import Samples
from utvm_deploy.results.verifying.on_board import verify

COMPARISONS = ("EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL")
SHAPE = (2, 3, 5)


def typed(m: ModelWriter, shape: tuple[int, ...], dtype: str) -> int:
    """A model input without a scale."""
    m.inputs.append(m.tensor(shape, dtype))
    return m.inputs[-1]


def compared(m: ModelWriter, kind: str, x: int, y: int) -> int:
    shape = np.broadcast_shapes(m.tensors[x].shape, m.tensors[y].shape)
    out = m.tensor(shape, "bool")
    m.operator(kind, [x, y], [out])
    return out


def comparisons(m: ModelWriter) -> None:
    """At equal scales, at such that many values become one, and of whole numbers; broadcast."""
    x, y = m.input(SHAPE, 0.1, 3), m.input(SHAPE, 0.11, -7)
    fine = m.input((5,), 0.001, 0)
    wide, other = typed(m, SHAPE, "int32"), typed(m, (3, 1), "int64")
    for kind in COMPARISONS:
        m.output(compared(m, kind, x, y), compared(m, kind, fine, x), compared(m, kind, x, x))
        m.output(compared(m, kind, wide, wide), compared(m, kind, other, other))


def int16_comparisons(m: ModelWriter) -> None:
    """Equality by the scales, so that at fine ones many values become one; order as stored."""

    def side(scale: float, zero_point: int = 0) -> int:
        m.inputs.append(m.tensor((64,), "int16", scale, zero_point))
        return m.inputs[-1]

    for scale in (0.1, 0.0001, 3.0):
        x, y = side(scale), side(scale)
        for kind in COMPARISONS:
            if scale < 1 or kind not in ("EQUAL", "NOT_EQUAL"):
                m.output(compared(m, kind, x, y))
    x, y = side(0.1, 5), side(0.03)
    m.output(compared(m, "EQUAL", x, y), compared(m, "NOT_EQUAL", y, x))


@pytest.mark.tools
def test_int16(tmp_path: Path) -> None:
    m = ModelWriter()
    int16_comparisons(m)
    path = m.save(tmp_path / "model.tflite")
    rng = np.random.default_rng(16)
    samples = [
        [rng.integers(-most, most, 64).astype(np.int16) for _ in m.inputs] for most in (2**15, 9)
    ]
    assert check_model(path, samples, tmp_path) == 18


def test_the_order_of_int16_at_two_scales_is_refused(tmp_path: Path) -> None:
    m = ModelWriter()
    x, y = (m.tensor((4,), "int16", scale) for scale in (0.1, 0.2))
    m.inputs += [x, y]
    m.output(compared(m, "LESS", x, y))
    with pytest.raises(UnsupportedOperator, match="the reference compares stored values"):
        load_model(m.save(tmp_path / "model.tflite"))


def masks(m: ModelWriter) -> None:
    """What is above a bound where another is not, as a mask and as a number."""
    x, y = m.input(SHAPE, 0.1, 3), m.input(SHAPE, 0.1, 3)
    bound = m.constant(np.array([20], np.int8), 0.1, 3)
    above = compared(m, "GREATER", x, bound)
    below = m.node("LOGICAL_NOT", [compared(m, "LESS", y, bound)], SHAPE)
    for kind in ("LOGICAL_AND", "LOGICAL_OR"):
        both = m.node(kind, [above, below], SHAPE)
        m.output(
            m.node("SELECT_V2", [both, x, bound], SHAPE, scale=0.1, zero_point=3, dtype="int8")
        )
        out = m.tensor(SHAPE, "int8", 1.0)
        m.operator("CAST", [both], [out], ("CastOptions", {"InDataType": 6, "OutDataType": 9}))
        m.output(out)
    axes = m.constant(np.array([1], np.int32))
    for kind in ("REDUCE_ALL", "REDUCE_ANY"):
        m.output(m.node(kind, [above, axes], (2, 5), ("ReducerOptions", {})))
    rows = typed(m, (2,), "bool")
    m.output(m.node("SELECT", [rows, x, y], SHAPE, scale=0.1, zero_point=3, dtype="int8"))
    known = m.constant(np.array([True, False, True]).reshape(3, 1))
    m.output(m.node("SELECT_V2", [known, x, y], SHAPE, scale=0.1, zero_point=3, dtype="int8"))


@pytest.mark.spread(1)
@pytest.mark.parametrize("build", [comparisons, masks])
def test_booleans(build, device: Device, tmp_path: Path) -> None:
    m = ModelWriter()
    build(m)
    path = m.save(tmp_path / "model.tflite")
    rng = np.random.default_rng(4)
    specs = [m.tensors[number] for number in m.inputs]
    sample = tuple((rng.integers(-20, 30, s.shape) % 3).astype(s.dtype) for s in specs)
    model = device.load(utvm_deploy.compile(path, device.board), into="ram")
    assert verify(model, path, Samples(inputs=(sample,), outputs=None, origin="random")).ok


def test_scales_of_one_are_refused(tmp_path: Path) -> None:
    m = ModelWriter()
    x = m.input(SHAPE, 1.0)
    m.output(compared(m, "LESS", x, x))
    with pytest.raises(UnsupportedOperator, match="only scales below 1"):
        load_model(m.save(tmp_path / "model.tflite"))


def test_two_types_are_refused(tmp_path: Path) -> None:
    m = ModelWriter()
    m.output(compared(m, "LESS", m.input(SHAPE), typed(m, SHAPE, "int32")))
    with pytest.raises(ModelError, match="it compares int8 with int32"):
        load_model(m.save(tmp_path / "model.tflite"))
