"""Importing what cuts images into blocks, or puts blocks together to images."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from utvm_deploy.frontend.files.source import Several, SourceOperator
from utvm_deploy.frontend.files.supported_operator import EQUAL, MOVED, SupportedOperator
from utvm_deploy.frontend.operators.layout import arranged, check_positions, ends, image, taken
from utvm_deploy.frontend.operators.operands import COMPUTED, alike, parameter
from utvm_deploy.graph.attribute_values import Shape
from utvm_deploy.graph.attributes import Pad
from utvm_deploy.graph.model import Operator, Tensor

#: Dimensions that the reference takes: a batch, one or two that are cut, and channels.
_RANKS = (3, 4)
_PADDED = (*COMPUTED, "float32")
#: The reference arranges no int16.
_ARRANGED = tuple(one for one in MOVED if one != "int16")


def import_space_to_depth(op: SourceOperator) -> Operator:
    """SPACE_TO_DEPTH of an NHWC image."""
    x, block = _arranged_image(op), op.positive("BlockSize")
    n, h, w, c = x.shape
    if h % block or w % block:
        raise op.damaged(f"its blocks of {block} do not divide an image of {h} x {w}")
    view = (n, h // block, block, w // block, block, c)
    shape = (n, h // block, w // block, block * block * c)
    return arranged(op, view, (0, 1, 3, 2, 4, 5), shape)


def import_depth_to_space(op: SourceOperator) -> Operator:
    """DEPTH_TO_SPACE of an NHWC image."""
    x, block = _arranged_image(op), op.positive("BlockSize")
    n, h, w, c = x.shape
    if c % (block * block):
        raise op.damaged(f"its blocks of {block} x {block} do not divide {c} channels")
    depth = c // (block * block)
    view = (n, h, w, block, block, depth)
    return arranged(op, view, (0, 1, 3, 2, 4, 5), (n, h * block, w * block, depth))


def _arranged_image(op: SourceOperator) -> Tensor:
    x = image(op)
    if x.dtype not in _ARRANGED:
        raise op.unsupported(
            f"tensor '{x.name}' is {x.dtype}; LiteRT takes {', '.join(_ARRANGED)} only"
        )
    return x


def import_space_to_batch(op: SourceOperator) -> Operator | Several:
    """SPACE_TO_BATCH_ND: padded, and then the pixels of every block in as many images."""
    x, blocks, margins = _operands(op, "paddings")
    n, *extents, c = x.shape
    padded = [d + sum(margin) for d, margin in zip(extents, margins, strict=True)]
    if any(d % block for d, block in zip(padded, blocks, strict=True)):
        raise op.damaged(f"its blocks of {blocks} do not divide an image of {padded}")
    parts = [d // block for d, block in zip(padded, blocks, strict=True)]
    pairs = [extent for pair in zip(parts, blocks, strict=True) for extent in pair]
    shape = (n * math.prod(blocks), *parts, c)
    check_positions(op, shape)
    last = len(pairs) + 1
    order = (*range(2, last, 2), 0, *range(1, last, 2), last)
    cut = arranged(op, (n, *pairs, c), order, shape)
    if not any(map(any, margins)):
        return cut
    between = replace(x, name=f"{x.name} (padded)", shape=(n, *padded, c), data=None, source=None)
    if x.dtype not in _PADDED:
        raise op.unsupported(f"it pads {x.dtype}; only {', '.join(_PADDED)} are supported")
    number = len(op.tensors)
    pad = Pad(((0, 0), *margins, (0, 0)))
    first = Operator("PAD", op.inputs[:1], (number,), pad, (op.index,))
    return Several((first, replace(cut, inputs=(number,))), (between,))


def import_batch_to_space(op: SourceOperator) -> Operator | Several:
    """BATCH_TO_SPACE_ND: the pixels of several images as one, and then cropped."""
    x, blocks, margins = _operands(op, "crops")
    n, *extents, c = x.shape
    if n % math.prod(blocks):
        raise op.damaged(f"its blocks of {blocks} do not divide {n} images")
    count, rank = n // math.prod(blocks), len(blocks)
    order = [rank]
    for axis in range(rank):
        order += [rank + 1 + axis, axis]
    whole = [d * block for d, block in zip(extents, blocks, strict=True)]
    left = [d - sum(margin) for d, margin in zip(whole, margins, strict=True)]
    if min(left) < 1:
        raise op.damaged(f"its crops leave nothing of an image of {whole}")
    check_positions(op, (count, *left, c))
    shape: Shape = (count, *whole, c)
    view = (*blocks, count, *extents, c)
    joined = arranged(op, view, [*order, 2 * rank + 1], shape)
    if not any(map(any, margins)):
        return joined
    kept = [(0, 0), *margins, (0, 0)]
    indices = [
        tuple(range(before, d - after)) for d, (before, after) in zip(shape, kept, strict=True)
    ]
    between = replace(x, name=f"{x.name} (joined)", shape=shape, data=None, source=None)
    number = len(op.tensors)
    crop = replace(taken(op, between, indices), kind="SLICE", inputs=(number,))
    return Several((replace(joined, outputs=(number,)), crop), (between,))


def _operands(
    op: SourceOperator, what: str
) -> tuple[Tensor, tuple[int, ...], tuple[tuple[int, int], ...]]:
    """The image, the extents of a block, and what is added or taken away around."""
    x, out = ends(op)
    if x.dtype in ("int8", "int16"):
        alike(op, x, out)
    if x.quantization != out.quantization:
        raise op.unsupported("its input and output are quantized differently; they must be equal")
    if len(x.shape) not in _RANKS:
        raise op.unsupported(
            f"'{x.name}' has shape {x.shape}; only 3 or 4 dimensions are supported"
        )
    blocks = [int(d) for d in parameter(op, 1, "blocks").reshape(-1)]
    margins = parameter(op, 2, what)
    rank = len(x.shape) - 2
    if len(blocks) != rank or margins.shape != (rank, 2):
        raise op.damaged(f"its blocks {blocks} or {what} {margins.tolist()} do not fit {x.shape}")
    if min(blocks) < 1 or (margins < 0).any():
        raise op.damaged(f"its blocks {blocks} and {what} {margins.tolist()} must not be negative")
    return x, tuple(blocks), tuple((int(before), int(after)) for before, after in margins)


#: What this module imports.
OPERATORS: Mapping[str, SupportedOperator] = {
    "BATCH_TO_SPACE_ND": SupportedOperator(
        import_batch_to_space, MOVED, f"3 or 4 dimensions; constant blocks and crops; {EQUAL}"
    ),
    "DEPTH_TO_SPACE": SupportedOperator(import_depth_to_space, _ARRANGED, "NHWC"),
    "SPACE_TO_BATCH_ND": SupportedOperator(
        import_space_to_batch,
        MOVED,
        f"3 or 4 dimensions; constant blocks and paddings; {EQUAL}; "
        "int8, int16 or float32 where it pads",
    ),
    "SPACE_TO_DEPTH": SupportedOperator(import_space_to_depth, _ARRANGED, "NHWC"),
}
