"""Reads and prepares a float ONNX file for onnxruntime's quantizer; the module that uses onnx."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.reference
import onnx.shape_inference
import onnx.version_converter

from utvm_deploy.base.errors import ModelError, last_words
from utvm_deploy.frontend.files.given_shapes import shapes_for
from utvm_deploy.frontend.onnx.halves import in_float32
from utvm_deploy.frontend.onnx.model import give_shapes, without_contributed
from utvm_deploy.frontend.onnx.prepare import prepared
from utvm_deploy.frontend.onnx.versions import with_version
from utvm_deploy.frontend.onnx_rewrites.contributed import placed
from utvm_deploy.frontend.onnx_rewrites.known_values import check_self_contained
from utvm_deploy.frontend.relax.facts import HALVES_NOTE
from utvm_deploy.graph.names import short_name
from utvm_deploy.quality.quantizing.tflite.masks import hides_for, kinds_of, limited_constant

#: Operators that only move what hides a score, or that add or multiply.
_PASSING = frozenset(
    (
        *("Add", "Cast", "CastLike", "Concat", "Expand", "Gather", "Identity", "Mul", "Pad"),
        *("Reshape", "Slice", "Split", "Squeeze", "Sub", "Tile", "Transpose", "Trilu"),
        *("Unsqueeze", "Where"),
    )
)


def checked_model(data: bytes) -> Any:
    """The model in float32 with a batch of 1; ModelError for one that cannot be quantized."""
    model = loaded(data)
    placed(onnx, model)
    in_float32(onnx, model)
    if any("QuantizeLinear" in node.op_type for node in model.graph.node):
        raise ModelError("it is quantized already; give the float model that it was made of")
    check_self_contained(model.graph.initializer, onnx)
    _limit_masks(model)
    for tensor in model.graph.initializer:
        _check_weights(tensor)
    if not inputs_of(model):
        raise ModelError("the model has no inputs, or it is not an ONNX file")
    give_shapes({value.name: value for value in inputs_of(model)})
    for value in inputs_of(model):
        _fix_batch(value)
    return model


def notes_of(data: bytes) -> tuple[str, ...]:
    """Messages for the user about what ``checked_model`` changes.

    Raises ModelError for what is not an ONNX file.
    """
    model = loaded(data)
    given = shapes_for({value.name: value for value in inputs_of(model)})
    free = [
        f"the batch of input '{value.name}' is bound to 1"
        for value in inputs_of(model)
        if value.name not in given and _has_free_batch(value)
    ]
    return (*([HALVES_NOTE] if in_float32(onnx, model) else ()), *free)


def loaded(data: bytes) -> Any:
    """The model; ModelError for what is not an ONNX file."""
    try:
        return onnx.load_model_from_string(data)
    except Exception as error:  # protobuf's errors are not of one class across its versions
        raise ModelError(f"it is not an ONNX file, or is damaged: {last_words(error)}") from error


def unrolled_model(data: bytes) -> Any:
    """The checked model with recurrent layers as their steps, so that these are quantized."""
    return prepared(onnx, with_version(onnx, checked_model(data)))


def bytes_of(tensor: Any) -> bytes:
    """The elements of a constant, in whichever field the file has them."""
    return bytes(onnx.numpy_helper.to_array(tensor).tobytes())


def _check_weights(tensor: Any) -> None:
    name = short_name(tensor.name)
    if tensor.data_type == onnx.TensorProto.FLOAT:
        array = onnx.numpy_helper.to_array(tensor)
        if not np.isfinite(array).all():
            what = "NaN" if np.isnan(array).any() else "infinity"
            raise ModelError(
                f"the weights '{name}' hold {what}; train the model again, or repair them"
            )


def _fix_batch(value: Any) -> None:
    dimensions = value.type.tensor_type.shape.dim
    if _has_free_batch(value):
        dimensions[0].dim_value = 1
    if not all(one.HasField("dim_value") and one.dim_value > 0 for one in dimensions):
        raise ModelError(
            f"input '{value.name}' has a shape that is not fixed; give it with --shape, such as "
            f"--shape {value.name}=1,64"
        )


def _has_free_batch(value: Any) -> bool:
    dimensions = value.type.tensor_type.shape.dim
    return bool(dimensions) and not dimensions[0].HasField("dim_value")


def inputs_of(model: Any) -> list[Any]:
    """The inputs that are not initializers."""
    known = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in known]


def input_facts(model: Any) -> list[tuple[str, list[int], str]]:
    """Name, shape and numpy's type of each input."""
    return [
        (
            value.name,
            [int(one.dim_value) for one in value.type.tensor_type.shape.dim],
            str(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)),
        )
        for value in inputs_of(model)
    ]


def operators_of(data: bytes) -> list[tuple[str, str, str]]:
    """Kind, first output and name of each operator."""
    nodes = onnx.load_model_from_string(data).graph.node
    return [(node.op_type, node.output[0], node.name) for node in nodes if node.output]


