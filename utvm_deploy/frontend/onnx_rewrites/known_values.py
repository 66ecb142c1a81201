"""Values of an ONNX model that are known at import: constants, shapes, and what depends on them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.onnx_rewrites.arrays import Array

#: Elements of constants that are computed at import, such as shapes.
MOST_KNOWN = 256


def with_known_values(onnx: Any, proto: Any, most: int = MOST_KNOWN) -> Any:
    """The model with its inferred shapes, and with constants for what depends on shapes only.

    TVM's importer folds some of that itself, but not all, such as the ends of a Slice that are
    computed in float32. Values of more than ``most`` elements are left to it, and the model's
    outputs.
    """
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except Exception:  # TVM's importer infers by itself
        return proto
    graph = inferred.graph
    values = (*graph.input, *graph.value_info)
    shapes = {value.name: shape_of(value) for value in values}
    constants = {
        tensor.name: array_of(onnx, tensor)
        for tensor in graph.initializer
        if math.prod(tensor.dims) <= most
    }
    outputs = {value.name for value in graph.output}
    kept = []
    for index, node in enumerate(graph.node):
        made: dict[str, Array] = {}
        if node.op_type == "Constant":
            with suppress(ModelError):
                constants[node.output[0]] = constant_of(onnx, node, index)
        elif _is_small(node, constants, shapes, most) and is_known(node, constants, shapes):
            # What ONNX's reference cannot compute may still be imported.
            with suppress(ModelError):
                made = evaluated(onnx, proto, node, constants, shapes)
        if made and outputs.isdisjoint(made):
            constants.update(made)
            graph.initializer.extend(
                onnx.numpy_helper.from_array(np.asarray(data), name) for name, data in made.items()
            )
        else:
            kept.append(node)
    if len(kept) != len(graph.node):
        # The copies outlive the list that they came from.
        nodes = [type(node).FromString(node.SerializeToString()) for node in kept]
        del graph.node[:]
        graph.node.extend(nodes)
    return inferred


def _is_small(
    node: Any, constants: Mapping[str, Array], shapes: Mapping[str, Any], most: int
) -> bool:
    """Whether an operator without subgraphs makes few elements."""
    if any(attribute.HasField("g") for attribute in node.attribute):
        return False
    if node.op_type == "ConstantOfShape":  # its shape is inferred only from an initializer
        wanted = constants.get(node.input[0])
        return wanted is not None and math.prod(wanted.ravel().tolist()) <= most
    made = [shapes.get(name) for name in node.output if name]
    return all(shape is not None and math.prod(shape) <= most for shape in made)


def is_known(node: Any, constants: Mapping[str, Array], shapes: Mapping[str, Any]) -> bool:
    """Whether an operator depends on constants and shapes only."""
    if node.op_type in ("QuantizeLinear", "DequantizeLinear") or not node.input:
        return False
    if node.op_type == "Shape":
        return shapes.get(node.input[0]) is not None
    return all(name in constants for name in node.input if name)


def evaluated(
    onnx: Any, proto: Any, node: Any, constants: Mapping[str, Array], shapes: Mapping[str, Any]
) -> dict[str, Array]:
    """What an operator on known values makes, by ONNX's reference."""
    if node.op_type == "Shape":
        extents = shapes[node.input[0]]
        first, last = (
            next((a.i for a in node.attribute if a.name == name), default)
            for name, default in (("start", 0), ("end", len(extents)))
        )
        return {node.output[0]: np.array(extents[first:last], np.int64)}
    helper = onnx.helper
    given = {name: constants[name] for name in node.input if name}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(data.dtype), data.shape)
        for name, data in given.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = helper.make_graph([node], "known", inputs, outputs)
    model = helper.make_model(graph, opset_imports=proto.opset_import, ir_version=proto.ir_version)
    try:
        made = onnx.reference.ReferenceEvaluator(model).run(None, given)
    except Exception as exc:  # the evaluator has no class of errors
        raise ModelError(f"operator {node.op_type}, which makes '{node.output[0]}': {exc}") from exc
    return dict(zip((name for name in node.output if name), map(np.asarray, made), strict=True))


def check_self_contained(tensors: Iterable[Any], onnx: Any) -> None:
    for tensor in tensors:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            raise ModelError(
                f"constant '{tensor.name}' is in another file; save the model as one file, in "
                "torch.onnx.export by external_data=False"
            )


def shape_of(value: Any) -> tuple[int, ...] | None:
    if not value.type.tensor_type.HasField("shape"):
        return None
    dimensions = value.type.tensor_type.shape.dim
    if not all(d.HasField("dim_value") and d.dim_value > 0 for d in dimensions):
        return None
    return tuple(int(d.dim_value) for d in dimensions)


def constant_of(onnx: Any, node: Any, index: int) -> Array:
    for attribute in node.attribute:
        if attribute.name == "value":
            check_self_contained([attribute.t], onnx)
            return array_of(onnx, attribute.t)
        if attribute.name in ("value_float", "value_floats"):
            return np.asarray(onnx.helper.get_attribute_value(attribute), np.float32)
        if attribute.name in ("value_int", "value_ints"):
            return np.asarray(onnx.helper.get_attribute_value(attribute), np.int64)
    raise ModelError(f"operator {index} (Constant) has no value of numbers")


def array_of(onnx: Any, tensor: Any) -> Array:
    try:
        array: Array = onnx.numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError) as exc:
        raise ModelError(f"constant '{tensor.name}' contradicts itself: {exc}") from exc
    return array
