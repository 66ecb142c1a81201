"""Importing what takes elements or rows by their positions, constant or computed."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from utvm_deploy.frontend.layout import ends, taken
from utvm_deploy.frontend.operands import axis_of, made, movable, parameter
from utvm_deploy.frontend.source import SourceOperator
from utvm_deploy.frontend.supported_operator import EQUAL, MOVED, MOVED_OR_TRUE, SupportedOperator
from utvm_deploy.graph.attributes import Gather, Rearrange, Shape
from utvm_deploy.graph.model import Array, Operator


def import_gather(op: SourceOperator) -> Operator:
    """GATHER of positions along one dimension, or of other ones for every batch."""
    x, _ = ends(op)
    axis = axis_of(op, op.integer("Axis"), len(x.shape))
    batches, rank = op.integer("BatchDims"), len(op.input(1).shape)
    batches += rank if batches < 0 else 0
    if not 0 <= batches <= min(axis, rank):
        raise op.damaged(f"its {batches} batch dimensions are not before its axis {axis}")
    if op.input(1).data is None:
        return _gathered(op, (op.inputs[0], op.inputs[1]), Gather(axis, batches))
    positions = parameter(op, 1, "indices")
    extent = x.shape[axis]
    if positions.size == 0 or positions.min() < 0 or positions.max() >= extent:
        raise op.damaged(f"its indices are not within the {extent} elements of dimension {axis}")
    if batches == 0:
        indices = [tuple(range(d)) for d in x.shape]
        indices[axis] = tuple(int(i) for i in positions.reshape(-1))
        shape = (*x.shape[:axis], *positions.shape, *x.shape[axis + 1 :])
        return taken(op, x, indices, shape)
    if positions.shape[:batches] != x.shape[:batches]:
        raise op.damaged(
            f"its {batches} batch dimensions do not fit {x.shape} and indices {positions.shape}"
        )
    if batches != axis:
        raise op.unsupported(
            f"its axis {axis} is not the one behind its {batches} batch dimensions"
        )
    count = math.prod(x.shape[:axis])
    starts = np.arange(count)[:, None] * extent
    flat = (positions.reshape(count, -1) + starts).reshape(-1)
    return _of_rows(op, axis + 1, flat, (*positions.shape, *x.shape[axis + 1 :]))


def import_embedding_lookup(op: SourceOperator) -> Operator:
    """EMBEDDING_LOOKUP: rows of a table, by their numbers."""
    table, out = movable(op, op.input(1)), movable(op, op.output())
    if table.dtype != out.dtype or table.quantization != out.quantization:
        raise op.unsupported(f"it makes {out.dtype} of '{table.name}', quantized otherwise")
    return _gathered(op, (op.inputs[1], op.inputs[0]), Gather(0, 0))


def _gathered(
    op: SourceOperator, inputs: tuple[int | None, int | None], attributes: Gather
) -> Operator:
    """By positions that are not known yet."""
    assert inputs[1] is not None
    positions = op.tensors[inputs[1]]
    if positions.dtype not in ("int32", "int64"):
        raise op.unsupported(f"its indices '{positions.name}' are {positions.dtype}")
    return made(op, inputs, attributes)


def import_gather_nd(op: SourceOperator) -> Operator:
    """GATHER_ND: what constant places hold, each of them one number for every leading dimension."""
    x, _ = ends(op)
    places = parameter(op, 1, "indices")
    count = places.shape[-1] if places.shape else 0
    if not 1 <= count <= len(x.shape):
        raise op.damaged(f"its indices of shape {places.shape} are none into {x.shape}")
    leading = x.shape[:count]
    if places.size == 0 or (places < 0).any() or (places >= np.array(leading)).any():
        raise op.damaged(f"its indices are not within the dimensions {leading}")
    flat = np.ravel_multi_index(tuple(places.reshape(-1, count).T), leading)
    return _of_rows(op, count, np.asarray(flat), (*places.shape[:-1], *x.shape[count:]))


def _of_rows(op: SourceOperator, leading: int, rows: Array, shape: Shape) -> Operator:
    """Some of what the leading dimensions, as one, hold."""
    x = op.input(0)
    view = (math.prod(x.shape[:leading]), *x.shape[leading:])
    indices = (tuple(int(row) for row in rows), *(tuple(range(d)) for d in view[1:]))
    return made(op, op.inputs[:1], Rearrange(view, indices, tuple(range(len(view))), tuple(shape)))


#: What this module imports.
OPERATORS: Mapping[str, SupportedOperator] = {
    "EMBEDDING_LOOKUP": SupportedOperator(
        import_embedding_lookup,
        MOVED,
        f"{EQUAL}; indices of int32, those out of range as in GATHER",
    ),
    "GATHER": SupportedOperator(
        import_gather,
        MOVED_OR_TRUE,
        "computed indices, those out of range (where the reference stops) as the nearest; constant "
        "ones with BatchDims 0 or equal to Axis",
    ),
    "GATHER_ND": SupportedOperator(import_gather_nd, MOVED, "constant indices"),
}
