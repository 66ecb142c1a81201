"""Small models, one per operator variant, and some with several operators; built on the writer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tflite_writer import ModelWriter

Build = Callable[[ModelWriter, np.random.Generator], None]


def int8(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Random int8 weights, symmetric."""
    return rng.integers(-127, 128, shape).astype(np.int8)


def int32(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Random biases."""
    return rng.integers(-2000, 2000, shape).astype(np.int32)


def scales(rng: np.random.Generator, count: int) -> list[float]:
    """Random per-channel scales."""
    return [float(s) for s in rng.uniform(0.001, 0.02, count)]


def _conv(shape, weights, per_channel=True, **options) -> Build:
    def build(m: ModelWriter, rng: np.random.Generator) -> None:
        x = m.input(shape, 0.05, -7)
        scale = scales(rng, weights[0]) if per_channel else 0.01
        b = int32(rng, weights[0])
        options.setdefault("scale", 0.1)
        m.output(m.conv2d(x, int8(rng, *weights), b, weight_scale=scale, zero_point=3, **options))

    return build


def _depthwise(shape, weights, bias=True, per_channel=True, **options) -> Build:
    def build(m: ModelWriter, rng: np.random.Generator) -> None:
        x = m.input(shape, 0.05, 11)
        scale = scales(rng, weights[3]) if per_channel else 0.01
        b = int32(rng, weights[3]) if bias else None
        options.setdefault("scale", 0.1)
        y = m.depthwise_conv2d(x, int8(rng, *weights), b, weight_scale=scale, **options)
        m.output(y)

    return build


def _dense(shape, weights, bias=True, per_channel=False, **options) -> Build:
    def build(m: ModelWriter, rng: np.random.Generator) -> None:
        x = m.input(shape, 0.05, -9)
        scale = scales(rng, weights[0]) if per_channel else 0.007
        b = int32(rng, weights[0]) if bias else None
        y = m.fully_connected(x, int8(rng, *weights), b, weight_scale=scale, **options)
        m.output(y)

    return build


def _one(shape, kind, *arguments, **options) -> Build:
    """An operator of one input, of the method ``kind`` of the writer."""

    def build(m: ModelWriter, rng: np.random.Generator) -> None:
        m.output(getattr(m, kind)(m.input(shape, 0.04, 5), *arguments, **options))

    return build


def _add(a, b, **options) -> Build:
    def build(m: ModelWriter, rng: np.random.Generator) -> None:
        x, y = m.input(a, 0.04, 5), m.input(b, 0.07, -20)
        m.output(m.add(x, y, **{"scale": 0.09, "zero_point": 1, **options}))

    return build


def _add_constant(m: ModelWriter, rng: np.random.Generator) -> None:
    constant = m.constant(int8(rng, 1, 1, 1, 6), 0.03, 4)
    m.output(m.add(m.input((1, 4, 3, 6), 0.04, 5), constant, scale=0.05))


def _float_ends(m: ModelWriter, rng: np.random.Generator) -> None:
    x = m.quantize(m.float_input((1, 6, 6, 2)), scale=0.03, zero_point=4)
    y = m.conv2d(x, int8(rng, 3, 3, 3, 2), int32(rng, 3), activation="RELU", scale=0.2)
    m.output(m.dequantize(y))


def _branches(m: ModelWriter, rng: np.random.Generator) -> None:
    """A residual block, pooling, two outputs; one tensor is used three times."""
    x = m.input((1, 8, 8, 4), 0.05, -3)
    y = m.conv2d(x, int8(rng, 8, 3, 3, 4), int32(rng, 8), stride=2, activation="RELU6", scale=0.04)
    z = m.depthwise_conv2d(y, int8(rng, 1, 3, 3, 8), int32(rng, 8), scale=0.09, zero_point=-5)
    s = m.add(y, z, activation="RELU", scale=0.1, zero_point=-128)
    p = m.average_pool(s, 4)
    r = m.reshape(p, (1, -1))
    d = m.fully_connected(r, int8(rng, 5, 8), int32(rng, 5), scale=0.3, zero_point=2)
    m.output(m.softmax(d), m.max_pool(y, 2))


def _two_inputs(m: ModelWriter, rng: np.random.Generator) -> None:
    a, b = m.input((1, 5, 5, 2), 0.1, 3), m.input((1, 5, 5, 2), 0.2, -1)
    s = m.add(a, b, scale=0.25)
    m.output(m.mean(s, [1, 2], scale=0.2), m.add(s, a, scale=0.3))


def _move(kind, shape, parameters, result, options=None) -> Build:
    """An operator that moves the elements of one input, with constants behind it."""

    def build(m: ModelWriter, rng: np.random.Generator) -> None:
        inputs = [m.input(shape, 0.04, 5)]
        inputs += [m.constant(np.array(value, np.int32)) for value in parameters]
        m.output(m.node(kind, inputs, result, options))

    return build


def _of_two(kind, options=None, **quantization) -> Build:
    def build(m: ModelWriter, rng: np.random.Generator) -> None:
        x, y = m.input((1, 4, 3, 5), 0.04, 5), m.input((5,), 0.07, -20)
        table = (options, {"FusedActivationFunction": 1}) if options else None
        m.output(m.node(kind, [x, y], (1, 4, 3, 5), table, **quantization))

    return build


def _of_one(kind, options=None, **quantization) -> Build:
    return lambda m, rng: m.output(
        m.node(kind, [m.input((2, 3, 7), 0.04, 5)], (2, 3, 7), options, **quantization)
    )


def _extrema(m: ModelWriter, rng: np.random.Generator) -> None:
    x, y = m.input((2, 3, 7), 0.04, 5), m.input((3, 1), 0.04, 5)
    m.output(m.node("MINIMUM", [x, y], (2, 3, 7), ("MaximumMinimumOptions", {})))
    m.output(m.node("MAXIMUM", [x, y], (2, 3, 7), ("MaximumMinimumOptions", {})))


def _transpose_conv(m: ModelWriter, rng: np.random.Generator) -> None:
    x = m.input((1, 4, 3, 2), 0.04, 5)
    weights = m.constant(int8(rng, 3, 3, 3, 2), scales(rng, 3))
    bias = m.constant(int32(rng, 3), [1e-4] * 3)
    size = m.constant(np.array([1, 8, 6, 3], np.int32))
    y = m.tensor((1, 8, 6, 3), "int8", 0.1, -4)
    options = {"Padding": 0, "StrideH": 2, "StrideW": 2, "FusedActivationFunction": 1}
    m.operator("TRANSPOSE_CONV", [size, weights, x, bias], [y], ("TransposeConvOptions", options))
    m.output(y)


def _matmul(m: ModelWriter, rng: np.random.Generator) -> None:
    a, b = m.input((2, 3, 4), 0.04, 5), m.input((2, 5, 4), 0.03, -2)
    options = ("BatchMatMulOptions", {"AdjX": False, "AdjY": True})
    m.output(m.node("BATCH_MATMUL", [a, b], (2, 3, 5), options, scale=0.1, zero_point=1))


def _reduced(m: ModelWriter, rng: np.random.Generator) -> None:
    x, axes = m.input((2, 3, 4), 0.04, 5), m.constant(np.array([1], np.int32))
    for kind in ("REDUCE_MAX", "REDUCE_MIN"):
        m.output(m.node(kind, [x, axes], (2, 1, 4), ("ReducerOptions", {"KeepDims": True})))
    for kind, table in (("ARG_MAX", "ArgMaxOptions"), ("ARG_MIN", "ArgMinOptions")):
        out = m.tensor((2, 4), "int32")
        m.operator(kind, [x, axes], [out], (table, {"OutputType": 2}))
        m.output(out)


def svdf(
    m: ModelWriter,
    x: int,
    units: int,
    memory: int,
    rank: int,
    seed: int = 1,
    *,
    of_bytes: bool = False,
) -> int:
    """SVDF of random weights, with a state of its own, of bytes as TFLite Micro has it or not."""
    rng = np.random.default_rng(seed)
    batch, inputs = m.tensors[x].shape
    filters = units * rank
    features = rng.integers(-127, 128, (filters, inputs)).astype(np.int8)
    most, state_scale, time_scale, zero_point = 32767, 0.003, 0.00003, 0
    if of_bytes:
        most, state_scale, time_scale, zero_point = 127, 0.07, 0.002, 23
    times = rng.integers(-most, most + 1, (filters, memory)).astype(
        np.int8 if of_bytes else np.int16
    )
    bias = rng.integers(-5000, 5000, units).astype(np.int32)
    dtype = "int8" if of_bytes else "int16"
    state = m.tensor((batch, filters * memory), dtype, state_scale, zero_point)
    m.tensors[state].is_variable = True
    operands = [
        x,
        m.constant(features, 0.01),
        m.constant(times, time_scale),
        m.constant(bias, state_scale * time_scale),
        state,
    ]
    options = ("SVDFOptions", {"Rank": rank, "FusedActivationFunction": 1})
    return m.node("SVDF", operands, (batch, units), options, scale=0.05, zero_point=-128)


def lstm(
    m: ModelWriter,
    x: int,
    cells: int,
    *,
    time_major: bool = False,
    clip: float = 0.0,
    seed: int = 1,
    couples: bool = False,
    peeps: bool = False,
    norms: bool = False,
    outputs: int = 0,
    projection_clip: float = 0.0,
) -> int:
    """UNIDIRECTIONAL_SEQUENCE_LSTM of random weights, as the converter quantizes them.

    ``outputs`` other than 0 are those of a projection. An input of int16 makes one of 16x8.
    """
    rng = np.random.default_rng(seed)
    is_wide = m.tensors[x].dtype == "int16"
    outer, inner, inputs = m.tensors[x].shape
    batch = inner if time_major else outer
    hidden_scale, hidden_zero, cell_scale = 1 / 128, int(rng.integers(-9, 9)), 2.0**-11
    if is_wide:
        hidden_scale, hidden_zero = 2.0**-15, 0
    activations = m.tensors[x].dtype

    made = outputs or cells

    def weights(columns: int, rows: int = cells) -> int:
        data = rng.integers(-127, 128, (rows, columns)).astype(np.int8)
        return m.constant(data, float(rng.uniform(0.002, 0.01)))

    def vectors(are_there: bool, count: int, scale: float) -> list[int]:
        if not are_there:
            return [-1] * count
        found = [
            m.constant(rng.integers(-32767, 32768, cells).astype(np.int16), scale)
            for _ in range(count)
        ]
        return [-1, *found[1:]] if couples else found

    def state(dtype: str, width: int, scale: float, zero_point: int) -> int:
        number = m.tensor((batch, width), dtype, scale, zero_point)
        m.tensors[number].is_variable = True
        return number

    operands = [x, *(weights(inputs) for _ in range(4)), *(weights(made) for _ in range(4))]
    operands += vectors(peeps, 3, 0.0001)
    for _ in range(4):
        bias = rng.integers(-3000, 3000, cells).astype(np.int64 if is_wide else np.int32)
        operands.append(m.constant(bias, 0.0001))
    projected = [-1, -1]
    if outputs:
        bias = rng.integers(-3000, 3000, outputs).astype(np.int32)
        projected = [weights(cells, outputs), m.constant(bias, 0.0001)]
    operands += projected
    operands += [
        state(activations, made, hidden_scale, hidden_zero),
        state("int16", cells, cell_scale, 0),
    ]
    operands += vectors(norms, 4, 0.00005)
    if couples:
        for position in (1, 5, 12):
            operands[position] = -1
    out = m.tensor((outer, inner, made), activations, hidden_scale, hidden_zero)
    fields = {
        "FusedActivationFunction": 4,
        "TimeMajor": time_major,
        "CellClip": clip,
        "ProjClip": projection_clip,
    }
    m.operator(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        operands,
        [out],
        ("UnidirectionalSequenceLSTMOptions", fields),
    )
    m.operators[-1].intermediates = intermediates(
        m, 0.0007 if norms else None, hidden_scale * 1.1, hidden_zero
    )
    return out


def intermediates(
    m: ModelWriter, gate_scale: float | None, hidden_scale: float, hidden_zero: int
) -> list[int]:
    """An LSTM's as the converter writes them: empty, and quantized only where it counts."""
    dtype = "float32" if gate_scale is None else "int16"
    gates = [m.tensor((0,), dtype, gate_scale) for _ in range(4)]
    return [*gates, m.tensor((0,), "int8", hidden_scale, hidden_zero)]


def join(m: ModelWriter, first: int, second: int) -> int:
    """CONCATENATION of two along their second dimension."""
    batch, rows, *around = m.tensors[first].shape
    shape = (batch, rows + m.tensors[second].shape[1], *around)
    options = ("ConcatenationOptions", {"Axis": 1, "FusedActivationFunction": 0})
    return m.node("CONCATENATION", [first, second], shape, options)


def sliced(m: ModelWriter, x: int, begin: int, rows: int) -> int:
    """STRIDED_SLICE of some rows of the second dimension."""
    batch, _, *around = m.tensors[x].shape
    shape = (batch, rows, *around)
    begins = [0, begin, *(0 for _ in around)]
    bounds = [begins, [b + d for b, d in zip(begins, shape, strict=True)], [1] * len(shape)]
    operands = [x, *(m.constant(np.array(bound, np.int32)) for bound in bounds)]
    masks = {f"{name}Mask": 0 for name in ("Begin", "End", "Ellipsis", "NewAxis", "ShrinkAxis")}
    return m.node("STRIDED_SLICE", operands, shape, ("StridedSliceOptions", masks))


def ring_buffer(m: ModelWriter, x: int, first: np.ndarray) -> int:
    """What a variable kept, and ``x`` behind it; the last of both is kept for the next run."""
    spec, name = m.tensors[x], f"stream_{len(m.tensors)}/states"
    handle = m.variable(name, first, spec.scales, spec.zero_points[0])
    found = m.read(handle, first.shape, spec.scales[0], spec.zero_points[0])
    window = join(m, found, x)
    m.assign(handle, sliced(m, window, spec.shape[1], first.shape[1]))
    return window


def _svdf(m: ModelWriter, rng: np.random.Generator) -> None:
    m.output(svdf(m, m.input((2, 7), 0.05, 4), 5, 4, 3))


def _split(m: ModelWriter, rng: np.random.Generator) -> None:
    x = m.input((2, 6, 3), 0.04, 5)
    axis, sizes = m.constant(np.int32(1)), m.constant(np.array([1, 4, 1], np.int32))
    halves = [m.tensor((2, 3, 3), "int8", 0.04, 5) for _ in range(2)]
    m.operator("SPLIT", [axis, x], halves, ("SplitOptions", {"NumSplits": 2}))
    parts = [m.tensor((2, size, 3), "int8", 0.04, 5) for size in (1, 4, 1)]
    m.operator("SPLIT_V", [x, sizes, axis], parts, ("SplitVOptions", {"NumSplits": 3}))
    rows = [m.tensor((2, 6), "int8", 0.04, 5) for _ in range(3)]
    m.operator("UNPACK", [x], rows, ("UnpackOptions", {"Num": 3, "Axis": 2}))
    m.output(*halves, *parts, *rows)


def _join(m: ModelWriter, rng: np.random.Generator) -> None:
    a, b = m.input((2, 3), 0.04, 5), m.input((2, 3), 0.04, 5)
    constant = m.constant(int8(rng, 2, 2), 0.04, 5)
    inputs = [a, constant, b]
    m.output(m.node("CONCATENATION", inputs, (2, 8), ("ConcatenationOptions", {"Axis": 1})))
    m.output(m.node("PACK", [a, b], (2, 2, 3), ("PackOptions", {"Axis": 1, "ValuesCount": 2})))


def _padv2(m: ModelWriter, rng: np.random.Generator) -> None:
    x, paddings = m.input((2, 3), 0.04, 5), m.constant(np.array([[1, 0], [0, 2]], np.int32))
    m.output(m.node("PADV2", [x, paddings, m.constant(np.array([-9], np.int8), 0.04, 5)], (3, 5)))


def _expanded(m: ModelWriter, rng: np.random.Generator) -> None:
    x = m.input((4, 1, 3), 0.04, 5)
    m.output(m.node("SQUEEZE", [x], (4, 3), ("SqueezeOptions", {})))
    axis = m.constant(np.array(0, np.int32))
    m.output(m.node("EXPAND_DIMS", [x, axis], (1, 4, 1, 3), ("ExpandDimsOptions", {})))


#: Name -> model; every operator in each variant that the importer treats differently.
MODELS: dict[str, Build] = {
    "conv_same": _conv((1, 7, 6, 3), (4, 3, 3, 3)),
    "conv_valid": _conv((1, 7, 6, 3), (4, 3, 2, 3), padding="VALID"),
    "conv_stride": _conv((1, 8, 9, 3), (4, 3, 3, 3), stride=(2, 3)),
    "conv_even_window": _conv((1, 8, 8, 2), (3, 4, 2, 2), stride=2),
    "conv_dilated": _conv((1, 11, 9, 2), (3, 3, 3, 2), dilation=(3, 2)),
    "conv_dilated_valid": _conv((1, 11, 9, 2), (3, 3, 3, 2), dilation=2, padding="VALID"),
    "conv_stride_beyond_window": _conv((1, 9, 9, 2), (3, 1, 1, 2), stride=3),
    "conv_batch": _conv((3, 5, 5, 2), (3, 3, 3, 2)),
    "conv_per_tensor": _conv((1, 5, 5, 2), (3, 3, 3, 2), per_channel=False),
    "conv_relu": _conv((1, 5, 5, 2), (3, 3, 3, 2), activation="RELU"),
    "conv_relu6": _conv((1, 5, 5, 2), (3, 3, 3, 2), activation="RELU6", scale=0.043),
    "conv_relu_n1_to_1": _conv((1, 5, 5, 2), (3, 3, 3, 2), activation="RELU_N1_TO_1", scale=0.03),
    "conv_one_channel": _conv((1, 5, 5, 1), (1, 3, 3, 1)),
    "depthwise_same": _depthwise((1, 7, 6, 3), (1, 3, 3, 3)),
    "depthwise_valid_stride": _depthwise((1, 9, 6, 3), (1, 3, 2, 3), padding="VALID", stride=2),
    "depthwise_multiplier": _depthwise((1, 6, 6, 3), (1, 3, 3, 12)),
    "depthwise_dilated": _depthwise((1, 9, 9, 3), (1, 3, 3, 3), dilation=(2, 3)),
    "depthwise_per_tensor": _depthwise((2, 6, 6, 3), (1, 3, 3, 3), per_channel=False, bias=False),
    "depthwise_relu6": _depthwise((1, 6, 6, 3), (1, 3, 3, 3), activation="RELU6", scale=0.041),
    "dense": _dense((1, 20), (6, 20)),
    "dense_no_bias": _dense((1, 20), (6, 20), bias=False),
    "dense_per_channel": _dense((2, 20), (6, 20), per_channel=True),
    "dense_flattens": _dense((2, 2, 5), (3, 10)),
    "dense_keeps_dimensions": _dense((2, 3, 5), (4, 5), keep_num_dims=True),
    "dense_relu": _dense((1, 20), (6, 20), activation="RELU", zero_point=-20),
    "add": _add((1, 4, 3, 5), (1, 4, 3, 5)),
    "add_broadcast": _add((1, 4, 3, 5), (1, 1, 1, 5)),
    "add_broadcast_rank": _add((1, 4, 3, 5), (5,)),
    "add_broadcast_both": _add((1, 4, 1, 5), (1, 1, 3, 5)),
    "add_relu6": _add((2, 9), (2, 9), activation="RELU6"),
    "add_constant": _add_constant,
    "average_pool": _one((1, 6, 8, 3), "average_pool", (2, 4)),
    "average_pool_same": _one((1, 7, 7, 3), "average_pool", 3, stride=2, padding="SAME"),
    "average_pool_relu6": _one((1, 4, 4, 3), "average_pool", 2, activation="RELU6"),
    "max_pool": _one((1, 6, 8, 3), "max_pool", 2),
    "max_pool_same": _one((2, 7, 7, 3), "max_pool", 3, stride=2, padding="SAME"),
    "max_pool_relu": _one((1, 4, 4, 3), "max_pool", 2, activation="RELU"),
    "mean_image": _one((1, 5, 7, 3), "mean", [1, 2], scale=0.03, zero_point=2),
    "mean_keeps_dimensions": _one((2, 5, 7, 3), "mean", [2, 1], keep_dims=True, scale=0.03),
    "mean_negative_axis": _one((2, 5, 7), "mean", [-1], scale=0.05),
    "mean_same_scale": _one((1, 4, 4, 3), "mean", [1, 2], scale=0.04, zero_point=5),
    "pad": _one((1, 4, 5, 3), "pad", [[0, 0], [1, 2], [3, 0], [0, 1]]),
    "reshape": _one((2, 3, 4), "reshape", (4, -1)),
    "reshape_scalar_row": _one((1, 1, 6), "reshape", (6,)),
    "transpose": _move("TRANSPOSE", (2, 3, 4), [[2, 0, 1]], (4, 2, 3)),
    "slice": _move("SLICE", (4, 5, 3), [[1, 0, 1], [2, 5, -1]], (2, 5, 2)),
    "strided_slice": _move(
        "STRIDED_SLICE",
        (4, 5, 3),
        [[3, 1, 0], [0, 5, 0], [-1, 2, 1]],
        (3, 2),
        (
            "StridedSliceOptions",
            {
                "BeginMask": 0,
                "EndMask": 0,
                "EllipsisMask": 0,
                "NewAxisMask": 0,
                "ShrinkAxisMask": 4,
            },
        ),
    ),
    "gather": _move(
        "GATHER", (2, 5, 3), [[4, 0, 2]], (2, 3, 3), ("GatherOptions", {"Axis": 1, "BatchDims": 0})
    ),
    "mirror_pad": _move(
        "MIRROR_PAD", (3, 4), [[[1, 2], [0, 3]]], (6, 7), ("MirrorPadOptions", {"Mode": 0})
    ),
    "space_to_depth": _move(
        "SPACE_TO_DEPTH", (1, 4, 6, 2), [], (1, 2, 3, 8), ("SpaceToDepthOptions", {"BlockSize": 2})
    ),
    "depth_to_space": _move(
        "DEPTH_TO_SPACE", (1, 2, 3, 8), [], (1, 4, 6, 2), ("DepthToSpaceOptions", {"BlockSize": 2})
    ),
    "resize_nearest_neighbor": _move(
        "RESIZE_NEAREST_NEIGHBOR",
        (1, 4, 3, 2),
        [[8, 5]],
        (1, 8, 5, 2),
        ("ResizeNearestNeighborOptions", {"AlignCorners": False, "HalfPixelCenters": False}),
    ),
    "split": _split,
    "join": _join,
    "padv2": _padv2,
    "views": _expanded,
    "conv_groups": _conv((1, 6, 5, 6), (4, 3, 3, 3)),
    "transpose_conv": _transpose_conv,
    "batch_matmul": _matmul,
    "reduced": _reduced,
    "resize_bilinear": _move(
        "RESIZE_BILINEAR",
        (1, 4, 3, 2),
        [[7, 6]],
        (1, 7, 6, 2),
        ("ResizeBilinearOptions", {"AlignCorners": False, "HalfPixelCenters": True}),
    ),
    "svdf": _svdf,
    "sub": _of_two("SUB", "SubOptions", scale=0.08, zero_point=-3),
    "mul": _of_two("MUL", "MulOptions", scale=0.2, zero_point=7),
    "prelu": _of_two("PRELU", scale=0.05, zero_point=7),
    "extrema": _extrema,
    "abs": _of_one("ABS", ("AbsOptions", {}), scale=0.03, zero_point=-100),
    "neg": _of_one("NEG", ("NegOptions", {})),
    "hard_swish": _of_one("HARD_SWISH", ("HardSwishOptions", {}), scale=0.02, zero_point=-90),
    "leaky_relu": _of_one("LEAKY_RELU", ("LeakyReluOptions", {"Alpha": 0.1}), scale=0.03),
    "logistic": _of_one("LOGISTIC", scale=1 / 256, zero_point=-128),
    "tanh": _of_one("TANH", scale=1 / 128, zero_point=0),
    "relu_0_to_1": _of_one("RELU_0_TO_1", scale=0.01, zero_point=-100),
    "relu_n1_to_1": _of_one("RELU_N1_TO_1", scale=0.01, zero_point=0),
    "softmax": _one((1, 10), "softmax"),
    "softmax_beta": _one((2, 3, 5), "softmax", beta=0.5),
    "relu": _one((1, 3, 4), "relu", scale=0.03, zero_point=-100),
    "relu_same_scale": _one((1, 3, 4), "relu", scale=0.04, zero_point=5),
    "relu6": _one((1, 3, 4), "relu6", scale=0.03, zero_point=-128),
    "requantize": _one((1, 3, 4), "quantize", scale=0.06, zero_point=-11),
    "dequantize": _one((1, 3, 4), "dequantize"),
    "float_ends": _float_ends,
    "branches": _branches,
    "two_inputs": _two_inputs,
}


#: Those with operators that the passes call RESHAPE.
RENAMED = ("views",)


def build_model(name: str) -> ModelWriter:
    """One of MODELS; the same weights every time."""
    return built(MODELS[name])


def built(build: Build) -> ModelWriter:
    """The model that a function builds."""
    writer = ModelWriter()
    build(writer, np.random.default_rng(7))
    return writer


def sample_inputs(model: ModelWriter, seed: int = 0) -> list[np.ndarray]:
    """Random values for the model's inputs."""
    rng = np.random.default_rng(seed)
    arrays = []
    for number in model.inputs:
        spec = model.tensors[number]
        if spec.dtype != "float32":
            limits = np.iinfo(spec.dtype)
            drawn = rng.integers(limits.min, limits.max, spec.shape, endpoint=True)
            arrays.append(drawn.astype(spec.dtype))
        else:
            arrays.append(rng.normal(0, 2, spec.shape).astype(np.float32))
    return arrays
