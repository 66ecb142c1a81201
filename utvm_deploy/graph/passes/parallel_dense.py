"""Joins dense layers of one row that read the same input, such as Q, K and V of an attention.

One product of all their weights makes one tensor, and SPLIT takes the parts out of it. Parts that
begin at aligned addresses need no code (``compiler/arena/views.py``): one call is left of several.
``docs/internals/kernel-figures.md`` has what it saves, and where it would cost.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from utvm_deploy.graph.attributes import Concatenation, FullyConnected, Rearrange
from utvm_deploy.graph.liveness import live_bytes
from utvm_deploy.graph.model import Graph, Operator, Quantization, Tensor
from utvm_deploy.graph.rewrite import compacted, consumers
from utvm_deploy.graph.shapes import input_tensor

#: Parts can be views if they begin at a multiple of that many bytes.
ALIGNMENT = 16
_SPLIT = "SPLIT"


def join_dense(graph: Graph) -> Graph:
    """Let one layer compute what several dense layers of int8 compute from the same row.

    They have the same zero point and clamp. They have a scale for each output, or all the same one:
    a kernel takes longer to look up scales that it did not look up before. The most bytes that are
    live at once do not grow.
    """
    groups = list(_groups(graph))
    most = max(live_bytes(graph)) if groups else 0
    for group in groups:
        joined = _joined(graph, group)
        if max(live_bytes(joined)) <= most:
            return joined
    return graph


def _groups(graph: Graph) -> Iterator[tuple[int, ...]]:
    """Positions of operators that can be joined, in the order of their parts."""
    found: dict[object, list[int]] = {}
    kept = {number for pair in graph.states for number in pair}
    for position, operator in enumerate(graph.operators):
        key = None if operator.outputs[0] in kept else _key(graph, operator)
        if key is not None:
            found.setdefault(key, []).append(position)
    if len(found) == sum(map(len, found.values())):
        return
    reads = Counter(number for operator in graph.operators for number in operator.inputs)
    read = consumers(graph)
    for positions in found.values():
        weights = set[bytes]()
        aligned, last = list[int](), list[int]()
        for position in positions:
            operator = graph.operators[position]
            data = input_tensor(graph, operator, 1).data
            assert data is not None
            # Weights that several layers share would be stored twice.
            is_shared = reads[operator.inputs[1]] > 1 or data.tobytes() in weights
            if is_shared or _is_joined(graph, operator.outputs[0], read):
                continue
            weights.add(data.tobytes())
            (last if len(data) % ALIGNMENT else aligned).append(position)
        group = (*aligned, *last[:1])
        if len(group) > 1:
            yield group


def _key(graph: Graph, operator: Operator) -> object:
    """What layers that can be one have in common; None for operators that cannot be a part."""
    if not isinstance(operator.attributes, FullyConnected):
        return None
    source, weights = (input_tensor(graph, operator, place) for place in (0, 1))
    result = graph.tensors[operator.outputs[0]]
    is_int8 = source.dtype == result.dtype == "int8" and weights.dtype in ("int8", "int4")
    if not is_int8 or weights.quantization is None or result.quantization is None:
        return None
    if weights.data is None or any(weights.quantization.zero_points):
        return None
    outputs = len(weights.data)
    if math.prod(result.shape) != outputs:
        return None
    scales = weights.quantization.scales
    one_scale = None if len(scales) == outputs else (scales, result.quantization.scales)
    scale = weights.dtype, one_scale
    return operator.inputs[0], operator.attributes, result.quantization.zero_points, scale


def _is_joined(graph: Graph, number: int, read: dict[int, list[int]]) -> bool:
    """Whether a CONCATENATION reads a tensor, which may then be made at its place there."""
    for operator in (graph.operators[position] for position in read.get(number, ())):
        if isinstance(operator.attributes, Concatenation):
            return True
        if operator.kind == "RESHAPE" and _is_joined(graph, operator.outputs[0], read):
            return True
    return False


def _joined(graph: Graph, group: Sequence[int]) -> Graph:
    """The graph with one layer for those at the positions of ``group``."""
    parts = [graph.operators[position] for position in group]
    tensors = list(graph.tensors)
    results = [tensors[part.outputs[0]] for part in parts]
    whole = len(tensors)
    total = sum(math.prod(result.shape) for result in results)
    name = f"{results[0].name} and {len(parts) - 1} more"
    tensors.append(Tensor(name, (1, total), "int8", results[0].quantization))
    inputs: list[int | None] = [parts[0].inputs[0], len(tensors)]
    tensors.append(_joined_weights(graph, parts))
    bias = _joined_bias(graph, parts)
    inputs.append(None if bias is None else len(tensors))
    tensors += [] if bias is None else [bias]
    attributes = parts[0].attributes
    assert isinstance(attributes, FullyConnected)
    joined = Operator(
        "FULLY_CONNECTED",
        tuple(inputs),
        (whole,),
        replace(attributes, factors=_factors(graph, parts)),
        tuple(sorted(source for part in parts for source in part.sources)),
    )
    made, start = [joined], 0
    for part, result in zip(parts, results, strict=True):
        end = start + math.prod(result.shape)
        indices = ((0,), tuple(range(start, end)))
        taken = Rearrange((1, total), indices, (0, 1), result.shape)
        made.append(Operator(_SPLIT, (whole,), part.outputs, taken, part.sources))
        start = end
    operators: list[Operator] = []
    for position, operator in enumerate(graph.operators):
        if position == min(group):
            operators += made
        elif position not in group:
            operators.append(operator)
    return compacted(graph.replaced(tensors=tuple(tensors), operators=tuple(operators)))


def _joined_weights(graph: Graph, parts: Sequence[Operator]) -> Tensor:
    weights = [input_tensor(graph, part, 1) for part in parts]
    data = np.concatenate([one.data for one in weights if one.data is not None])
    data.flags.writeable = False
    quantization = weights[0].quantization
    assert quantization is not None
    if len(quantization.scales) > 1:
        scales = tuple(s for one in weights if one.quantization for s in one.quantization.scales)
        quantization = Quantization(scales, (0,) * len(scales), axis=0)
    return Tensor(weights[0].name, data.shape, weights[0].dtype, quantization, data)


def _joined_bias(graph: Graph, parts: Sequence[Operator]) -> Tensor | None:
    """The biases of all outputs; None if no part has one."""
    found = [part.inputs[2] if len(part.inputs) > 2 else None for part in parts]
    tensors = [None if number is None else graph.tensors[number] for number in found]
    if not any(tensors):
        return None
    arrays = []
    for part, tensor in zip(parts, tensors, strict=True):
        outputs = math.prod(graph.tensors[part.outputs[0]].shape)
        data = None if tensor is None else tensor.data
        arrays.append(np.zeros(outputs, np.int32) if data is None else data.reshape(-1))
    data = np.concatenate(arrays)
    data.flags.writeable = False
    first = next(tensor for tensor in tensors if tensor is not None)
    return Tensor(first.name, data.shape, str(data.dtype), data=data)


def _factors(graph: Graph, parts: Sequence[Operator]) -> tuple[float, ...]:
    """The factor of each output, where the parts have several scales of outputs."""
    ends = [graph.tensors[part.outputs[0]].quantization for part in parts]
    if all(end == ends[0] for end in ends):
        return ()
    source = input_tensor(graph, parts[0], 0).quantization
    found: list[float] = []
    for part, end in zip(parts, ends, strict=True):
        weights = input_tensor(graph, part, 1).quantization
        assert source is not None and weights is not None and end is not None
        found += [source.scale * scale / end.scale for scale in weights.scales]
    return tuple(found)