def with_all_outputs(data: bytes) -> tuple[bytes, list[str]]:
    """The model with every float tensor as an output, and their names."""
    model = onnx.shape_inference.infer_shapes(onnx.load_model_from_string(data))
    present = {value.name for value in model.graph.output}
    made = {name for node in model.graph.node for name in node.output}
    for value in model.graph.value_info:
        is_float = value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        if is_float and value.name in made and value.name not in present:
            model.graph.output.append(value)
    made_bytes: bytes = model.SerializeToString()
    return made_bytes, [value.name for value in model.graph.output]


def for_quantizer(data: bytes) -> bytes:
    """The model as onnxruntime's quantizer takes it, and quantizes most of it."""
    model = onnx.load_model_from_string(data)
    for change in (_limit_masks, _fuse_hard_swish, _split_sums, _flatten_biases, _name_nodes):
        change(model)
    if any(node.op_type == "Gelu" and node.domain for node in model.graph.node):
        inferred = onnx.shape_inference.infer_shapes(without_contributed(onnx, model)).graph
        del model.graph.value_info[:]
        model.graph.value_info.extend(inferred.value_info)
    made: bytes = model.SerializeToString()
    return made


def _fuse_hard_swish(model: Any) -> None:
    """HardSwish for x * HardSigmoid(x), which onnxruntime and exporters write.

    HardSwish has an integer kernel. HardSigmoid has none.
    """
    outputs = {value.name for value in model.graph.output}
    readers: dict[str, list[Any]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    for gate in [node for node in model.graph.node if node.op_type == "HardSigmoid"]:
        (x,), (made,) = gate.input, gate.output
        product = readers.get(made, [])
        is_one = len(product) == 1 and sorted(product[0].input) == sorted((x, made))
        if is_one and product[0].op_type == "Mul" and made not in outputs and _is_sixth(gate):
            product[0].CopyFrom(
                onnx.helper.make_node("HardSwish", [x], product[0].output, product[0].name)
            )
            model.graph.node.remove(gate)


def _is_sixth(gate: Any) -> bool:
    """Whether a HardSigmoid is that of HardSwish: x / 6 + 0.5."""
    given = {one.name: one.f for one in gate.attribute}
    return bool(abs(given.get("alpha", 0.2) - 1 / 6) < 1e-4 and given.get("beta", 0.5) == 0.5)


def _split_sums(model: Any) -> None:
    """Gemm and Add for a Gemm that adds what is computed, as onnxruntime fuses a residual."""
    known = {tensor.name for tensor in model.graph.initializer}
    nodes = []
    for node in model.graph.node:
        nodes.append(node)
        added = node.input[2] if node.op_type == "Gemm" and len(node.input) > 2 else ""
        beta = next((one.f for one in node.attribute if one.name == "beta"), 1.0)
        if added and added not in known and beta == 1:
            (made,) = node.output
            del node.input[2]
            node.output[0] = f"{made}_product"
            nodes.append(onnx.helper.make_node("Add", [node.output[0], added], [made]))
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def scores_of(data: bytes) -> tuple[frozenset[str], frozenset[str]]:
    """The names of the tensors that only softmax reads, and of those that may hold a mask."""
    return kinds_of(_readers(loaded(data).graph), _PASSING)


def _readers(graph: Any) -> dict[str, list[tuple[str, list[str]]]]:
    found: dict[str, list[tuple[str, list[str]]]] = {}
    for node in graph.node:
        axis = next((one.i for one in node.attribute if one.name == "axis"), -1)
        kind = "SOFTMAX" if node.op_type == "Softmax" and axis == -1 else node.op_type
        for name in set(node.input):
            found.setdefault(name, []).append((kind, list(node.output)))
    for value in graph.output:
        found.setdefault(value.name, []).append(("", []))
    return found


def _limit_masks(model: Any) -> None:
    """Raise constants to the least that a mask needs, if they are used in scores only."""
    graph = model.graph
    is_mask = hides_for(_readers(graph), _PASSING)
    written = [(node.output[0], node) for node in graph.node if node.op_type == "Constant"]
    tensors = [(name, one.t) for name, node in written for one in node.attribute]
    for name, tensor in (*((one.name, one) for one in graph.initializer), *tensors):
        if tensor.data_type == onnx.TensorProto.FLOAT and is_mask(name):
            made = limited_constant(onnx.numpy_helper.to_array(tensor))
            if made is not None:
                tensor.CopyFrom(onnx.numpy_helper.from_array(made, tensor.name))


def _flatten_biases(model: Any) -> None:
    """Biases of shape N, where Gemm has (1, N): onnxruntime fails on these."""
    known = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        bias = known.get(node.input[2]) if node.op_type == "Gemm" and len(node.input) > 2 else None
        if bias is not None and len(bias.dims) == 2 and bias.dims[0] == 1:
            flat = onnx.numpy_helper.to_array(bias).reshape(-1)
            node.input[2] = f"{bias.name}_flat"
            if node.input[2] not in known:
                known[node.input[2]] = onnx.numpy_helper.from_array(flat, node.input[2])
                model.graph.initializer.append(known[node.input[2]])


def _name_nodes(model: Any) -> None:
    """A name for each operator: operators are left out by their names."""
    taken = set()
    for index, node in enumerate(model.graph.node):
        if not node.name or node.name in taken:
            node.name = f"{node.op_type}_{index}"
        taken.add(node.name)
