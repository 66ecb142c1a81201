"""Weights of which most are zeros, packed without loss. Only the others are multiplied.

There are three forms of a matrix [outputs, inputs]:

    bitmap  a bit for each weight, which says whether it is stored; rows begin at words
    blocks  four neighbours in a row, if one of them is not zero
    list    single weights

A block, or a weight of a list, has a byte: how far it is behind the one before it in the row, in
blocks. The first one's counts from the begin of the row. Farther ones get zeros between them.

``VECTORS`` is for cores that gather four blocks at once. A block has its place in the row, and each
row is filled up to fours of blocks with zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from utvm_deploy.graph.model import Array

#: Weights of a block, and of an item of a list.
ITEMS = {"blocks": 4, "list": 1, "vectors": 4}
BITMAP, VECTORS = "bitmap", "vectors"
FORMS = (BITMAP, "blocks", "list")
#: Blocks of a vector; one past the steps is read, too.
LANES = 4
#: Weights are packed with at least this share of zeros, rounded to a percent, and if that saves
#: this many bytes: the code that multiplies them takes about as many.
LEAST_ZEROS, LEAST_SAVED = 0.6, 512
WORD_BITS = 32
_FARTHEST = 255


@dataclass(frozen=True, eq=False)
class Packed:
    """A packed matrix."""

    form: str
    weights: Array  # int8, what is stored of each row, one after the other
    steps: Array  # bitmap: uint32 [outputs, words], the first weight highest; else uint8 [items]
    counts: Array  # uint16 [outputs]: the items of each row; of a bitmap, nothing reads them

    @property
    def table_bytes(self) -> int:
        """Bytes of flash."""
        counts = 0 if self.form == BITMAP else self.counts.nbytes
        return self.weights.nbytes + self.steps.nbytes + counts


def packed(weights: Array, form: str) -> Packed | None:
    """The int8 matrix in a form; None if the form does not fit its shape."""
    if form == BITMAP:
        return _bitmap(weights)
    if form == VECTORS:
        return _vectors(weights)
    size = ITEMS[form]
    return None if weights.shape[1] % size else _items(weights, form, size)


def smallest(weights: Array, *, gathers: bool = False) -> Packed | None:
    """The smallest form (``gathers``: VECTORS for blocks); None if packing is not worth it."""
    if weights.nbytes < LEAST_SAVED or round(float(np.mean(weights == 0)), 2) < LEAST_ZEROS:
        return None
    found = [one for one in (packed(weights, form) for form in FORMS) if one is not None]
    best = min(found, key=lambda one: one.table_bytes)
    wide = _vectors(weights) if gathers and best.form == "blocks" else None
    if wide is not None and wide.table_bytes + LEAST_SAVED <= weights.nbytes:
        return wide
    return best if best.table_bytes + LEAST_SAVED <= weights.nbytes else None


def pruned_bytes(outputs: int, inputs: int, zeros: float) -> int:
    """About the bytes of weights of this shape after pruning, at most those of all weights.

    ``zeros`` is the share of blocks of four that are zeros, or of weights where rows have no whole
    blocks.
    """
    size = ITEMS["list"] if inputs % ITEMS["blocks"] else ITEMS["blocks"]
    items = round((1 - zeros) * outputs * inputs / size)
    found = items * (size + 1) + 2 * outputs
    return found if found + LEAST_SAVED <= outputs * inputs else outputs * inputs


def _bitmap(weights: Array) -> Packed:
    outputs, inputs = weights.shape
    words = -(-inputs // WORD_BITS)
    is_kept = np.zeros((outputs, words * WORD_BITS), bool)
    is_kept[:, :inputs] = weights != 0
    bits = np.packbits(is_kept, axis=1).view(">u4").astype(np.uint32)
    counts = is_kept.sum(axis=1).astype(np.uint16)
    return Packed(BITMAP, _filled(weights[weights != 0]), bits.reshape(-1), counts)


def _items(weights: Array, form: str, size: int) -> Packed:
    outputs = weights.shape[0]
    items = weights.reshape(outputs, -1, size)
    steps, stored, counts = list[int](), list[Array](), list[int]()
    for row in items:
        before, count = 0, len(stored)
        for place in np.flatnonzero(row.any(axis=1)).tolist():
            while place - before > _FARTHEST:
                steps.append(_FARTHEST)
                stored.append(np.zeros(size, np.int8))
                before += _FARTHEST
            steps.append(place - before)
            stored.append(row[place])
            before = place
        counts.append(len(stored) - count)
    values = np.array(stored, np.int8).reshape(-1)
    numbers = np.array(counts, np.uint16)
    return Packed(form, _filled(values, size), _filled(np.array(steps, np.uint8)), numbers)


def _vectors(weights: Array) -> Packed | None:
    blocks = (
        weights.reshape(len(weights), -1, ITEMS[VECTORS]) if weights.shape[1] % 4 == 0 else None
    )
    if blocks is None or blocks.shape[1] > _FARTHEST + 1:
        return None
    steps, stored = list[Array](), list[Array]()
    for row in blocks:
        places = np.flatnonzero(row.any(axis=1))
        missing = -len(places) % LANES if len(places) else LANES
        steps.append(np.pad(places, (0, missing)).astype(np.uint8))
        stored.append(np.pad(row[places], ((0, missing), (0, 0))))
    counts = np.array([len(one) // LANES for one in steps], np.uint16)
    behind = np.zeros(LANES, np.uint8)
    return Packed(
        VECTORS, np.concatenate(stored).reshape(-1), np.concatenate([*steps, behind]), counts
    )


def _filled(values: Array, least: int = 1) -> Array:
    """At least some elements: C has no empty tables."""
    return values if values.size else np.zeros(least, values.dtype)
