"""Buffers in variables, as streaming models keep what they heard: runs follow on each other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tflite_serializer import TensorSpec
from tflite_writer import ModelWriter

from random_models.draw import Draw, Scope, Shape
from random_models.operations.operation import Operation, Propose, like, number, word
from random_models.recipe import Ref, Step, values

#: How a variable is used: what is kept of it and of what comes in, and what goes on.
_FORMS = ("append", "shift", "delay", "sum", "reread", "swap", "constant", "replace")
_MOST_ELEMENTS = 1500


def _first(m: ModelWriter, step: Step, x: TensorSpec, shape: Shape) -> int:
    """The handle of a new variable, which has a first value."""
    rng = np.random.default_rng([step.seed, len(m.tensors)])
    zero = x.zero_points[0] if x.zero_points else 0
    fill = word(step, "fill")
    first = np.full(shape, zero, x.dtype) if fill == "zeros" else values(rng, fill, shape, x.dtype)
    return m.variable(f"states_{len(m.tensors)}", first, x.scales or None, zero)


def _variables(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    (x,), spec, form = inputs, m.tensors[inputs[0]], word(step, "form")
    axis, kept = number(step, "axis") % len(spec.shape), number(step, "kept")
    if kept < 1:
        raise ValueError(f"{kept} kept")
    zero = spec.zero_points[0] if spec.zero_points else 0

    def read(handle: int, shape: Sequence[int]) -> int:
        return m.read(handle, shape, spec.scales or None, zero, spec.dtype)

    def along(extent: int) -> Shape:
        return tuple(extent if i == axis else d for i, d in enumerate(spec.shape))

    def joined(first: int) -> int:
        extent = m.tensors[first].shape[axis] + spec.shape[axis]
        options = ("ConcatenationOptions", {"Axis": axis, "FusedActivationFunction": 0})
        return like(m, "CONCATENATION", [first, x], along(extent), options)

    def last(value: int, extent: int) -> int:
        begin = [0] * len(spec.shape)
        begin[axis] = m.tensors[value].shape[axis] - extent
        sizes = np.array(along(extent), np.int32)
        operands = [value, m.constant(np.array(begin, np.int32)), m.constant(sizes)]
        return like(m, "SLICE", operands, along(extent), ("SliceOptions", {}))

    if form in ("append", "shift"):
        extent = kept if form == "append" else kept + spec.shape[axis]
        handle = _first(m, step, spec, along(extent))
        found = read(handle, along(extent))
        window = joined(found if form == "append" else last(found, kept))
        m.assign(handle, last(window, kept) if form == "append" else window)
        return (window,)
    handle = _first(m, step, spec, spec.shape)
    found = read(handle, spec.shape)
    if form == "swap":
        other = _first(m, step, spec, spec.shape)
        second = read(other, spec.shape)
        m.assign(handle, second)
        m.assign(other, x if step.seed % 2 else found)
        return (found, second)
    if form == "sum":
        options = ("MaximumMinimumOptions", {})
        total = like(m, "MAXIMUM", [found, x][:: 1 if step.seed % 2 else -1], spec.shape, options)
        m.assign(handle, total)
        return (total,)
    if form != "constant":
        m.assign(handle, x)
    if form == "replace":
        m.assign(handle, last(x, spec.shape[axis]))
    return (found, read(handle, spec.shape)) if form == "reread" else (found,)


def _proposed(kind: str) -> Propose:
    def propose(scope: Scope, x: Ref) -> Step:
        draw, spec = scope.draw, scope.spec(x)
        form = draw.one(_FORMS)
        if form == "sum" and spec.dtype not in ("int8", "int16"):
            form = "delay"
        attributes = {
            "form": form,
            "axis": draw.between(0, len(spec.shape) - 1),
            "kept": draw.between(1, 6),
            "fill": draw.one(("zeros", "zeros", "random", "ends")),
        }
        return Step(kind, (x,), attributes, draw.seed())

    return propose


def _frames(draw: Draw) -> Shape:
    return (1, draw.between(1, 4), draw.between(1, 3), draw.channels())


def _is_small(spec: TensorSpec) -> bool:
    return math.prod(spec.shape) <= _MOST_ELEMENTS


OPERATIONS = {
    kind: Operation(_variables, _proposed(kind), _is_small, _frames)
    for kind in ("ASSIGN_VARIABLE", "READ_VARIABLE")
}
