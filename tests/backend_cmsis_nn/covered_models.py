"""Models of the operators that the library has calls for, each layer with inputs of its own."""

from __future__ import annotations

import numpy as np
from small_models import svdf
from tflite_writer import ModelWriter

Shape = tuple[int, ...]


def _weights(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-127, 128, shape).astype(np.int8)


def covered_bytes() -> ModelWriter:
    """Operators of int8 beside convolutions, pools and dense layers."""
    rng, m = np.random.default_rng(5), ModelWriter()

    def two(kind: str, left: Shape, right: Shape, options: str, scale: float) -> None:
        a, b = m.input(left, 0.05, -7), m.input(right, 0.03, 4)
        made = np.broadcast_shapes(left, right)
        m.output(m.node(kind, [a, b], made, (options, {}), scale=scale, zero_point=9))

    two("MUL", (1, 5, 3, 7), (1, 5, 3, 7), "MulOptions", 0.2)
    two("MUL", (1, 5, 3, 7), (1, 1, 1, 7), "MulOptions", 0.2)
    two("MUL", (7,), (1, 5, 3, 7), "MulOptions", 0.2)
    two("ADD", (1, 4, 4, 9), (1, 1, 1, 9), "AddOptions", 0.08)
    for kind in ("MINIMUM", "MAXIMUM"):
        a, b = m.input((1, 4, 3, 6), 0.05, -7), m.input((1, 1, 3, 6), 0.05, -7)
        m.output(m.node(kind, [a, b], (1, 4, 3, 6), ("MaximumMinimumOptions", {})))
    for channels, outputs, kernel, stride, padding in (
        *((5, 6, (3, 3), 2, 0), (24, 7, (3, 3), 2, 0), (24, 5, (2, 2), 2, 1), (4, 3, (3, 2), 3, 1)),
        *((20, 4, (4, 4), 1, 0),),
    ):
        x = m.input((1, 5, 4, channels), 0.05, -7)
        sides = [
            s * stride if padding == 0 else (s - 1) * stride + k
            for s, k in zip((5, 4), kernel, strict=True)
        ]
        made = (1, *sides, outputs)
        scales = [float(s) for s in rng.uniform(0.005, 0.015, outputs)]
        table = m.constant(_weights(rng, outputs, *kernel, channels), scales, axis=0)
        bias = m.constant(
            rng.integers(-500, 500, outputs).astype(np.int32), [s * 0.05 for s in scales]
        )
        size = m.constant(np.array(made, np.int32))
        y = m.tensor(made, "int8", 0.3, 5)
        fields = {"Padding": padding, "StrideH": stride, "StrideW": stride}
        m.operator("TRANSPOSE_CONV", [size, table, x, bias], [y], ("TransposeConvOptions", fields))
        m.output(y)
    for left, right in (((2, 5, 9), (2, 4, 9)), ((2, 3, 5, 8), (1, 3, 4, 8)), ((5, 8), (2, 4, 8))):
        a, b = m.input(left, 0.04, 5), m.input(right, 0.03, -2)
        made = (*np.broadcast_shapes(left[:-2], right[:-2]), left[-2], right[-2])
        options = ("BatchMatMulOptions", {"AdjX": False, "AdjY": True})
        m.output(m.node("BATCH_MATMUL", [a, b], made, options, scale=0.1, zero_point=1))
    _grouped(m, rng)
    _movers(m)
    for rank in (1, 2):
        m.output(svdf(m, m.input((1, 11), 0.05, 3), units=6, memory=5, rank=rank))
    return m


