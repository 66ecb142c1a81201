"""Operators of old ONNX versions in the terms of today's."""

from __future__ import annotations

import math
from collections.abc import MutableMapping
from dataclasses import replace
from typing import Any

import numpy as np

from utvm_deploy.base.errors import ModelError, last_words
from utvm_deploy.frontend.qdq.operators import Array, Node

#: Before these versions, the operators meant something else.
_DFT_BY_INPUT, _SOFTMAX_BY_AXIS, _RESIZE_BY_COORDINATES = 20, 13, 11

#: What Resize and Upsample did before their attributes said it.
_OLD_RESIZE = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
#: The first version whose DequantizeLinear has scales by channel.
BY_CHANNEL = 13

Shapes = MutableMapping[str, tuple[int, ...] | None]


def in_terms_of_today(
    node: Node, version: int, shapes: Shapes, constants: MutableMapping[str, Array]
) -> list[Node]:
    """The nodes that do today what this one does in that version of ONNX.

    New tensors get their shapes, and new constants their values, in the two tables.
    """
    if version < _RESIZE_BY_COORDINATES and node.kind in ("Resize", "Upsample"):
        return [replace(node, attributes={**_OLD_RESIZE, **node.attributes})]
    if version < _DFT_BY_INPUT and node.kind == "DFT":
        return [replace(node, attributes={"axis": 1, **node.attributes})]
    if version < _SOFTMAX_BY_AXIS and node.kind in ("Softmax", "LogSoftmax") and node.inputs:
        return _softmax_of_rows(node, shapes, constants)
    return [node]


def with_version(onnx: Any, proto: Any) -> Any:
    """The same model in a version of ONNX's operators that is at least ``BY_CHANNEL``.

    Raises ModelError if onnx cannot convert it.
    """
    version = _version(proto)
    if version >= BY_CHANNEL:
        return proto
    is_old = version < _RESIZE_BY_COORDINATES
    resized = [node for node in proto.graph.node if node.op_type in ("Resize", "Upsample")]
    try:
        made = onnx.version_converter.convert_version(proto, BY_CHANNEL)
    except Exception as exc:  # of many classes
        raise ModelError(
            f"onnx cannot convert it from version {version} of its operators to {BY_CHANNEL} "
            f"({last_words(exc)}); export it with opset {BY_CHANNEL} or above"
        ) from exc
    for node in made.graph.node if is_old and resized else ():
        if node.op_type == "Resize":
            # onnx leaves them out, which means other places now.
            node.attribute.extend(
                onnx.helper.make_attribute(name, value) for name, value in _OLD_RESIZE.items()
            )
    return made


def with_places_of_resizes(onnx: Any, proto: Any) -> Any:
    """The same model, whose resizes say which elements they read; they did not before version 11.

    Raises ModelError as ``with_version`` does.
    """
    is_resized = any(node.op_type in ("Resize", "Upsample") for node in proto.graph.node)
    is_old = is_resized and _version(proto) < _RESIZE_BY_COORDINATES
    return with_version(onnx, proto) if is_old else proto


def _version(proto: Any) -> int:
    return max(
        (one.version for one in proto.opset_import if one.domain in ("", "ai.onnx")), default=1
    )


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
