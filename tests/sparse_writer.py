"""Writes constants without their zeros, in any order of dimensions and with any blocks."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tflite

from utvm_deploy.frontend.qdq.tflite_write import Serializer

#: The operators whose weights are pruned.
_PRUNED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
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


def prune(model: Any, *, stores_zeros: bool = False) -> None:
    """Make zeros of most int8 weights, and store half of such tensors without them.

    ``stores_zeros``: the same weights, with all zeros.
    """
    for number in {op.inputs[1] for op in model.operators if op.kind in _PRUNED}:
        weights = model.tensors[number]
        if weights.dtype != "int8" or weights.data is None:
            continue
        rng = np.random.default_rng(zlib.crc32(weights.data))
        values = np.frombuffer(weights.data, np.int8).reshape(weights.shape)
        block = int(rng.choice([one for one in (1, 4) if weights.shape[-1] % one == 0]))
        kept = (*weights.shape[:-1], weights.shape[-1] // block)
        is_kept = rng.random(kept) >= rng.uniform(0.6, 1.0)
        values = values * np.repeat(is_kept, block, axis=-1)
        weights.data = values.astype(np.int8).tobytes()
        rank = values.ndim
        blocks = {rank - 1: block} if block > 1 else {}
        order = rng.permutation(rank).tolist() + list(range(rank, rank + len(blocks)))
        compressed = [one for one in range(rank) if rng.random() < 0.5]
        if rng.random() < 0.5 and not stores_zeros:
            stored = sparsified(values.astype(np.int8), compressed, blocks, order)
            weights.sparsity, weights.data = stored
