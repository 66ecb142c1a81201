"""Which channels of an operator's input become which channels of its output, each by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from utvm_deploy.graph.attributes import (
    Add,
    Concatenation,
    Convolution,
    FullyConnected,
    Mean,
    Multiply,
    Pad,
    Pool,
    Quantize,
    Relu,
)
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.graph.passes.intervals import ENDS, bias_of, constant_weights, joins_channels


@dataclass(frozen=True)
class Tie:
    """An input all of whose channels are channels ``part`` of the output, in the same order."""

    source: int
    place: int  # of the source among the operator's inputs
    output: int
    part: slice


def activation_ties(graph: Graph, operator: Operator) -> tuple[Tie, ...]:
    """The ties of the inputs that are not constant; none if the operator mixes channels."""
    return tuple(tie for tie in ties(graph, operator) if graph.tensors[tie.source].data is None)


def ties(graph: Graph, operator: Operator) -> Iterator[Tie]:
    """The ties of all inputs that have channels; none if the operator mixes channels."""
    if not _keeps_channels(graph, operator):
        return
    (output,) = operator.outputs
    numbers = operator.inputs
    if not isinstance(operator.attributes, Add | Multiply | Concatenation):
        numbers = numbers[:1]
    start = 0
    for place, number in enumerate(numbers):
        if number is None:
            continue
        shape = graph.tensors[number].shape
        count = shape[-1] if shape else 1
        if joins_channels(graph, operator):
            yield Tie(number, place, output, slice(start, start + count))
            start += count
        elif shape[-1:] == graph.tensors[output].shape[-1:]:
            yield Tie(number, place, output, slice(0, count))


def is_plain(graph: Graph, operator: Operator) -> bool:
    """Whether a layer multiplies int8 or int16 by constant symmetric weights of int8.

    It has no bias, or a constant one of integers.
    """
    number = operator.inputs[0]
    image = None if number is None else graph.tensors[number]
    return (
        isinstance(operator.attributes, Convolution | FullyConnected)
        and image is not None
        and image.dtype in ENDS
        and graph.tensors[operator.outputs[0]].dtype == image.dtype
        and constant_weights(graph, operator) is not None
        and bias_of(graph, operator) is not None
    )


def _keeps_channels(graph: Graph, operator: Operator) -> bool:
    attributes = operator.attributes
    if operator.kind == "DEPTHWISE_CONV_2D":
        assert isinstance(attributes, Convolution)
        return attributes.depth_multiplier == 1 and is_plain(graph, operator)
    if isinstance(attributes, Pool):
        return operator.kind in ("AVERAGE_POOL_2D", "MAX_POOL_2D")
    if isinstance(attributes, Add | Multiply):
        return _is_by_channel(graph, operator)
    if isinstance(attributes, Pad):
        return attributes.paddings[-1] == (0, 0)
    if isinstance(attributes, Concatenation):
        rank = len(graph.tensors[operator.outputs[0]].shape)
        return not attributes.stacks or attributes.axis < rank - 1
    if operator.inputs[0] is None:
        return False
    one, other = graph.tensors[operator.inputs[0]], graph.tensors[operator.outputs[0]]
    if isinstance(attributes, Mean):
        return one.dtype in ENDS and bool(one.shape) and len(one.shape) - 1 not in attributes.axes
    if isinstance(attributes, Quantize | Relu):
        return bool(one.shape) and one.dtype == other.dtype and one.dtype in ENDS
    if operator.kind != "RESHAPE":
        return False
    return bool(one.shape and other.shape) and one.shape[-1] == other.shape[-1]


def _is_by_channel(graph: Graph, operator: Operator) -> bool:
    """Whether ADD or MUL of int8 or int16 has operands with all channels.

    Constants may have one channel.
    """
    output = graph.tensors[operator.outputs[0]]
    channels = output.shape[-1:]
    tensors = [graph.tensors[number] for number in operator.inputs if number is not None]
    return bool(channels) and all(
        tensor.dtype == output.dtype
        and tensor.dtype in ENDS
        and (tensor.shape[-1:] == channels or (tensor.data is not None and tensor.data.size == 1))
        for tensor in tensors
    )
