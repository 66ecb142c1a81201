"""Operators of a QDQ model that work on one element, one window or one axis at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from utvm_deploy.frontend.operators.operands import same_padding
from utvm_deploy.frontend.qdq.job import Emitter, Job, activation, in_steps, operand_of
from utvm_deploy.frontend.qdq.values import Constant, Flattened, Quantized, Scale, stored_axis
from utvm_deploy.frontend.qdq.weighted import (
    SAME,
    VALID,
    image,
    moves,
    pad_image,
    paddings,
    pooled,
    slid,
    window,
)

#: The scale that TFLite's kernels give to int8 results, independent of the model; int16 has
#: 1/32768.
_RANGES: Mapping[str, Scale] = {
    "LogSoftmax": Scale(1.0 / 16, 127),
    "Sigmoid": Scale(1.0 / 256, -128),
    "Softmax": Scale(1.0 / 256, -128),
    "Tanh": Scale(1.0 / 128, 0),
}

_BINARY: Mapping[str, str] = {
    "Add": "ADD",
    "Max": "MAXIMUM",
    "Min": "MINIMUM",
    "Mul": "MUL",
    "PRelu": "PRELU",
    "Sub": "SUB",
}
_REDUCTIONS: Mapping[str, str] = {
    "GlobalAveragePool": "MEAN",
    "GlobalMaxPool": "REDUCE_MAX",
    "ReduceMax": "REDUCE_MAX",
    "ReduceMean": "MEAN",
    "ReduceMin": "REDUCE_MIN",
    "ReduceProd": "REDUCE_PROD",
    "ReduceSum": "MEAN",  # SUM takes int8 for unsigned bytes
}
_UNARY: Mapping[str, str] = {
    "Abs": "ABS",
    "Clip": "",
    "HardSwish": "HARD_SWISH",
    "LeakyRelu": "LEAKY_RELU",
    "Neg": "NEG",
    "Relu": "",
    "Sigmoid": "LOGISTIC",
    "Tanh": "TANH",
}
#: Operators whose TFLite kernels clamp their results.
_CLAMPING = ("Add", "Mul", "Sub")
#: Operators whose TFLite kernels want one quantization all over.
_UNIFORM = ("Max", "Min")


def binary(job: Job) -> Quantized:
    """Two operands, either of which may be repeated along some axes."""
    node, store = job.node, job.store
    kind = _BINARY[node.kind]
    if len(node.inputs) != 2:
        raise node.unsupported(f"it has {len(node.inputs)} inputs; only 2 are supported")
    values = [job.value(0), job.value(1)]
    rank = len(job.shape)
    is_last = rank >= 3 and any(isinstance(v, Quantized) and v.is_last for v in values)
    numbers = []
    for position, value in enumerate(values):
        if isinstance(value, Constant):
            name = f"{job.name}_operand"
            data, scale = operand_of(job, value)
            if node.kind in _UNIFORM:
                data = in_steps(scale.scale * (data.astype(float) - scale.zero_point), job.scale)
                scale = job.scale
            if is_last:
                full = data.reshape((1,) * (rank - data.ndim) + data.shape)
                data = np.moveaxis(full, 1, -1)
            numbers.append(store.operand(data, scale, name))
            continue
        operand = _of_rank(job, activation(node, value), rank, is_last, position)
        if node.kind in _UNIFORM:
            operand = store.requantized(operand, job.scale, f"{job.name}_{position}")
        numbers.append(operand.tensor)
    options = {"FusedActivationFunction": job.activation} if node.kind in _CLAMPING else {}
    if kind in ("ADD", "SUB") and job.scale.dtype == "int16":
        # With it, the kernel refuses most scales that are powers of 2.
        options["PotScaleInt16"] = False
    return job.apply(kind, numbers, is_last=is_last, **options)


def _of_rank(
    job: Job, value: Quantized | Flattened, rank: int, is_last: bool, position: int
) -> Quantized:
    store = job.store
    if len(value.shape) != rank:
        plain = store.plain(value)
        shape = (1,) * (rank - len(plain.shape)) + plain.shape
        number = store.reshaped(plain, shape, f"{job.name}_{position}")
        value = Quantized(number, shape, False)
    return store.last(value) if is_last else store.plain(value)


def unary(job: Job) -> Quantized:
    """One element in, one out."""
    store, node, x, scale = job.store, job.node, job.settled(), job.scale
    kind, numbers, options = _UNARY[node.kind], [x.tensor], {}
    if node.kind in ("Relu", "Clip"):
        if job.low != 0.0 or job.high not in (6.0, math.inf):
            return store.requantized(x, scale, job.name)
        kind = "RELU" if job.high > 6 else "RELU6"
    elif node.kind == "LeakyRelu":
        options = {"Alpha": node.number("alpha", 0.01)}
    elif node.kind in _RANGES:
        scale = fixed_range(node.kind, store.scale_of(x))
    elif node.kind == "Neg" and scale.is_quantized:
        # TFLite's NEG of integers ignores the zero point.
        one = Scale(1.0, 0, scale.dtype)
        minus = store.operand(np.full((1,) * len(x.shape), -1), one, f"{job.name}_minus")
        kind, numbers = "MUL", [x.tensor, minus]
    return job.apply(kind, numbers, scale=scale, is_last=x.is_last, **options)


def softmax(job: Job) -> Quantized:
    """Softmax or LogSoftmax along the axis that lies last, in ONNX's order or in the file's."""
    x = job.settled()
    rank = len(x.shape)
    axis = job.node.integer("axis", -1)
    if not -rank <= axis < rank:
        raise job.node.damaged(f"its axis {axis} is not a dimension of {x.shape}")
    if stored_axis(axis, rank, x.is_last) != rank - 1:
        x = job.store.plain(x) if x.is_last else job.store.last(x)
    kind, options = (
        ("SOFTMAX", {"Beta": 1.0}) if job.node.kind == "Softmax" else ("LOG_SOFTMAX", {})
    )
    scale = fixed_range(job.node.kind, job.store.scale_of(x))
    if stored_axis(axis, rank, x.is_last) == rank - 1:
        return job.apply(kind, [x.tensor], scale=scale, is_last=x.is_last, **options)
    x = job.store.plain(x)
    order = list(range(rank))
    order[axis], order[-1] = order[-1], order[axis]
    turned = job.store.permuted(x, order, f"{job.name}_turned")
    name, numbers = f"{job.name}_rows", [turned.tensor]
    made = job.store.apply(
        kind, numbers, name, turned.shape, scale, is_last=turned.is_last, **options
    )
    return job.store.permuted(made, order, job.name)


def fixed_range(kind: str, source: Scale) -> Scale:
    """The fixed quantization of the results of some kinds, independent of the model."""
    if not source.is_quantized:
        return source
    return _RANGES[kind] if source.dtype == "int8" else Scale(1.0 / 32768, 0, source.dtype)


def average_pool(job: Job) -> Quantized:
    """AveragePool; with another scale for its output it is a depthwise convolution by ones."""
    node, store = job.node, job.store
    x = image(store, store.last(job.quantized()))
    kernel, strides, dilations = window(node, node.integers("kernel_shape", ()))
    if dilations != (1, 1) or node.integer("ceil_mode", 0):
        raise node.unsupported("it is dilated or rounds its size up; neither is supported")
    sizes = (x.shape[2], x.shape[3])
    wanted = paddings(node, sizes, list(kernel), strides)
    same = [same_padding(*of) for of in zip(sizes, kernel, strides, strict=True)]
    is_padded = any(map(any, wanted))
    if is_padded and not node.integer("count_include_pad", 0):
        if wanted != same:
            raise node.unsupported(f"its pads {wanted} are not counted and not those of SAME")
        return pooled(job, "AVERAGE_POOL_2D", x, kernel, strides, SAME)
    if is_padded:
        x = pad_image(store, x, wanted, f"{job.name}_padded")
    if store.scale_of(x) == job.scale:
        return pooled(job, "AVERAGE_POOL_2D", x, kernel, strides, VALID)
    channels, count = x.shape[1], kernel[0] * kernel[1]
    weights = np.ones((1, *kernel, channels), np.int8)
    scales = np.full(channels, 1 / count, np.float32)
    numbers = [
        x.tensor,
        store.weights(weights, scales.tolist(), 3, f"{job.name}_weights"),
        store.bias(np.zeros(channels, np.int64), store.scale_of(x), scales, f"{job.name}_bias"),
    ]
    options = moves(VALID, strides) | {"DepthMultiplier": 1}
    return slid(job, "DEPTHWISE_CONV_2D", numbers, job.scale, **options)


def reduction(job: Job) -> Quantized:
    """ReduceMean, ReduceSum, ReduceMax and so on, and their global forms over images."""
    node, store = job.node, job.store
    x = job.settled()
    rank = len(x.shape)
    if node.kind.startswith("Global"):
        axes: tuple[int, ...] = tuple(range(2, rank))
        keeps = True
    else:
        axes = node.integers("axes", ())
        if job.has(1):
            axes = tuple(int(a) for a in job.constant(1, "axes").data.reshape(-1))
        if not axes and node.integer("noop_with_empty_axes", 0):
            raise node.unsupported("it reduces along no axis; leave it out")
        axes = tuple(sorted({a % rank for a in axes})) or tuple(range(rank))
        keeps = bool(node.integer("keepdims", 1))
    left = [a for a in range(rank) if a not in axes]
    # The rest has ONNX's order only if the channels do not move past another axis.
    if x.is_last and not keeps and 1 in left and any(a > 1 for a in left):
        x = store.plain(x)
    kind = _REDUCTIONS[node.kind]
    if node.kind == "ReduceSum" and not job.scale.is_quantized:
        kind = "SUM"
    scale = store.scale_of(x) if kind in ("REDUCE_MAX", "REDUCE_MIN") else job.scale
    stored = sorted(stored_axis(a, rank, x.is_last) for a in axes)
    numbers = [x.tensor, store.numbers(stored, f"{job.name}_axes")]
    is_last = x.is_last and keeps
    if node.kind != "ReduceSum" or kind == "SUM":
        return job.apply(kind, numbers, scale=scale, is_last=is_last, KeepDims=keeps)
    count = math.prod(x.shape[a] for a in axes)
    share, times = replace(scale, scale=scale.scale / count), Scale(float(count), 0, scale.dtype)
    name = f"{job.name}_mean"
    mean = store.apply(kind, numbers, name, job.shape, share, is_last=is_last, KeepDims=keeps)
    terms = store.operand(np.ones((1,) * len(job.shape)), times, f"{job.name}_count")
    return job.apply("MUL", [mean.tensor, terms], is_last=is_last)


def concatenation(job: Job) -> Quantized:
    """Concat: TFLite wants all of its inputs quantized like the output."""
    node, store = job.node, job.store
    values = [job.value(i) for i in range(len(node.inputs))]
    rank = len(job.shape)
    axis = node.integer("axis", 0) % rank
    is_last = rank >= 3 and any(isinstance(v, Quantized) and v.is_last for v in values)
    numbers = []
    for position, value in enumerate(values):
        if isinstance(value, Constant):
            steps = in_steps(np.asarray(value.real), job.scale)
            data = np.moveaxis(steps, 1, -1) if is_last else steps
            numbers.append(store.operand(data, job.scale, f"{job.name}_{position}"))
            continue
        known = activation(node, value)
        turned = store.last(known) if is_last else store.plain(known)
        numbers.append(store.requantized(turned, job.scale, f"{job.name}_{position}").tensor)
    along = stored_axis(axis, rank, is_last)
    return job.apply("CONCATENATION", numbers, is_last=is_last, Axis=along)


EMITTERS: Mapping[str, Emitter] = {
    **dict.fromkeys(_BINARY, binary),
    **dict.fromkeys(_UNARY, unary),
    **dict.fromkeys(_REDUCTIONS, reduction),
    "AveragePool": average_pool,
    "Concat": concatenation,
    "LogSoftmax": softmax,
    "Softmax": softmax,
}
#: Kinds whose results have a fixed range.
FIXED_RANGES = frozenset(_RANGES)
#: Kinds whose results have the range of their inputs.
RANGE_KEEPING = frozenset(
    (
        "AveragePool",
        "Clip",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "LeakyRelu",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "Relu",
    )
)
#: Kinds of which TFLite has int8 but not int16.
INT8_ONLY = frozenset(("HardSwish", "LogSoftmax", "PRelu"))
#: Kinds that are written in float32.
FLOAT_ONLY = frozenset(("ReduceProd",))
#: Kinds whose TFLite kernels clamp by themselves.
CLAMPING = frozenset((*_CLAMPING, "Conv", "Gemm", "MatMul"))
