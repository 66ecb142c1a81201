"""Convolutions and matrix products of a QDQ model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from utvm_deploy.frontend.operators.operands import same_padding
from utvm_deploy.frontend.qdq.job import (
    BIAS_BITS,
    Emitter,
    Job,
    Step,
    bias_steps,
    operand_of,
    real_bias,
    symmetric_int8,
)
from utvm_deploy.frontend.qdq.operators import Array, Node
from utvm_deploy.frontend.qdq.values import (
    FLOAT,
    Constant,
    Flattened,
    Pending,
    Quantized,
    Scale,
    Storage,
    channels_last,
)
from utvm_deploy.graph.element_type import element_type

#: The schema's numbers of paddings.
SAME, VALID = 0, 1
Pair: TypeAlias = tuple[int, int]


def convolution(job: Job) -> Quantized:
    """Conv over one or two dimensions, grouped or not."""
    node, store = job.node, job.store
    x = store.last(job.quantized(0))
    spatial = len(x.shape) - 2
    weights, scales = weights_of(job, 0)
    if spatial not in (1, 2) or weights.ndim != spatial + 2:
        raise node.unsupported(f"it slides over {spatial} dimensions; only 1 and 2 are supported")
    group = node.integer("group", 1)
    outputs, inputs = weights.shape[0], x.shape[1]
    if group < 1 or inputs % group or outputs % group or weights.shape[1] != inputs // group:
        raise node.damaged(f"weights of shape {weights.shape} do not fit {inputs} channels")
    kernel, strides, dilations = window(node, weights.shape[2:])
    source = image(store, x)
    source, scheme = padded(store, node, source, kernel, strides, dilations)
    stored = weights.reshape(outputs, inputs // group, *kernel).transpose(0, 2, 3, 1)
    is_depthwise = group == inputs and group > 1
    if is_depthwise:
        stored = stored.transpose(3, 1, 2, 0)
    axis = 3 if is_depthwise else 0
    numbers = [source.tensor, *weights_and_bias(job, stored, scales, axis, outputs, source)]
    options = moves(scheme, strides) | {
        "DilationHFactor": dilations[0],
        "DilationWFactor": dilations[1],
        "FusedActivationFunction": job.activation,
    }
    if is_depthwise:
        options["DepthMultiplier"] = outputs // inputs
    kind = "DEPTHWISE_CONV_2D" if is_depthwise else "CONV_2D"
    return slid(job, kind, numbers, job.scale, **options)


def slid(step: Step, kind: str, numbers: list[int], scale: Scale, **options: int) -> Quantized:
    """Write an operator that slides a window over an image, and what the model calls its result."""
    shape = image_shape(step.shape)
    made = step.store.apply(kind, numbers, step.name, shape, scale, is_last=True, **options)
    return from_image(step.store, made, step.shape, step.name)


def pooled(
    step: Step, kind: str, x: Quantized, kernel: Pair, strides: Pair, padding: int
) -> Quantized:
    """Write a pooling of an image."""
    size = {"FilterHeight": kernel[0], "FilterWidth": kernel[1]}
    options = moves(padding, strides) | size
    return slid(step, kind, [x.tensor], step.store.scale_of(x), **options)


def moves(padding: int, strides: Pair) -> dict[str, int]:
    """The options that say how a window moves."""
    return {"Padding": padding, "StrideH": strides[0], "StrideW": strides[1]}


def product(job: Job) -> Quantized:
    """Gemm and MatMul."""
    node = job.node
    if node.kind == "Gemm":
        plain = node.number("alpha", 1.0) == 1.0 == node.number("beta", 1.0)
        if not plain or node.integer("transA", 0):
            raise node.unsupported(
                "it has alpha, beta or transA; only a plain product is supported"
            )
    second = job.value(1)
    if not isinstance(second, Constant):
        return _of_activations(job)
    is_matrix = math.prod(second.data.shape[:-2]) == 1
    if second.data.ndim < 2 or not is_matrix or second.data.ndim > len(job.shape):
        return _of_activations(job)
    is_turned = node.kind == "Gemm" and bool(node.integer("transB", 0))
    extra = second.data.ndim - 2
    data, scales = weights_of(job, 0 if is_turned else 1 + extra)
    data = data.reshape(data.shape[extra:])
    data = data if is_turned else data.T
    x = job.quantized(0)
    if isinstance(x, Flattened):
        data, source = _over_image(job.store, x, data)
    else:
        source = job.store.plain(x)
    numbers = [source.tensor, *weights_and_bias(job, data, scales, 0, data.shape[0], source)]
    options = {"FusedActivationFunction": job.activation, "KeepNumDims": len(job.shape) != 2}
    return job.apply("FULLY_CONNECTED", numbers, **options)


def weights_of(job: Job, axis: int) -> tuple[Array, Array]:
    """The weights and their scales along ``axis``; of an operator in float32, real ones."""
    weights = job.constant(1, "weights")
    if not job.scale.is_quantized:
        return np.asarray(weights.real, np.float32), np.ones(1)
    return symmetric_int8(job.node, weights, "weights", axis)


def weights_and_bias(
    job: Job, data: Array, scales: Array, axis: int, outputs: int, source: Quantized
) -> tuple[int, int]:
    """Write weights, with their scales along ``axis``, and the bias; the numbers of the tensors."""
    store = job.store
    names = f"{job.name}_weights", f"{job.name}_bias"
    if not job.scale.is_quantized:
        bias = real_bias(job, 2, outputs).astype(np.float32)
        return store.operand(data, FLOAT, names[0]), store.operand(bias, FLOAT, names[1])
    scale = store.scale_of(source)
    data, scales = with_room_for_bias(job, data, scales, axis, outputs, scale)
    steps = bias_steps(job, 2, scale, scales, outputs)
    dtype = _weights_type(job, data, scale)
    weights = store.weights(data, scales.tolist(), axis, names[0], dtype)
    return weights, store.bias(steps, scale, scales, names[1])


def _weights_type(job: Job, data: Array, source: Scale) -> str:
    """int4 if the file has weights of four bits, and there are kernels for them; else int8."""
    low, high = element_type("int4").limits
    fits = low <= data.min(initial=0) and data.max(initial=0) <= high
    is_plain = source.dtype == "int8" and job.node.kind != "ConvTranspose"
    return "int4" if job.constant(1, "weights").is_narrow and fits and is_plain else "int8"


def with_room_for_bias(
    job: Job, data: Array, scales: Array, axis: int, outputs: int, source: Scale
) -> tuple[Array, Array]:
    """The weights and their scales, larger where the bias would leave its type.

    That is where a channel's weights are all zero, or almost, and quantizers give it no scale to
    speak of.
    """
    most = 2.0 ** (BIAS_BITS[source.dtype] - 1)
    least = np.abs(real_bias(job, 2, outputs)) / (most * float(source.scale))
    if np.all(scales >= least):
        return data, scales
    each = np.broadcast_to(scales, (outputs,)).astype(np.float64)
    wider = np.maximum(each, least)
    shape = [1] * data.ndim
    shape[axis] = outputs
    shrunk = np.rint(data * (each / wider).reshape(shape)).astype(data.dtype)
    return shrunk, wider.astype(np.float32)


def has_int8_weights(store: Storage, pending: Pending) -> bool:
    """Whether the second argument is an activation, or constant and quantized by output."""
    weights = pending.arguments[1] if len(pending.arguments) > 1 else None
    if not isinstance(weights, Constant):
        return True
    if weights.data.ndim > 2 and pending.node.kind == "MatMul":
        return weights.scales is not None and weights.scales.size == 1
    return weights.scales is not None


def _over_image(store: Storage, x: Flattened, data: Array) -> tuple[Array, Quantized]:
    """The weights in the order of the image as it lies, and the image in a row."""
    _, channels, *spatial = x.image.shape
    outputs = data.shape[0]
    turned = np.moveaxis(data.reshape(outputs, channels, *spatial), 1, -1).reshape(outputs, -1)
    name = f"{store.file.tensors[x.image.tensor].name}_row"
    row = store.reshaped(x.image, x.shape, name)
    return turned, Quantized(row, x.shape, False)


def _of_activations(job: Job) -> Quantized:
    for position in (0, 1):
        value = job.value(position)
        rank = (
            value.data.ndim if isinstance(value, Constant) else len(job.quantized(position).shape)
        )
        if rank < 2:
            raise job.node.unsupported(
                "it multiplies by a vector; give both of its inputs two or more dimensions"
            )
    if job.has(2):
        raise job.node.unsupported("it adds to a product of two activations; use MatMul and Add")
    numbers = []
    for position in (0, 1):
        value = job.value(position)
        if isinstance(value, Constant):
            data, scale = operand_of(job, value)
            if scale.dtype == "int8" and job.scale.dtype == "int16":
                # LiteRT multiplies equal types only.
                data = data.astype(np.int16) - scale.zero_point
                scale = Scale(scale.scale, 0, "int16")
            numbers.append(job.store.operand(data, scale, f"{job.name}_{position}"))
        else:
            numbers.append(job.store.plain(job.quantized(position)).tensor)
    turned = job.node.kind == "Gemm" and bool(job.node.integer("transB", 0))
    return job.apply("BATCH_MATMUL", numbers, AdjY=turned)


def window(node: Node, kernel: tuple[int, ...]) -> tuple[Pair, Pair, Pair]:
    """Kernel, strides and dilations over rows and columns; of one dimension, over columns."""
    spatial = len(kernel)
    strides = node.integers("strides", (1,) * spatial)
    dilations = node.integers("dilations", (1,) * spatial)
    for name, values in (("strides", strides), ("dilations", dilations)):
        if len(values) != spatial or min(values) < 1:
            raise node.damaged(f"its {name} are {values} for a window of {kernel}")
    return _pair(kernel), _pair(strides), _pair(dilations)


def _pair(values: tuple[int, ...]) -> Pair:
    return (1, values[0]) if len(values) == 1 else (values[0], values[1])


def image(store: Storage, x: Quantized) -> Quantized:
    """A sequence, channels last, as an image with one row."""
    if len(x.shape) == 4:
        return x
    shape = image_shape(x.shape)
    name = f"{store.file.tensors[x.tensor].name}_image"
    return Quantized(store.reshaped(x, channels_last(shape), name), shape, True)


def image_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a sequence, or of an image, as that of an image, in ONNX's order."""
    return shape if len(shape) == 4 else (*shape[:2], 1, shape[2])


