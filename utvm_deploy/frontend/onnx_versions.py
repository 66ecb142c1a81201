"""Operators of old ONNX versions in the terms of today's."""

from __future__ import annotations

import math
from collections.abc import MutableMapping
from dataclasses import replace

import numpy as np

from utvm_deploy.frontend.qdq import Array, Node

#: Before these versions, the operators meant something else.
_SOFTMAX_BY_AXIS, _RESIZE_BY_COORDINATES = 13, 11

Shapes = MutableMapping[str, tuple[int, ...] | None]


def in_terms_of_today(
    node: Node, version: int, shapes: Shapes, constants: MutableMapping[str, Array]
) -> list[Node]:
    """The nodes that do today what this one does in that version of ONNX.

    New tensors get their shapes, and new constants their values, in the two tables.
    """
    if version < _RESIZE_BY_COORDINATES and node.kind in ("Resize", "Upsample"):
        old = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return [replace(node, attributes={**old, **node.attributes})]
    if version < _SOFTMAX_BY_AXIS and node.kind in ("Softmax", "LogSoftmax") and node.inputs:
        return _softmax_of_rows(node, shapes, constants)
    return [node]


def _softmax_of_rows(
    node: Node, shapes: Shapes, constants: MutableMapping[str, Array]
) -> list[Node]:
    """All dimensions from the axis on were one row."""
    shape = shapes.get(node.inputs[0])
    axis = node.integer("axis", 1)
    rank = len(shape or ())
    if shape is None or not -rank <= axis <= rank:
        raise node.damaged(f"its axis {axis} is not a dimension of {shape}")
    axis = axis + rank if axis < 0 else axis
    wide = [place for place in range(axis, rank) if shape[place] > 1]
    if len(wide) <= 1 and rank:
        only = wide[0] if wide else rank - 1
        return [replace(node, attributes={**node.attributes, "axis": only})]
    name = node.outputs[0]
    rows = (math.prod(shape[:axis]), math.prod(shape[axis:]))
    flat, made = f"{name}_rows_of_input", f"{name}_rows"
    shapes.update({flat: rows, made: rows})
    constants[f"{flat}_shape"] = np.array(rows, np.int64)
    constants[f"{name}_shape"] = np.array(shape, np.int64)
    return [
        Node(node.index, "Reshape", (node.inputs[0], f"{flat}_shape"), (flat,)),
        Node(node.index, node.kind, (flat,), (made,), {**node.attributes, "axis": 1}),
        Node(node.index, "Reshape", (made, f"{name}_shape"), node.outputs),
    ]
