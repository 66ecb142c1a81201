"""Runs a graph in numpy with TFLite's integer arithmetic, slowly and plainly.

It states what our attributes mean, apart from the kernels: tests run it on an imported graph, and
on a simplified one, and compare with the oracle byte for byte.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from utvm_deploy.graph.constant_folding import evaluate
from utvm_deploy.graph.model import Graph, Operator, Tensor
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.portable.integers.lookup import FUNCTIONS, lookup_table

# ADD aligns both inputs with this many spare bits.
_ADD_LEFT_SHIFTS = {"int8": 20, "int16": 15}


def run_graph(
    graph: Graph, inputs: Sequence[np.ndarray], states: dict[int, np.ndarray] | None = None
) -> dict[int, np.ndarray]:
    """Every tensor that the graph makes, by its position in the graph.

    ``states`` is what earlier runs with it left there; at first nothing.
    """
    values = {i: t.data for i, t in enumerate(graph.tensors) if t.data is not None}
    states = {} if states is None else states
    for found, _ in graph.states:
        values[found] = states.get(found, _first_state(graph.tensors[found]))
    for number, array in zip(graph.inputs, inputs, strict=True):
        assert array.shape == graph.tensors[number].shape
        values[number] = array
    for operator in graph.operators:
        arrays = [None if i is None else values[i] for i in operator.inputs]
        results = evaluate(graph, operator, arrays)
        if results is None:
            results = _RUN[operator.kind](graph, operator, arrays)
        results = results if isinstance(results, tuple) else (results,)
        for number, result in zip(operator.outputs, results, strict=True):
            out = graph.tensors[number]
            assert result.shape == out.shape, (operator, result.shape)
            values[number] = result.astype(out.dtype)
    states |= {found: values[left] for found, left in graph.states}
    return values


def _first_state(tensor: Tensor) -> np.ndarray:
    zero_point = _q(tensor)[1] if tensor.dtype == "int8" else 0
    return np.full(tensor.shape, zero_point, tensor.dtype)


def _multiplier(real: float) -> tuple[int, int]:
    fraction, shift = math.frexp(real)
    quantized = math.floor(fraction * 2**31 + 0.5)
    if quantized == 2**31:
        quantized, shift = quantized // 2, shift + 1
    return (0, 0) if shift < -31 else (quantized, shift)


def _requantized(x: np.ndarray, real: float | np.ndarray) -> np.ndarray:
    """Double rounding: a saturating doubling high multiply, then a rounding shift."""
    pairs = [_multiplier(float(r)) for r in np.atleast_1d(real)]
    m, shift = (np.array(v, np.int64) for v in zip(*pairs, strict=True))
    return _scaled(x.astype(np.int64), m, shift)


def _scaled(x: np.ndarray, m: np.ndarray, shift: np.ndarray) -> np.ndarray:
    left, right = np.maximum(shift, 0), np.maximum(-shift, 0)
    product = (x << left) * m
    nudged = product + np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    high = np.where(nudged >= 0, nudged >> 31, -(-nudged >> 31))
    mask = (np.int64(1) << right) - 1
    threshold = (mask >> 1) + (high < 0)
    return (high >> right) + ((high & mask) > threshold)


def _requantized_wide(x: np.ndarray, real: np.ndarray) -> np.ndarray:
    """Single rounding by 15 bits of the multiplier, as convolutions of int16 do."""
    pairs = [_multiplier(float(r)) for r in np.atleast_1d(real)]
    m, shift = (np.array(v, np.int64) for v in zip(*pairs, strict=True))
    short = np.minimum((m + (1 << 15)) >> 16, 0x7FFF)
    return (x.astype(np.int64) * short + (np.int64(1) << (14 - shift))) >> (15 - shift)


def _requantized_once(x: np.ndarray, real: float | np.ndarray) -> np.ndarray:
    """Single rounding, as FULLY_CONNECTED does."""
    pairs = [_multiplier(float(r)) for r in np.atleast_1d(real)]
    m, shift = (np.array(v, np.int64) for v in zip(*pairs, strict=True))
    return (x.astype(np.int64) * m + (np.int64(1) << (30 - shift))) >> (31 - shift)


def _q(tensor: Tensor) -> tuple[float, int]:
    assert tensor.quantization is not None
    return tensor.quantization.scale, tensor.quantization.zero_point


def _ends(graph: Graph, operator: Operator) -> tuple[float, int, float, int]:
    return (*_q(graph.tensors[operator.inputs[0]]), *_q(graph.tensors[operator.outputs[0]]))


def _clip(x: np.ndarray, clamp: tuple[int, int] = (-128, 127)) -> np.ndarray:
    return np.clip(x, *clamp)


def _windows(x, window, strides, dilations, padding, fill):
    """The input value of each output position under each window position; ``fill`` outside."""
    top, bottom, left, right = padding
    x = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=fill)
    extent = [(w - 1) * d + 1 for w, d in zip(window, dilations, strict=True)]
    rows, columns = (
        (s - e) // t + 1 for s, e, t in zip(x.shape[1:3], extent, strides, strict=True)
    )
    return {
        (i, j): x[
            :,
            i * dilations[0] : i * dilations[0] + (rows - 1) * strides[0] + 1 : strides[0],
            j * dilations[1] : j * dilations[1] + (columns - 1) * strides[1] + 1 : strides[1],
        ]
        for i in range(window[0])
        for j in range(window[1])
    }


def _convolution(graph, operator, arrays):
    a = operator.attributes
    in_scale, in_zero, out_scale, out_zero = _ends(graph, operator)
    x, weights = arrays[0].astype(np.int64) - in_zero, arrays[1].astype(np.int64)
    scales = np.array(graph.tensors[operator.inputs[1]].quantization.scales)
    groups = x.shape[3] // weights.shape[3] if operator.kind == "CONV_2D" else 1
    total = 0
    for (i, j), part in _windows(
        x, weights.shape[1:3], a.strides, a.dilations, a.padding, 0
    ).items():
        if operator.kind == "CONV_2D":
            shares = zip(np.split(part, groups, axis=3), np.split(weights, groups), strict=True)
            total = total + np.concatenate([p @ w[:, i, j].T for p, w in shares], axis=3)
        else:
            total = total + np.repeat(part, a.depth_multiplier, axis=3) * weights[0, i, j]
    total = total + (0 if arrays[2] is None else arrays[2])
    real = in_scale * scales / out_scale
    if arrays[0].dtype == np.int16 and not a.sums_in_32_bits:
        return _clip(_requantized_wide(total, real), a.clamp)
    return _clip(_requantized(total, real) + out_zero, a.clamp)


def _fully_connected(graph, operator, arrays):
    in_scale, in_zero, out_scale, out_zero = _ends(graph, operator)
    weights = arrays[1].astype(np.int64)
    x = arrays[0].astype(np.int64).reshape(-1, weights.shape[1]) - in_zero
    total = x @ weights.T + (0 if arrays[2] is None else arrays[2])
    scales = np.array(graph.tensors[operator.inputs[1]].quantization.scales)
    factors = operator.attributes.factors
    real = np.array(factors) if factors else in_scale * scales / out_scale
    out = _clip(_requantized_once(total, real) + out_zero, operator.attributes.clamp)
    return out.reshape(graph.tensors[operator.outputs[0]].shape)


def _add(graph, operator, arrays):
    sign = -1 if operator.kind == "SUB" else 1
    scales, zeros = zip(*(_q(graph.tensors[i]) for i in operator.inputs), strict=True)
    out_scale, out_zero = _q(graph.tensors[operator.outputs[0]])
    twice = 2 * max(scales)
    spare = _ADD_LEFT_SHIFTS[graph.tensors[operator.outputs[0]].dtype]
    left, right = (
        _requantized((x.astype(np.int64) - zero) << spare, scale / twice)
        for x, scale, zero in zip(arrays, scales, zeros, strict=True)
    )
    total = left + sign * right
    out = _requantized(total, twice / ((1 << spare) * out_scale))
    return _clip(out + out_zero, operator.attributes.clamp)


def _mul(graph, operator, arrays):
    (a, left_zero), (b, right_zero) = (_q(graph.tensors[i]) for i in operator.inputs)
    out_scale, out_zero = _q(graph.tensors[operator.outputs[0]])
    real = float(np.float32(a) * np.float32(b) / np.float32(out_scale))
    product = (arrays[0].astype(np.int64) - left_zero) * (arrays[1].astype(np.int64) - right_zero)
    return _clip(_requantized(product, real) + out_zero, operator.attributes.clamp)


def _prelu(graph, operator, arrays):
    (x, zero), (alpha, alpha_zero) = (_q(graph.tensors[i]) for i in operator.inputs)
    out_scale, out_zero = _q(graph.tensors[operator.outputs[0]])
    value = arrays[0].astype(np.int64) - zero
    slope = arrays[1].astype(np.int64) - alpha_zero
    x, alpha, out_scale = map(np.float32, (x, alpha, out_scale))
    positive = _requantized(value, float(x / out_scale))
    negative = _requantized(value * slope, float(x * alpha / out_scale))
    return _clip(np.where(value >= 0, positive, negative) + out_zero)


def _looked_up(graph, operator, arrays):
    """By the very table of the kernel, which is tried on all values elsewhere."""
    function = FUNCTIONS[operator.kind](Operation(graph, operator))
    return lookup_table(function)[arrays[0].view(np.uint8)]


def _transpose_conv(graph, operator, arrays):
    """Every input adds its window to the output, which is then cut out."""
    a, out = operator.attributes, graph.tensors[operator.outputs[0]]
    in_scale, in_zero, out_scale, out_zero = _ends(graph, operator)
    x, weights = arrays[0].astype(np.int64) - in_zero, arrays[1].astype(np.int64)
    (rows, columns), (n, height, width, outputs) = weights.shape[1:3], out.shape
    whole = np.zeros((n, height + 2 * rows + 9, width + 2 * columns + 9, outputs), np.int64)
    for y in range(x.shape[1]):
        for i in range(x.shape[2]):
            top, left = y * a.strides[0], i * a.strides[1]
            window = np.einsum("nc,orkc->nrko", x[:, y, i], weights)
            whole[:, top : top + rows, left : left + columns] += window
    (top, left) = a.padding
    total = whole[:, top : top + height, left : left + width]
    total = total + (0 if arrays[2] is None else arrays[2])
    scales = np.array(graph.tensors[operator.inputs[1]].quantization.scales)
    return _clip(_requantized(total, in_scale * scales / out_scale) + out_zero, a.clamp)


def _batch_matmul(graph, operator, arrays):
    (a, left_zero), (b, right_zero) = (_q(graph.tensors[i]) for i in operator.inputs)
    out_scale, out_zero = _q(graph.tensors[operator.outputs[0]])
    left, right = arrays[0].astype(np.int64) - left_zero, arrays[1].astype(np.int64) - right_zero
    if operator.attributes.left_turned:
        left = left.swapaxes(-1, -2)
    if operator.attributes.right_turned:
        right = right.swapaxes(-1, -2)
    real = float(np.float32(a) * np.float32(b)) / out_scale
    return _clip(_requantized(left @ right, real) + out_zero)


def _reduce(graph, operator, arrays):
    reduce = np.max if operator.kind == "REDUCE_MAX" else np.min
    shape = graph.tensors[operator.outputs[0]].shape
    return reduce(arrays[0], axis=operator.attributes.axes).reshape(shape)


def _resize_bilinear(graph, operator, arrays):
    """Interpolated along both axes at once, in 1/1024."""
    a, (rows, columns) = operator.attributes, graph.tensors[operator.outputs[0]].shape[1:3]
    sides = []
    for size, count in ((arrays[0].shape[1], rows), (arrays[0].shape[2], columns)):
        corners = a.align_corners and count > 1
        top, bottom = (size - 1, count - 1) if corners else (size, count)
        place = np.arange(count) * ((1024 * top + bottom // 2) // bottom)
        if a.half_pixel_centers:
            place = place + (1024 * top + bottom // 2) // bottom // 2 - 512
        lower = np.maximum(np.trunc(place / 1024).astype(int), 0)
        upper = np.minimum(np.trunc((place + 1023) / 1024).astype(int), size - 1)
        sides.append((np.minimum(lower, size - 1), upper, place - 1024 * lower))
    (y0, y1, fy), (x0, x1, fx) = sides
    x, fy, fx = arrays[0].astype(np.int64), fy[:, None, None], fx[:, None]
    above = x[:, y0][:, :, x0] * (1024 - fx) + x[:, y0][:, :, x1] * fx
    below = x[:, y1][:, :, x0] * (1024 - fx) + x[:, y1][:, :, x1] * fx
    total = above * (1024 - fy) + below * fy
    magnitude = (np.abs(total) + (1 << 19)) >> 20
    return np.where(total < 0, -magnitude, magnitude)


def _svdf(graph, operator, arrays):
    x, features, times, bias, state = (
        None if array is None else array.astype(np.int64) for array in arrays
    )
    scales = [
        np.float32(_q(graph.tensors[i])[0]) for i in (*operator.inputs[:3], operator.outputs[0])
    ]
    kept = np.float32(_q(graph.tensors[operator.inputs[4]])[0])
    feature_scale, output_scale = scales[0] * scales[1] / kept, kept * scales[2] / scales[3]
    (filters, memory), rank = times.shape, operator.attributes.rank
    newest = _requantized(
        (x - _q(graph.tensors[operator.inputs[0]])[1]) @ features.T, feature_scale
    )
    state = state.reshape(-1, filters, memory)
    state = np.concatenate([state[:, :, 1:], _clip(newest, (-32768, 32767))[:, :, None]], axis=2)
    total = (state * times).sum(axis=2).reshape(-1, filters // rank, rank).sum(axis=2)
    total = total + (0 if bias is None else bias)
    zero = _q(graph.tensors[operator.outputs[0]])[1]
    return _clip(_requantized(total, float(output_scale)) + zero), state.reshape(len(state), -1)


def _max_pool(graph, operator, arrays):
    a = operator.attributes
    parts = _windows(arrays[0], a.window, a.strides, (1, 1), a.padding, -128)
    return _clip(np.max(list(parts.values()), axis=0), a.clamp)


def _average_pool(graph, operator, arrays):
    a = operator.attributes
    x = arrays[0].astype(np.int64)
    geometry = (a.window, a.strides, (1, 1), a.padding, 0)
    total = sum(_windows(x, *geometry).values())
    count = sum(_windows(np.ones_like(x), *geometry).values())
    magnitude = (np.abs(total) + count // 2) // count
    return _clip(np.where(total < 0, -magnitude, magnitude), a.clamp)


def _mean(graph, operator, arrays):
    in_scale, in_zero, out_scale, out_zero = _ends(graph, operator)
    axes, out = operator.attributes.axes, graph.tensors[operator.outputs[0]]
    count = math.prod(arrays[0].shape[i] for i in axes)
    total = arrays[0].astype(np.int64).sum(axis=axes) - in_zero * count
    m, shift = _multiplier(in_scale / out_scale)
    # The division by the count goes into the multiplier, as far as its bits allow.
    spare = min(count.bit_length() - 1, 32, 31 + shift)
    scaled = _scaled(total, np.int64((m << spare) // count), np.int64(shift - spare))
    return _clip(scaled + out_zero).reshape(out.shape)


def _softmax(graph, operator, arrays):
    in_scale = np.float32(_q(graph.tensors[operator.inputs[0]])[0])
    x = arrays[0].astype(np.int32)
    steps = (x.max(axis=-1, keepdims=True) - x).astype(np.float32)
    e = np.exp(-in_scale * np.float32(operator.attributes.beta) * steps)
    total = np.zeros(e.shape[:-1], np.float32)
    for i in range(e.shape[-1]):  # in order: float32 addition is not associative
        total += e[..., i]
    share = e * (np.float32(1) / (total * np.float32(1 / 256)))[..., None]
    return _clip(np.trunc(share + np.float32(0.5)) - 128)


def _relu(graph, operator, arrays):
    in_scale, in_zero, out_scale, out_zero = _ends(graph, operator)
    # Unlike elsewhere, TFLite divides these scales in float32.
    real = float(np.float32(in_scale) / np.float32(out_scale))
    scaled = _requantized(arrays[0].astype(np.int64) - in_zero, real)
    return _clip(scaled + out_zero, operator.attributes.clamp)


def _quantize(graph, operator, arrays):
    out_scale, out_zero = _q(graph.tensors[operator.outputs[0]])
    if arrays[0].dtype == np.float32:
        steps = arrays[0] / np.float32(out_scale)
        return _clip(np.trunc(steps + np.copysign(np.float32(0.5), steps)) + out_zero)
    in_scale, in_zero = _q(graph.tensors[operator.inputs[0]])
    limits = np.iinfo(graph.tensors[operator.outputs[0]].dtype)
    scaled = _requantized(arrays[0].astype(np.int64) - in_zero, in_scale / out_scale)
    return _clip(scaled + out_zero, (limits.min, limits.max))


def _dequantize(graph, operator, arrays):
    scale, zero = _q(graph.tensors[operator.inputs[0]])
    return (scale * (arrays[0].astype(np.int32) - zero)).astype(np.float32)


def _shift(graph, operator, arrays):
    (held, added), axis = arrays, operator.attributes.axis
    kept = range(added.shape[axis], held.shape[axis])
    return np.concatenate([np.take(held, kept, axis), added], axis)


def _table_entries(graph, operator, arrays):
    x, tables = arrays
    axis = operator.attributes.axis
    channel = np.arange(x.shape[axis]).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    return tables[channel if len(tables) > 1 else 0, x.view(np.uint8)]


_RUN = {
    **dict.fromkeys(
        ("READ_VARIABLE", "ASSIGN_VARIABLE"), lambda graph, operator, arrays: arrays[0]
    ),
    "ADD": _add,
    **dict.fromkeys(("ABS", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "NEG", "TANH"), _looked_up),
    "ARG_MAX": lambda graph, operator, arrays: arrays[0].argmax(operator.attributes.axis),
    "ARG_MIN": lambda graph, operator, arrays: arrays[0].argmin(operator.attributes.axis),
    "BATCH_MATMUL": _batch_matmul,
    "REDUCE_MAX": _reduce,
    "REDUCE_MIN": _reduce,
    "RESIZE_BILINEAR": _resize_bilinear,
    "TRANSPOSE_CONV": _transpose_conv,
    "AVERAGE_POOL_2D": _average_pool,
    "CONV_2D": _convolution,
    "DEPTHWISE_CONV_2D": _convolution,
    "DEQUANTIZE": _dequantize,
    "FULLY_CONNECTED": _fully_connected,
    "LOOKUP": _table_entries,
    "MAXIMUM": lambda graph, operator, arrays: np.maximum(*arrays),
    "MAX_POOL_2D": _max_pool,
    "MINIMUM": lambda graph, operator, arrays: np.minimum(*arrays),
    "MUL": _mul,
    "PRELU": _prelu,
    "MEAN": _mean,
    "QUANTIZE": _quantize,
    "RELU": _relu,
    "RELU6": _relu,
    "RELU_0_TO_1": _relu,
    "RELU_N1_TO_1": _relu,
    "SHIFT": _shift,
    "SOFTMAX": _softmax,
    "SUB": _add,
    "SVDF": _svdf,
}
