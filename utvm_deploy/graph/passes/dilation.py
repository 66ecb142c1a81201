"""Convolutions between SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND, and crops of their images.

TensorFlow writes a dilated convolution as a plain one on blocks. Every b-th pixel becomes a
separate image, which is convolved, and the results are interlaced again. The dilated convolution
computes the same sums, and moves no pixel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from utvm_deploy.graph.attribute_values import Shape
from utvm_deploy.graph.attributes import Convolution, Pad, Rearrange, Reshape
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.graph.rewrite import changed_operators, compacted, only_pairs


@dataclass(frozen=True)
class _Chain:
    """Positions of the operators that a dilated convolution was written as, in order."""

    pads: tuple[int, ...]  # of rows, before they were cut
    cut: int
    convolution: int
    join: int
    crop: int | None
    # Where rows of pixels, without columns, get the dimension that makes them images; else None.
    axis: int | None
    blocks: tuple[int, int]
    between: tuple[int, ...] = ()  # the two RESHAPEs that did so


def fold_dilation(graph: Graph) -> Graph:
    """Dilate a convolution instead of cutting its images into blocks, and joining them again."""
    pairs = list(only_pairs(graph))
    before = {after: producer for producer, after in pairs}
    chain = next(_chains(graph, before, dict(pairs)), None)
    return graph if chain is None else _folded(graph, chain)


def fuse_crop(graph: Graph) -> Graph:
    """Let a convolution pad less where the rows or columns that this adds are cut off again."""
    fused: dict[int, Operator] = {}
    gone: set[int] = set()
    for before, after in only_pairs(graph):
        convolution, crop = graph.operators[before], graph.operators[after]
        c = convolution.attributes
        if not isinstance(c, Convolution) or before in gone or before in fused:
            continue
        margins = _margins(graph, crop)
        if margins is None or margins[0] != (0, 0) or margins[3] != (0, 0):
            continue
        padding = _cropped(graph, convolution, c, margins[1:3])
        if padding is None:
            continue
        gone.add(after)
        fused[before] = replace(
            convolution,
            outputs=crop.outputs,
            attributes=replace(c, padding=padding),
            sources=convolution.sources + crop.sources,
        )
    return compacted(changed_operators(graph, fused, gone)) if gone else graph


def _cropped(
    graph: Graph, operator: Operator, c: Convolution, margins: tuple[tuple[int, int], ...]
) -> tuple[int, int, int, int] | None:
    """The padding that leaves out what is cut off, None where there is less of it."""
    image, weights, made = (
        graph.tensors[number].shape
        for number in (operator.inputs[0], operator.inputs[1], operator.outputs[0])
        if number is not None
    )
    padding: list[int] = []
    for axis, (first, last) in enumerate(margins):
        leading = c.padding[2 * axis] - first * c.strides[axis]
        steps = made[axis + 1] - first - last - 1
        window = (weights[axis + 1] - 1) * c.dilations[axis] + 1
        trailing = steps * c.strides[axis] + window - image[axis + 1] - leading
        if leading < 0 or trailing < 0:
            return None
        padding += [leading, trailing]
    top, bottom, left, right = padding
    return (top, bottom, left, right)


def _margins(graph: Graph, operator: Operator) -> tuple[tuple[int, int], ...] | None:
    """How much of each dimension is cut off at its start and at its end, if no more is done."""
    a = operator.attributes
    if not isinstance(a, Rearrange) or operator.inputs[0] is None:
        return None
    shape = graph.tensors[operator.inputs[0]].shape
    kept = tuple(map(len, a.indices))
    if (a.view, a.order, a.shape) != (shape, tuple(range(len(shape))), kept):
        return None
    margins = []
    for extent, indices in zip(shape, a.indices, strict=True):
        if indices != tuple(range(indices[0], indices[0] + len(indices))):
            return None
        margins.append((indices[0], extent - indices[-1] - 1))
    return tuple(margins)


def _chains(graph: Graph, before: Mapping[int, int], after: Mapping[int, int]) -> Iterator[_Chain]:
    """What can be folded. ``before`` and ``after``: the only neighbours of an operator."""
    for position, operator in enumerate(graph.operators):
        c = operator.attributes
        if not isinstance(c, Convolution) or c.strides != (1, 1) or any(c.padding):
            continue
        cut, join = before.get(position), after.get(position)
        if cut is None or join is None:
            continue
        blocks = _blocks(graph.operators[cut], "SPACE_TO_BATCH_ND")
        if blocks is not None and len(blocks) == 2:
            if _blocks(graph.operators[join], "BATCH_TO_SPACE_ND") == blocks:
                yield _Chain((), cut, position, join, None, None, (blocks[0], blocks[1]))
            continue
        found = _chain_of_rows(graph, position, before, after)
        if found is not None:
            yield found


def _chain_of_rows(
    graph: Graph, position: int, before: Mapping[int, int], after: Mapping[int, int]
) -> _Chain | None:
    """The chain where rows become images by a RESHAPE right before the convolution."""
    between = (before[position], after[position])
    axis = _axis_of_one(graph, *between)
    cut, join = before.get(between[0]), after.get(between[1])
    if axis is None or cut is None or join is None:
        return None
    blocks = _blocks(graph.operators[cut], "SPACE_TO_BATCH_ND")
    if blocks is None or len(blocks) != 1:
        return None
    if _blocks(graph.operators[join], "BATCH_TO_SPACE_ND") != blocks:
        return None
    pads: list[int] = []
    pad = before.get(cut)
    while pad is not None and isinstance(graph.operators[pad].attributes, Pad):
        pads.insert(0, pad)
        pad = before.get(pad)
    crop = after.get(join)
    if crop is not None and _margins(graph, graph.operators[crop]) is None:
        crop = None
    size = (1, blocks[0]) if axis == 1 else (blocks[0], 1)
    return _Chain(tuple(pads), cut, position, join, crop, axis, size, between)


def _axis_of_one(graph: Graph, first: int, second: int) -> int | None:
    """The dimension that one RESHAPE puts between a batch and its channels, and another drops."""
    operators = [graph.operators[first], graph.operators[second]]
    if not all(isinstance(operator.attributes, Reshape) for operator in operators):
        return None
    shapes: list[Shape] = []
    for operator in operators:
        assert operator.inputs[0] is not None
        shapes += [
            graph.tensors[operator.inputs[0]].shape,
            graph.tensors[operator.outputs[0]].shape,
        ]
    for axis in (1, 2):
        if _widened(shapes[0], axis) == shapes[1] and _widened(shapes[3], axis) == shapes[2]:
            return axis
    return None


def _widened(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], 1, *shape[axis:])


def _blocks(operator: Operator, kind: str) -> tuple[int, ...] | None:
    """The extents of a block, if an operator cuts into blocks or joins them, and no more."""
    a = operator.attributes
    if operator.kind != kind or not isinstance(a, Rearrange):
        return None
    rank = (len(a.view) - 2) // 2
    return a.view[2:-1:2] if kind == "SPACE_TO_BATCH_ND" else a.view[:rank]


def _folded(graph: Graph, chain: _Chain) -> Graph:
    """The graph with one dilated convolution in the chain's place."""
    operators = graph.operators
    convolution = operators[chain.convolution]
    c = convolution.attributes
    assert isinstance(c, Convolution)
    dilations = (c.dilations[0] * chain.blocks[0], c.dilations[1] * chain.blocks[1])
    members = [chain.cut, chain.convolution, chain.join]
    dilated = replace(
        convolution,
        inputs=(operators[chain.cut].inputs[0], *convolution.inputs[1:]),
        outputs=operators[chain.join].outputs,
        attributes=replace(c, dilations=dilations),
        sources=tuple(sorted({s for member in members for s in operators[member].sources})),
    )
    if chain.axis is None:
        changes = {chain.convolution: dilated}
        return compacted(changed_operators(graph, changes, {chain.cut, chain.join}))
    return _as_images(graph, chain, dilated, chain.axis)


