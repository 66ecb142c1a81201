"""Batches of tensors whose first dimension the file does not know.

Converters write 1 for a dimension that is only known at runtime, and -1 into the shape signature.
For most tensors 1 is what a batch of 1 makes. SPACE_TO_BATCH_ND, which dilated convolutions over
time have, makes a larger batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from utvm_deploy.frontend.files.source import SourceOperator
from utvm_deploy.graph.model import Tensor

_BLOCKS = {"SPACE_TO_BATCH_ND": 1, "BATCH_TO_SPACE_ND": -1}
#: Larger batches are those of damaged files.
_MOST_BATCH = 1 << 16


def with_known_batches(
    tensors: tuple[Tensor, ...],
    operators: Sequence[SourceOperator],
    signatures: Sequence[Sequence[int]],
) -> tuple[Tensor, ...]:
    """The tensors with the batches that operators make of the batch of the input.

    ``signatures`` has the shape signature of each tensor, or nothing. Only a first dimension of -1
    changes.
    """
    factors: dict[int, Fraction] = {}
    for op in operators:
        given = [factors[one] for one in op.inputs if one is not None and one in factors]
        factor = given[0] if given else Fraction(1)
        if op.kind in _BLOCKS:
            blocks = tensors[op.inputs[1]].data if len(op.inputs) > 1 and op.inputs[1] else None
            if blocks is None:
                continue
            factor *= Fraction(max(math.prod(blocks.reshape(-1).tolist()), 1)) ** _BLOCKS[op.kind]
        if factor != 1:
            factors |= dict.fromkeys(op.outputs, factor)
    made = list(tensors)
    for number, factor in factors.items():
        shape, signature = tensors[number].shape, signatures[number]
        if not shape or len(signature) != len(shape) or signature[0] != -1:
            continue
        batch = shape[0] * factor
        if batch.denominator == 1 and batch <= _MOST_BATCH:
            made[number] = replace(tensors[number], shape=(int(batch), *shape[1:]))
    return tuple(made)


def with_open_extents(tensor: Tensor, signature: Sequence[int]) -> Tensor:
    """The tensor with -1 for the extents that its signature leaves open."""
    if tensor.data is not None or len(signature) != len(tensor.shape):
        return tensor
    pairs = zip(tensor.shape, signature, strict=True)
    return replace(tensor, shape=tuple(-1 if open_ == -1 else extent for extent, open_ in pairs))
