"""Two products by one multiplication: the weights of two channels in one word.

A word is w0 + 2**16 * w1. Times x, it has x * w0 in its lower half and x * w1 in its upper half.
Such words are summed up as long as both sums fit 16 bits, for any x of int8. These products are a
*chunk*. A sum of the lower half that is negative would borrow from the upper half, so each chunk
begins with 2**15. The halves then go to two sums of 32 bits, and the bias takes the 2**15 off.

The weights decide how long a chunk may be. All channels of a group have the same chunks. Chunks
consist of whole units, which the inner loop multiplies in one turn.

Layouts, for channel o = C group + slot, C even:
    weights  int32 [group][length of each chunk in units, as bytes, then 0; depth x C / 2 words]
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.requantization import INT8_MAX, INT8_MIN
from utvm_deploy.kernels.native.by_content import by_content
from utvm_deploy.kernels.native.micro_kernel import by_groups

#: What a chunk of lower halves begins with.
RAISED = 1 << 15
#: Units of a chunk at most; its length is a byte.
_MOST_UNITS = 255
Wide: TypeAlias = NDArray[np.int64]


class Pairing(NamedTuple):
    """How the weights of a layer are paired."""

    unit: int
    instructions: float  # about those for a product, in a tile of 3 x 4


@by_content
def best_pairing(weights: Array, units: tuple[int, ...], channels: int) -> Pairing | None:
    """The unit that promises the fewest instructions; ``weights``: [channels, depth].

    None if the sums of no unit fit 16 bits.
    """
    found = []
    for unit in units:
        starts = chunk_starts(weights, unit, channels)
        if starts is not None:
            count = starts.size * (17 * unit + 4) + 26 * int(starts.sum())
            found.append(Pairing(unit, count / (12 * starts.size * unit)))
    return min(found, key=lambda one: one.instructions, default=None)


def group_words(depth: int, unit: int, channels: int) -> int:
    """Words of the weights of a group of channels; the depth is a multiple of the unit."""
    return _length_words(depth, unit) + depth * channels // 2


def packed(weights: Array, unit: int, channels: int) -> tuple[Array, Wide]:
    """[channels, depth] -> the table of weights, and the number of chunks of each group."""
    depth = weights.shape[1]
    groups = by_groups(weights.T, channels)  # [group, depth, slot]
    starts = chunk_starts(weights, unit, channels)
    assert starts is not None
    lengths = np.zeros((len(groups), 4 * _length_words(depth, unit)), dtype=np.uint8)
    for table, first in zip(lengths, starts, strict=True):
        found = np.diff(np.append(np.flatnonzero(first), first.size))
        table[: found.size] = found
    halves = groups.astype(np.int64).reshape(len(groups), depth, channels // 2, 2)
    words = (halves[..., 0] + (halves[..., 1] << 16)).astype(np.int32)
    table = np.concatenate([lengths.view(np.int32), words.reshape(len(groups), -1)], axis=1)
    return table.reshape(-1), starts.sum(axis=1, dtype=np.int64)


def _length_words(depth: int, unit: int) -> int:
    return (depth // unit + 1 + 3) // 4


@by_content
def chunk_starts(weights: Array, unit: int, channels: int) -> NDArray[np.bool_] | None:
    """Whether a chunk begins at each unit of each group; None if a unit does not fit.

    A chunk takes as many units as fit.
    """
    wide = np.pad(weights.astype(np.int64), ((0, -len(weights) % channels), (0, 0)))
    wide = np.pad(wide, ((0, 0), (0, -wide.shape[1] % unit)))
    ends = np.stack([wide * INT8_MIN, wide * INT8_MAX])
    ends = np.stack([ends.min(axis=0), ends.max(axis=0)])
    ends = ends.reshape(2, -1, channels, wide.shape[1] // unit, unit).sum(axis=4)
    if not _fits(ends).all():
        return None
    starts = np.zeros((ends.shape[1], ends.shape[3]), dtype=np.bool_)
    sums, lengths = np.zeros_like(ends[..., 0]), np.full(len(starts), _MOST_UNITS)
    for number in range(ends.shape[3]):
        sums += ends[..., number]
        begins = (lengths == _MOST_UNITS) | ~_fits(sums).all(axis=1)
        starts[:, number] = begins
        sums = np.where(begins[:, None], ends[..., number], sums)
        lengths = np.where(begins, 1, lengths + 1)
    return starts


def _fits(ends: Wide) -> NDArray[np.bool_]:
    """Whether sums fit 16 bits; ``ends``: the smallest, then the largest of each."""
    fits: NDArray[np.bool_] = (ends[0] >= -RAISED) & (ends[1] < RAISED)
    return fits
