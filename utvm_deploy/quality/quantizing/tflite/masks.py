"""Scores of attention in a float model, and the masks that hide some of them.

A mask adds a huge negative number to a score, or replaces it by one. Softmax makes 0 of it. The
range of the scores leaves it out, so that those that count keep fine steps.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.graph.model import Array

#: What a mask holds at least. Of more, the integers of ADD would lose the scores.
_HIDDEN = -1000.0
#: No score is so far from zero: what is comes from a mask.
_MOST_SCORE = 9_999.0
#: Operators that only move what hides, or that add or multiply.
_PASSING = frozenset(
    (
        *("BROADCAST_TO", "CONCATENATION", "EXPAND_DIMS", "GATHER", "PAD", "RESHAPE", "SLICE"),
        *("SPLIT", "SPLIT_V", "SQUEEZE", "STRIDED_SLICE", "TILE", "TRANSPOSE", "UNPACK"),
        *("ADD", "MUL", "SELECT", "SELECT_V2", "SUB"),
    )
)
_Name = TypeVar("_Name", bound=Hashable)
#: A tensor -> the kind and the outputs of each operator that reads it, and of the model.
Readers: TypeAlias = "Mapping[_Name, Sequence[tuple[str, Sequence[_Name]]]]"


def hides_for(readers: Readers[_Name], passing: frozenset[str]) -> Callable[[_Name], bool]:
    """Whether only softmax takes what a tensor holds, directly or by operators in ``passing``.

    ``SOFTMAX`` is the kind of a softmax along the last dimension.
    """
    known: dict[_Name, bool] = {}

    def is_for_softmax(name: _Name) -> bool:
        if name not in known:
            found = readers.get(name, ())
            known[name] = bool(found) and all(
                kind == "SOFTMAX" or (kind in passing and all(map(is_for_softmax, made)))
                for kind, made in found
            )
        return known[name]

    return is_for_softmax


def kinds_of(
    readers: Readers[_Name], passing: frozenset[str]
) -> tuple[frozenset[_Name], frozenset[_Name]]:
    """The tensors that only softmax reads, and those that may hold a mask for it."""
    scores, masks = hides_for(readers, frozenset()), hides_for(readers, passing)
    return frozenset(filter(scores, readers)), frozenset(filter(masks, readers))


def limited(mask: Array) -> Array:
    """The elements of a mask, of which the huge ones are as near to zero as hides a score."""
    is_huge = (np.abs(mask) > _MOST_SCORE) & np.isfinite(mask)
    return np.where(is_huge, np.copysign(np.float32(_HIDDEN), mask), mask)


def least_top(scores: Array) -> float:
    """The least of the largest scores of each row, except for rows that a mask hides."""
    tops = scores.max(-1)
    counting = tops[tops > _HIDDEN / 2]
    return float((counting if counting.size else tops).min())


def limited_constant(mask: Array) -> Array | None:
    """A constant mask, as near to zero as hides a score; None if it is so already."""
    made: Array = np.maximum(limited(mask), np.float32(_HIDDEN))
    return None if np.array_equal(made, mask) else made


def scores_of(data: bytes) -> tuple[frozenset[str], frozenset[str]]:
    """The names of the tensors that only softmax reads, and of those that may hold a mask."""
    model = schema.read_model(data)
    scores, masks = (
        frozenset(schema.name_of(model, number) for number in numbers)
        for numbers in kinds_of(_readers(model), _PASSING)
    )
    return scores, masks


def limit_masks(model: Any) -> None:
    """Raise constants to the least that a mask needs, if they are used in scores only, in place."""
    is_mask = hides_for(_readers(model), _PASSING)
    for number, tensor in enumerate(model.subgraphs[0].tensors):
        array: Any = schema.constant(model, tensor) if tensor.type == schema.FLOAT32 else None
        if array is not None and is_mask(number):
            made = limited_constant(array)
            if made is not None:
                schema.set_constant(model, tensor, made)


def _readers(model: Any) -> dict[int, list[tuple[str, list[int]]]]:
    """A tensor -> the kind and the outputs of each operator that reads it, and of the model."""
    found: dict[int, list[tuple[str, list[int]]]] = {}
    graph = model.subgraphs[0]
    for operator in graph.operators:
        made = schema.kind_of(model, operator), schema.numbers(operator.outputs)
        for number in set(schema.numbers(operator.inputs)):
            found.setdefault(number, []).append(made)
    for number in schema.numbers(graph.outputs):
        found.setdefault(number, []).append(("", []))
    return found