def from_image(store: Storage, made: Quantized, shape: tuple[int, ...], name: str) -> Quantized:
    """An image as what the model calls it: a sequence, if that has one dimension less."""
    if made.shape == shape:
        return made
    return Quantized(store.reshaped(made, channels_last(shape), f"{name}_sequence"), shape, True)


def padded(
    store: Storage, node: Node, x: Quantized, kernel: Pair, strides: Pair, dilations: Pair
) -> tuple[Quantized, int]:
    """The image and the scheme, SAME or VALID, that pad it as the operator says."""
    sizes = (x.shape[2], x.shape[3])
    windows = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    same = [same_padding(*of) for of in zip(sizes, windows, strides, strict=True)]
    wanted = paddings(node, sizes, windows, strides)
    if wanted == same:
        return x, SAME
    if not any(map(any, wanted)):
        return x, VALID
    return pad_image(store, x, wanted, f"{node.outputs[0]}_padded"), VALID


def pad_image(
    store: Storage, x: Quantized, wanted: list[Pair], name: str, value: float | None = None
) -> Quantized:
    """The image with rows and columns around it, of zero or of a value."""
    (top, bottom), (left, right) = wanted
    amounts = np.array([(0, 0), (top, bottom), (left, right), (0, 0)], np.int32)
    batch, channels, height, width = x.shape
    shape = (batch, channels, height + top + bottom, width + left + right)
    numbers = [x.tensor, store.numbers(amounts, f"{name}_amounts")]
    scale = store.scale_of(x)
    if value is None:
        return store.apply("PAD", numbers, name, shape, scale, is_last=True)
    numbers.append(store.operand(np.array([value]), scale, f"{name}_value"))
    return store.apply("PADV2", numbers, name, shape, scale, is_last=True)


def paddings(node: Node, sizes: Pair, windows: list[int], strides: Pair) -> list[Pair]:
    """Before and behind, for rows and columns."""
    scheme = node.text("auto_pad", "NOTSET")
    if scheme == "VALID":
        return [(0, 0), (0, 0)]
    if scheme in ("SAME_UPPER", "SAME_LOWER"):
        same = [same_padding(*of) for of in zip(sizes, windows, strides, strict=True)]
        return same if scheme == "SAME_UPPER" else [(b, a) for a, b in same]
    stated = node.integers("pads", ())
    if not stated:
        return [(0, 0), (0, 0)]
    if len(stated) not in (2, 4) or min(stated) < 0:
        raise node.unsupported(f"its pads are {stated}; only 0 and more are supported")
    half = len(stated) // 2
    pairs = list(zip(stated[:half], stated[half:], strict=True))
    return [(0, 0), *pairs] if half == 1 else pairs


EMITTERS: Mapping[str, Emitter] = {"Conv": convolution, "Gemm": product, "MatMul": product}
NEEDS = dict.fromkeys(EMITTERS, has_int8_weights)
