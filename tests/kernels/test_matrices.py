"""TRANSPOSE_CONV, grouped CONV_2D, BATCH_MATMUL, RESIZE_BILINEAR, reductions: as the reference."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from kernel_harness import check
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.records.candidate import GENERIC

pytestmark = pytest.mark.tools

Shape = tuple[int, ...]


def _weights(m: ModelWriter, rng: np.random.Generator, shape: Shape, x: int) -> list[int]:
    """Weights per channel and a bias, as constants."""
    scales = rng.uniform(0.002, 0.02, shape[0])
    data = rng.integers(-127, 128, shape).astype(np.int8)
    bias = rng.integers(-2000, 2000, shape[0]).astype(np.int32)
    return [m.constant(data, list(scales)), m.constant(bias, list(scales * m.tensors[x].scales[0]))]


# image, outputs, window, strides, padding, output's rows and columns
TRANSPOSED = [
    ((1, 4, 5, 3), 2, (2, 2), (2, 2), "VALID", (8, 10)),
    ((1, 4, 5, 3), 2, (3, 3), (2, 2), "SAME", (8, 10)),
    ((1, 4, 5, 3), 4, (3, 3), (2, 2), "SAME", (7, 9)),
    ((1, 3, 3, 2), 3, (4, 4), (2, 2), "SAME", (6, 6)),
    ((1, 3, 3, 2), 3, (3, 3), (1, 1), "SAME", (3, 3)),
    ((1, 3, 3, 2), 3, (3, 2), (1, 1), "VALID", (5, 4)),
    ((2, 2, 3, 1), 1, (3, 3), (3, 2), "VALID", (6, 7)),
    ((1, 1, 1, 5), 6, (4, 4), (1, 1), "VALID", (4, 4)),
    ((1, 3, 4, 2), 2, (1, 1), (2, 3), "SAME", (6, 12)),
]


@pytest.mark.parametrize("has_bias", [False, True])
def test_transpose_conv(has_bias: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    m = ModelWriter()
    for image, outputs, window, strides, padding, size in TRANSPOSED:
        x = m.input(image, 0.05, int(rng.integers(-128, 128)))
        weights, bias = _weights(m, rng, (outputs, *window, image[3]), x)
        shape = (image[0], *size, outputs)
        fields = {"Padding": padding == "VALID", "StrideH": strides[0], "StrideW": strides[1]}
        if has_bias:
            fields["FusedActivationFunction"] = int(rng.integers(0, 4))
        inputs = [m.constant(np.array(shape, np.int32)), weights, x, *([bias] if has_bias else [])]
        y = m.tensor(shape, "int8", 0.1, int(rng.integers(-20, 20)))
        m.operator("TRANSPOSE_CONV", inputs, [y], ("TransposeConvOptions", fields))
        m.output(y)
    assert check(m, tmp_path) == len(TRANSPOSED)


# channels, groups, outputs, kernel, stride, dilation
GROUPED = [
    (6, 2, 4, (3, 2), (1, 2), (1, 1)),
    (8, 4, 8, (3, 2), (2, 1), (1, 1)),
    (5, 5, 10, (3, 2), (1, 2), (1, 1)),
    (4, 2, 2, (3, 2), (1, 2), (1, 1)),
    (6, 3, 3, (3, 2), (1, 1), (2, 1)),
    (20, 4, 12, (1, 1), (1, 1), (1, 1)),
    (27, 3, 15, (1, 1), (1, 1), (1, 1)),
    (24, 3, 9, (1, 1), (1, 1), (1, 1)),
    (15, 3, 9, (3, 3), (1, 1), (1, 1)),
    (14, 2, 6, (3, 3), (1, 1), (1, 2)),
    (24, 3, 21, (5, 1), (2, 2), (1, 1)),
]


def write_grouped() -> tuple[ModelWriter, int]:
    """A model of convolutions in groups, and how many."""
    rng = np.random.default_rng(4)
    m = ModelWriter()
    for case, padding in itertools.product(GROUPED, ("SAME", "VALID")):
        channels, groups, outputs, kernel, stride, dilation = case
        x = m.input((2, 6, 5, channels), 0.05, int(rng.integers(-128, 128)))
        weights = rng.integers(-127, 128, (outputs, *kernel, channels // groups)).astype(np.int8)
        bias = rng.integers(-500, 500, outputs).astype(np.int32)
        scales = [float(s) for s in rng.uniform(0.002, 0.02, outputs)]
        options = {"padding": padding, "stride": stride, "activation": "RELU6", "scale": 0.06}
        y = m.conv2d(x, weights, bias, weight_scale=scales, dilation=dilation, **options)
        m.output(y)
    return m, 2 * len(GROUPED)


@pytest.mark.parametrize(
    ("core", "family", "scheduled"),
    [
        (GENERIC, "", True),
        ("cortex-m7", "", False),
        ("cortex-m7", "", True),
        ("cortex-m3", "thumb", True),
        ("cortex-m0plus", "thumb", True),
        ("cortex-m55", "", True),
    ],
)
def test_grouped_convolution(core: str, family: str, scheduled: bool, tmp_path: Path) -> None:
    model, count = write_grouped()
    assert check(model, tmp_path, core=core, family=family, scheduled=scheduled) == count


MATRICES = [
    ((3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((1, 2, 3, 4), (1, 2, 4, 3)),
    ((2, 3, 4), (4, 5)),
    ((2, 1, 3, 4), (1, 3, 4, 2)),
    ((1, 7), (7, 1)),
]


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_a_matrix_with_a_scale_for_each_column(dtype: str, tmp_path: Path) -> None:
    """As ai-edge-quantizer writes constants; the oracle is FULLY_CONNECTED."""
    m, rng = ModelWriter(), np.random.default_rng(7)
    scale, zero_point = (0.05, 9) if dtype == "int8" else (0.0003, 0)
    for shape, columns in (((5, 37), 9), ((2, 3, 8), 4), ((1, 2, 3, 20), 1)):
        x = m.tensor(shape, dtype, scale, zero_point)
        m.inputs.append(x)
        ones = (1,) * (len(shape) - 2)
        scales = list(map(float, rng.uniform(0.002, 0.02, columns)))
        for turned in (False, True):
            size = (columns, shape[-1]) if turned else (shape[-1], columns)
            weights = rng.integers(-127, 128, (*ones, *size)).astype(np.int8)
            y = m.constant(weights, scales, axis=len(ones) + (not turned))
            options = ("BatchMatMulOptions", {"AdjX": False, "AdjY": turned})
            made = {"scale": 40 * scale, "zero_point": -4 if dtype == "int8" else 0}
            m.output(m.node("BATCH_MATMUL", [x, y], (*shape[:-1], columns), options, **made))
    assert check(m, tmp_path) == 6


@pytest.mark.parametrize(
    ("shape", "axis", "why"),
    [((4, 3), 0, "only int8 or int4 of zero point 0"), ((2, 4, 3), 2, "where it is one matrix")],
)
def test_other_matrices_with_several_scales_are_refused(
    shape: Shape, axis: int, why: str, tmp_path: Path
) -> None:
    m = ModelWriter()
    y = m.constant(np.ones(shape, np.int8), [0.1] * shape[axis], axis=axis)
    options = ("BatchMatMulOptions", {"AdjX": False, "AdjY": False})
    x = m.input((5, 4), 0.1)
    m.output(m.node("BATCH_MATMUL", [x, y], (*shape[:-2], 5, 3), options, scale=0.1))
    with pytest.raises(UnsupportedOperator, match=why):
        load_model(m.save(tmp_path / "model.tflite"))


@pytest.mark.parametrize("turned", list(itertools.product((False, True), repeat=2)))
def test_batch_matmul(turned: tuple[bool, bool], tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    m = ModelWriter()
    for left, right in MATRICES:
        for constant in (False, True):
            shapes = [left, right]
            result = np.matmul(np.zeros(left), np.zeros(right)).shape
            for i in (0, 1):
                if turned[i]:
                    shapes[i] = (*shapes[i][:-2], shapes[i][-1], shapes[i][-2])
            a = m.input(shapes[0], 0.04, int(rng.integers(-128, 128)))
            if constant:
                data = rng.integers(-128, 128, shapes[1]).astype(np.int8)
                b = m.constant(data, 0.01, int(rng.integers(-128, 128)))
            else:
                b = m.input(shapes[1], 0.03, int(rng.integers(-128, 128)))
            options = ("BatchMatMulOptions", {"AdjX": turned[0], "AdjY": turned[1]})
            m.output(m.node("BATCH_MATMUL", [a, b], result, options, scale=0.15, zero_point=7))
    assert check(m, tmp_path) == 2 * len(MATRICES)


def test_resize_bilinear(tmp_path: Path) -> None:
    m = ModelWriter()
    sizes = [
        ((4, 5), (8, 10)), ((7, 5), (3, 9)), ((5, 3), (11, 2)), ((1, 1), (3, 4)), ((6, 8), (1, 5)),
        ((3, 3), (3, 3)), ((10, 13), (7, 5)),
    ]  # fmt: skip
    for ((h, w), size), channels in itertools.product(sizes, (1, 3, 6)):
        for corners, centers in ((False, False), (True, False), (False, True)):
            x = m.input((1, h, w, channels), 0.05, -3)
            inputs = [x, m.constant(np.array(size, np.int32))]
            fields = {"AlignCorners": corners, "HalfPixelCenters": centers}
            options = ("ResizeBilinearOptions", fields)
            m.output(m.node("RESIZE_BILINEAR", inputs, (1, *size, channels), options))
    assert check(m, tmp_path, samples=2) == 9 * len(sizes)


AXES = [
    ((1, 8, 8, 4), (1, 2)),
    ((1, 7, 7, 3), (-1,)),
    ((2, 5, 6, 3), (0,)),
    ((2, 5, 6, 3), (0, 1, 2, 3)),
    ((2, 5, 6, 3), (0, 2)),
    ((4, 9), (1,)),
    ((11,), (0,)),
    ((2, 1, 3), (1,)),
    ((2, 3, 4, 2, 3), (1, 3)),
]


@pytest.mark.parametrize("keep_dims", [False, True])
@pytest.mark.parametrize("kind", ["REDUCE_MAX", "REDUCE_MIN"])
def test_reductions(kind: str, keep_dims: bool, tmp_path: Path) -> None:
    m = ModelWriter()
    for shape, axes in AXES:
        x = m.input(shape, 0.05, -11)
        reduced = np.zeros(shape).sum(tuple(axes), keepdims=keep_dims).shape
        inputs = [x, m.constant(np.array(axes, np.int32))]
        options = ("ReducerOptions", {"KeepDims": keep_dims})
        m.output(m.node(kind, inputs, reduced, options))
    assert check(m, tmp_path) == len(AXES)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("kind", ["ARG_MAX", "ARG_MIN"])
def test_arguments(kind: str, dtype: str, tmp_path: Path) -> None:
    m = ModelWriter()
    table = {"ARG_MAX": "ArgMaxOptions", "ARG_MIN": "ArgMinOptions"}[kind]
    number = {"int32": 2, "int64": 4}[dtype]
    cases = [((1, 10), 1), ((3, 300), -1), ((2, 5, 6, 3), 2), ((2, 5, 6, 3), 0), ((7,), 0)]
    for shape, axis in cases:
        x = m.input(shape, 0.05, -11)
        inputs = [x, m.constant(np.array(axis, np.int32))]
        out = m.tensor(tuple(np.delete(shape, axis)), dtype)
        m.operator(kind, inputs, [out], (table, {"OutputType": number}))
        m.output(out)
    assert check(m, tmp_path) == len(cases)