def _grouped(m: ModelWriter, rng: np.random.Generator) -> None:
    """Convolutions of groups, also pointwise and of one row."""
    for (rows, columns), channels, groups, outputs, kernel in (
        *(((5, 4), 12, 3, 9, (1, 1)), ((5, 3), 6, 2, 10, (3, 3)), ((1, 7), 8, 4, 4, (1, 3))),
        *(((3, 3), 5, 5, 5, (2, 2)), ((4, 4), 16, 2, 6, (3, 1))),
    ):
        x = m.input((1, rows, columns, channels), 0.05, -7)
        scales = [float(s) for s in rng.uniform(0.005, 0.015, outputs)]
        bias = rng.integers(-500, 500, outputs).astype(np.int32)
        weights = _weights(rng, outputs, *kernel, channels // groups)
        m.output(m.conv2d(x, weights, bias, weight_scale=scales, scale=0.15, zero_point=3))


def _movers(m: ModelWriter) -> None:
    """TRANSPOSE of two to four dimensions that move, and CONCATENATION."""
    for view, order in (
        *(((7, 5), (1, 0)), ((3, 4, 5), (2, 0, 1)), ((1, 6, 5, 3), (0, 2, 1, 3))),
        *(((2, 3, 5, 4), (3, 1, 0, 2)), ((1, 5, 3, 2, 4), (0, 1, 2, 4, 3))),
        *(((2, 1, 3, 5), (3, 0, 1, 2)), ((2, 3, 4, 9), (0, 1, 3, 2))),
    ):
        x, numbers = m.input(view, 0.05, -7), m.constant(np.array(order, np.int32))
        made = tuple(view[axis] for axis in order)
        m.output(m.node("TRANSPOSE", [x, numbers], made, ("TransposeOptions", {})))
    for sizes, axis in (((5, 3), 3), ((8, 1, 7), 2)):
        shapes = [
            tuple(size if i == axis else d for i, d in enumerate((1, 4, 3, 6))) for size in sizes
        ]
        sources = [m.input(shape, 0.05, -7) for shape in shapes]
        made = tuple(sum(sizes) if i == axis else d for i, d in enumerate(shapes[0]))
        options = ("ConcatenationOptions", {"Axis": axis, "FusedActivationFunction": 0})
        m.output(m.node("CONCATENATION", sources, made, options))


def covered_halfwords() -> ModelWriter:
    """Operators of int16."""
    rng, m = np.random.default_rng(6), ModelWriter()

    def source(*shape: int, scale: float = 0.0004) -> int:
        m.inputs.append(m.tensor(shape, "int16", scale, 0))
        return m.inputs[-1]

    def weighted(kind: str, x: int, weights: np.ndarray, axis: int, made: Shape, options: object,
                 count: int) -> None:  # fmt: skip
        scales = [float(s) for s in rng.uniform(0.002, 0.02, count)]
        bias = rng.integers(-(2**20), 2**20, made[-1]).astype(np.int64)
        inputs = [x, m.constant(weights, scales, axis=axis)]
        inputs.append(m.constant(bias, [s * 0.0004 for s in scales]))
        m.output(m.node(kind, inputs, made, options, scale=0.003))  # type: ignore[arg-type]

    window = {"Padding": 0, "StrideH": 1, "StrideW": 1}
    dilated = window | {"DilationHFactor": 1, "DilationWFactor": 1}
    for channels, size in ((3, 3), (8, 1), (5, 2)):
        table = _weights(rng, 6, size, size, channels)
        x = source(1, 6, 5, channels)
        weighted("CONV_2D", x, table, 0, (1, 6, 5, 6), ("Conv2DOptions", dilated), 6)
        for multiplier in (1, 2):
            made = channels * multiplier
            options = ("DepthwiseConv2DOptions", dilated | {"DepthMultiplier": multiplier})
            table = _weights(rng, 1, size, size, made)
            x = source(1, 6, 5, channels)
            weighted("DEPTHWISE_CONV_2D", x, table, 3, (1, 6, 5, made), options, made)
    options = ("FullyConnectedOptions", {})
    weighted("FULLY_CONNECTED", source(2, 33), _weights(rng, 7, 33), 0, (2, 7), options, 1)
    for kind, options in (
        ("ADD", ("AddOptions", {"PotScaleInt16": False})),
        ("MUL", ("MulOptions", {})),
    ):
        for right in ((1, 4, 3, 5), (5,)):
            a, b = source(1, 4, 3, 5), source(*right, scale=0.0003)
            scale = 0.0009 if kind == "ADD" else 0.0004 * 0.0003 * 3e4
            m.output(m.node(kind, [a, b], (1, 4, 3, 5), options, scale=scale))
    pool = {"FilterHeight": 2, "FilterWidth": 3, "Padding": 0, "StrideH": 2, "StrideW": 1}
    for kind in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
        m.output(m.node(kind, [source(1, 6, 5, 7)], (1, 3, 5, 7), ("Pool2DOptions", pool)))
    x = source(3, 20)
    m.output(m.node("SOFTMAX", [x], (3, 20), ("SoftmaxOptions", {"Beta": 1.0}), scale=1 / 32768))
    return m
