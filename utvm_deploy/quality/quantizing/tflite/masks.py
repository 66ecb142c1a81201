"""Scores of attention in a float .tflite file, and the masks that hide some of them.

A mask adds a huge negative number to a score, or replaces it by one. Softmax makes 0 of it. The
range of the scores leaves it out, so that those that count keep fine steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from utvm_deploy.frontend.files import tflite_schema as schema

#: What a mask holds at least. Of more, the integers of ADD would lose the scores.
_HIDDEN = -1000.0
#: Operators that only move what hides, or that add or multiply.
_PASSING = frozenset(
    (
        *("BROADCAST_TO", "CONCATENATION", "EXPAND_DIMS", "GATHER", "PAD", "RESHAPE", "SLICE"),
        *("SPLIT", "SPLIT_V", "SQUEEZE", "STRIDED_SLICE", "TILE", "TRANSPOSE", "UNPACK"),
        *("ADD", "MUL", "SELECT", "SELECT_V2", "SUB"),
    )
)


def scores_of(data: bytes) -> frozenset[str]:
    """The names of the tensors that only softmax reads."""
    model = schema.read_model(data)
    readers = _readers(model)
    return frozenset(
        schema.name_of(model, number)
        for number, found in readers.items()
        if {kind for kind, _ in found} == {"SOFTMAX"}
    )


def limit_masks(model: Any) -> None:
    """Raise constants to the least that a mask needs, if they are used in scores only, in place."""
    readers = _readers(model)
    hides: dict[int, bool] = {}

    def is_for_softmax(number: int) -> bool:
        if number not in hides:
            found = readers.get(number, [])
            hides[number] = bool(found) and all(
                kind == "SOFTMAX" or (kind in _PASSING and all(map(is_for_softmax, made)))
                for kind, made in found
            )
        return hides[number]

    for number, tensor in enumerate(model.subgraphs[0].tensors):
        array: Any = schema.constant(model, tensor) if tensor.type == schema.FLOAT32 else None
        if array is not None and np.any(array < _HIDDEN) and is_for_softmax(number):
            schema.set_constant(model, tensor, np.maximum(array, np.float32(_HIDDEN)))


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
