"""Rewrites a float ONNX graph, node by node, until TVM's importer gets every node right.

Each node goes through ``STEPS`` in their order. A step returns the nodes that take its place, or
None. These nodes go through all steps, too. So a rewrite may use operators that another rewrites.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np

from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.frontend.onnx_rewrites.bodies import with_body
from utvm_deploy.frontend.onnx_rewrites.contributed import with_rewritable_version
from utvm_deploy.frontend.onnx_rewrites.known_values import (
    MOST_KNOWN,
    array_of,
    constant_of,
    evaluated,
)
from utvm_deploy.frontend.onnx_rewrites.rules import COMPOSED, CONTRIBUTED, RULES
from utvm_deploy.frontend.onnx_rewrites.state import STANDARD, Rewriting, State

#: Elements of constants that rewrites made, and that are computed at import.
_MOST_MADE = 1 << 16
#: How many nodes a graph may become.
_MOST_NODES = 20_000
#: Operators that depend on the shape of their input only.
_OF_SHAPES = ("EyeLike", "Shape", "Size")
#: The version of ONNX's operators that rewrites use, if the model uses none of them.
_VERSION = 18
#: Operators whose few inputs say how many elements they make.
_BY_COUNT = ("BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix", "Range")
_RANDOM = (
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
)

Made: TypeAlias = "list[Any] | None"


def without_composed(onnx: Any, proto: Any, *, is_for_integers: bool = False) -> Any:
    """The model with products, masks and Softmax for what integers cannot compute in one piece.

    Raises ModelError and UnsupportedOperator as ``rewritten`` does.
    """
    if not any(_key(node) in COMPOSED for node in proto.graph.node):
        return proto
    return rewritten(onnx, proto, is_composed_only=True, is_for_integers=is_for_integers)


def rewritten(
    onnx: Any, proto: Any, *, is_composed_only: bool = False, is_for_integers: bool = False
) -> Any:
    """The model in operators that TVM imports right; inputs have fixed shapes.

    If it ``is_composed_only``, all other operators stay. Raises ModelError for a node that
    contradicts itself, UnsupportedOperator for a use of an operator that has no rewrite.
    """
    if any(_key(node) in CONTRIBUTED for node in proto.graph.node):
        proto = with_rewritable_version(onnx, proto)
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    state = _start(onnx, copy)
    state.is_composed_only, state.is_for_integers = is_composed_only, is_for_integers
    kept: list[Any] = []
    waiting = deque(
        (node, _place(index, node), False) for index, node in enumerate(proto.graph.node)
    )
    while waiting:
        node, place, is_made = waiting.popleft()
        state.infer(node, place)
        for step in STEPS:
            made = step(state, node, place, is_made)
            if made is not None:
                waiting.extendleft((one, place, True) for one in reversed(made))
                break
        else:
            kept.append(node)
            state.makers.update((name, node) for name in node.output)
        if len(waiting) + len(kept) > _MOST_NODES:
            raise UnsupportedOperator(
                f"{place} makes the graph larger than {_MOST_NODES:,} operators; use fewer steps"
            )
    return _finished(state, kept)


def _place(index: int, node: Any) -> str:
    """How messages name a node."""
    made = next((name for name in node.output if name), "")
    return f"operator {index} ({node.op_type}), which makes '{made}',"


def _start(onnx: Any, proto: Any) -> State:
    if not any(one.domain in STANDARD for one in proto.opset_import):
        proto.opset_import.append(onnx.helper.make_opsetid("", _VERSION))
    state = State(onnx, proto)
    graph = proto.graph
    for value in (*graph.input, *graph.value_info):
        state.types[value.name] = value.type
    for tensor in graph.initializer:
        state.remember(tensor.name, array_of(onnx, tensor))
    state.names = {name for node in graph.node for name in (*node.input, *node.output)}
    state.names.update(state.types)
    return state


def _finished(state: State, nodes: list[Any]) -> Any:
    """The model of these nodes, with the constants that they read."""
    graph = state.proto.graph
    nodes = _read(nodes, {value.name for value in graph.output})
    read = {name for node in nodes for name in _inputs(node)}
    read.update(value.name for value in graph.output)
    del graph.node[:]
    graph.node.extend(nodes)
    known = [name for name in state.constants if name in read]
    inputs = [value for value in graph.input if value.name not in state.constants]
    del graph.input[:], graph.initializer[:], graph.value_info[:]
    graph.input.extend(inputs)
    to_tensor = state.onnx.numpy_helper.from_array
    graph.initializer.extend(to_tensor(np.asarray(state.constants[name]), name) for name in known)
    made = {name for node in nodes for name in node.output}
    graph.value_info.extend(
        state.onnx.helper.make_value_info(name, kind)
        for name, kind in state.types.items()
        if name in made
    )
    return state.proto


def _inputs(node: Any) -> list[str]:
    """What a node reads, also within its subgraphs."""
    inner = (a.g for a in node.attribute if a.HasField("g"))
    return [*node.input, *(name for graph in inner for one in graph.node for name in _inputs(one))]


def _read(nodes: list[Any], wanted: set[str]) -> list[Any]:
    """The nodes whose results are wanted, or read by such a node."""
    wanted, kept = set(wanted), []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(_inputs(node))
    return kept[::-1]


def _constants(state: State, node: Any, place: str, is_made: bool) -> Made:
    """A Constant is known. What is known or empty needs no node."""
    if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
        with suppress(ModelError):
            state.remember(node.output[0], constant_of(state.onnx, node, 0))
            return []
    return None


def _empty(state: State, node: Any, _place: str, _is_made: bool) -> Made:
    """Tensors without elements are known."""
    if not node.output:
        return None
    for name in node.output:
        shape, dtype = state.shape(name), state.dtype(name)
        if not name or shape is None or dtype is None or math.prod(shape) > 0:
            return None
        # An output of the model is refused later, by its name.
        if name in {value.name for value in state.proto.graph.output}:
            return None
    for name in node.output:
        shape, dtype = state.shape(name), state.dtype(name)
        assert shape is not None
        state.remember(name, np.zeros(shape, dtype))
    return []


def _known(state: State, node: Any, _place: str, is_made: bool) -> Made:
    """Operators on constants and shapes are computed by ONNX's reference."""
    if node.op_type in _RANDOM or any(a.HasField("g") or a.graphs for a in node.attribute):
        return None
    if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
        return None
    shapes = {name: state.shape(name) for name in (*node.input, *node.output) if name}
    most = _MOST_MADE if is_made or node.op_type in _BY_COUNT else MOST_KNOWN
    if node.op_type in _OF_SHAPES:
        extents = shapes.get(node.input[0])
        if extents is None:
            return None
        if node.op_type == "Shape":
            state.constants.update(evaluated(state.onnx, state.proto, node, {}, shapes))
            return _remembered(state, node)
        given: Mapping[str, Any] = {
            node.input[0]: np.zeros(extents, state.dtype(node.input[0]) or np.float32)
        }
    else:
        if not node.input or not all(name in state.constants for name in node.input if name):
            return None
        given = state.constants
    made_shapes = [shapes[name] for name in node.output if name]
    sizes = [most + 1 if shape is None else math.prod(shape) for shape in made_shapes]
    is_by_value = any(shape is None for shape in made_shapes)
    if not is_by_value and max(sizes, default=0) > most:
        return None
    try:
        made = evaluated(state.onnx, state.proto, node, given, {})
    except (ModelError, ValueError, TypeError):  # what the reference cannot compute
        return None
    if not all(isinstance(data, np.ndarray) and data.dtype != object for data in made.values()):
        return None
    state.constants.update(made)
    return _remembered(state, node)


def _remembered(state: State, node: Any) -> list[Any]:
    for name in node.output:
        if name:
            state.remember(name, np.asarray(state.constants[name]))
    return []


def _key(node: Any) -> tuple[str, str]:
    return ("" if node.domain in STANDARD else node.domain, node.op_type)


def _ruled(state: State, node: Any, place: str, _is_made: bool) -> Made:
    """Our own rewrites."""
    rule = RULES.get(_key(node))
    if rule is None or (state.is_composed_only and _key(node) not in COMPOSED):
        return None
    rewriting = Rewriting(state, node, place)
    try:
        replaced = rule(rewriting)
        if isinstance(replaced, str):
            rewriting.finish(replaced)
        return None if replaced is False else rewriting.made
    except (ArithmeticError, LookupError, TypeError, ValueError) as exc:  # of a damaged file
        said = f"{type(exc).__name__}: {exc}"
        raise ModelError(f"{place} has attributes or inputs that do not fit ({said})") from exc


Step: TypeAlias = Callable[[State, Any, str, bool], Made]
#: What is done to each node, in this order.
STEPS: tuple[Step, ...] = (_constants, _empty, _known, _ruled, with_body)
