"""Removes channels that need not be computed: constant ones, and those that nothing reads.

A channel goes from all tensors that must agree on it at once. These are the input and the output of
a depthwise layer, a pool, MEAN, PAD, ADD, MUL, RELU or QUANTIZE. A CONCATENATION of channels has
those that its parts have left. What a constant channel adds to a sum goes into the bias of the
layer that reads it. At an edge, the zero point stands for the channel: so a padded layer loses only
a channel that is its zero point. The same holds for a layer without a bias.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.graph.attributes import Concatenation, Convolution, FullyConnected
from utvm_deploy.graph.model import Array, Graph, Operator, Tensor
from utvm_deploy.graph.passes.channel_ties import Tie, activation_ties, is_plain, ties
from utvm_deploy.graph.passes.intervals import (
    Interval,
    bias_of,
    constant_weights,
    intervals,
    is_padded,
)
from utvm_deploy.graph.rewrite import compacted, consumers, producers

#: Kernels compute this many channels at once, so a layer keeps a multiple of it.
_TOGETHER = 4

_Flags = NDArray[np.bool_]


def drop_dead_channels(graph: Graph) -> Graph:
    """Drop channels of int8 and int16 without which every other byte stays the same.

    ``Tensor.channels`` of the others says which channels of the file's tensor these are.
    """
    known = intervals(graph)
    dead = _dead(graph, known)
    if not dead:
        return graph
    return _without(graph, known, dead)


def _dead(graph: Graph, known: dict[int, Interval]) -> dict[int, _Flags]:
    """Tensor -> which of its channels go, for each that loses any."""
    made, read = producers(graph), consumers(graph)
    kept = {*graph.inputs, *graph.outputs, *(number for pair in graph.states for number in pair)}
    tied = [tie for operator in graph.operators for tie in activation_ties(graph, operator)]
    free = {
        operator.outputs[0]
        for operator in graph.operators
        if operator.kind == "CONV_2D" and is_plain(graph, operator) and _is_whole(graph, operator)
    } | {tie.output for tie in tied}
    can = {
        number: _unread(graph, [graph.operators[p] for p in read.get(number, ())], number, found)
        for number, found in known.items()
        if number in free and number not in kept and number in made
    }
    joined = {
        number
        for tie in tied
        if tie.output in can and tie.part.stop - tie.part.start < len(can[tie.output])
        for number in (tie.source, tie.output)
    }
    touching: dict[int, list[Tie]] = {}
    for tie in tied:
        touching.setdefault(tie.source, []).append(tie)
        touching.setdefault(tie.output, []).append(tie)
    _agree(can, tied, touching)
    before: dict[int, _Flags] = {}
    # Where parts are joined, a channel that one part keeps may be one that another must keep.
    while any(before.get(number) is not flags for number, flags in can.items()):
        before = dict(can)
        for number in sorted(can, key=made.__getitem__):
            is_odd = number in joined and len(can[number]) % _TOGETHER
            rounded = _rounded(can[number], 1 if is_odd else _TOGETHER)
            if not np.array_equal(rounded, can[number]):
                can[number] = rounded
                _agree(can, touching.get(number, ()), touching)
    return {number: flags for number, flags in can.items() if flags.any()}


def _agree(
    can: dict[int, _Flags], due: Iterable[Tie], touching: Mapping[int, Sequence[Tie]]
) -> None:
    """Keep channels that are tied, unless each tensor may lose them.

    ``due`` are the ties to look at first; ``touching`` are those of each tensor.
    """
    waiting = list(due)
    while waiting:
        tie = waiting.pop()
        one, other = can.get(tie.source), can.get(tie.output)
        both = None if one is None or other is None else one & other[tie.part]
        if one is not None:
            less = np.zeros_like(one) if both is None else both
            if not np.array_equal(less, one):
                can[tie.source] = less
                waiting += touching[tie.source]
        if other is not None:
            less = other.copy()
            less[tie.part] = False if both is None else both
            if not np.array_equal(less, other):
                can[tie.output] = less
                waiting += touching[tie.output]


def _rounded(flags: _Flags, together: int) -> _Flags:
    """The flags without the first ones, so that a multiple of ``together`` channels is left."""
    left = len(flags) - int(flags.sum())
    wanted = max(-(-left // together), 1) * together
    rounded: _Flags = flags.copy()
    rounded[np.flatnonzero(flags)[: wanted - left]] = False
    return rounded


def _unread(graph: Graph, readers: list[Operator], number: int, found: Interval) -> _Flags:
    """Which channels of a tensor all its readers can do without."""
    flags = np.ones(len(found.low), np.bool_)
    for operator in readers:
        if operator.inputs.count(number) != 1:
            return np.zeros_like(flags)
        if any(tie.source == number for tie in activation_ties(graph, operator)):
            continue
        if operator.inputs[0] != number:
            return np.zeros_like(flags)
        flags &= _folds(graph, operator, found)
    return flags


def _folds(graph: Graph, operator: Operator, found: Interval) -> _Flags:
    """Which channels of its input a layer of products can do without."""
    none = np.zeros(len(found.low), np.bool_)
    if operator.kind not in ("CONV_2D", "FULLY_CONNECTED") or not is_plain(graph, operator):
        return none
    weights = constant_weights(graph, operator)
    assert weights is not None and weights.data is not None
    if weights.shape[-1] != len(none):
        return none
    constant = found.constant
    if is_padded(operator) or len(operator.inputs) < 3 or operator.inputs[2] is None:
        # Nothing may be added: at an edge, or without a bias that could take it.
        constant = constant & (found.low == _zero_point(graph, operator))
    unused: _Flags = (weights.data.reshape(-1, len(none)) == 0).all(axis=0)
    folds: _Flags = constant | unused
    return folds


def _is_whole(graph: Graph, operator: Operator) -> bool:
    """Whether each output sees all channels; with groups, its place says which ones it sees."""
    image, weights = (graph.tensors[number or 0] for number in operator.inputs[:2])
    return image.shape[-1] == weights.shape[-1]


def _zero_point(graph: Graph, operator: Operator) -> int:
    assert operator.inputs[0] is not None
    quantization = graph.tensors[operator.inputs[0]].quantization
    assert quantization is not None
    return quantization.zero_point


def _without(graph: Graph, known: dict[int, Interval], dead: dict[int, _Flags]) -> Graph:
    tensors = [
        _activation(tensor, ~dead[number]) if number in dead else tensor
        for number, tensor in enumerate(graph.tensors)
    ]
    operators = []
    for operator in graph.operators:
        source, output = operator.inputs[0], operator.outputs[0]
        if isinstance(operator.attributes, Convolution | FullyConnected) and (
            source in dead or output in dead
        ):
            operator = _sliced(graph, operator, known, dead, tensors)
        elif output in dead:
            operator = _with_fewer_constants(graph, operator, ~dead[output], tensors)
        operators.append(operator)
    return compacted(graph.replaced(tensors=tuple(tensors), operators=tuple(operators)))


def _activation(tensor: Tensor, live: _Flags) -> Tensor:
    channels = np.arange(len(live)) if tensor.channels is None else np.array(tensor.channels)
    left = tuple(int(channel) for channel in channels[live])
    return replace(tensor, shape=(*tensor.shape[:-1], len(left)), channels=left)


def _sliced(
    graph: Graph,
    operator: Operator,
    known: dict[int, Interval],
    dead: dict[int, _Flags],
    tensors: list[Tensor],
) -> Operator:
    """The layer with the weights and biases that it still needs, which ``tensors`` gets."""
    source, output, number = operator.inputs[0], operator.outputs[0], operator.inputs[1]
    weights = constant_weights(graph, operator)
    assert source is not None and number is not None
    assert weights is not None and weights.data is not None
    data, bias = weights.data, bias_of(graph, operator)
    is_depthwise = operator.kind == "DEPTHWISE_CONV_2D"
    axis = 3 if is_depthwise else 0
    outputs = data.shape[axis]
    sums = np.zeros(outputs, np.int64) + (0 if bias is None else bias)
    if source in dead and not is_depthwise:
        gone = dead[source]
        # A channel whose weights are all 0 adds 0, for any interval.
        by_channel = data.astype(np.int64).reshape(outputs, -1, len(gone)).sum(axis=1)
        values = (known[source].low - _zero_point(graph, operator))[gone]
        sums = sums + by_channel[:, gone] @ values
        data = data[..., ~gone]
    if output in dead:
        live = ~dead[output]
        data, sums = np.compress(live, data, axis=axis), sums[live]
    else:
        live = np.ones(outputs, np.bool_)
    inputs = list(operator.inputs)
    inputs[1] = _added(tensors, _constant(weights, np.ascontiguousarray(data), live))
    old = inputs[2] if len(inputs) > 2 else None
    if old is not None:
        if graph.tensors[old].dtype == "int32":
            # The reference's 32 bits wrap, too.
            sums = sums.astype(np.uint32).view(np.int32)
        inputs[2] = _added(tensors, _constant(graph.tensors[old], sums, live))
    return replace(operator, inputs=tuple(inputs))


def _with_fewer_constants(
    graph: Graph, operator: Operator, live: _Flags, tensors: list[Tensor]
) -> Operator:
    """An operator on several operands, with the channels of its constants that are left."""
    inputs = list(operator.inputs)
    for tie in ties(graph, operator):
        tensor, left = graph.tensors[tie.source], live[tie.part]
        if tensor.data is None:
            continue
        data = np.ascontiguousarray(np.compress(left, tensor.data, axis=-1))
        inputs[tie.place] = _added(tensors, _constant(tensor, data, left)) if data.size else None
    if isinstance(operator.attributes, Concatenation):
        inputs = [number for number in inputs if number is not None]
    return replace(operator, inputs=tuple(inputs))


def _constant(tensor: Tensor, data: Array, live: _Flags) -> Tensor:
    """A constant with other data; scales by channel stay those of the channels that are left."""
    quantization = tensor.quantization
    if quantization is not None and len(quantization.scales) == len(live) > 1:
        scales = np.array(quantization.scales)[live]
        zero_points = np.array(quantization.zero_points)
        points = zero_points[live] if len(zero_points) == len(live) else zero_points
        quantization = replace(
            quantization,
            scales=tuple(float(scale) for scale in scales),
            zero_points=tuple(int(point) for point in points),
        )
    data.flags.writeable = False
    return replace(tensor, data=data, shape=data.shape, quantization=quantization, source=None)


def _added(tensors: list[Tensor], tensor: Tensor) -> int:
    tensors.append(tensor)
    return len(tensors) - 1
