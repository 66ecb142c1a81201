"""ATen operators that move values, in ONNX's terms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.qdq.operators import Attribute, Node
from utvm_deploy.frontend.torch.calls import Call, Stated, Statement, Tensors, aten_name


def _embedding(tensors: Tensors, call: Call) -> Stated:
    return Stated("Gather", (str(call["weight"]), str(call["indices"])), {"axis": 0})


def _index_select(tensors: Tensors, call: Call) -> Stated:
    return Stated("Gather", (str(call["self"]), str(call["index"])), {"axis": int(call["dim"])})


def _index(tensors: Tensors, call: Call) -> Stated:
    """x[:, places]: one list of places, along one axis."""
    given = [(axis, one) for axis, one in enumerate(call["indices"]) if one is not None]
    if len(given) != 1 or len(tensors.shapes[str(given[0][1])]) != 1:
        raise ModelError(
            f"the operator {call.name} takes elements by more than one list of places; "
            "use one list, such as x[:, places]"
        )
    ((axis, places),) = given
    return Stated("Gather", (str(call["self"]), str(places)), {"axis": axis})


def _index_put(tensors: Tensors, call: Call) -> Stated:
    """x[:, place] = values, or its index_copy: values at one computed place along one axis."""
    places = call["indices"] if "indices" in call.arguments else call["index"]
    axis = int(call["dim"] or 0) if "indices" not in call.arguments else 0
    if isinstance(places, list):
        given = [(axis, one) for axis, one in enumerate(places) if one is not None]
        axis, places = given[0] if len(given) == 1 else (0, "")
    nodes = {str(one.name): one for one in call.node.all_input_nodes}
    first = _first_place(tensors, nodes.get(str(places)))
    if first is None or call["accumulate"]:
        raise Node(call.index, aten_name(call.node.target), (), (call.name,)).unsupported(
            "it writes to several places, or adds; write to one place, such as cache[:, place] = "
            "x, or to places in a row, such as place + torch.arange(8)"
        )
    values = call["values"] or call["source"]
    return Stated("TensorScatter", (str(call["self"]), str(values), first), {"axis": axis})


def _first_place(tensors: Tensors, node: Any) -> str | None:
    """Of one place that is computed, or of it and those behind it; None of other places."""

    def size(one: Any) -> int:
        return math.prod(tensors.shapes.get(str(one), (0,)))

    if size(node) == 1:
        return str(node)
    if node is None or node.op != "call_function" or aten_name(node.target) != "add":
        return None
    for place, more in (node.args[:2], node.args[1::-1]):
        behind = tensors.constants.get(str(more))
        if size(place) == 1 and behind is not None and not (behind - np.arange(behind.size)).any():
            return str(place)
    return None


def _select(tensors: Tensors, call: Call) -> Stated:
    index = tensors.constant(int(call["index"]), np.int64, f"{call.name}_index")
    return Stated("Gather", (str(call["self"]), index), {"axis": int(call["dim"])})


def _repeat(tensors: Tensors, call: Call) -> Stated:
    kind = "Expand" if "expand" in aten_name(call.node.target) else "Tile"
    return Stated(kind, (str(call["self"]),))


def _view(tensors: Tensors, call: Call) -> Stated:
    return Stated("Reshape", (str(call["self"]),))


def _permute(tensors: Tensors, call: Call) -> Stated:
    rank = tensors.rank(str(call["self"]))
    return Stated(
        "Transpose", (str(call["self"]),), {"perm": tuple(d % rank for d in call["dims"])}
    )


def _transpose(tensors: Tensors, call: Call) -> Stated:
    order = list(range(tensors.rank(str(call["self"]))))
    first, second = (call["dim0"], call["dim1"]) if "dim0" in call.arguments else (0, -1)
    order[first], order[second] = order[second], order[first]
    return Stated("Transpose", (str(call["self"]),), {"perm": tuple(order)})


def _concatenation(tensors: Tensors, call: Call) -> Stated:
    return Stated("Concat", tuple(map(str, call["tensors"])), {"axis": int(call["dim"] or 0)})


def _slice(tensors: Tensors, call: Call) -> Stated:
    axis = int(call["dim"] or 0)
    size = tensors.shape(str(call["self"]))[axis]
    end = size if call["end"] is None else min(int(call["end"]), size)
    attributes: dict[str, Attribute] = {
        "starts": (int(call["start"] or 0),),
        "ends": (end,),
        "axes": (axis,),
        "steps": (int(call["step"] or 1),),
    }
    return Stated("Slice", (str(call["self"]),), attributes)


def _flip(tensors: Tensors, call: Call) -> Stated:
    shape = tensors.shape(str(call["self"]))
    axes = tuple(int(axis) % len(shape) for axis in call["dims"])
    attributes: dict[str, Attribute] = {
        "starts": tuple(shape[axis] - 1 for axis in axes),
        "ends": tuple(-shape[axis] - 1 for axis in axes),
        "axes": axes,
        "steps": (-1,) * len(axes),
    }
    return Stated("Slice", (str(call["self"]),), attributes)


def _split(tensors: Tensors, call: Call) -> Stated:
    return Stated("Split", (str(call["self"]),), {"axis": int(call["dim"] or 0)})


def _pad(tensors: Tensors, call: Call) -> Stated:
    rank = tensors.rank(str(call["self"]))
    pairs = [(0, 0)] * rank
    flat = [int(v) for v in call["pad"]]
    for place in range(len(flat) // 2):
        pairs[rank - 1 - place] = flat[2 * place], flat[2 * place + 1]
    pads = (*(before for before, _ in pairs), *(behind for _, behind in pairs))
    mode = "constant" if call["mode"] in (None, "constant") else str(call["mode"])
    attributes: dict[str, Attribute] = {
        "pads": pads,
        "mode": mode,
        "value": float(call["value"] or 0),
    }
    return Stated("Pad", (str(call["self"]),), attributes)


#: ATen's name -> its statement.
MOVING: Mapping[str, Statement] = {
    **dict.fromkeys(
        ("view", "reshape", "flatten", "squeeze", "unsqueeze", "_unsafe_view", "unflatten"), _view
    ),
    **dict.fromkeys(("split", "split_with_sizes", "chunk"), _split),
    **dict.fromkeys(("constant_pad_nd", "pad"), _pad),
    **dict.fromkeys(("transpose", "t"), _transpose),
    **dict.fromkeys(("expand", "repeat", "expand_copy"), _repeat),
    "embedding": _embedding,
    "index": _index,
    "index_copy": _index_put,
    "index_put": _index_put,
    "index_select": _index_select,
    "select": _select,
    "cat": _concatenation,
    "permute": _permute,
    "slice": _slice,
    "flip": _flip,
}
