"""Which values each channel of an int8 or int16 tensor can have, for any input of the model.

Weights, biases, multipliers and clamps alone say it. All arithmetic is exact: integers of 64 bits
hold every sum, and where the reference's 32 bits could wrap, a channel may have any value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.graph.attribute_values import Clamp
from utvm_deploy.graph.attributes import (
    Add,
    Concatenation,
    Convolution,
    Mean,
    Multiply,
    Pad,
    Pool,
    Quantize,
    Relu,
)
from utvm_deploy.graph.constant_folding import fill_of
from utvm_deploy.graph.element_type import element_type
from utvm_deploy.graph.model import Graph, Operator, Tensor
from utvm_deploy.graph.rounding import (
    HEADROOM_BITS,
    FactorError,
    mean_multiplier,
    quantize_multiplier,
    requantized,
    requantized_wide,
)

_INT32 = np.iinfo(np.int32)
#: Types of activations that have intervals, and the ends of their values.
ENDS = {name: element_type(name).limits for name in ("int8", "int16")}
#: The reference multiplies no larger sums of int16 than these.
_MOST_OF_SUM = 1 << 47


@dataclass(frozen=True, eq=False)
class Interval:
    """The least and the largest value of each channel: int64 arrays along the last dimension."""

    low: NDArray[np.int64]
    high: NDArray[np.int64]

    @property
    def constant(self) -> NDArray[np.bool_]:
        """Which channels have one value only."""
        equal: NDArray[np.bool_] = self.low == self.high
        return equal


def intervals(graph: Graph) -> dict[int, Interval]:
    """Tensor -> its interval, for each activation of int8 or int16 that has channels."""
    found: dict[int, Interval] = {}
    for number, tensor in enumerate(graph.tensors):
        if tensor.dtype in ENDS and tensor.data is None and tensor.shape:
            found[number] = _any_value(tensor)
    for operator in graph.operators:
        output = operator.outputs[0]
        if output not in found:
            continue
        try:
            result = _of_operator(graph, operator, found)
        except FactorError:
            continue  # refused where its kernel is made
        if result is not None:
            found[output] = result
    return found


def _of_operator(graph: Graph, operator: Operator, found: dict[int, Interval]) -> Interval | None:
    source = operator.inputs[0]
    if isinstance(operator.attributes, Add | Multiply):
        return _of_two(graph, operator, operator.attributes, found)
    if isinstance(operator.attributes, Concatenation):
        return _joined(graph, operator, operator.attributes, found)
    return _result(graph, operator, found[source]) if source in found else None


def is_padded(operator: Operator) -> bool:
    """Whether a convolution computes at its edges with less than the whole window."""
    return isinstance(operator.attributes, Convolution) and any(operator.attributes.padding)


def _result(graph: Graph, operator: Operator, source: Interval) -> Interval | None:
    """The interval of an operator's output; None if nothing is known about it."""
    attributes = operator.attributes
    types = graph.tensors[_first(operator)].dtype, graph.tensors[operator.outputs[0]].dtype
    if isinstance(attributes, Convolution):
        return _convolution(graph, operator, attributes, source)
    if isinstance(attributes, Pool) and operator.kind in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
        # Rounded means lie between the least and the largest value, too.
        return _clamped(source, attributes.clamp)
    if isinstance(attributes, Quantize | Relu) and types[0] != types[1]:
        return None
    if isinstance(attributes, Mean) and types != ("int8", "int8"):
        return None
    if isinstance(attributes, Quantize | Relu):
        return _rescaled(graph, operator, attributes, source)
    if isinstance(attributes, Mean):
        return _mean(graph, operator, attributes, source)
    if isinstance(attributes, Pad):
        if attributes.paddings[-1] != (0, 0):
            return None
        fill = int(fill_of(graph, operator))
        return Interval(np.minimum(source.low, fill), np.maximum(source.high, fill))
    if operator.kind == "RESHAPE":
        one, other = graph.tensors[_first(operator)], graph.tensors[operator.outputs[0]]
        return source if other.shape and one.shape[-1] == other.shape[-1] else None
    return None


def _rescaled(
    graph: Graph, operator: Operator, attributes: Quantize | Relu, source: Interval
) -> Interval | None:
    """The interval of RELU and similar operators, and of QUANTIZE to the same type."""
    one, other = graph.tensors[_first(operator)], graph.tensors[operator.outputs[0]]
    if one.quantization is None or other.quantization is None:
        return None
    if isinstance(attributes, Relu):
        # The reference divides the scales of these in float32.
        ratio = float(np.float32(one.quantization.scale) / np.float32(other.quantization.scale))
        clamp = attributes.clamp
    else:
        ratio = one.quantization.scale / other.quantization.scale
        clamp = ENDS[other.dtype]
    low, high = (end - one.quantization.zero_point for end in (source.low, source.high))
    return _requantized(low, high, [ratio], other, clamp)


