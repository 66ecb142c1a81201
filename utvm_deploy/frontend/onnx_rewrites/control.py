"""Rewrites of If, Loop and Scan to the operators of their subgraphs."""

from __future__ import annotations

from typing import Any

import numpy as np

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.frontend.onnx_rewrites.bodies import renamed
from utvm_deploy.frontend.onnx_rewrites.known_values import array_of
from utvm_deploy.frontend.onnx_rewrites.state import Rewriting

#: How many steps a loop may be unrolled to.
MOST_STEPS = 256


def _inlined(r: Rewriting, graph: Any, inputs: list[str], label: str) -> list[str]:
    """The nodes of a subgraph on these tensors; the names of its outputs."""
    names = dict(zip((value.name for value in graph.input), inputs, strict=True))
    for tensor in graph.initializer:
        names[tensor.name] = r.constant(array_of(r.state.onnx, tensor))
    prefix = f"{r.node.name or r.node.output[0]}_{label}"
    r.made.extend(renamed(r.state, graph.node, names, {}, prefix))
    return [names.get(value.name, value.name) for value in graph.output]


def branch(r: Rewriting) -> bool:
    """The branch of a constant condition; else both, and a choice between their results."""
    condition = r.value(0)
    if condition is not None:
        name = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
        for position, made in enumerate(_inlined(r, r.given[name], [], name)):
            r.finish(made, position)
        return True
    graphs = [r.given[name] for name in ("then_branch", "else_branch")]
    for values in zip(*(graph.output for graph in graphs), strict=True):
        kinds = [value.type for value in values]
        if any(not kind.HasField("tensor_type") for kind in kinds) or kinds[0] != kinds[1]:
            raise UnsupportedOperator(
                f"{r.place} has branches with results of other types or shapes; export one branch"
            )
    results = [
        _inlined(r, graph, [], name) for graph, name in zip(graphs, ("then", "else"), strict=True)
    ]
    for position, (yes, no) in enumerate(zip(results[0], results[1], strict=True)):
        r.made.append(
            r.state.onnx.helper.make_node("Where", [r.input(0), yes, no], [r.node.output[position]])
        )
    return True


def loop(r: Rewriting) -> bool:
    """A step after the other, if their number is constant."""
    body = r.given["body"]
    count, condition = r.value(0), r.value(1)
    is_going = not r.has(1) or (condition is not None and bool(condition.reshape(-1)[0]))
    if count is None or not is_going or not _goes_on(body):
        raise UnsupportedOperator(
            f"{r.place} ends by a computed condition; only loops with a constant number of steps "
            "are supported"
        )
    steps = int(count.reshape(-1)[0])
    _check_steps(r, steps)
    states = list(r.node.input[2:])
    rows: list[list[str]] = []
    for step in range(steps):
        number = r.constant(step, np.int64)
        going = r.constant(True, np.bool_)
        made = _inlined(r, body, [number, going, *states], f"step{step}")
        states = made[1 : 1 + len(states)]
        rows.append(made[1 + len(states) :])
    _finish(r, states, rows, [0] * (len(body.output) - 1 - len(states)), [])
    return True


def _goes_on(body: Any) -> bool:
    """Whether the condition that a body makes is the one that it gets, or constant and true."""
    name, given = body.output[0].name, body.input[1].name
    makers = {output: node for node in body.node for output in node.output}
    while name in makers and makers[name].op_type == "Identity":
        name = makers[name].input[0]
    if name == given:
        return True
    maker = makers.get(name)
    if maker is None or maker.op_type not in ("Constant",):
        return any(
            t.name == name and bool(t.int32_data or t.raw_data.strip(b"\0"))
            for t in body.initializer
        )
    value = maker.attribute[0].t
    return bool(any(value.int32_data) or value.raw_data.strip(b"\0"))


def scan(r: Rewriting) -> bool:
    """A step for each element of the scanned inputs."""
    body = r.given["body"]
    inputs = list(r.node.input)
    if r.state.version < 9:
        raise UnsupportedOperator(f"{r.place} is of a version before 9; export with a newer opset")
    count = int(r.given["num_scan_inputs"])
    states, sources = inputs[:-count], inputs[-count:]
    ranks = [len(r.shape_of(name)) for name in sources]
    axes = [
        int(a) % n for a, n in zip(r.given.get("scan_input_axes", [0] * count), ranks, strict=True)
    ]
    ways = r.given.get("scan_input_directions", [0] * count)
    steps = r.shape_of(sources[0])[axes[0]]
    _check_steps(r, steps)
    rows = []
    for step in range(steps):
        parts = [
            r.taken(name, steps - 1 - step if way else step, axis)
            for name, axis, way in zip(sources, axes, ways, strict=True)
        ]
        made = _inlined(r, body, [*states, *parts], f"step{step}")
        states = made[: len(states)]
        rows.append(made[len(states) :])
    more = len(body.output) - len(states)
    to = list(r.given.get("scan_output_axes", [0] * more))
    _finish(r, states, rows, to, r.given.get("scan_output_directions", [0] * more))
    return True


def _check_steps(r: Rewriting, steps: int) -> None:
    if not 1 <= steps <= MOST_STEPS:
        raise UnsupportedOperator(
            f"{r.place} has {steps} steps; from 1 to {MOST_STEPS} are supported"
        )


def _finish(
    r: Rewriting, states: list[str], rows: list[list[str]], axes: list[int], ways: Any
) -> None:
    """The last states, and what each step made along a new axis."""
    helper = r.state.onnx.helper
    for position, name in enumerate(states):
        if r.wants(position):
            r.finish(name, position)
    for number, axis in enumerate(axes):
        position = len(states) + number
        if not r.wants(position):
            continue
        parts = [row[number] for row in rows]
        if ways and ways[number]:
            parts.reverse()
        wide = []
        for part in parts:
            name = r.state.new_name(f"{part}_wide")
            if r.state.version >= 13:
                node = helper.make_node("Unsqueeze", [part, r.constant([axis], np.int64)], [name])
            else:
                node = helper.make_node("Unsqueeze", [part], [name], axes=[axis])
            r.made.append(node)
            wide.append(name)
        rank_axis = axis
        r.made.append(helper.make_node("Concat", wide, [r.node.output[position]], axis=rank_axis))
