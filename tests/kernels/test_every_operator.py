"""Models that hold every operator, run on every board: soft float, no DSP, other compilers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from signal_cases import signal_cases
from small_models import lstm, sample_inputs, svdf
from test_booleans import comparisons, masks
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.device import Device
from utvm_deploy.kernels.choose.lowering import LOWERINGS
from utvm_deploy.oracle.reference import run_reference


def every_first(m: ModelWriter) -> None:
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return rng.integers(-127, 128, shape, dtype=np.int8)

    def bias(channels: int) -> np.ndarray:
        return rng.integers(-500, 500, channels, dtype=np.int32)

    x = m.quantize(m.float_input((1, 9, 7, 3)), scale=0.05, zero_point=-7)
    x = m.conv2d(x, weights(8, 3, 3, 3), bias(8), scale=1.0, zero_point=3)
    x = m.depthwise_conv2d(x, weights(1, 3, 3, 8), bias(8), stride=2, scale=8.0, zero_point=-5)
    x = m.add(x, m.relu(x, scale=7.0, zero_point=1), scale=9.0, zero_point=2)
    x = m.max_pool(m.pad(x, [(0, 0), (1, 2), (0, 1), (0, 0)]), 2, stride=1)
    x = m.average_pool(x, 3, stride=2, padding="SAME")
    x = m.quantize(m.relu6(x, scale=0.05, zero_point=-128), scale=0.06, zero_point=-100)
    x = m.mean(x, [1], scale=0.05, zero_point=-128)
    x = m.reshape(x, (1, 16))
    x = m.softmax(m.fully_connected(x, weights(7, 16), bias(7), scale=0.3), beta=0.1)
    m.output(m.dequantize(x))


def every_mover(m: ModelWriter) -> None:
    def ints(*values: Any) -> list[int]:
        return [m.constant(np.array(value, np.int32)) for value in values]

    def split(kind: str, inputs: list[int], shapes: list[tuple[int, ...]], options: Any) -> int:
        parts = [m.tensor(shape, "int8", 0.05, -7) for shape in shapes]
        m.operator(kind, inputs, parts, options)
        return parts[-1]

    masks = {f"{name}Mask": 0 for name in ("Begin", "End", "Ellipsis", "NewAxis", "ShrinkAxis")}
    x = m.input((1, 6, 4, 4), 0.05, -7)
    x = m.node("SPACE_TO_DEPTH", [x], (1, 3, 2, 16), ("SpaceToDepthOptions", {"BlockSize": 2}))
    x = m.node("TRANSPOSE", [x, *ints([0, 2, 1, 3])], (1, 2, 3, 16), ("TransposeOptions", {}))
    x = m.node("DEPTH_TO_SPACE", [x], (1, 4, 6, 4), ("DepthToSpaceOptions", {"BlockSize": 2}))
    options = ("ResizeNearestNeighborOptions", {"AlignCorners": False, "HalfPixelCenters": False})
    x = m.node("RESIZE_NEAREST_NEIGHBOR", [x, *ints([7, 9])], (1, 7, 9, 4), options)
    x = m.node("SQUEEZE", [x], (7, 9, 4), ("SqueezeOptions", {}))
    options = ("MirrorPadOptions", {"Mode": 1})
    x = m.node("MIRROR_PAD", [x, *ints([[1, 0], [0, 2], [0, 0]])], (8, 11, 4), options)
    x = m.node("SLICE", [x, *ints([0, 1, 0], [8, -1, 4])], (8, 10, 4), ("SliceOptions", {}))
    bounds = ints([7, 0, 0], [-9, 9, 4], [-1, 2, 1])
    x = m.node("STRIDED_SLICE", [x, *bounds], (8, 5, 4), ("StridedSliceOptions", masks))
    options = ("GatherOptions", {"Axis": 1, "BatchDims": 0})
    x = m.node("GATHER", [x, *ints([4, 0, 1, 1])], (8, 4, 4), options)
    a = split("SPLIT", [*ints(0), x], [(4, 4, 4)] * 2, ("SplitOptions", {"NumSplits": 2}))
    b = split("UNPACK", [a], [(4, 4)] * 4, ("UnpackOptions", {"Num": 4, "Axis": 1}))
    c = split(
        "SPLIT_V", [b, *ints([1, 3], 1)], [(4, 1), (4, 3)], ("SplitVOptions", {"NumSplits": 2})
    )
    d = m.node("CONCATENATION", [b, c], (4, 7), ("ConcatenationOptions", {"Axis": 1}))
    e = m.node("PACK", [d, d], (4, 2, 7), ("PackOptions", {"Axis": 1, "ValuesCount": 2}))
    f = m.node("EXPAND_DIMS", [e, *ints(0)], (1, 4, 2, 7), ("ExpandDimsOptions", {}))
    value = m.constant(np.array([9], np.int8), 0.05, -7)
    m.output(m.node("PADV2", [f, *ints([[0, 0], [1, 0], [0, 2], [0, 0]]), value], (1, 5, 4, 7)))


def every_element(m: ModelWriter) -> None:
    rng = np.random.default_rng(2)
    x = m.input((1, 5, 6, 7), 0.05, -7)
    swish = m.node("HARD_SWISH", [x], (1, 5, 6, 7), ("HardSwishOptions", {}), scale=0.03)
    slope = m.constant(rng.integers(-128, 128, (1, 1, 7), dtype=np.int8), 0.01, 5)
    prelu = m.node("PRELU", [x, slope], (1, 5, 6, 7), scale=0.04, zero_point=9)
    fused = {"FusedActivationFunction": 0}
    less = m.node("SUB", [swish, prelu], (1, 5, 6, 7), ("SubOptions", fused), scale=0.06)
    gate = m.node("LOGISTIC", [less], (1, 5, 6, 7), scale=1 / 256, zero_point=-128)
    product = m.node("MUL", [gate, x], (1, 5, 6, 7), ("MulOptions", fused), scale=0.02)
    leaky = ("LeakyReluOptions", {"Alpha": 0.2})
    y = m.node("LEAKY_RELU", [product], (1, 5, 6, 7), leaky, scale=0.02, zero_point=4)
    y = m.node("TANH", [y], (1, 5, 6, 7), scale=1 / 128, zero_point=0)
    y = m.node("ABS", [y], (1, 5, 6, 7), ("AbsOptions", {}), scale=1 / 200, zero_point=-30)
    negative = m.node("NEG", [y], (1, 5, 6, 7), ("NegOptions", {}))
    extremum = ("MaximumMinimumOptions", {})
    small = m.constant(np.array([[3], [40], [-20], [9], [100], [-7]], np.int8), 1 / 200, -30)
    y = m.node("MINIMUM", [negative, small], (1, 5, 6, 7), extremum)
    y = m.node("MAXIMUM", [y, m.constant(np.array([-30], np.int8), 1 / 200, -30)], (1, 5, 6, 7))
    y = m.node("RELU_N1_TO_1", [y], (1, 5, 6, 7), scale=0.004, zero_point=-3)
    m.output(m.node("RELU_0_TO_1", [y], (1, 5, 6, 7), scale=0.003, zero_point=-99))


def every_product(m: ModelWriter) -> None:
    rng = np.random.default_rng(3)

    def ints(*values: Any) -> list[int]:
        return [m.constant(np.array(value, np.int32)) for value in values]

    x = m.input((1, 4, 5, 6), 0.05, -7)
    grouped = rng.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
    bias = rng.integers(-500, 500, 4).astype(np.int32)
    y = m.conv2d(x, grouped, bias, scale=0.8)
    weights = m.constant(rng.integers(-127, 128, (3, 3, 3, 4)).astype(np.int8), 0.01)
    z = m.tensor((1, 8, 10, 3), "int8", 4.0, 3)
    fields = {"Padding": 0, "StrideH": 2, "StrideW": 2}
    inputs = [*ints([1, 8, 10, 3]), weights, y]
    m.operator("TRANSPOSE_CONV", inputs, [z], ("TransposeConvOptions", fields))
    fields = {"AlignCorners": False, "HalfPixelCenters": True}
    z = m.node(
        "RESIZE_BILINEAR", [z, *ints([5, 7])], (1, 5, 7, 3), ("ResizeBilinearOptions", fields)
    )
    matrices = ("BatchMatMulOptions", {"AdjX": False, "AdjY": True})
    z = m.node("BATCH_MATMUL", [z, z], (1, 5, 7, 7), matrices, scale=300.0, zero_point=0)
    kept = ("ReducerOptions", {"KeepDims": False})
    most = m.node("REDUCE_MAX", [z, *ints([1])], (1, 7, 7), kept)
    least = m.node("REDUCE_MIN", [z, *ints([1])], (1, 7, 7), kept)
    masks = {f"{name}Mask": 0 for name in ("Begin", "End", "Ellipsis", "NewAxis")}
    options = ("StridedSliceOptions", {**masks, "ShrinkAxisMask": 15})
    one = m.node("STRIDED_SLICE", [z, *ints([0] * 4, [1] * 4, [1] * 4)], (), options)
    filled = m.tensor((1, 7, 7), "int8", 300.0, 0)
    m.operator("FILL", [*ints([1, 7, 7]), one], [filled], ("FillOptions", {}))
    fused = ("AddOptions", {"FusedActivationFunction": 0})
    most = m.node("ADD", [most, filled], (1, 7, 7), fused, scale=300.0, zero_point=0)
    options = ("ConcatenationOptions", {"Axis": 0})
    both = m.node("CONCATENATION", [most, least], (2, 7, 7), options)
    first = m.tensor((2, 7), "int32")
    last = m.tensor((2, 7), "int32")
    m.operator("ARG_MAX", [both, *ints(2)], [first], ("ArgMaxOptions", {"OutputType": 2}))
    m.operator("ARG_MIN", [both, *ints(1)], [last], ("ArgMinOptions", {"OutputType": 2}))
    both = m.node("CONCATENATION", [first, last], (4, 7), options)
    summed = m.tensor((4, 7), "int32")
    fields = {"Exclusive": True, "Reverse": False}
    m.operator("CUMSUM", [both, *ints(1)], [summed], ("CumsumOptions", fields))
    signs = m.node("SIGN", [summed], (4, 7), ("SignOptions", {}))
    added = m.node("ADD_N", [summed, signs, both], (4, 7), ("AddNOptions", {}))
    mixed = m.node("BITWISE_XOR", [added, both], (4, 7), ("BitwiseXorOptions", {}))
    mixed = m.node("RIGHT_SHIFT", [mixed, both], (4, 7), ("RightShiftOptions", {}))
    remainder = ("FloorModOptions", {})
    mixed = m.node("DIV", [mixed, *ints([5, -3, 7, 2, -1, 1, 4])], (4, 7), ("DivOptions", {}))
    left = m.node("FLOOR_MOD", [mixed, *ints([5, -3, 7, 2, -1, 1, 4])], (4, 7), remainder)
    wide = m.tensor((4, 7), "int64")
    m.operator("CAST", [left], [wide], ("CastOptions", {}))
    divisor = m.constant(np.array([[-3], [2], [1 << 40], [-1]], np.int64))
    m.output(m.node("FLOOR_MOD", [wide, divisor], (4, 7), remainder))


def every_int16x8(m: ModelWriter) -> None:
    """int16x8: int16 activations, int8 weights, biases of int64."""
    rng = np.random.default_rng(4)

    def weights(*shape: int) -> int:
        return m.constant(rng.integers(-127, 128, shape).astype(np.int8), 0.01)

    def bias(channels: int) -> int:
        return m.constant(rng.integers(-(2**24), 2**24, channels).astype(np.int64), 1e-5)

    def node(
        kind: str, inputs: list[int], shape: tuple[int, ...], scale: float, **fields: Any
    ) -> int:
        table = fields.pop("table", None)
        return m.node(kind, inputs, shape, (table, fields) if table else None, scale=scale)

    x = m.tensor((1, 6, 4, 3), "int16", 0.0004, 0)
    m.inputs.append(x)
    window = {"Padding": 0, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    inputs, shape = [x, weights(4, 3, 3, 3), bias(4)], (1, 6, 4, 4)
    y = node("CONV_2D", inputs, shape, 0.003, table="Conv2DOptions", **window)
    inputs = [y, weights(1, 3, 3, 4), bias(4)]
    z = node("DEPTHWISE_CONV_2D", inputs, shape, 0.01, table="DepthwiseConv2DOptions", **window)
    exact = {"PotScaleInt16": False}
    total = node("ADD", [y, z], shape, 0.01, table="AddOptions", **exact)
    gate = node("LOGISTIC", [total], shape, 1 / 32768)
    product = node(
        "MUL", [gate, node("TANH", [z], shape, 1 / 32768)], shape, 1 / 30000, table="MulOptions"
    )
    product = node("RELU", [product], shape, 1 / 32000)
    pool = {"Padding": 1, "StrideH": 2, "StrideW": 2, "FilterHeight": 2, "FilterWidth": 2}
    y = node("AVERAGE_POOL_2D", [product], (1, 3, 2, 4), 1 / 32000, table="Pool2DOptions", **pool)
    z = node("MAX_POOL_2D", [product], (1, 3, 2, 4), 1 / 32000, table="Pool2DOptions", **pool)
    z = node("SUB", [y, z], (1, 3, 2, 4), 1 / 32000, table="SubOptions", **exact)
    flat = m.reshape(z, (1, 24))
    m.tensors[flat].dtype = "int16"
    inputs = [flat, weights(6, 24)]
    y = node("FULLY_CONNECTED", inputs, (1, 6), 0.0002, table="FullyConnectedOptions")
    m.output(node("SOFTMAX", [y], (1, 6), 1 / 32768, table="SoftmaxOptions", Beta=1.0))


def every_other(m: ModelWriter) -> None:
    def ints(*values: Any) -> list[int]:
        return [m.constant(np.array(value, np.int32)) for value in values]

    x = m.input((1, 5, 6, 3), 0.05, -7)
    blocks = ints([2, 3], [[1, 0], [0, 0]])
    y = m.node("SPACE_TO_BATCH_ND", [x, *blocks], (6, 3, 2, 3))
    y = m.node("GELU", [y], (6, 3, 2, 3), ("GeluOptions", {"Approximate": True}), scale=0.04)
    y = m.node("BATCH_TO_SPACE_ND", [y, *blocks], (1, 5, 6, 3))
    y = m.node("ELU", [y], (1, 5, 6, 3), scale=0.03, zero_point=2)
    y = m.node("REVERSE_V2", [y, *ints([1])], (1, 5, 6, 3))
    options = ("ReducerOptions", {"KeepDims": True})
    center = m.node("MEAN", [y, *ints([3])], (1, 5, 6, 1), options, scale=0.03, zero_point=5)
    squares = m.node("SQUARED_DIFFERENCE", [y, center], (1, 5, 6, 3), scale=0.05, zero_point=-128)
    total = m.node("SUM", [squares, *ints([3])], (1, 5, 6, 1), options, scale=0.09)
    root = m.node("SQRT", [total], (1, 5, 6, 1), scale=0.02)
    inverse = m.node("RSQRT", [total], (1, 5, 6, 1), scale=0.03)
    root = m.node("TILE", [root, *ints([1, 1, 1, 3])], (1, 5, 6, 3))
    inverse = m.node("BROADCAST_TO", [inverse, *ints([1, 5, 6, 3])], (1, 5, 6, 3))
    fused = ("MulOptions", {"FusedActivationFunction": 0})
    z = m.node("MUL", [root, inverse], (1, 5, 6, 3), fused, scale=0.02, zero_point=-20)
    z = m.node("ADD", [z, y], (1, 5, 6, 3), ("AddOptions", {}), scale=0.04, zero_point=3)
    z = m.node("GATHER_ND", [z, *ints([[0, 4], [0, 0], [0, 2]])], (3, 6, 3))
    norm = ("L2NormOptions", {"FusedActivationFunction": 0})
    z = m.node("L2_NORMALIZATION", [z], (3, 6, 3), norm, scale=1 / 128, zero_point=0)
    z = m.node("EXP", [z], (3, 6, 3), ("ExpOptions", {}), scale=0.011, zero_point=-128)
    z = m.node("LOG", [z], (3, 6, 3), scale=0.01, zero_point=0)
    options = ("LogSoftmaxOptions", {})
    logarithms = m.node("LOG_SOFTMAX", [z], (3, 6, 3), options, scale=1 / 16, zero_point=127)
    most = m.tensor((3, 6), "int32")
    m.operator("ARG_MAX", [logarithms, *ints(2)], [most], ("ArgMaxOptions", {"OutputType": 2}))
    (first,) = (m.node("RESHAPE", [most, *ints([18])], (18,), ("ReshapeOptions", {})),)
    table = m.constant(np.arange(12, dtype=np.int8).reshape(3, 4), 0.01, 0)
    rows = m.tensor((18, 4), "int8", 0.01, 0)
    m.operator("EMBEDDING_LOOKUP", [first, table], [rows])
    on, off = (m.constant(np.array(value, np.int8), 0.01) for value in (100, -3))
    marks = m.tensor((3, 4, 6), "int8", 0.01, 0)
    m.operator("ONE_HOT", [most, *ints(4), on, off], [marks], ("OneHotOptions", {"Axis": 1}))
    largest, places = m.tensor((3, 6, 2), "int8", 0.01, 0), m.tensor((3, 6, 2), "int32")
    m.operator("TOPK_V2", [z, *ints(2)], [largest, places], ("TopKV2Options", {}))
    options, corner = (
        ("DynamicUpdateSliceOptions", {}),
        m.constant(np.ones((1, 2, 3), np.int8), 0.01),
    )
    z = m.node("DYNAMIC_UPDATE_SLICE", [z, corner, *ints([2, 1, 0])], (3, 6, 3), options)
    product = m.node("REDUCE_PROD", [z, *ints([2])], (3, 6), ("ReducerOptions", {}), scale=0.01)
    options = ("ConcatenationOptions", {"Axis": 0})
    flat = [
        m.node("RESHAPE", [y, *ints([-1])], (n,), ("ReshapeOptions", {}))
        for y, n in ((z, 54), (rows, 72), (marks, 72), (largest, 36), (product, 18))
    ]
    m.output(m.node("CONCATENATION", flat, (252,), options))


def every_state(m: ModelWriter) -> None:
    y = lstm(m, m.input((1, 4, 9), 0.05, -7), 6)
    last = [m.constant(np.array(value, np.int32)) for value in ([0, 3, 0], [1, 1, 6])]
    y = m.node("SLICE", [y, *last], (1, 1, 6), ("SliceOptions", {}))
    y = svdf(m, svdf(m, m.reshape(y, (1, 6)), 6, 4, 2), 5, 3, 1)
    m.output(svdf(m, y, 7, 3, 2, of_bytes=True))


def every_conversion(m: ModelWriter) -> None:
    """int32 at both ends, and SOFTMAX from int8 to int16 as in TFLite Micro's keyword model."""

    def quantize(x: int, dtype: str, scale: float, zero_point: int = 0) -> int:
        options = ("QuantizeOptions", {})
        quantization = {"scale": scale, "zero_point": zero_point, "dtype": dtype}
        return m.node("QUANTIZE", [x], (3, 10), options, **quantization)

    x = m.tensor((3, 10), "int32", 2.0**-24, 0)
    m.inputs.append(x)
    y = quantize(x, "int8", 1.1, 3)
    options = ("SoftmaxOptions", {"Beta": 0.05})
    quantization = {"scale": 1 / 65535, "zero_point": -32768, "dtype": "int16"}
    y = quantize(m.node("SOFTMAX", [y], (3, 10), options, **quantization), "int32", 1 / 32767, -77)
    z = quantize(quantize(x, "int16", 0.004), "int32", 1 / 32767, -77)
    m.output(m.node("CONCATENATION", [y, z], (6, 10), ("ConcatenationOptions", {"Axis": 0})))


