"""Columns of images with one and three channels: rows in pairs, against the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kernel_harness import check
from odd_shapes import ACTIVATIONS
from test_convolutions import spread_scale, weights_and_bias
from tflite_writer import ModelWriter

from utvm_deploy.kernels.native.dsp.assembly.columns_three_channels import by_column

# shape, outputs, kernel, stride, dilation, padding, groups: odd and even rows of kernels, borders
# on all sides, windows that end at the last byte of the image, phases, depths with a loop, images
# of fewer than four columns.
SHAPES = [
    ((2, 7, 9, 3), 5, (3, 3), 1, 1, "SAME", 1),
    ((1, 8, 8, 3), 6, (3, 3), 2, 1, "SAME", 1),
    ((1, 5, 7, 3), 3, (2, 2), 1, 1, "VALID", 1),
    ((1, 9, 6, 3), 2, (4, 3), (2, 1), 1, "SAME", 1),
    ((1, 7, 10, 3), 4, (3, 2), 1, (2, 3), "SAME", 1),
    ((1, 6, 6, 3), 3, (5, 5), 1, 1, "SAME", 1),
    ((1, 6, 7, 6), 4, (3, 3), 1, 1, "SAME", 2),
    ((1, 3, 1, 3), 2, (3, 1), 1, 1, "SAME", 1),
    ((2, 9, 11, 1), 5, (3, 3), 1, 1, "SAME", 1),
    ((1, 12, 10, 1), 4, (10, 4), 2, 1, "SAME", 1),
    ((1, 6, 9, 1), 3, (2, 5), (1, 2), 1, "VALID", 1),
    ((1, 7, 12, 1), 2, (5, 3), 1, (1, 2), "SAME", 1),
    ((1, 9, 3, 1), 2, (9, 9), 1, 1, "SAME", 1),
]


def write_few_channels(path: Path) -> ModelWriter:
    """One layer of each shape."""
    rng, model = np.random.default_rng(47), ModelWriter()
    for index, (shape, outputs, kernel, stride, dilation, padding, groups) in enumerate(SHAPES):
        inputs = shape[3] // groups
        weights, bias = weights_and_bias(rng, (outputs, *kernel, inputs), outputs)
        x = model.input(shape, 0.05, int(rng.integers(-128, 128)))
        y = model.conv2d(
            x,
            weights,
            bias,
            stride=stride,
            dilation=dilation,
            padding=padding,
            activation=ACTIVATIONS[index % len(ACTIVATIONS)],
            scale=spread_scale(kernel[0] * kernel[1] * inputs, 0.05, 0.01),
            zero_point=int(rng.integers(-128, 128)),
        )
        model.output(y)
    model.save(path)
    return model


@pytest.mark.tools
@pytest.mark.parametrize("rows", [1, 3])
def test_in_plain_c(rows: int, tmp_path: Path) -> None:
    model = write_few_channels(tmp_path / "model.tflite")
    candidate = f"dsp method=columns packed=1 rows={rows}"
    assert check(model, tmp_path, core="cortex-m7", family=candidate)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5])
def test_each_weight_meets_its_value(rows: int) -> None:
    rng = np.random.default_rng(rows)
    weights = rng.integers(-128, 128, (2, rows, 2, 3)).astype(np.int64)
    image = rng.integers(-128, 128, (rows, 2, 3)).astype(np.int64)
    values = []
    for column in range(2):
        for first in range(0, rows - 1, 2):
            (a, b, c), (d, e, f) = image[first : first + 2, column]
            values += [a, c, d, f, b, e]
        if rows % 2:
            a, b, c = image[-1, column]
            values += [a, c, b, 99]
    found = by_column(weights) @ np.array(values)
    np.testing.assert_array_equal(found, (weights * image).sum(axis=(1, 2, 3)))
