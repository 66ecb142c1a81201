"""Reads an ONNX file in QDQ form; the only module that imports the ``onnx`` package."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from utvm_deploy.base.errors import ModelError, UnsupportedOperator, refused_with
from utvm_deploy.frontend.files.given_shapes import chosen_now, shapes_for
from utvm_deploy.frontend.onnx.halves import in_float32
from utvm_deploy.frontend.onnx.prepare import unrolled
from utvm_deploy.frontend.onnx.qlinear import without_qlinear
from utvm_deploy.frontend.onnx.versions import in_terms_of_today, with_places_of_resizes
from utvm_deploy.frontend.onnx_rewrites.contributed import placed
from utvm_deploy.frontend.onnx_rewrites.known_values import (
    array_of,
    check_self_contained,
    constant_of,
    evaluated,
    is_known,
    shape_of,
    with_known_values,
)
from utvm_deploy.frontend.onnx_rewrites.pipeline import rewritten, without_composed
from utvm_deploy.frontend.qdq.convert_graph import convert
from utvm_deploy.frontend.qdq.operators import Array, Attribute, Node, QdqModel
from utvm_deploy.frontend.relax.facts import HALVES_NOTE
from utvm_deploy.frontend.relax.from_onnx import relax_of_onnx
from utvm_deploy.graph.names import short_name

#: What ``quantize_dynamic`` of onnxruntime writes, other than MatMulInteger, which TVM computes.
_KINDS = ("ConvInteger", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulIntegerToFloat")


def refuse_dynamic_quantization(proto: Any) -> None:
    """Raise UnsupportedOperator, which names the first of these operators."""
    for index, node in enumerate(proto.graph.node):
        if node.op_type in _KINDS:
            raise UnsupportedOperator(
                f"operator {index} ({node.op_type}), which makes '{short_name(node.output[0])}', "
                "is of dynamic quantization, whose scales each run computes; quantize the float "
                "model by onnxruntime's quantize_static (utvm docs other-formats)"
            )


_log = logging.getLogger(__name__)

#: The domains whose operators have ONNX's names and meanings.
_DOMAINS = ("", "ai.onnx", "com.microsoft")
_INSTALL = "pip install 'utvm-deploy[onnx]'"


def load_onnx(path: Path) -> Any:
    """The package ``onnx``; ModelError if it is missing."""
    try:
        import onnx
        import onnx.checker
        import onnx.defs
        import onnx.reference
        import onnx.shape_inference
        import onnx.version_converter
    except ImportError as exc:
        raise ModelError(f"{path}: reading ONNX files needs the package onnx: {_INSTALL}") from exc
    return onnx


def onnx_to_model(path: Path, *, is_float_converted: bool = False) -> bytes:
    """What an ONNX model becomes: a .tflite file if it is in QDQ form, else a Relax model.

    The .tflite file computes in integers what the quantized model computes in float32. With
    ``is_float_converted``, a float model becomes a float .tflite file, too, and so does one with
    chosen states.

    Raises ModelError if ``onnx`` is missing or the file cannot be used, UnsupportedOperator for
    operators that cannot be imported.
    """
    onnx = load_onnx(path)
    is_float_converted = is_float_converted or bool(chosen_now().states)
    try:
        data = path.read_bytes()
        if not data:
            raise ModelError(f"{path} is empty; export the model again")
        proto = onnx.load_model_from_string(data)
    except ModelError:
        raise
    except OSError as exc:
        raise ModelError(f"cannot read the model {path}: {exc.strerror or exc}") from exc
    except Exception as exc:  # protobuf's errors are not of one class across its versions
        raise ModelError(f"{path} is not an ONNX file, or it is damaged: {exc}") from exc
    with refused_with(path):
        placed(onnx, proto)
        has_halves = in_float32(onnx, proto)
        original = proto
        proto = without_qlinear(onnx, proto)
        is_quantized = any(node.op_type == "QuantizeLinear" for node in proto.graph.node)
        refuse_dynamic_quantization(proto)
        if not is_quantized and not is_float_converted:
            notes = (*([HALVES_NOTE] if has_halves else ()), *_fix_shapes(onnx, proto))
            proto = with_places_of_resizes(onnx, proto)
            # The import changes the model.
            kinds = _kinds(onnx, proto)
            proto = unrolled(onnx, proto)
            return replace(relax_of_onnx(rewritten(onnx, proto), notes), kinds=kinds).dumped()
        model = _read(onnx, proto, path.stem, original)
        return convert(model, f"converted from {path.name}")


def _fix_shapes(onnx: Any, proto: Any) -> tuple[str, ...]:
    """Give a float model's inputs the shapes that the user wants; notes on those of others.

    The model is checked by onnx, too.
    """
    check_self_contained(proto.graph.initializer, onnx)
    known = {tensor.name for tensor in proto.graph.initializer}
    inputs = {value.name: value for value in proto.graph.input if value.name not in known}
    notes = []
    give_shapes(inputs)
    for name, value in inputs.items():
        dimensions = value.type.tensor_type.shape.dim
        if dimensions and _is_free(dimensions[0]):
            symbol = dimensions[0].dim_param or "?"
            notes.append(f"the batch '{symbol}' of input '{name}' is bound to 1")
            _fix_batch(value)
    try:
        onnx.checker.check_model(proto)
    except Exception as exc:  # onnx has several classes for it
        raise ModelError(f"the file contradicts itself: {' '.join(str(exc).split())}") from exc
    return tuple(notes)


def _kinds(onnx: Any, proto: Any) -> tuple[str, ...]:
    """The operators of a model, except for those that compute shapes."""
    nodes = with_known_values(onnx, proto).graph.node
    return tuple(node.op_type for node in nodes if node.op_type != "Constant")


def give_shapes(inputs: Mapping[str, Any]) -> None:
    """Give inputs of an ONNX graph, by name, the shapes that the user wants.

    Raises ModelError for an unknown name, and for a shape that does not fit.
    """
    for name, shape in shapes_for(inputs).items():
        _fix_shape(inputs[name], shape)


def _fix_shape(value: Any, shape: tuple[int, ...]) -> None:
    dimensions = value.type.tensor_type.shape.dim
    told = ",".join(map(str, shape))
    if len(dimensions) != len(shape):
        raise ModelError(
            f"input '{value.name}' has {len(dimensions)} dimensions, but the given shape {told} "
            f"has {len(shape)}"
        )
    for dimension, extent in zip(dimensions, shape, strict=True):
        if not _is_free(dimension) and dimension.dim_value != extent:
            stated = [d.dim_param or "?" if _is_free(d) else d.dim_value for d in dimensions]
            raise ModelError(
                f"input '{value.name}' has the shape ({', '.join(map(str, stated))}), which {told} "
                "does not fit"
            )
    for dimension, extent in zip(dimensions, shape, strict=True):
        dimension.dim_value = extent


def _read(onnx: Any, proto: Any, name: str, original: Any) -> QdqModel:
    """The model; ``original`` is what the file holds, which onnx checks."""
    graph = proto.graph
    check_self_contained(graph.initializer, onnx)
    known = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in known]
    if not inputs:
        raise ModelError("the model has no inputs")
    give_shapes({value.name: value for value in inputs})
    for value in inputs:
        _fix_batch(value)
    proto = unrolled(onnx, without_composed(onnx, proto), is_quantized=True)
    graph = proto.graph
    try:
        # Scales by channel, which we put in place of QLinearConv, are younger than some files.
        onnx.checker.check_model(original)
        plain = without_contributed(onnx, proto)
        inferred = onnx.shape_inference.infer_shapes(plain, strict_mode=True, data_prop=True).graph
    except Exception as exc:  # onnx has several classes for it
        raise ModelError(f"the file contradicts itself: {' '.join(str(exc).split())}") from exc
    shapes = {
        value.name: shape_of(value)
        for value in (*inferred.input, *inferred.value_info, *inferred.output)
    }
    constants: dict[str, Array] = {
        tensor.name: array_of(onnx, tensor) for tensor in graph.initializer
    }
    version = min(o.version for o in proto.opset_import if o.domain in _DOMAINS[:2])
    nodes: list[Node] = []
    for index, node in enumerate(graph.node):
        if node.domain not in _DOMAINS:
            raise ModelError(
                f"operator {index} ({node.domain}.{node.op_type}) is not ONNX's own; "
                "use standard operators"
            )
        if node.op_type == "Constant":
            constants[node.output[0]] = constant_of(onnx, node, index)
            continue
        if is_known(node, constants, shapes):
            constants.update(evaluated(onnx, proto, node, constants, shapes))
            continue
        attributes = dict(_attributes(onnx, node))
        found = Node(index, node.op_type, tuple(node.input), tuple(node.output), attributes)
        nodes += in_terms_of_today(found, version, shapes, constants)
    types = tuple(_dtype(onnx, value) for value in inputs)
    missing = [n for n, shape in shapes.items() if shape is None]
    _log.debug("%s: %d shapes are not known", name, len(missing))
    return QdqModel(
        name,
        tuple(nodes),
        _Shapes({key: shape for key, shape in shapes.items() if shape is not None}),
        constants,
        tuple(value.name for value in inputs),
        tuple(value.name for value in graph.output),
        types,
    )


def without_contributed(onnx: Any, proto: Any) -> Any:
    """A copy in which onnx infers the shapes of what onnxruntime's own operators make.

    Casts take the place of its QuantizeLinear, and Identity that of its Gelu.

    onnxruntime writes those where ONNX's of that version know no int16.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    integers = {tensor.name: tensor.data_type for tensor in proto.graph.initializer}
    for node in copy.graph.node:
        if node.domain and node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            zero_point = node.input[2] if len(node.input) > 2 else ""
            to = integers.get(zero_point, onnx.TensorProto.UINT8)
            if node.op_type == "DequantizeLinear":
                to = onnx.TensorProto.FLOAT
            made = onnx.helper.make_node("Cast", node.input[:1], node.output[:1], to=to)
            node.CopyFrom(made)
        elif node.domain and node.op_type in ("FastGelu", "Gelu"):
            node.CopyFrom(onnx.helper.make_node("Identity", node.input[:1], node.output[:1]))
    return copy


class _Shapes(dict[str, tuple[int, ...]]):
    """A missing shape is the model's fault."""

    def __missing__(self, name: str) -> tuple[int, ...]:
        raise ModelError(
            f"the shape of '{name}' is not fixed; export the model with fixed input shapes"
        )


def _fix_batch(value: Any) -> None:
    """A batch of any size becomes one; other free dimensions stay, to be refused."""
    dimensions = value.type.tensor_type.shape.dim
    if dimensions and _is_free(dimensions[0]):
        dimensions[0].dim_value = 1


def _is_free(dimension: Any) -> bool:
    """Whether an extent may be of any size; some tools write 0 or -1 for that."""
    return not dimension.HasField("dim_value") or dimension.dim_value <= 0


def _dtype(onnx: Any, value: Any) -> str:
    return str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)))


def _attributes(onnx: Any, node: Any) -> Iterable[tuple[str, Attribute]]:
    for attribute in node.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            yield attribute.name, value.decode("utf-8", errors="replace")
        elif isinstance(value, int | float):
            yield attribute.name, value
        elif isinstance(value, list | tuple) and all(isinstance(v, int | float) for v in value):
            yield attribute.name, tuple(value)