def _mean(graph: Graph, operator: Operator, attributes: Mean, source: Interval) -> Interval | None:
    """The interval of MEAN over other dimensions than the channels: that of a sum, scaled."""
    one, other = graph.tensors[_first(operator)], graph.tensors[operator.outputs[0]]
    if len(one.shape) - 1 in attributes.axes or not one.quantization or not other.quantization:
        return None
    count = math.prod(one.shape[axis] for axis in attributes.axes)
    low, high = (count * (end - one.quantization.zero_point) for end in (source.low, source.high))
    if max(abs(int(low.min())), abs(int(high.max()))) > _INT32.max:
        return None
    factor = mean_multiplier(one.quantization.scale / other.quantization.scale, count)
    return _by_factors(low, high, [factor], other, (-128, 127))


def _of_two(
    graph: Graph, operator: Operator, attributes: Add | Multiply, found: dict[int, Interval]
) -> Interval | None:
    """The interval of ADD or MUL, which grow with each operand or shrink with it."""
    result = graph.tensors[operator.outputs[0]]
    numbers = [number for number in operator.inputs if number is not None]
    tensors = [graph.tensors[number] for number in numbers]
    sides = [_operand(graph, number, found) for number in numbers]
    if len(sides) != 2 or result.quantization is None or result.dtype not in ENDS:
        return None
    if isinstance(attributes, Add) and attributes.shifts is not None:
        return None
    steps = []
    for tensor, side in zip(tensors, sides, strict=True):
        if side is None or tensor.quantization is None:
            return None
        zero_point = tensor.quantization.zero_point
        low, high = (np.broadcast_to(end - zero_point, result.shape[-1:]) for end in side)
        steps.append((low, high))
    scales = [tensor.quantization.scale for tensor in tensors if tensor.quantization is not None]
    (low, high), (other_low, other_high) = steps
    if isinstance(attributes, Multiply):
        products = np.stack(
            [one * other for one in (low, high) for other in (other_low, other_high)]
        )
        # The reference multiplies and divides these scales in float32.
        with np.errstate(all="ignore"):
            factor = np.float32(scales[0]) * np.float32(scales[1])
            factor = factor / np.float32(result.quantization.scale)
        least, most = products.min(axis=0), products.max(axis=0)
        return _requantized(least, most, [float(factor)], result, attributes.clamp)
    twice = 2 * max(scales)
    shift = HEADROOM_BITS[result.dtype]
    aligned = [
        [_aligned(end, shift, scale / twice) for end in side]
        for side, scale in zip(steps, scales, strict=True)
    ]
    least, most = aligned[0][0] + aligned[1][0], aligned[0][1] + aligned[1][1]
    factor = twice / ((1 << shift) * result.quantization.scale)
    return _requantized(least, most, [factor], result, attributes.clamp)


def joins_channels(graph: Graph, operator: Operator) -> bool:
    """Whether it is a CONCATENATION whose output has the channels of one part after another's."""
    attributes, (output, *_) = operator.attributes, operator.outputs
    return (
        isinstance(attributes, Concatenation)
        and not attributes.stacks
        and attributes.axis == len(graph.tensors[output].shape) - 1
    )


def _joined(
    graph: Graph, operator: Operator, attributes: Concatenation, found: dict[int, Interval]
) -> Interval | None:
    """The interval of CONCATENATION or PACK: that of each part, or what holds all of them."""
    result = graph.tensors[operator.outputs[0]]
    if attributes.stacks and attributes.axis == len(result.shape) - 1:
        return None
    numbers = [number for number in operator.inputs if number is not None]
    ends = [end for end in (_operand(graph, n, found) for n in numbers) if end is not None]
    if len(ends) != len(numbers):
        return None
    lows, highs = zip(*ends, strict=True)
    if joins_channels(graph, operator):
        return Interval(np.concatenate(lows), np.concatenate(highs))
    return Interval(np.min(lows, axis=0), np.max(highs, axis=0))