def _as_images(graph: Graph, chain: _Chain, dilated: Operator, axis: int) -> Graph:
    """The graph where the rows are images from before their padding to after their crop."""
    tensors = list(graph.tensors)
    images: dict[int, int] = {}

    def image(number: int) -> int:
        if number not in images:
            rows = tensors[number]
            shape = _widened(rows.shape, axis)
            images[number] = len(tensors)
            name = f"{rows.name} (image)"
            tensors.append(replace(rows, name=name, shape=shape, data=None, source=None))
        return images[number]

    worked = [graph.operators[position] for position in chain.pads] + [dilated]
    worked += [] if chain.crop is None else [graph.operators[chain.crop]]
    made: list[Operator] = []
    for operator in worked:
        assert operator.inputs[0] is not None
        a = operator.attributes
        if isinstance(a, Pad):
            a = replace(a, paddings=(*a.paddings[:axis], (0, 0), *a.paddings[axis:]))
        elif isinstance(a, Rearrange):
            view, shape = _widened(a.view, axis), _widened(a.shape, axis)
            indices = (*a.indices[:axis], (0,), *a.indices[axis:])
            a = Rearrange(view, indices, tuple(range(len(view))), shape)
        inputs = (image(operator.inputs[0]), *operator.inputs[1:])
        made.append(
            replace(operator, inputs=inputs, outputs=(image(operator.outputs[0]),), attributes=a)
        )
    first, last = worked[0].inputs[0], worked[-1].outputs[0]
    assert first is not None
    sources = [graph.operators[position].sources for position in chain.between]
    ends = [
        Operator("RESHAPE", (first,), (image(first),), Reshape(), sources[0]),
        Operator("RESHAPE", (image(last),), (last,), Reshape(), sources[1]),
    ]
    positions = {*chain.pads, chain.cut, chain.convolution, chain.join, *chain.between}
    positions |= set() if chain.crop is None else {chain.crop}
    operators: list[Operator] = []
    for position, operator in enumerate(graph.operators):
        if position == chain.convolution:
            operators += [ends[0], *made, ends[1]]
        elif position not in positions:
            operators.append(operator)
    return compacted(graph.replaced(tensors=tuple(tensors), operators=tuple(operators)))
