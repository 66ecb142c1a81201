"""CUMSUM along every axis, in every direction, byte for byte with the reference."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from kernel_harness import check
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.frontend.tflite import load_model

SHAPES = ((6,), (3, 5), (2, 1, 4), (2, 3, 1, 5))


def cumsum(m: ModelWriter, x: int, axis: int, *, exclusive: bool, reverse: bool) -> int:
    constant = m.constant(np.array(axis, np.int32))
    out = m.tensor(m.tensors[x].shape, m.tensors[x].dtype)
    options = {"Exclusive": exclusive, "Reverse": reverse}
    m.operator("CUMSUM", [x, constant], [out], ("CumsumOptions", options))
    return out


@pytest.mark.tools
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_every_axis_and_direction(dtype: str, tmp_path: Path) -> None:
    m = ModelWriter()
    for shape in SHAPES:
        x = m.tensor(shape, dtype)
        m.inputs.append(x)
        for axis, exclusive, reverse in product(range(-1, len(shape)), (0, 1), (0, 1)):
            m.output(cumsum(m, x, axis, exclusive=bool(exclusive), reverse=bool(reverse)))
    # Sums of random numbers of the whole range wrap around.
    assert check(m, tmp_path) == sum(4 * (len(shape) + 1) for shape in SHAPES)


def test_int8_is_not_summed_up(tmp_path: Path) -> None:
    m = ModelWriter()
    m.output(cumsum(m, m.input((2, 3), 0.1, 3), 1, exclusive=False, reverse=False))
    with pytest.raises(UnsupportedOperator, match="makes int8 of int8; only int32, int64"):
        load_model(m.save(tmp_path / "cumsum.tflite"))
