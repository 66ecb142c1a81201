"""Operators that ONNX itself defines by others: its functions."""

from __future__ import annotations

from typing import Any

from utvm_deploy.frontend.onnx_rewrites.state import State

#: Operators that are expanded; TVM imports others with a function right, and in one piece.
EXPANDED = frozenset(
    {
        "BlackmanWindow",
        "CausalConvWithState",
        "Celu",
        "CenterCropPad",
        "FlexAttention",
        "HammingWindow",
        "HannWindow",
        "LinearAttention",
        "NegativeLogLikelihoodLoss",
        "SoftmaxCrossEntropyLoss",
        "SwiGLU",
        "Swish",
    }
)


def with_body(state: State, node: Any, _place: str, _is_made: bool) -> list[Any] | None:
    """The nodes of the operator's function, for an operator in ``EXPANDED``."""
    is_standard = node.domain in ("", "ai.onnx", "ai.onnx.preview") and not state.is_composed_only
    return body_of(state, node) if is_standard and node.op_type in EXPANDED else None


def body_of(state: State, node: Any) -> list[Any] | None:
    """The nodes of the operator's function; None if it has none for this version."""
    schema = state.schema(node)
    if schema is None:
        return None
    version = state.version
    if node.domain == "ai.onnx.preview":
        version = next(o.version for o in state.proto.opset_import if o.domain == node.domain)
    data = None
    if schema.has_context_dependent_function:
        kinds = [state.types[name].SerializeToString() if name else b"" for name in node.input]
        data = schema.get_context_dependent_function_with_opset_version(
            _version_of(schema.context_dependent_function_opset_versions, version),
            node.SerializeToString(),
            kinds,
        )
    elif schema.has_function:
        data = schema.get_function_with_opset_version(
            _version_of(schema.function_opset_versions, version)
        )
    return _inlined(state, node, state.onnx.FunctionProto.FromString(data)) if data else None


def _version_of(versions: list[int], wanted: int) -> int:
    return max((one for one in versions if one <= wanted), default=min(versions))


def _inlined(state: State, node: Any, function: Any) -> list[Any]:
    """Copies of a function's nodes, which read and make the tensors of the node."""
    names = dict.fromkeys(function.input, "") | dict(zip(function.input, node.input, strict=False))
    made = dict.fromkeys(function.output, "") | dict(
        zip(function.output, node.output, strict=False)
    )
    names |= {inner: outer for inner, outer in made.items() if outer}
    schema = state.schema(node)
    given = {
        name: one.default_value
        for name, one in schema.attributes.items()
        if one.default_value.type != state.onnx.AttributeProto.UNDEFINED
    }
    given |= {a.name: a for a in (*function.attribute_proto, *node.attribute)}
    prefix = node.name or next(name for name in node.output if name)
    return renamed(state, function.node, names, given, prefix)


def renamed(
    state: State, nodes: Any, names: dict[str, str], given: dict[str, Any], prefix: str
) -> list[Any]:
    """Copies of nodes; ``names`` maps names inside to those outside, and grows.

    ``given`` has the attributes that the nodes refer to.
    """
    copies = []
    for node in nodes:
        copy = type(node).FromString(node.SerializeToString())
        del copy.attribute[:]
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                if attribute.ref_attr_name in given:
                    found = copy.attribute.add()
                    found.CopyFrom(given[attribute.ref_attr_name])
                    found.name = attribute.name
                continue
            found = copy.attribute.add()
            found.CopyFrom(attribute)
            if found.HasField("g"):
                _rename_graph(state, found.g, names, given)
        for position, name in enumerate(node.input):
            copy.input[position] = names.get(name, name)
        for position, name in enumerate(node.output):
            if name and not names.get(name):
                names[name] = state.new_name(f"{prefix}_{name}")
            copy.output[position] = names.get(name, "")
        copies.append(copy)
    return copies


def _rename_graph(state: State, graph: Any, names: dict[str, str], given: dict[str, Any]) -> None:
    """Let a subgraph read outer tensors by their new names, in place."""
    inner = dict(names)
    for value in (*graph.input, *graph.initializer):
        inner[value.name] = value.name
    for node in graph.node:
        for name in node.output:
            inner[name] = name
    copies = renamed(state, graph.node, inner, given, graph.name)
    del graph.node[:]
    graph.node.extend(copies)
