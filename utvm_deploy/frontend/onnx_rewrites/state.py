"""What is known while a graph is rewritten: types, values, and the names that are taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.onnx_rewrites.arrays import Array

#: Elements of a constant that shape inference may look at.
_MOST_LOOKED_AT = 1024
#: The domains of operators whose meaning ONNX defines.
STANDARD = ("", "ai.onnx")
#: Operators that ONNX infers nothing of; their outputs are like their first inputs.
_LIKE_FIRST = ("GroupNormalization", "MeanVarianceNormalization")


@dataclass
class State:
    """The graph so far; a tensor has a type when the node that makes it was seen.

    Only composed operators are rewritten if it ``is_composed_only``. If it ``is_for_integers``, no
    input is infinite.
    """

    onnx: Any
    proto: Any
    types: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    makers: dict[str, Any] = field(default_factory=dict)
    is_composed_only: bool = False
    is_for_integers: bool = False

    @property
    def version(self) -> int:
        """The version of ONNX's operators."""
        versions = (one.version for one in self.proto.opset_import if one.domain in STANDARD)
        return max(versions, default=1)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of a tensor; None if it is not known. Extents may be 0."""
        if name in self.constants:
            return tuple(self.constants[name].shape)
        known = self.types.get(name)
        if known is None or not known.tensor_type.HasField("shape"):
            return None
        extents = known.tensor_type.shape.dim
        if not all(extent.HasField("dim_value") and extent.dim_value >= 0 for extent in extents):
            return None
        return tuple(int(extent.dim_value) for extent in extents)

    def dtype(self, name: str) -> np.dtype[Any] | None:
        """The type of the elements of a tensor."""
        if name in self.constants:
            return self.constants[name].dtype
        known = self.types.get(name)
        number = 0 if known is None else known.tensor_type.elem_type
        return self.onnx.helper.tensor_dtype_to_np_dtype(number) if number else None

    def remember(self, name: str, data: Array) -> None:
        """The value of a tensor."""
        self.constants[name] = data
        helper = self.onnx.helper
        kind = helper.np_dtype_to_tensor_dtype(data.dtype)
        self.types[name] = helper.make_tensor_type_proto(kind, data.shape)

    def new_name(self, wish: str) -> str:
        """A name that no tensor has."""
        name, count = wish, 0
        while name in self.names:
            count += 1
            name = f"{wish}_{count}"
        self.names.add(name)
        return name

    def infer(self, node: Any, place: str) -> None:
        """Learn the types of what a node makes, by ONNX's strict inference.

        Raises ModelError, with the node's place, if the node contradicts itself or its inputs.
        """
        schema = self.schema(node)
        if schema is None or any(name and name not in self.types for name in node.input):
            return
        given = {name: self.types[name] for name in node.input if name}
        small = {
            name: self.onnx.numpy_helper.from_array(np.asarray(self.constants[name]))
            for name in given
            if name in self.constants and self.constants[name].size <= _MOST_LOOKED_AT
        }
        try:
            made = self.onnx.shape_inference.infer_node_outputs(
                schema,
                node,
                given,
                small,
                opset_imports=list(self.proto.opset_import),
                ir_version=self.proto.ir_version,
            )
        except Exception as exc:  # onnx has several classes for it
            if self.version < schema.since_version or "Graph attribute inferencing" in str(exc):
                return
            said = str(exc).replace("[ShapeInferenceError]", "").replace("[TypeInferenceError]", "")
            raise ModelError(f"{place} contradicts itself: {' '.join(said.split())}") from exc
        self.types.update(made)
        if node.op_type in _LIKE_FIRST and node.domain in STANDARD:
            self.types[node.output[0]] = self.types[node.input[0]]

    def schema(self, node: Any) -> Any:
        """ONNX's definition of a node's operator; None if it has none."""
        domain = "" if node.domain in STANDARD else node.domain
        versions = [o.version for o in self.proto.opset_import if o.domain == node.domain]
        if domain == "":
            versions = [self.version]
        if not versions or not self.onnx.defs.has(node.op_type, domain):
            return None
        try:
            return self.onnx.defs.get_schema(node.op_type, versions[0], domain)
        except self.onnx.defs.SchemaError:
            return None


class Rewriting:
    """One node that is rewritten: what it has, and the nodes that take its place."""

    def __init__(self, state: State, node: Any, place: str) -> None:
        self.state, self.node, self.place = state, node, place
        self.made: list[Any] = []
        self._renamed: dict[str, str] = {}
        self._prefix = node.name or next((name for name in node.output if name), "node")
        helper = state.onnx.helper
        self.given: Mapping[str, Any] = {
            a.name: helper.get_attribute_value(a) for a in node.attribute
        }

    @property
    def kind(self) -> str:
        return str(self.node.op_type)

    def has(self, position: int) -> bool:
        """Whether the node has this input."""
        return position < len(self.node.input) and bool(self.node.input[position])

    def wants(self, position: int) -> bool:
        """Whether the node has this output."""
        return position < len(self.node.output) and bool(self.node.output[position])

    def input(self, position: int) -> str:
        """The name of an input; empty if it is absent."""
        return str(self.node.input[position]) if position < len(self.node.input) else ""

    def text(self, name: str, default: str) -> str:
        """An attribute that is a text."""
        value = self.given.get(name, default)
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

    def value(self, position: int) -> Array | None:
        """The value of an input; None if it is absent or computed."""
        return self.state.constants.get(self.input(position))

    def shape(self, position: int) -> tuple[int, ...]:
        """The shape of an input; ModelError if it is not known."""
        return self.shape_of(self.input(position))

    def shape_of(self, name: str) -> tuple[int, ...]:
        shape = self.state.shape(name)
        if shape is None:
            raise ModelError(
                f"{self.place}: the shape of '{name}' is not known; export the model with fixed "
                "shapes"
            )
        return shape

    def output_shape(self, position: int = 0) -> tuple[int, ...]:
        """The shape of an output; ModelError if it is not known."""
        return self.shape_of(self.node.output[position])

    def dtype(self, position: int) -> np.dtype[Any]:
        """The type of an input's elements; ModelError if it is not known."""
        found = self.state.dtype(self.input(position))
        if found is None:
            raise ModelError(f"{self.place}: the type of '{self.input(position)}' is not known")
        return found

    def axis(self, name: str, default: int, rank: int) -> int:
        """An attribute that is an axis, counted from the first."""
        axis = int(self.given.get(name, default))
        return axis + rank if axis < 0 else axis

    def constant(self, data: Any, dtype: Any = None) -> str:
        """The name of a new constant."""
        array = np.asarray(data, dtype)
        name = self.state.new_name(f"{self._prefix}_constant")
        self.state.remember(name, array)
        return name

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A new node; the name of its output."""
        return self.several(kind, 1, *inputs, **attributes)[0]

    def several(self, kind: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """A new node of ONNX's domain with several outputs; their names.

        onnxruntime's calibration adds names such as ``y_ReduceMax``, so these have no capitals.
        """
        names = [self.state.new_name(f"{self._prefix}_{kind.lower()}") for _ in range(count)]
        made = self.state.onnx.helper.make_node(kind, list(inputs), names, **attributes)
        self.made.append(made)
        self.state.infer(made, self.place)
        return names

    def finish(self, name: str, position: int = 0) -> None:
        """Let a tensor be an output of the node; what was made here gets the output's name."""
        wanted, name = self.node.output[position], self._renamed.get(name, name)
        is_output = name in self._renamed.values()
        if is_output or not any(name in node.output for node in self.made):
            made = self.state.onnx.helper.make_node("Identity", [name], [wanted])
            self.made.append(made)
            return
        self._renamed[name] = wanted
        for names in (names for node in self.made for names in (node.input, node.output)):
            names[:] = [wanted if one == name else one for one in names]

    def reshaped(self, name: str, shape: Iterable[int]) -> str:
        """The tensor in another shape."""
        wanted = tuple(shape)
        if self.state.shape(name) == wanted:
            return name
        return self.add("Reshape", name, self.constant(wanted, np.int64))

    def reduced(self, kind: str, name: str, axes: Sequence[int]) -> str:
        """A reduction along constant axes, which stay with an extent of 1."""
        is_input = self.state.version >= (13 if kind == "ReduceSum" else 18)
        if is_input:
            return self.add(kind, name, self.constant(axes, np.int64), keepdims=1)
        return self.add(kind, name, axes=list(axes), keepdims=1)

    def taken(self, name: str, places: Any, axis: int) -> str:
        """Elements at constant places along an axis; one place removes the axis."""
        return self.add("Gather", name, self.constant(places, np.int64), axis=axis)

    def part(self, name: str, first: int, last: int, axis: int) -> str:
        """A run of elements along an axis."""
        ends = (self.constant([one], np.int64) for one in (first, last, axis, 1))
        return self.add("Slice", name, *ends)

    def cast(self, name: str, dtype: Any) -> str:
        """The tensor with elements of another type."""
        wanted = np.dtype(dtype)
        if self.state.dtype(name) == wanted:
            return name
        to = self.state.onnx.helper.np_dtype_to_tensor_dtype(wanted)
        return self.add("Cast", name, to=to)

    def expanded(self, name: str, shape: Iterable[int]) -> str:
        """The tensor, broadcast to a shape."""
        return self.add("Expand", name, self.constant(tuple(shape), np.int64))
