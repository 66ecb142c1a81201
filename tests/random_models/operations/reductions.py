"""Operators that reduce along dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tflite_writer import ModelWriter

from random_models.draw import Scope
from random_models.operations.operation import (
    Operation,
    Propose,
    number,
    numbers,
    output_quantization,
    real,
)
from random_models.recipe import Attribute, Ref, Step

_REQUANTIZING = ("MEAN", "SUM", "REDUCE_PROD")
_KEEPING = ("REDUCE_MAX", "REDUCE_MIN")
_OF_BOOLEANS = ("REDUCE_ALL", "REDUCE_ANY")
_TYPES = {"int32": 2, "int64": 4}


def _reduce(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    x, axes = m.tensors[inputs[0]], numbers(step, "axes")
    rank, keeps = len(x.shape), bool(step.attributes["keep_dims"])
    if not axes or not all(-rank <= a < rank for a in axes):
        raise ValueError(f"axes {axes} of {x.shape}")
    reduced = {a % rank for a in axes}
    shape = [1 if i in reduced else d for i, d in enumerate(x.shape) if keeps or i not in reduced]
    if not shape:
        raise ValueError("a scalar")
    if "scale" in step.attributes:
        out = m.tensor(shape, x.dtype, real(step, "scale"), number(step, "zero_point"))
    else:
        out = m.tensor(shape, x.dtype, x.scales or None, x.zero_points or 0)
    operands = [inputs[0], m.constant(np.array(axes, np.int32))]
    m.operator(step.kind, operands, [out], ("ReducerOptions", {"KeepDims": keeps}))
    return (out,)


def _proposed_reduce(kind: str) -> Propose:
    def propose(scope: Scope, x: Ref) -> Step:
        draw, spec = scope.draw, scope.spec(x)
        if kind in _OF_BOOLEANS and spec.dtype != "bool":
            x = scope.input(spec.shape, "bool")
        rank = len(spec.shape)
        keeps = draw.chance(0.5) or rank == 1
        most = rank if keeps else rank - 1
        count = draw.between(1, most)
        chosen = draw.rng.permutation(rank)[:count]
        if rank == 4 and draw.chance(0.4):
            chosen = np.array([1, 2])
        if kind == "REDUCE_PROD":  # only neighbours
            chosen = np.sort(np.arange(rank)[-count:] if draw.chance(0.5) else np.arange(count))
        axes = tuple(int(a) if draw.chance(0.7) else int(a) - rank for a in chosen)
        attributes: dict[str, Attribute] = {"axes": axes, "keep_dims": keeps}
        if kind in _REQUANTIZING:
            terms = math.prod(spec.shape[a] for a in axes)
            natural = spec.scales[0] * (math.sqrt(terms) if kind == "SUM" else 1.0)
            if kind == "REDUCE_PROD":  # so that each factor is scaled by about 1/32
                natural = min(max((32 * spec.scales[0]) ** min(terms, 8), 1e-6), 1e6)
            attributes.update(output_quantization(draw, natural))
            if draw.chance(0.2):
                attributes.update(scale=spec.scales[0], zero_point=spec.zero_points[0])
        return Step(kind, (x,), attributes)

    return propose


def _arg_max(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    shape, axis, dtype = (
        list(m.tensors[inputs[0]].shape),
        number(step, "axis"),
        step.attributes["dtype"],
    )
    del shape[axis]
    if not shape:
        raise ValueError("a scalar")
    out = m.tensor(shape, str(dtype))
    constant = m.constant(np.array(axis, np.int32))
    table = "ArgMaxOptions" if step.kind == "ARG_MAX" else "ArgMinOptions"
    options = (table, {"OutputType": _TYPES[str(dtype)]})
    m.operator(step.kind, [inputs[0], constant], [out], options)
    return (out,)


def _proposed_arg(kind: str) -> Propose:
    def propose(scope: Scope, x: Ref) -> Step:
        draw, rank = scope.draw, len(scope.spec(x).shape)
        axis = -1 if draw.chance(0.5) else draw.between(-rank, rank - 1)
        return Step(kind, (x,), {"axis": axis, "dtype": draw.one(tuple(_TYPES))})

    return propose


def _cumsum(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    x = m.tensors[inputs[0]]
    if not -len(x.shape) <= number(step, "axis") < len(x.shape):
        raise ValueError(f"axis {number(step, 'axis')} of {x.shape}")
    constant = m.constant(np.array(number(step, "axis"), np.int32))
    options = {"Exclusive": bool(step.attributes["exclusive"])}
    options["Reverse"] = bool(step.attributes["reverse"])
    out = m.tensor(x.shape, x.dtype)
    m.operator("CUMSUM", [inputs[0], constant], [out], ("CumsumOptions", options))
    return (out,)


def _propose_cumsum(scope: Scope, x: Ref) -> Step:
    draw, spec = scope.draw, scope.spec(x)
    if spec.dtype not in ("int32", "int64"):
        x = scope.input(spec.shape, draw.one(("int32", "int64")))
    rank = len(spec.shape)
    choices = {name: int(draw.chance(0.5)) for name in ("exclusive", "reverse")}
    return Step("CUMSUM", (x,), {"axis": draw.between(-rank, rank - 1), **choices})


def _softmax(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    x = m.tensors[inputs[0]]
    if not step.attributes.get("is_wide") or x.dtype != "int8":
        return (m.softmax(inputs[0], beta=real(step, "beta")),)
    options = ("SoftmaxOptions", {"Beta": real(step, "beta")})
    out = m.tensor(x.shape, "int16", 1 / 65536, -32768)
    m.operator("SOFTMAX", inputs, [out], options)
    return (out,)


def _propose_softmax(scope: Scope, x: Ref) -> Step:
    draw = scope.draw
    beta = 1.0 if draw.chance(0.6) else float(np.float32(10 ** draw.rng.uniform(-2, 1)))
    attributes: dict[str, Attribute] = {"beta": beta}
    if scope.spec(x).dtype == "int8" and draw.chance(0.2):
        attributes["is_wide"] = True
    return Step("SOFTMAX", (x,), attributes)


def _log_softmax(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    out = m.tensor(m.tensors[inputs[0]].shape, "int8", 1 / 16, 127)
    m.operator("LOG_SOFTMAX", inputs, [out], ("LogSoftmaxOptions", {}))
    return (out,)


def _l2(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    shape = m.tensors[inputs[0]].shape
    out = m.tensor(shape, "int8", 1 / 128, 0)
    options = ("L2NormOptions", {"FusedActivationFunction": 0})
    m.operator("L2_NORMALIZATION", inputs, [out], options)
    return (out,)


OPERATIONS = {
    **{
        kind: Operation(_reduce, _proposed_reduce(kind))
        for kind in (*_REQUANTIZING, *_KEEPING, *_OF_BOOLEANS)
    },
    **{
        kind: Operation(
            _arg_max,
            _proposed_arg(kind),
            lambda spec: len(spec.shape) > 1,
            lambda draw: draw.shape(draw.between(2, 4)),
        )
        for kind in ("ARG_MAX", "ARG_MIN")
    },
    "CUMSUM": Operation(
        _cumsum,
        _propose_cumsum,
        lambda spec: len(spec.shape) > 0,
        lambda draw: draw.shape(draw.between(1, 4)),
    ),
    "L2_NORMALIZATION": Operation(_l2, lambda scope, x: Step("L2_NORMALIZATION", (x,))),
    "LOG_SOFTMAX": Operation(_log_softmax, lambda scope, x: Step("LOG_SOFTMAX", (x,))),
    "SOFTMAX": Operation(_softmax, _propose_softmax),
}
