"""Refuses programs of PyTorch that train, and finds buffers that a program writes into.

A program that was exported in training drops elements and computes its own statistics.
"""

from __future__ import annotations

from typing import Any

from utvm_deploy.base.errors import ModelError

_EXPORT = "call module.eval() before torch.export.export"
#: Operators that drop elements: the argument that says whether, or how many.
_DROPPING = {
    **dict.fromkeys(("dropout", "dropout_", "feature_dropout", "alpha_dropout"), "train"),
    "feature_alpha_dropout": "train",
    "scaled_dot_product_attention": "dropout_p",
}
#: Operators that compute statistics of their input, and keep them: the argument that says whether.
_COUNTING = {"batch_norm": "training", "instance_norm": "use_input_stats"}


def check_evaluation(program: Any, *, is_quantized: bool = False) -> None:
    """Raise ModelError for an ``ExportedProgram`` that trains.

    A batch norm without running statistics is allowed in float32 only.
    """
    for node in program.graph.nodes:
        schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
        if schema is None:
            continue
        kind = schema.name.rpartition("::")[2]
        given = _given(node, schema)
        if given.get(_DROPPING.get(kind, "")) and given.get("p") != 0:
            raise ModelError(f"operator '{node.name}' drops elements, as in training; {_EXPORT}")
        if given.get(_COUNTING.get(kind, "")) and given.get("running_mean") is not None:
            raise ModelError(
                f"operator '{node.name}' computes the statistics of its input, as in training; "
                f"{_EXPORT}"
            )
        if is_quantized and kind == "batch_norm" and given.get("running_mean") is None:
            raise ModelError(
                f"operator '{node.name}' has no running statistics, so its scales are not known; "
                "leave track_running_stats=False out, or use GroupNorm"
            )


def _given(node: Any, schema: Any) -> dict[str, Any]:
    """Arguments by their names."""
    names = [one.name for one in schema.arguments]
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def written_buffers(program: Any) -> list[str]:
    """The names of buffers that an ``ExportedProgram`` writes into, as often as it does."""
    signature = program.graph_signature
    found = list(signature.buffers_to_mutate.values())
    for node in program.graph.nodes:
        schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
        if schema is None or not schema.is_mutable:
            continue
        given = _given(node, schema)
        for one in schema.arguments:
            if one.alias_info is not None and one.alias_info.is_write:
                buffer = signature.inputs_to_buffers.get(_origin(given.get(one.name)))
                found += [buffer] if buffer else []
    return found


def _origin(node: Any) -> str:
    """The name of the tensor of which a node is a view, or which it is."""
    while getattr(node, "op", "") == "call_function":
        schema = getattr(node.target, "_schema", None)
        if schema is None or not schema.returns or schema.returns[0].alias_info is None:
            break
        node = node.args[0]
    return str(getattr(node, "name", ""))
