"""An ONNX model of float32 as a Relax module, by TVM's importer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from utvm_deploy.base.errors import ModelError, UnsupportedOperator, last_words
from utvm_deploy.relax.facts import RelaxModel
from utvm_deploy.relax.road import relax_model


def relax_of_onnx(proto: Any, notes: tuple[str, ...] = ()) -> RelaxModel:
    """The model, lowered; ``proto`` is an ``onnx.ModelProto`` whose shapes are fixed.

    ``notes`` are for the user.

    Raises ModelError or UnsupportedOperator for what TVM cannot import or lower.
    """
    from tvm.relax.frontend.onnx import from_onnx

    _check_meanings(proto)
    _replace_prelu(proto)
    try:
        module = from_onnx(proto, keep_params_in_input=False)
    except Exception as exc:  # of many classes
        what = _operator_of(exc) or "the model"
        said = last_words(exc)
        # The text of these is a name or a piece of Python, which means nothing alone.
        if isinstance(exc, KeyError | AttributeError | TypeError | IndexError):
            said = f"{type(exc).__name__}: {said}"
        raise ModelError(f"TVM cannot import {what}: {said}") from exc
    names = tuple(value.name for value in proto.graph.output)
    return replace(relax_model(module), notes=notes, outputs=names)


def _operator_of(error: Exception) -> str:
    """The operator that TVM's importer was at when it failed, for a message; empty if none."""
    place, found = error.__traceback__, ""
    while place is not None:
        # TVM prints the operator's name, but does not put it into the error.
        node: Any = place.tb_frame.f_locals.get("node")
        if hasattr(node, "op_type") and node.output:
            found = f"the operator {node.op_type}, which makes '{node.output[0]}'"
        place = place.tb_next
    return found


#: Operators whose further outputs TVM's importer makes wrong: zeros, or ones of another type.
_ONE_OUTPUT = ("Dropout", "LayerNormalization")


def _check_meanings(proto: Any) -> None:
    """Raise UnsupportedOperator if a model uses what TVM's importer makes wrong."""
    used = {name for node in proto.graph.node for name in node.input}
    used |= {value.name for value in proto.graph.output}
    for index, node in enumerate(proto.graph.node):
        more = [name for name in node.output[1:] if name in used]
        if node.op_type in _ONE_OUTPUT and more:
            raise UnsupportedOperator(
                f"operator {index} ({node.op_type}) makes '{more[0]}', but only its first output "
                "is supported; compute the other from the input"
            )
        attributes = {one.name: one for one in node.attribute}
        where = f"operator {index} ({node.op_type})"
        if node.op_type == "RoiAlign" and "mode" in attributes and attributes["mode"].s == b"max":
            raise UnsupportedOperator(f"{where} has the mode 'max'; only 'avg' is supported")
        if node.op_type == "BatchNormalization" and _given(attributes, "training_mode", 0):
            raise UnsupportedOperator(f"{where} is for training; export the model for inference")
        if node.op_type == "IsInf" and not all(
            _given(attributes, f"detect_{sign}", 1) for sign in ("negative", "positive")
        ):
            raise UnsupportedOperator(
                f"{where} finds infinities of one sign only; compare with 0, too"
            )
        if (
            node.op_type == "SpaceToDepth"
            and "mode" in attributes
            and attributes["mode"].s != b"DCR"
        ):
            mode = attributes["mode"].s.decode(errors="replace")
            raise UnsupportedOperator(f"{where} has the mode '{mode}'; only 'DCR' is supported")
        if node.op_type == "Resize" and _given(attributes, "antialias", 0):
            raise UnsupportedOperator(f"{where} has antialias; export the model without it")
        if node.op_type == "ConvTranspose" and "output_shape" in attributes:
            raise UnsupportedOperator(f"{where} has an output_shape; give it pads instead")
        if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]:
            raise UnsupportedOperator(
                f"{where} may be for training; export the model for inference, without its input "
                "training_mode"
            )
        if node.op_type == "BitShift":
            raise UnsupportedOperator(
                f"{where} shifts by numbers for which C may be undefined; multiply or divide by "
                "powers of 2 instead"
            )


def _given(attributes: Mapping[str, Any], name: str, default: int) -> int:
    """An attribute that is an integer."""
    return int(attributes[name].i) if name in attributes else default


#: The first opset whose operators broadcast by the last dimensions.
_BROADCASTING = 7
#: ONNX's number for an attribute that is a list of integers.
_INTEGERS = 7


def _ranks(proto: Any) -> dict[str, int]:
    """The number of dimensions of the tensors where that is known."""
    graph = proto.graph
    ranks = {
        value.name: len(value.type.tensor_type.shape.dim)
        for value in (*graph.input, *graph.value_info)
    }
    return ranks | {tensor.name: len(tensor.dims) for tensor in graph.initializer}


def _replace_prelu(proto: Any) -> None:
    """Write each PRelu as max(x, 0) + slope * min(x, 0).

    TVM's importer always takes the slopes to be along the last dimension. Before opset 7, slopes of
    one dimension are along the channels.
    """
    nodes: list[Any] = []
    versions = [one.version for one in proto.opset_import if one.domain in ("", "ai.onnx")]
    ranks = _ranks(proto) if versions and versions[0] < _BROADCASTING else {}
    for number, node in enumerate(proto.graph.node):
        if node.op_type != "PRelu" or node.domain not in ("", "ai.onnx"):
            nodes.append(node)
            continue
        x, slope = node.input
        made = [f"{node.output[0]}/prelu{number}/{step}" for step in range(6)]
        more = ranks.get(x, 0) - 2
        if more > 0 and ranks.get(slope) == 1:
            step = type(node)(op_type="Unsqueeze", name=f"{node.name}/Unsqueeze")
            step.input.append(slope)
            step.output.append(made[5])
            step.attribute.add(name="axes", ints=range(1, 1 + more), type=_INTEGERS)
            nodes.append(step)
            slope = made[5]
        steps = (
            ("Relu", [x], made[0]),
            ("Neg", [x], made[1]),
            ("Relu", [made[1]], made[2]),
            ("Neg", [made[2]], made[3]),
            ("Mul", [slope, made[3]], made[4]),
            ("Add", [made[0], made[4]], node.output[0]),
        )
        for kind, inputs, output in steps:
            step = type(node)(op_type=kind, name=f"{node.name}/{kind}")
            step.input.extend(inputs)
            step.output.append(output)
            nodes.append(step)
    if len(nodes) != len(proto.graph.node):
        del proto.graph.node[:]
        proto.graph.node.extend(nodes)
