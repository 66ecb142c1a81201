"""BITWISE_XOR of every type, byte for byte with the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kernel_harness import check
from tflite_writer import ModelWriter
from typed_inputs import SHAPES, scale_of, typed

from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.frontend.tflite import load_model

TYPES = ("int8", "int16", "int32")


def xor(m: ModelWriter, x: int, y: int, dtype: str | None = None) -> int:
    shape = np.broadcast_shapes(m.tensors[x].shape, m.tensors[y].shape)
    return m.node("BITWISE_XOR", [x, y], shape, ("BitwiseXorOptions", {}), dtype=dtype)


@pytest.mark.tools
@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_broadcasts(dtype: str, tmp_path: Path) -> None:
    m, rng = ModelWriter(), np.random.default_rng(7)
    limits = np.iinfo(dtype)
    for left, right in SHAPES:
        x, y = typed(m, left, dtype), typed(m, right, dtype)
        m.output(xor(m, x, y), xor(m, x, x))
        drawn = rng.integers(limits.min, limits.max, right, dtype=dtype, endpoint=True)
        known = m.constant(np.array(drawn), scale_of(dtype))
        m.output(xor(m, x, known), xor(m, known, x))
        # Turns every bit.
        m.output(xor(m, x, m.constant(np.array([-1], dtype))))
    assert check(m, tmp_path) == 5 * len(SHAPES)


@pytest.mark.tools
def test_no_quantization_counts(tmp_path: Path) -> None:
    m = ModelWriter()
    x, y = typed(m, (3, 5), "int8", 3), typed(m, (3, 5), "int8", -7)
    m.tensors[y].scales = (0.7,)
    unscaled = m.tensor((3, 5), "int8")
    m.operator("BITWISE_XOR", [x, y], [unscaled], ("BitwiseXorOptions", {}))
    m.output(m.node("BITWISE_XOR", [unscaled, y], (3, 5), scale=0.01, zero_point=9))
    assert check(m, tmp_path) == 2


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        ("int64", "int64", "int64"),
        ("uint8", "uint8", "uint8"),
        ("bool", "bool", "bool"),
        ("int8", "int16", "int8"),
        ("int8", "int8", "int16"),
    ],
)
def test_other_types_are_refused(left: str, right: str, result: str, tmp_path: Path) -> None:
    m = ModelWriter()
    m.output(xor(m, typed(m, (2, 3), left), typed(m, (2, 3), right), result))
    with pytest.raises(UnsupportedOperator, match=f"it makes {result} of {left} and {right}; only"):
        load_model(m.save(tmp_path / "xor.tflite"))


def test_shapes_that_do_not_broadcast_are_refused(tmp_path: Path) -> None:
    m = ModelWriter()
    sides = [typed(m, (2, 3), "int32"), typed(m, (3, 2), "int32")]
    m.output(m.node("BITWISE_XOR", sides, (2, 3)))
    with pytest.raises(ModelError, match="cannot be broadcast together"):
        load_model(m.save(tmp_path / "xor.tflite"))