#: What tests/frontend/test_variables.py has models of.
VARIABLES = {"ASSIGN_VARIABLE", "READ_VARIABLE"}
MODELS: tuple[Callable[[ModelWriter], None], ...] = (
    every_first,
    every_mover,
    every_element,
    every_product,
    every_int16x8,
    every_other,
    every_state,
    every_conversion,
)


def written(build: Callable[[ModelWriter], None]) -> ModelWriter:
    m = ModelWriter()
    build(m)
    return m


def test_models_hold_every_operator() -> None:
    builds = (*MODELS, comparisons, masks)
    held = {op.kind for build in builds for op in written(build).operators}
    # Relax makes the first, and passes make the others; a .tflite file does not hold them.
    made_elsewhere = {"CALL_TIR", "INPUT_ROWS", "LOOKUP", "MOVE", "POOL_AVERAGES", "POOL_SUMS"}
    made_elsewhere |= {"SHIFT"}
    # Of frontend/test_image_inputs.py and of relax/test_spectra.py.
    made_elsewhere |= {"UtvmRgb565", "SignalSpectrogram"}
    signals = {case.kind for case in signal_cases().values()}  # of test_signal_kernels
    assert held | VARIABLES | signals == set(LOWERINGS) - made_elsewhere


@pytest.mark.spread(2)
@pytest.mark.parametrize("build", MODELS)
def test_every_operator_is_byte_exact(
    build: Callable[[ModelWriter], None], device: Device, tmp_path: Path
) -> None:
    m = written(build)
    path = m.save(tmp_path / "every_operator.tflite")
    samples = [sample_inputs(m, seed) for seed in range(4)]
    expected = [outputs for (outputs,) in run_reference(path, samples).outputs]
    assert len({array.tobytes() for array in expected}) == len(samples)
    model = device.load(utvm_deploy.compile(path, device.board), into="ram")
    for sample, outputs in zip(samples, expected, strict=True):
        assert np.asarray(model(*sample)).tobytes() == outputs.tobytes()
