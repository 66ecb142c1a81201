"""Operators that make or take booleans, and CAST."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tflite_serializer import TensorSpec
from tflite_writer import ModelWriter

from random_models.draw import Draw, Scope, Shape
from random_models.operations.elementwise import broadcastable
from random_models.operations.operation import Operation, Propose, partner, word
from random_models.recipe import Ref, Step

_COMPARISONS = {
    "EQUAL": "EqualOptions",
    "GREATER": "GreaterOptions",
    "GREATER_EQUAL": "GreaterEqualOptions",
    "LESS": "LessOptions",
    "LESS_EQUAL": "LessEqualOptions",
    "NOT_EQUAL": "NotEqualOptions",
}
_LOGICAL = {
    "LOGICAL_AND": "LogicalAndOptions",
    "LOGICAL_OR": "LogicalOrOptions",
    "LOGICAL_NOT": "LogicalNotOptions",
}
_SELECTS = {"SELECT": "SelectOptions", "SELECT_V2": "SelectV2Options"}
_TYPES = {"bool": 6, "int8": 9, "int16": 7, "uint8": 3, "int32": 2, "int64": 4}


def _truth(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    shape = np.broadcast_shapes(*(m.tensors[i].shape for i in inputs))
    out = m.tensor(shape, "bool")
    table = {**_COMPARISONS, **_LOGICAL}[step.kind]
    m.operator(step.kind, inputs, [out], (table, {}))
    return (out,)


def _proposed_comparison(kind: str) -> Propose:
    def propose(scope: Scope, x: Ref) -> Step:
        draw, spec = scope.draw, scope.spec(x)
        if spec.scales and spec.scales[0] >= 1:
            x = scope.input(spec.shape, spec.dtype, 0.05)
        if spec.dtype not in ("int8", "int16"):
            y = scope.input(broadcastable(draw, spec.shape), spec.dtype)
        else:
            # The order of int16 is defined at equal scales only.
            equal = draw.chance(0.4) or spec.dtype == "int16"
            y = partner(scope, x, broadcastable(draw, spec.shape), equal=equal)
        return Step(kind, (x, y) if draw.chance(0.7) else (y, x))

    return propose


def _condition(scope: Scope, shape: Shape) -> Ref:
    found = scope.pick(lambda spec: spec.shape == shape, "bool")
    return found if found and scope.draw.chance(0.7) else scope.input(shape, "bool")


def _proposed_logical(kind: str) -> Propose:
    def propose(scope: Scope, x: Ref) -> Step:
        shape = scope.spec(x).shape
        sides = [_condition(scope, shape)]
        if kind != "LOGICAL_NOT":
            sides.append(_condition(scope, broadcastable(scope.draw, shape)))
        return Step(kind, tuple(sides))

    return propose


def _select(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    condition, x, y = (m.tensors[i] for i in inputs)
    shape = x.shape
    if step.kind == "SELECT_V2":
        shape = np.broadcast_shapes(condition.shape, x.shape, y.shape)
    out = m.tensor(shape, x.dtype, x.scales or None, x.zero_points or 0)
    m.operator(step.kind, inputs, [out], (_SELECTS[step.kind], {}))
    return (out,)


def _proposed_select(kind: str) -> Propose:
    def propose(scope: Scope, x: Ref) -> Step:
        draw, shape = scope.draw, scope.spec(x).shape
        if kind == "SELECT":
            condition = draw.one((shape, shape, shape[:1]))
            y = partner(scope, x, shape, equal=True)
        else:
            condition = broadcastable(draw, shape)
            y = partner(scope, x, broadcastable(draw, shape), equal=True)
        return Step(kind, (_condition(scope, condition), *draw.one(((x, y), (y, x)))))

    return propose


def _cast(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    x, dtype = m.tensors[inputs[0]], word(step, "dtype")
    quantized = dtype in ("int8", "int16", "uint8")
    out = m.tensor(x.shape, dtype, 0.1 if quantized else None)
    fields = {"InDataType": _TYPES[x.dtype], "OutDataType": _TYPES[dtype]}
    m.operator("CAST", inputs, [out], ("CastOptions", fields))
    return (out,)


def _propose_cast(scope: Scope, x: Ref) -> Step:
    draw, shape = scope.draw, scope.spec(x).shape
    source = draw.one((*_TYPES, "int8", "bool"))
    if source == "bool":
        x = _condition(scope, shape)
    elif source != scope.spec(x).dtype:
        x = scope.input(shape, source)
    return Step("CAST", (x,), {"dtype": draw.one(tuple(_TYPES))})


def _of_four(draw: Draw) -> Shape:
    return draw.shape(draw.between(1, 4))


def _is_small(spec: TensorSpec) -> bool:
    return 1 <= len(spec.shape) <= 4


OPERATIONS = {
    **{
        kind: Operation(_truth, _proposed_comparison(kind), _is_small, _of_four)
        for kind in _COMPARISONS
    },
    **{kind: Operation(_truth, _proposed_logical(kind), _is_small, _of_four) for kind in _LOGICAL},
    **{kind: Operation(_select, _proposed_select(kind), _is_small, _of_four) for kind in _SELECTS},
    "CAST": Operation(_cast, _propose_cast, _is_small, _of_four),
}
