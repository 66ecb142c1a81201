"""REDUCE_PROD of int8 and int16, byte for byte with the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kernel_harness import check
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.frontend.tflite import load_model

SHAPE = (2, 3, 4, 5)
AXES = ([0], [1, 2], [-1], [0, 1, 2, 3], [2, 1, 3], [1])
SCALES = ((0.1, 0.1), (0.02, 0.5), (3.0, 0.01), (0.9, 1.1))


def product(
    m: ModelWriter, x: int, axes: list[int], scale: float, zero_point: int, *, keeps: bool = False
) -> int:
    shape = m.tensors[x].shape
    reduced = {axis % len(shape) for axis in axes}
    kept = [1 if i in reduced else d for i, d in enumerate(shape) if keeps or i not in reduced]
    options = ("ReducerOptions", {"KeepDims": keeps})
    operands = [x, m.constant(np.array(axes, np.int32))]
    quantization = {"scale": scale, "zero_point": zero_point}
    return m.node("REDUCE_PROD", operands, kept, options, **quantization)


@pytest.mark.tools
def test_axes_and_scales(tmp_path: Path) -> None:
    """Also products that overflow 32 bits, which wrap as the reference's do."""
    m = ModelWriter()
    for dtype, zeros in (("int8", (-7, 5)), ("int16", (0, 0))):
        for scale, made in SCALES:
            x = m.tensor(SHAPE, dtype, scale, zeros[0])
            m.inputs.append(x)
            for number, axes in enumerate(AXES):
                m.output(product(m, x, axes, made, zeros[1], keeps=number % 2 == 0))
    assert check(m, tmp_path) == 2 * len(SCALES) * len(AXES)


@pytest.mark.tools
def test_dimensions_of_one_element_between_the_axes(tmp_path: Path) -> None:
    m = ModelWriter()
    x = m.input((3, 1, 4), 0.3, 2)
    for axes in ([0, 2], [1], [0, 1, 2]):
        m.output(product(m, x, axes, 0.2, -1))
    assert check(m, tmp_path) == 3


@pytest.mark.parametrize(
    ("axes", "scale", "why"),
    [
        ([0, 2], 0.1, r"its axes \[0, 2\] of .* are not neighbours"),
        ([1], 1e-12, "multiply each product by 1000; the reference is undefined from 128 on"),
    ],
)
def test_other_variants_are_refused(
    axes: list[int], scale: float, why: str, tmp_path: Path
) -> None:
    m = ModelWriter()
    m.output(product(m, m.input(SHAPE, 0.1), axes, scale, 0))
    with pytest.raises(UnsupportedOperator, match=why):
        load_model(m.save(tmp_path / "model.tflite"))
