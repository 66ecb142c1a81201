"""An ONNX model of float32 as a Relax module, by TVM's importer."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from utvm_deploy.base.errors import ModelError, UnsupportedOperator, last_words
from utvm_deploy.frontend.relax.facts import RelaxModel
from utvm_deploy.frontend.relax.road import relax_model

_log = logging.getLogger(__name__)

#: Operators that a message names.
_MOST_TOLD = 10


def relax_of_onnx(proto: Any, notes: tuple[str, ...] = ()) -> RelaxModel:
    """The model, lowered; ``proto`` is an ``onnx.ModelProto`` whose shapes are fixed.

    ``notes`` are for the user.

    Raises ModelError or UnsupportedOperator for what TVM cannot import or lower. The message names
    the ONNX operator, and TVM's words go to the log.
    """
    from utvm_deploy.frontend.relax.check import check_given, check_main

    _check_known(proto)
    _check_shapes(proto)
    module = _imported(proto)
    check_main(module)
    check_given(module)
    names = tuple(value.name for value in proto.graph.output)
    try:
        lowered = relax_model(module)
    except ModelError as exc:
        _log.info("%s", exc)
        place = _culprit(proto)
        if place is None:
            raise
        raise type(exc)(f"{place.rstrip(',')}: {_reason(exc)}") from exc
    return replace(lowered, notes=notes, outputs=names)


def _imported(proto: Any) -> Any:
    """The model as a Relax module."""
    from tvm.relax.frontend.onnx import from_onnx

    try:
        return from_onnx(proto, keep_params_in_input=False)
    except Exception as exc:  # of many classes
        _log.info("TVM's importer: %s: %s", type(exc).__name__, last_words(exc))
        node = _node_of(exc)
        if node is None:
            raise ModelError(
                "TVM cannot import the model; simplify it, for example with onnxsim"
            ) from exc
        raise UnsupportedOperator(f"{place_of(node)} {_not_so(proto, node)}") from exc


def place_of(node: Any) -> str:
    """How messages name a node."""
    made = next((name for name in node.output if name), "")
    domain = f"{node.domain}." if node.domain not in ("", "ai.onnx") else ""
    return f"the operator {domain}{node.op_type}, which makes '{made}',"


def _not_so(proto: Any, node: Any) -> str:
    """What a message says of a node that TVM's importer fails on."""
    known = {tensor.name for tensor in proto.graph.initializer}
    computed = [name for name in node.input[1:] if name and name not in known]
    if not computed:
        return "is not supported with these attributes and shapes; export it as simpler operators"
    return f"is not supported as it is; make {_told(computed)} constant if you can"


def _told(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _node_of(error: Exception) -> Any:
    """The node that TVM's importer was at when it failed; None if it was at none."""
    place, found = error.__traceback__, None
    while place is not None:
        # TVM prints the operator's name, but does not put it into the error.
        node: Any = place.tb_frame.f_locals.get("node")
        if hasattr(node, "op_type") and node.output:
            found = node
        place = place.tb_next
    return found


def _check_known(proto: Any) -> None:
    """Raise UnsupportedOperator with all operators that TVM has no importer for."""
    from tvm.relax.frontend.onnx import onnx_frontend

    known = {*onnx_frontend._get_convert_map(), "Constant", "If"}
    places = [place_of(node) for node in proto.graph.node if not _is_known(node, known)]
    if places:
        more = f" and {len(places) - _MOST_TOLD} more" if len(places) > _MOST_TOLD else ""
        told = " ".join(places[:_MOST_TOLD])
        raise UnsupportedOperator(
            f"{told}{more} cannot be imported; utvm docs onnx-operators lists what is refused"
        )


def _is_known(node: Any, known: set[str]) -> bool:
    # TVM looks at the name only, so it takes an operator of another domain for ONNX's.
    return node.domain in ("", "ai.onnx", "com.microsoft") and node.op_type in known


def _check_shapes(proto: Any) -> None:
    """Raise UnsupportedOperator for operators whose outputs have shapes that values decide."""
    known = {value.name: value.type for value in (*proto.graph.value_info, *proto.graph.input)}
    constants = {tensor.name for tensor in proto.graph.initializer}
    fixed = {name for name, kind in known.items() if _is_fixed(kind)} | constants
    for node in proto.graph.node:
        if not all(name in fixed for name in node.input if name):
            continue
        if any(name in known and name not in fixed for name in node.output):
            computed = [name for name in node.input[1:] if name and name not in constants]
            way = f"make {_told(computed)} constant" if computed else "cut the model off before it"
            raise UnsupportedOperator(
                f"{place_of(node)} has an output whose shape depends on values; {way}"
            )


def _is_fixed(kind: Any) -> bool:
    if not kind.HasField("tensor_type"):
        return True  # a sequence, which has no shape
    shape = kind.tensor_type.shape
    return kind.tensor_type.HasField("shape") and all(d.HasField("dim_value") for d in shape.dim)


def _culprit(proto: Any) -> str | None:
    """The first node that cannot be lowered alone; None if each can."""
    for node, alone in _alone(proto):
        try:
            relax_model(_imported(alone))
        except ModelError:
            return place_of(node)
    return None


def _alone(proto: Any) -> Iterator[tuple[Any, Any]]:
    """Each node that computes, and a model of it alone."""
    graph = proto.graph
    types = {value.name: value for value in (*graph.input, *graph.value_info, *graph.output)}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    seen: set[tuple[Any, ...]] = set()
    for node in graph.node:
        read = [name for name in dict.fromkeys(node.input) if name]
        inputs = [types[name] for name in read if name in types and name not in constants]
        made = [types[name] for name in node.output if name in types]
        kinds = tuple(value.type.SerializeToString() for value in inputs)
        key = (node.op_type, kinds, *(a.SerializeToString() for a in node.attribute))
        is_whole = len(made) == sum(map(bool, node.output))
        if not inputs or not is_whole or key in seen:
            continue
        seen.add(key)
        alone = type(proto)(ir_version=proto.ir_version, opset_import=proto.opset_import)
        alone.graph.name = "alone"
        alone.graph.node.append(node)
        alone.graph.input.extend(inputs)
        alone.graph.output.extend(made)
        alone.graph.initializer.extend(constants[name] for name in read if name in constants)
        yield node, alone


def _reason(error: ModelError) -> str:
    """Why a node is refused, without the words of TVM."""
    said = str(error)
    for dtype in ("float64", "float16"):
        if dtype in said:
            return f"it computes in {dtype}, which has no kernels; convert the model to float32"
    if "needs more memory" in said:
        return said
    return "TVM cannot compile it with these types and shapes; export it as simpler operators"
