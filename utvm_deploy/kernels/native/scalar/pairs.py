"""Two products by one multiplication: the weights of two channels in one word.

A word is w0 + 2**16 * w1. Times x, it has x * w0 in its lower half and x * w1 in its upper half.
Such words are summed up as long as both sums fit 16 bits, for any x of int8. These products are a
*chunk*. A sum of the lower half that is negative would borrow from the upper half, so each chunk
begins with 2**15. The halves then go to two sums of 32 bits, and the bias takes the 2**15 off.

The weights decide how long a chunk may be. All channels of a group have the same chunks. Chunks
consist of whole units, which the inner loop multiplies in one turn. Chunks of units of one have no
loop (``steps.py``).

Layouts, for channel o = C group + slot, C even:
    weights  int32 [group][chunk][header, depth of the chunk x C / 2 words]

The first byte of a header is the chunk's units. A header of 0 ends the chunks of a group.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.requantization import INT8_MAX, INT8_MIN
from utvm_deploy.kernels.native.by_content import by_content
from utvm_deploy.kernels.native.micro_kernel import by_groups
from utvm_deploy.kernels.native.scalar import steps

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
        starts = _starts(weights, unit, channels)
        if starts is not None:
            chunks, loop = int(starts.sum()), 4 if unit > 1 else 0
            count = starts.size * (17 * unit + loop) + 26 * chunks
            found.append(Pairing(unit, count / (12 * starts.size * unit)))
    return min(found, key=lambda one: one.instructions, default=None)


def packed(weights: Array, unit: int, channels: int) -> tuple[Array, Wide]:
    """[channels, depth] -> the table of weights, and the number of chunks of each group."""
    depth = weights.shape[1]
    groups = by_groups(weights.T, channels)  # [group, depth, slot]
    starts = _starts(weights, unit, channels)
    assert starts is not None
    halves = groups.astype(np.int64).reshape(len(groups), depth, channels // 2, 2)
    words = (halves[..., 0] + (halves[..., 1] << 16)).astype(np.int32)
    parts: list[Array] = []
    for own, first in zip(words, starts, strict=True):
        begins = np.flatnonzero(first)
        lengths = np.diff(np.append(begins, first.size))
        for begin, length in zip(begins * unit, lengths, strict=True):
            header = steps.header(int(length)) if unit == 1 else length
            parts += [np.array([header]), own[begin : begin + length * unit].reshape(-1)]
        parts.append(np.zeros(1))
    table = np.concatenate(parts).astype(np.int32)
    return table, starts.sum(axis=1, dtype=np.int64)


def chunk_count(weights: Array, unit: int, channels: int) -> int:
    """Chunks of all groups, if the unit fits."""
    starts = _starts(weights, unit, channels)
    return 0 if starts is None else int(starts.sum())


def _starts(weights: Array, unit: int, channels: int) -> NDArray[np.bool_] | None:
    return chunk_starts(weights, unit, channels, steps.MOST if unit == 1 else _MOST_UNITS)


@by_content
def chunk_starts(
    weights: Array, unit: int, channels: int, most: int = _MOST_UNITS
) -> NDArray[np.bool_] | None:
    """Whether a chunk begins at each unit of each group; None if a unit does not fit.

    A chunk takes as many units as fit, and at most ``most``.
    """
    wide = np.pad(weights.astype(np.int64), ((0, -len(weights) % channels), (0, 0)))
    wide = np.pad(wide, ((0, 0), (0, -wide.shape[1] % unit)))
    ends = np.stack([wide * INT8_MIN, wide * INT8_MAX])
    ends = np.stack([ends.min(axis=0), ends.max(axis=0)])
    ends = ends.reshape(2, -1, channels, wide.shape[1] // unit, unit).sum(axis=4)
    if not _fits(ends).all():
        return None
    starts = np.zeros((ends.shape[1], ends.shape[3]), dtype=np.bool_)
    sums, lengths = np.zeros_like(ends[..., 0]), np.full(len(starts), most)
    for number in range(ends.shape[3]):
        sums += ends[..., number]
        begins = (lengths == most) | ~_fits(sums).all(axis=1)
        starts[:, number] = begins
        sums = np.where(begins[:, None], ends[..., number], sums)
        lengths = np.where(begins, 1, lengths + 1)
    return starts


def _fits(ends: Wide) -> NDArray[np.bool_]:
    """Whether sums fit 16 bits; ``ends``: the smallest, then the largest of each."""
    fits: NDArray[np.bool_] = (ends[0] >= -RAISED) & (ends[1] < RAISED)
    return fits
