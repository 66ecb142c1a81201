"""ONNX models of float16 or bfloat16 as models of float32.

Tools such as onnxconverter-common make float16 of float32 models, to halve their size. No kernel
here computes in them. Each of their numbers is a float32, so the weights keep their values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from utvm_deploy.base.errors import ModelError

#: Attributes that hold the type of an element.
_TYPES = ("to", "dtype", "output_dtype")


def in_float32(onnx: Any, proto: Any) -> bool:
    """Make float32 of all float16 and bfloat16 tensors, in place; whether there were any.

    Raises ModelError for data that are damaged or in another file.
    """
    halves = _Halves(onnx)
    for graph in _graphs(proto.graph):
        halves.change(graph)
    if halves.is_found:
        _sort(proto.graph)
        _without_casts(onnx, proto)
    return halves.is_found


class _Halves:
    """Changes graphs, and knows whether it had to."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self.is_found = False

    def change(self, graph: Any) -> None:
        """One graph, without those of its nodes."""
        for tensor in graph.initializer:
            self._tensor(tensor, f"constant '{tensor.name}'")
        for value in (*graph.input, *graph.output, *graph.value_info):
            kind = value.type.tensor_type
            kind.elem_type = self._type(kind.elem_type)
        for node in graph.node:
            place = f"what {node.op_type} '{node.output[0] if node.output else node.name}' makes"
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    self._tensor(attribute.t, place)
                elif attribute.name in _TYPES and attribute.HasField("i"):
                    attribute.i = self._type(attribute.i)

    def _type(self, kind: int) -> int:
        """The type that takes the place of an element type."""
        types = self.onnx.TensorProto
        if kind not in (types.FLOAT16, types.BFLOAT16):
            return kind
        self.is_found = True
        return int(types.FLOAT)

    def _tensor(self, tensor: Any, what: str) -> None:
        if self._type(tensor.data_type) == tensor.data_type:
            return
        if tensor.data_location == self.onnx.TensorProto.EXTERNAL:
            raise ModelError(f"{what} is in another file; save the model as one file")
        helper = self.onnx.numpy_helper
        try:
            values = helper.to_array(tensor).astype("float32")
        except (ValueError, TypeError, KeyError) as exc:
            raise ModelError(f"{what} contradicts itself: {exc}") from exc
        tensor.CopyFrom(helper.from_array(values, tensor.name))


def _graphs(graph: Any) -> Iterator[Any]:
    """A graph, and those in the attributes of its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                yield from _graphs(inner)


def _sort(graph: Any) -> None:
    """Put nodes behind those that they read: the tools write casts behind their readers.

    Nodes that read each other stay where they are.
    """
    left = list(graph.node)
    missing = {name for node in left for name in node.output}
    inner = [
        {name for a in node.attribute if a.HasField("g") for name in _read(a.g)} for node in left
    ]
    waiting = [({*node.input} | names, node) for names, node in zip(inner, left, strict=True)]
    ordered: list[Any] = []
    while waiting:
        later = []
        for needs, node in waiting:
            if needs & missing:
                later.append((needs, node))
            else:
                ordered.append(node)
                missing.difference_update(node.output)
        if len(later) == len(waiting):
            return
        waiting = later
    del graph.node[:]
    graph.node.extend(ordered)


def _read(graph: Any) -> Iterator[str]:
    """The names that the nodes of a graph and of its parts read."""
    for part in _graphs(graph):
        for node in part.node:
            yield from node.input


def _without_casts(onnx: Any, proto: Any) -> None:
    """Let the readers of casts from float32 to float32 read what was cast."""
    try:
        inferred = onnx.shape_inference.infer_shapes(proto).graph
    except Exception:  # of several classes; the importer refuses what contradicts itself
        return
    values = (*inferred.input, *inferred.value_info, *inferred.output)
    floats = {v.name for v in values if v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT}
    floats |= {t.name for t in inferred.initializer if t.data_type == onnx.TensorProto.FLOAT}
    outputs = {value.name for value in proto.graph.output}
    source: dict[str, str] = {}
    kept = []
    for node in proto.graph.node:
        for graph in (part for a in node.attribute if a.HasField("g") for part in _graphs(a.g)):
            for inner in graph.node:
                _rename(inner, source)
        _rename(node, source)
        if node.op_type == "Cast" and node.input[0] in floats and _is_to_float(onnx, node):
            if node.output[0] not in outputs:
                source[node.output[0]] = node.input[0]
                continue
            node.CopyFrom(onnx.helper.make_node("Identity", node.input, node.output, node.name))
        kept.append(node)
    del proto.graph.node[:]
    proto.graph.node.extend(kept)


def _rename(node: Any, source: dict[str, str]) -> None:
    for position, name in enumerate(node.input):
        node.input[position] = source.get(name, name)


def _is_to_float(onnx: Any, node: Any) -> bool:
    return any(a.name == "to" and a.i == onnx.TensorProto.FLOAT for a in node.attribute)
