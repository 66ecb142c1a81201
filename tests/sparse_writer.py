"""Writes constants without their zeros, in any order of dimensions and with any blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tflite

from utvm_deploy.frontend.qdq.tflite_write import Serializer

_TYPES = {np.int32: "Int32Vector", np.uint16: "Uint16Vector", np.uint8: "Uint8Vector"}


@dataclass(frozen=True)
class Sparsity:
    """What SparsityParameters say; a level is the size of a dense one, or segments and indices."""

    order: Sequence[int]
    block_map: Sequence[int]
    levels: Sequence[int | tuple[Sequence[int], Sequence[int]]]
    index: Any = np.uint8  # the type of the lists
    formats: Sequence[int] = ()  # others than those of the levels

    def written(self, s: Serializer) -> int:
        """The table."""
        levels = [self._level(s, n, one) for n, one in enumerate(self.levels)]
        fields = {
            "TraversalOrder": s.numbers(self.order, np.int32),
            "BlockMap": s.numbers(self.block_map, np.int32),
            "DimMetadata": s._offsets(levels),
        }
        return s._table("SparsityParameters", fields)

    def _level(
        self, s: Serializer, number: int, level: int | tuple[Sequence[int], Sequence[int]]
    ) -> int:
        form = int(not isinstance(level, int))
        fields: dict[str, Any] = {"Format": self.formats[number] if self.formats else form}
        if isinstance(level, int):
            return s._table("DimensionMetadata", {**fields, "DenseSize": level})
        for name, values in zip(("ArraySegments", "ArrayIndices"), level, strict=True):
            kind = _TYPES[self.index]
            fields[f"{name}Type"] = getattr(tflite.SparseIndexVector, kind)
            fields[name] = s._table(kind, {"Values": s.numbers(values, self.index)})
        return s._table("DimensionMetadata", fields)


def sparsified(
    values: np.ndarray,
    compressed: Sequence[int],
    blocks: dict[int, int] | None = None,
    order: Sequence[int] = (),
    index: Any = np.uint16,
) -> tuple[Sparsity, bytes]:
    """How to store an array: ``blocks`` has the sizes of blocks by dimension.

    ``order`` has the dimensions and then the blocks; ``compressed`` are some of them.
    """
    blocks, rank = blocks or {}, values.ndim
    split: list[int] = []
    axes = {}
    for axis, size in enumerate(values.shape):
        axes[axis] = len(split)
        split += [size // blocks.get(axis, 1)]
        if axis in blocks:
            axes[rank + list(blocks).index(axis)] = len(split)
            split += [blocks[axis]]
    order = order or range(len(axes))
    nodes = [values.reshape(split).transpose([axes[one] for one in order])]
    levels: list[int | tuple[list[int], list[int]]] = []
    for dimension in order:
        if dimension not in compressed:
            levels.append(nodes[0].shape[0] if nodes else split[axes[dimension]])
            nodes = [one[i] for one in nodes for i in range(one.shape[0])]
            continue
        segments, indices, inner = [0], list[int](), []
        for one in nodes:
            found = np.flatnonzero(one.reshape(one.shape[0], -1).any(axis=1))
            indices += found.tolist()
            segments.append(len(indices))
            inner += [one[i] for i in found]
        levels.append((segments, indices))
        nodes = inner
    stored = np.array(nodes, values.dtype)
    return Sparsity(order, list(blocks), levels, index), stored.tobytes()
