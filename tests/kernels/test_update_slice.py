"""DYNAMIC_UPDATE_SLICE of every type and place, byte for byte with the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kernel_harness import check_model
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.frontend.tflite import load_model

#: A tensor and the part of it that is replaced: rows of a cache, a column, everything, a block.
SHAPES = (
    ((1, 2, 8, 5), (1, 2, 1, 5)),
    ((4, 3), (4, 1)),
    ((3, 4), (3, 4)),
    ((3, 5, 4, 2), (2, 5, 2, 1)),
    ((7,), (3,)),
)


def updated(m: ModelWriter, x: int, part: int, starts: int) -> int:
    options = ("DynamicUpdateSliceOptions", {})
    return m.node("DYNAMIC_UPDATE_SLICE", [x, part, starts], m.tensors[x].shape, options)


@pytest.mark.tools
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "float32"])
def test_every_type_and_place(dtype: str, tmp_path: Path) -> None:
    m, rng, places = ModelWriter(), np.random.default_rng(3), set[int]()
    scale = 0.1 if dtype in ("int8", "int16") else None
    for number, (shape, size) in enumerate(SHAPES):
        x, part = m.tensor(shape, dtype, scale), m.tensor(size, dtype, scale)
        starts = m.tensor((len(shape),), ("int32", "int64")[number % 2])
        m.inputs += [x, part, starts]
        places.add(starts)
        constant = m.constant(np.minimum(2, np.array(shape) - np.array(size)).astype(np.int32))
        m.output(updated(m, x, part, starts), updated(m, x, part, constant))
    samples = [
        [
            rng.integers(-reach if number in places else 0, reach, spec.shape).astype(spec.dtype)
            for number, spec in ((number, m.tensors[number]) for number in m.inputs)
        ]
        for reach in (2, 9, 120, 2**31 - 1)
    ]
    assert check_model(m.save(tmp_path / "model.tflite"), samples, tmp_path) == 2 * len(SHAPES)


def test_what_differs_is_refused(tmp_path: Path) -> None:
    m = ModelWriter()
    x, part = m.input((4, 3), 0.1, 3), m.input((1, 3), 0.2, 3)
    m.output(updated(m, x, part, m.constant(np.zeros(2, np.int32))))
    with pytest.raises(UnsupportedOperator, match=r"differs from .* in type or quantization"):
        load_model(m.save(tmp_path / "scales.tflite"))
    m = ModelWriter()
    x, part = m.input((4, 3), 0.1, 3), m.input((5, 3), 0.1, 3)
    m.output(updated(m, x, part, m.constant(np.zeros(2, np.int32))))
    with pytest.raises(ModelError, match=r"a part of shape \(5, 3\) .* does not fit into \(4, 3\)"):
        load_model(m.save(tmp_path / "shapes.tflite"))
