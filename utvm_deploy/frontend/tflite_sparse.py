"""Constants of a .tflite file that are stored without their zeros (SparsityParameters).

The dimensions of such a tensor are those of its shape, then one for each dimension that has blocks,
which ``block_map`` names. They are stored from the outermost to the innermost in the order that
``traversal_order`` gives. A dense dimension has all its indices. A CSR dimension has, for each
element of the dimension outside it, a segment of a list of indices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import tflite
from numpy.typing import NDArray

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.files.fields import array_of, vector_of
from utvm_deploy.frontend.files.limits import MAX_NUMBERS, MAX_RANK, MAX_STORED, Budget
from utvm_deploy.graph.element_type import ElementType
from utvm_deploy.graph.model import Array

Integers: TypeAlias = NDArray[np.int64]

_VECTORS = {
    tflite.SparseIndexVector.Int32Vector: tflite.Int32Vector,
    tflite.SparseIndexVector.Uint16Vector: tflite.Uint16Vector,
    tflite.SparseIndexVector.Uint8Vector: tflite.Uint8Vector,
}


@dataclass(frozen=True)
class _Layout:
    """How the elements of a sparse tensor are stored."""

    name: str  # of the tensor, for messages
    shape: tuple[int, ...]
    order: list[int]
    block_map: list[int]
    levels: Sequence[Any]  # DimensionMetadata

    def fail(self, what: str) -> ModelError:
        """The error to raise."""
        return ModelError(
            f"the file is damaged: the sparse tensor '{self.name}' {what}; convert the model again"
        )

    def sizes(self) -> list[int]:
        """The extent of each dimension, in the order of the shape and of the block map."""
        rank, ranks = len(self.shape), len(self.shape) + len(self.block_map)
        if sorted(self.order) != list(range(ranks)) or len(self.levels) != ranks:
            raise self.fail(
                f"has {len(self.levels)} stored dimensions in the order {self.order}, but "
                f"{ranks} are needed for its shape and its blocks"
            )
        sizes = list(self.shape)
        for number, blocked in enumerate(self.block_map, rank):
            level = self.levels[self.order.index(number)]
            size = level.DenseSize()
            is_twice = self.block_map.count(blocked) > 1
            if is_twice or not 0 <= blocked < rank or size < 1 or sizes[blocked] % size:
                raise self.fail(
                    f"of shape {self.shape} has blocks of {size} in dimension {blocked}, which do "
                    "not fit"
                )
            sizes[blocked] //= size
            sizes.append(size)
        return sizes


def dense_data(
    tensor: Any, raw: Array, element: ElementType, shape: tuple[int, ...], name: str, budget: Budget
) -> Array:
    """The constant of a sparse tensor with its zeros; ``raw`` are the bytes of its buffer.

    ``name`` is for messages. Raises ModelError where lists, indices and bytes do not fit together.
    """
    table = tensor.Sparsity()
    order = vector_of(table.TraversalOrderAsNumpy(), budget, f"tensor '{name}'")
    block_map = vector_of(table.BlockMapAsNumpy(), budget, f"tensor '{name}'")
    count = max(table.DimMetadataLength(), len(order), len(block_map))
    if count > 2 * MAX_RANK:
        raise ModelError(f"tensor '{name}' has {count} stored dimensions, more than {2 * MAX_RANK}")
    levels = [table.DimMetadata(n) for n in range(table.DimMetadataLength())]
    layout = _Layout(name, shape, order, block_map, levels)
    if element.in_unit > 1:
        raise ModelError(
            f"tensor '{name}' is sparse and of {element.name}, which LiteRT does not take; convert "
            "the model without sparsity"
        )
    stored = raw.size // element.unit_bytes
    if stored > MAX_STORED:
        raise ModelError(
            f"tensor '{name}' is sparse and has {stored:,} elements that are stored, more than "
            f"{MAX_STORED:,}; choose a model for microcontrollers"
        )
    budget.copy(math.prod(shape), f"tensor '{name}'")
    places = _places(layout, stored, budget)
    if raw.size != places.size * element.unit_bytes:
        raise layout.fail(
            f"has {places.size:,} elements of {element.name}, but its buffer has {raw.size:,} bytes"
        )
    dense = np.zeros(math.prod(shape), np.dtype(element.numpy).newbyteorder("<"))
    dense[places] = element.unpacked(raw.view(np.uint8), (places.size,))
    return dense.reshape(shape)


def _places(layout: _Layout, stored: int, budget: Budget) -> Integers:
    """Where each of ``stored`` elements is in the dense tensor; there may be others than these."""
    sizes, rank = layout.sizes(), len(layout.shape)
    strides = [math.prod(layout.shape[axis + 1 :]) for axis in range(rank)]
    blocks = dict(zip(layout.block_map, sizes[rank:], strict=True))
    # A step along a dimension that has blocks is a whole block.
    steps = [stride * blocks.get(axis, 1) for axis, stride in enumerate(strides)]
    steps += [strides[axis] for axis in layout.block_map]
    places = np.zeros(1, np.int64)
    for dimension, level in zip(layout.order, layout.levels, strict=True):
        size = sizes[dimension]
        if level.Format() == tflite.DimensionType.DENSE:
            if level.DenseSize() != size:
                raise layout.fail(
                    f"has a dense dimension of {level.DenseSize()} where its shape has {size}"
                )
            # Either each has a segment of the file, or an element.
            if places.size * size > max(stored, MAX_NUMBERS):
                raise layout.fail(f"has only {stored:,} elements, fewer than its dimensions need")
            parents, indices = np.repeat(places, size), np.tile(np.arange(size), places.size)
        elif level.Format() == tflite.DimensionType.SPARSE_CSR:
            counts, indices = _segments(layout, level, places.size, size, budget)
            parents = np.repeat(places, counts)
        else:
            raise layout.fail(f"has a dimension of format {level.Format()}, which nobody knows")
        places = parents + indices * steps[dimension]
    return places


def _segments(
    layout: _Layout, level: Any, parents: int, size: int, budget: Budget
) -> tuple[Integers, Integers]:
    """How many indices each element of the outer dimension has, and all these indices."""
    segments = _vector(layout, level.ArraySegmentsType(), level.ArraySegments(), budget)
    indices = _vector(layout, level.ArrayIndicesType(), level.ArrayIndices(), budget)
    counts = np.diff(segments)
    if segments.size != parents + 1 or segments[0] != 0 or bool((counts < 0).any()):
        raise layout.fail(
            f"needs {parents + 1} segments from 0 upwards in a compressed dimension, but has "
            f"{segments.size}" + (f" from {segments[0]} to {segments[-1]}" if segments.size else "")
        )
    if segments[-1] != indices.size:
        raise layout.fail(
            f"has {indices.size} indices in a compressed dimension whose segments end at "
            f"{segments[-1]}"
        )
    if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < size:
        wrong = indices[(indices < 0) | (indices >= size)][0]
        raise layout.fail(f"has the index {wrong} in a compressed dimension of {size}")
    places, times = np.unique(
        np.repeat(np.arange(parents) * size, counts) + indices, return_counts=True
    )
    if bool((times > 1).any()):
        twice = places[times > 1][0] % size
        raise layout.fail(f"has the index {twice} twice in a segment of a compressed dimension")
    return counts, indices


def _vector(layout: _Layout, kind: int, table: Any, budget: Budget) -> Integers:
    """A list of integers, of any of its types."""
    if table is None or kind not in _VECTORS:
        raise layout.fail("has a compressed dimension without its lists")
    vector = _VECTORS[kind]()
    vector.Init(table.Bytes, table.Pos)
    values = array_of(vector.ValuesAsNumpy())
    budget.take(values.size, f"tensor '{layout.name}'")
    return values.astype(np.int64)
