"""Equalizes channels across layers: those of very different ranges share one scale badly.

If one layer's output channel is multiplied by a factor, and the next layers' weights for it are
divided by that, the model computes the same, except for float32's rounding. The first layer has a
scale for each of its channels, so that costs nothing there. Its output has one scale: small
channels get finer steps of it. In exchange, the next layers' weights get coarser, except in
depthwise layers. So factors are ``range_of_channel ** -a * range_of_weights ** (1 - a)``, as in
Xiao et al., "SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language
Models" (2023), section 4, with the ``a`` whose expected noise is least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from utvm_deploy.frontend.files import tflite_schema as schema

#: Computed in float64; the stubs of numpy know no sums of arrays of any type.
Array: TypeAlias = Any
#: Gives each tensor's name and its elements on one sample, for all samples.
Values: TypeAlias = Callable[[], Iterable[tuple[str, Array]]]

_DEPTHWISE = "DEPTHWISE_CONV_2D"
#: Kind -> places of the input, the weights and the bias, and the axis of output channels.
_PLACES = {
    **dict.fromkeys(("CONV_2D", "FULLY_CONNECTED"), (0, 1, 2, 0)),
    _DEPTHWISE: (0, 1, 2, 3),
    "TRANSPOSE_CONV": (2, 1, 3, 0),
}
#: Kinds that keep channels apart and grow with their input. A RESHAPE may keep channels.
_BETWEEN = ("AVERAGE_POOL_2D", "LEAKY_RELU", "MAX_POOL_2D", "MEAN", "PAD", "RELU", "RESHAPE")
# The schema's numbers of fused activations that grow with their input: NONE and RELU.
_GROWING = (0, 1)
#: Factors beyond this would only move the problem.
_MOST_FACTOR = 2.0**8
_EXPONENTS = (0.25, 0.5, 0.75, 1.0)
_STEPS, _WEIGHT_STEPS = 255.0, 127.0
#: A smaller part of the noise than this is not worth a change.
_WORTHWHILE = 0.9


@dataclass(frozen=True, eq=False)
class _Link:
    """A layer, and the layers that read what it makes, and nothing else does."""

    first: Any
    readers: Sequence[Any]
    output: str  # of the first


def equalized(data: bytes, values: Values) -> tuple[bytes, int]:
    """The file with equalized channels, and behind how many layers they were changed."""
    model = schema.read_model(data)
    links = list(_links(model))
    seen = _channels({link.output for link in links}, values) if links else {}
    count = sum(_equalize(model, one, seen[one.output]) for one in links if one.output in seen)
    return schema.model_bytes(model), count


def _links(model: Any) -> Iterator[_Link]:
    graph = model.subgraphs[0]
    readers: dict[int, list[Any]] = {}
    for operator in graph.operators:
        for number in schema.numbers(operator.inputs):
            readers.setdefault(number, []).append(operator)
    ends = set(schema.numbers(graph.outputs))
    for first in graph.operators:
        if not _is_weighted(model, first) or not _grows(first):
            continue
        last = first
        while True:
            number = schema.numbers(last.outputs)[0]
            found = readers.get(number, [])
            is_between = len(found) == 1 and _keeps_channels(model, found[0], number)
            if not is_between or number in ends:
                break
            (last,) = found
        is_whole = number not in ends and found and all(_reads(model, o, number) for o in found)
        # The first layer's bias changes, too.
        changed = [
            _operands(model, first)[2],
            *(_operands(model, one)[1] for one in (first, *found)),
        ]
        if is_whole and all(len(readers[one]) == 1 for one in changed if one >= 0):
            yield _Link(first, found, schema.name_of(model, int(first.outputs[0])))


def _operands(model: Any, operator: Any) -> list[int]:
    """The numbers of the input, the weights and the bias; -1 without one."""
    numbers = schema.numbers(operator.inputs)
    places = _PLACES.get(schema.kind_of(model, operator), (9, 9, 9))[:3]
    return [numbers[place] if place < len(numbers) else -1 for place in places]


def _is_weighted(model: Any, operator: Any) -> bool:
    number = _operands(model, operator)[1]
    if number < 0:
        return False
    tensor = model.subgraphs[0].tensors[number]
    return tensor.type == schema.FLOAT32 and schema.constant(model, tensor) is not None


def _reads(model: Any, operator: Any, number: int) -> bool:
    return _is_weighted(model, operator) and _operands(model, operator)[0] == number


def _grows(operator: Any) -> bool:
    return getattr(operator.builtinOptions, "fusedActivationFunction", 0) in _GROWING


def _keeps_channels(model: Any, operator: Any, number: int) -> bool:
    tensors = model.subgraphs[0].tensors
    before, behind = (tensors[n] for n in (number, int(operator.outputs[0])))
    same = schema.numbers(before.shape)[-1:] == schema.numbers(behind.shape)[-1:]
    return same and schema.kind_of(model, operator) in _BETWEEN and _grows(operator)


def _channels(names: set[str], values: Values) -> dict[str, tuple[Array, Array]]:
    """The range of each channel of a tensor, and the mean of its squares."""
    low: dict[str, Array] = {}
    high: dict[str, Array] = {}
    squares: dict[str, Array] = {}
    counts: dict[str, int] = {}
    for name, array in values():
        if name in names:
            rows = array.reshape(-1, array.shape[-1]).astype(np.float64)
            # Ranges hold zero.
            low[name] = np.minimum(low.get(name, 0.0), rows.min(axis=0))
            high[name] = np.maximum(high.get(name, 0.0), rows.max(axis=0))
            squares[name] = squares.get(name, 0.0) + np.square(rows).sum(axis=0)
            counts[name] = counts.get(name, 0) + len(rows)
    return {name: (high[name] - low[name], squares[name] / counts[name]) for name in low}


def _equalize(model: Any, link: _Link, seen: tuple[Array, Array]) -> bool:
    """Move a factor for each channel to the next layers; whether that was worthwhile."""
    ranges, squares = seen
    readers = [_by_input(model, one, len(ranges)) for one in link.readers]
    if any(one is None for one in readers):
        return False
    noises = {
        exponent: _noise(_factors(ranges, readers, exponent), ranges, squares, readers)
        for exponent in _EXPONENTS
    }
    best = min(noises, key=noises.__getitem__)
    if noises[best] > _WORTHWHILE * _noise(np.ones_like(ranges), ranges, squares, readers):
        return False
    factors = _factors(ranges, readers, best).astype(np.float32)
    _, weights, bias = _operands(model, link.first)
    axis = _PLACES[schema.kind_of(model, link.first)][3]
    _multiply(model, weights, factors, axis)
    if bias >= 0:
        _multiply(model, bias, factors, 0)
    for reader in link.readers:
        number = _operands(model, reader)[1]
        rank = len(schema.numbers(model.subgraphs[0].tensors[number].shape))
        is_apart = schema.kind_of(model, reader) == _DEPTHWISE
        times = _outputs_of_each(model, reader, len(factors)) if is_apart else 1
        _multiply(model, number, np.repeat(1 / factors, times), rank - 1)
    return True


def _multiply(model: Any, number: int, factors: Array, axis: int) -> None:
    tensor = model.subgraphs[0].tensors[number]
    array = np.array(schema.constant(model, tensor))
    shape = [-1 if place == axis else 1 for place in range(array.ndim)]
    schema.set_constant(model, tensor, (array * factors.reshape(shape)).astype(np.float32))


def _outputs_of_each(model: Any, operator: Any, channels: int) -> int:
    tensor = model.subgraphs[0].tensors[_operands(model, operator)[1]]
    return int(schema.numbers(tensor.shape)[-1]) // channels


def _by_input(model: Any, operator: Any, channels: int) -> tuple[Array, bool] | None:
    """The weights as (input channel, output, tap), and whether each output reads one channel.

    None if the input channels are not all there: a dense layer behind an image, and a grouped
    convolution, have other numbers of inputs.
    """
    tensor = model.subgraphs[0].tensors[_operands(model, operator)[1]]
    array = np.asarray(schema.constant(model, tensor), np.float64)
    if schema.kind_of(model, operator) == _DEPTHWISE:
        taps, outputs = array.shape[1] * array.shape[2], array.shape[3]
        if outputs % channels:
            return None
        return array.reshape(taps, channels, -1).transpose(1, 2, 0), True
    if array.shape[-1] != channels:
        return None
    return np.moveaxis(array.reshape(len(array), -1, channels), 2, 0), False


def _factors(ranges: Array, readers: Sequence[Any], exponent: float) -> Array:
    """The factor of each channel; 1 where it is never anything but zero, or nothing reads it."""
    if all(is_apart for _, is_apart in readers):
        exponent = 1.0
    weights = np.max([np.abs(one).max(axis=(1, 2)) for one, _ in readers], axis=0)
    is_used = (ranges > 0) & (weights > 0)
    if not is_used.any():
        return np.ones_like(ranges)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = (1 - exponent) * np.log(weights) - exponent * np.log(ranges)
    middle = float(np.median(logs[is_used]))
    limit = np.log(_MOST_FACTOR)
    return np.exp(np.where(is_used, np.clip(logs - middle, -limit, limit), 0.0))


def _noise(factors: Array, ranges: Array, squares: Array, readers: Sequence[Any]) -> float:
    """What rounding the output, and the next layers' weights, adds to their results."""
    step = float((ranges * factors).max()) / _STEPS
    total = 0.0
    for weights, is_apart in readers:
        scaled = weights / factors[:, np.newaxis, np.newaxis]
        total += step * step * float(np.square(scaled).sum())
        if not is_apart:
            steps = np.abs(scaled).max(axis=(0, 2)) / _WEIGHT_STEPS
            taps = weights.shape[2]
            power = float((squares * factors * factors).sum()) * taps
            total += float(np.square(steps).sum()) * power
    return total
