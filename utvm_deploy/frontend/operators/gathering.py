"""Importing what takes elements by their positions, or finds or marks positions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from utvm_deploy.frontend.files.source import SourceOperator
from utvm_deploy.frontend.files.supported_operator import (
    EQUAL,
    MOVED,
    MOVED_OR_TRUE,
    SupportedOperator,
)
from utvm_deploy.frontend.operators.layout import ends, taken
from utvm_deploy.frontend.operators.operands import (
    axis_of,
    made,
    movable,
    parameter,
    scalar_parameter,
)
from utvm_deploy.graph.attribute_values import Shape
from utvm_deploy.graph.attributes import Gather, OneHot, Rearrange, TopPositions, UpdateSlice
from utvm_deploy.graph.model import Array, Operator, Tensor


def import_gather(op: SourceOperator) -> Operator:
    """GATHER of positions along one dimension, or of other ones for every batch."""
    x, _ = ends(op)
    axis = axis_of(op, op.integer("Axis"), len(x.shape))
    batches, rank = op.integer("BatchDims"), len(op.input(1).shape)
    batches += rank if batches < 0 else 0
    if not 0 <= batches <= min(axis, rank):
        raise op.damaged(f"its {batches} batch dimensions are not before its axis {axis}")
    if op.input(1).data is None:
        return _gathered(op, 0, 1, Gather(axis, batches))
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
    return _gathered(op, 1, 0, Gather(0, 0))


def import_update_slice(op: SourceOperator) -> Operator:
    """DYNAMIC_UPDATE_SLICE, whose places may be constant or computed."""
    x, _ = ends(op)
    part = op.input(1)
    if (part.dtype, part.quantization) != (x.dtype, x.quantization):
        raise op.unsupported(
            f"'{part.name}' differs from '{x.name}' in type or quantization; they must be equal"
        )
    _indices(op, 2)
    return made(op, op.inputs[:3], UpdateSlice())


def import_one_hot(op: SourceOperator) -> Operator:
    """ONE_HOT of constant depth; the reference ignores quantization and copies stored values."""
    indices, on, off, out = _indices(op, 0), op.input(2), op.input(3), op.output()
    if out.dtype not in _MARKED or {on.dtype, off.dtype} != {out.dtype}:
        raise op.unsupported(
            f"it makes {out.dtype} of {on.dtype} and {off.dtype}; only {', '.join(_MARKED)}, "
            "all the same, are supported"
        )
    for value in (on, off):
        if math.prod(value.shape) != 1:
            raise op.damaged(f"its value '{value.name}' has shape {value.shape}, not one element")
    depth = scalar_parameter(op, 1, "depth")
    rank, axis = len(indices.shape), op.integer("Axis")
    if not -1 <= axis <= rank:
        raise op.damaged(f"its axis {axis} is neither -1 nor one of its output's dimensions")
    attributes = OneHot(rank if axis == -1 else axis, depth)
    return made(op, (op.inputs[0], *op.inputs[2:4]), attributes)


def _indices(op: SourceOperator, position: int) -> Tensor:
    """The input at a position, which holds indices; they may be constant or computed."""
    indices = op.input(position)
    if indices.dtype not in ("int32", "int64"):
        raise op.unsupported(
            f"its indices '{indices.name}' are {indices.dtype}; only int32 and int64 are supported"
        )
    return indices


def _gathered(op: SourceOperator, source: int, indices: int, attributes: Gather) -> Operator:
    """Gather from input number ``source`` by the indices in input number ``indices``."""
    _indices(op, indices)
    return made(op, (op.inputs[source], op.inputs[indices]), attributes)


def import_top(op: SourceOperator) -> tuple[Operator, Operator]:
    """TOPK_V2 of constant count: the positions, and a GATHER of the elements there."""
    x = movable(op, op.input(0))
    if len(op.outputs) != _TOP_OUTPUTS:
        raise op.damaged(f"it has {len(op.outputs)} outputs instead of {_TOP_OUTPUTS}")
    if not x.shape:
        raise op.damaged(f"its input '{x.name}' is a single number; it works on rows")
    values, positions = (op.tensors[number] for number in op.outputs)
    if positions.dtype != "int32":
        raise op.unsupported(
            f"its positions '{positions.name}' are {positions.dtype}; only int32 is supported"
        )
    if (values.dtype, values.quantization) != (x.dtype, x.quantization):
        raise op.unsupported(
            f"its values '{values.name}' differ from '{x.name}' in type or quantization; they "
            "must be equal"
        )
    count, last = scalar_parameter(op, 1, "k"), len(x.shape) - 1
    if not 1 <= count <= x.shape[last]:
        raise op.damaged(f"its k is {count}, but its rows have {x.shape[last]} elements")
    found = replace(made(op, op.inputs[:1], TopPositions(count)), outputs=op.outputs[1:])
    taken_there = Operator(
        "GATHER", (op.inputs[0], op.outputs[1]), op.outputs[:1], Gather(last, last), (op.index,)
    )
    return found, taken_there


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


#: TOPK_V2 makes values and positions.
_TOP_OUTPUTS = 2
#: Types of what ONE_HOT makes; the reference has no int16.
_MARKED = ("int8", "uint8", "int32", "int64", "float32", "bool")

#: What this module imports.
OPERATORS: Mapping[str, SupportedOperator] = {
    "DYNAMIC_UPDATE_SLICE": SupportedOperator(
        import_update_slice,
        MOVED,
        f"{EQUAL}; places of int32 or int64, those from which the part would reach outside as the "
        "nearest",
    ),
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
    "ONE_HOT": SupportedOperator(
        import_one_hot, _MARKED, "constant depth; indices of int32 or int64"
    ),
    "TOPK_V2": SupportedOperator(
        import_top,
        MOVED,
        f"constant k; positions of int32; what is not a number comes last; {EQUAL}",
    ),
}