def _operand(
    graph: Graph, number: int, found: dict[int, Interval]
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """The least and the largest value of each channel of an activation or a constant."""
    data = graph.tensors[number].data
    if data is None:
        return (found[number].low, found[number].high) if number in found else None
    if data.dtype.name not in ENDS:
        return None
    rows = data.astype(np.int64).reshape(-1, data.shape[-1] if data.shape else 1)
    return rows.min(axis=0), rows.max(axis=0)


def _aligned(steps: NDArray[np.int64], spare: int, scale: float) -> NDArray[np.int64]:
    """An operand of ADD in the unit that both operands share."""
    multiplier, shift = quantize_multiplier(scale)
    values = [requantized(int(step) << spare, multiplier, shift) for step in steps]
    return np.array(values, np.int64)


def _convolution(
    graph: Graph, operator: Operator, attributes: Convolution, source: Interval
) -> Interval | None:
    weights = constant_weights(graph, operator)
    image, result = graph.tensors[_first(operator)], graph.tensors[operator.outputs[0]]
    if weights is None or image.quantization is None or result.quantization is None:
        return None
    bias = bias_of(graph, operator)
    if bias is None:
        return None
    zero_point = image.quantization.zero_point
    low, high = source.low - zero_point, source.high - zero_point
    if is_padded(operator):  # an edge counts as the zero point
        low, high = np.minimum(low, 0), np.maximum(high, 0)
    data = weights.data
    assert data is not None
    values = data.astype(np.int64)
    if operator.kind == "DEPTHWISE_CONV_2D":
        repeat = attributes.depth_multiplier
        low, high = np.repeat(low, repeat), np.repeat(high, repeat)
        axes: tuple[int, ...] = (0, 1, 2)
    else:
        axes = (1, 2, 3)
        if values.shape[3] != len(low):  # of groups
            return None
    at_low, at_high = values * low, values * high
    least = np.minimum(at_low, at_high).sum(axis=axes) + bias
    most = np.maximum(at_low, at_high).sum(axis=axes) + bias
    scales = _scales(image, weights, result)
    if image.dtype == "int16" and not attributes.sums_in_32_bits:
        return _requantized_wide(least, most, scales, attributes.clamp)
    return _requantized(least, most, scales, result, attributes.clamp)


def _requantized_wide(
    least: NDArray[np.int64], most: NDArray[np.int64], scales: list[float], clamp: Clamp
) -> Interval:
    """As ``_requantized``, for sums of 64 bits, whose result has the zero point 0."""
    outputs = len(least)
    low, high = np.full(outputs, clamp[0], np.int64), np.full(outputs, clamp[1], np.int64)
    factors = [quantize_multiplier(scale) for scale in scales]
    pairs = factors * outputs if len(factors) == 1 else factors
    for channel, (multiplier, shift) in enumerate(pairs):
        ends = int(least[channel]), int(most[channel])
        if ends[0] < -_MOST_OF_SUM or ends[1] >= _MOST_OF_SUM or shift > 14:
            continue
        first, last = (requantized_wide(end, multiplier, shift) for end in ends)
        if first < _INT32.min or last > _INT32.max:
            continue
        low[channel], high[channel] = (min(max(end, clamp[0]), clamp[1]) for end in (first, last))
    return Interval(low, high)


def _requantized(
    least: NDArray[np.int64],
    most: NDArray[np.int64],
    scales: list[float],
    result: Tensor,
    clamp: Clamp,
) -> Interval:
    """The outputs for sums from ``least`` to ``most`` by one scale, or one for each channel."""
    factors = [quantize_multiplier(scale) for scale in scales]
    return _by_factors(least, most, factors, result, clamp)


def _by_factors(
    least: NDArray[np.int64],
    most: NDArray[np.int64],
    factors: list[tuple[int, int]],
    result: Tensor,
    clamp: Clamp,
) -> Interval:
    """As ``_requantized``, by multipliers and shifts: these never turn an order round."""
    assert result.quantization is not None
    outputs = len(least)
    low, high = np.full(outputs, clamp[0], np.int64), np.full(outputs, clamp[1], np.int64)
    pairs = factors * outputs if len(factors) == 1 else factors
    for channel, (multiplier, shift) in enumerate(pairs):
        ends = int(least[channel]), int(most[channel])
        shifted = [end << max(shift, 0) for end in ends]
        if shifted[0] < _INT32.min or shifted[1] > _INT32.max:
            continue
        first, last = (
            min(
                max(requantized(end, multiplier, shift) + result.quantization.zero_point, clamp[0]),
                clamp[1],
            )
            for end in ends
        )
        low[channel], high[channel] = first, last
    return Interval(low, high)


def _scales(image: Tensor, weights: Tensor, result: Tensor) -> list[float]:
    """The factor of each channel, or one for all, as the reference computes it."""
    assert image.quantization and weights.quantization and result.quantization
    one, other = image.quantization.scale, result.quantization.scale
    return [one * scale / other for scale in weights.quantization.scales]


def constant_weights(graph: Graph, operator: Operator) -> Tensor | None:
    """The int8 or int4 weights of an operator if they are constant and symmetric, else None."""
    number = operator.inputs[1]
    weights = None if number is None else graph.tensors[number]
    if weights is None or weights.data is None or weights.dtype not in ("int8", "int4"):
        return None
    if weights.quantization is None or any(weights.quantization.zero_points):
        return None
    return weights


def bias_of(graph: Graph, operator: Operator) -> NDArray[np.int64] | int | None:
    """The bias in 64 bits, 0 without one; None if it is not a constant of int32 or int64."""
    number = operator.inputs[2] if len(operator.inputs) > 2 else None
    if number is None:
        return 0
    bias = graph.tensors[number]
    if bias.data is None or bias.dtype not in ("int32", "int64"):
        return None
    wide: NDArray[np.int64] = bias.data.astype(np.int64).reshape(-1)
    return wide


def _first(operator: Operator) -> int:
    number = operator.inputs[0]
    assert number is not None
    return number


def _clamped(source: Interval, clamp: Clamp) -> Interval:
    return Interval(np.clip(source.low, *clamp), np.clip(source.high, *clamp))


def _any_value(tensor: Tensor) -> Interval:
    low, high = ENDS[tensor.dtype]
    channels = tensor.shape[-1]
    return Interval(np.full(channels, low, np.int64), np.full(channels, high, np.int64))
