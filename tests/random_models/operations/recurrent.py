"""Operators that keep a state between runs: both samples of a model follow on each other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from small_models import intermediates
from tflite_writer import ModelWriter

from random_models.draw import Draw, Scope, Shape
from random_models.operations.operation import (
    Operation,
    number,
    output_quantization,
    quantized,
    real,
    word,
)
from random_models.recipe import Ref, Step, values

_TANH = 4
_GATES = 4


def _state(m: ModelWriter, shape: Shape, dtype: str, scale: float, zero_point: int) -> int:
    made = m.tensor(shape, dtype, scale, zero_point)
    m.tensors[made].is_variable = True
    return made


def _svdf(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    rng, x = np.random.default_rng(step.seed), m.tensors[inputs[0]]
    batch, depth = x.shape
    units, memory, rank = (number(step, name) for name in ("units", "memory", "rank"))
    filters = units * rank
    feature_scale, time_scale = real(step, "feature_scale"), real(step, "time_scale")
    state_scale = real(step, "state_scale")
    features = np.maximum(values(rng, word(step, "fill"), (filters, depth), "int8"), -127)
    dtype = "int8" if step.attributes.get("of_bytes") else "int16"
    times = values(rng, word(step, "fill"), (filters, memory), dtype)
    times = np.maximum(times, -np.iinfo(dtype).max)
    bias = rng.integers(-5000, 5000, units).astype(np.int32)
    operands = [
        inputs[0],
        m.constant(features, feature_scale),
        m.constant(times, time_scale),
        m.constant(bias, state_scale * time_scale),
        _state(m, (batch, filters * memory), dtype, state_scale, number(step, "state_zero_point")),
    ]
    options = ("SVDFOptions", {"Rank": rank, "FusedActivationFunction": 1})
    return (m.node("SVDF", operands, (batch, units), options, **quantized(step)),)


def _propose_svdf(scope: Scope, x: Ref) -> Step:
    draw, spec = scope.draw, scope.spec(x)
    memory, rank = draw.between(1, 10), draw.between(1, 4)
    feature_scale = float(np.float32(10 ** draw.rng.uniform(-4, -1)))
    time_scale = float(np.float32(10 ** draw.rng.uniform(-6, -3)))
    summed = spec.scales[0] * feature_scale * 74 * 74 * math.sqrt(spec.shape[1])
    of_bytes = draw.chance(0.3)
    steps = 256 if of_bytes else 1  # of an int16 in one of an int8
    time_scale = float(np.float32(time_scale * steps))
    state_scale = float(np.float32(summed / 2**13 * steps * 2 ** draw.rng.uniform(-2, 2)))
    natural = summed * time_scale * 18_000 / steps * math.sqrt(memory * rank) / 60
    attributes = {
        "units": draw.between(1, 20),
        "memory": memory,
        "rank": rank,
        "feature_scale": feature_scale,
        "time_scale": time_scale,
        "state_scale": state_scale,
        "state_zero_point": draw.zero_point() if of_bytes else 0,
        "of_bytes": of_bytes,
        "fill": draw.fill(),
        **output_quantization(draw, natural),
    }
    return Step("SVDF", (x,), attributes, draw.seed())


def _lstm(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    rng, x = np.random.default_rng(step.seed), m.tensors[inputs[0]]
    outer, inner, depth = x.shape
    cells, time_major = number(step, "cells"), bool(step.attributes["time_major"])
    batch = inner if time_major else outer
    hidden = (real(step, "scale"), number(step, "zero_point"))

    couples, peeps, norms = (bool(step.attributes[n]) for n in ("couples", "peeps", "norms"))
    outputs = number(step, "outputs")  # of a projection; 0 is none
    made = outputs or cells

    def weights(columns: int, rows: int = cells) -> int:
        data = np.maximum(values(rng, word(step, "fill"), (rows, columns), "int8"), -127)
        spread = 2 ** rng.uniform(-1, 1)
        return m.constant(data, float(np.float32(real(step, "weight_scale") * spread)))

    operands = [inputs[0], *(weights(depth) for _ in range(_GATES))]
    operands += [weights(made) for _ in range(_GATES)]

    def vectors(are_there: bool, count: int) -> list[int]:
        scale = float(np.float32(10 ** rng.uniform(-5, -3.5)))
        data = [rng.integers(-32767, 32768, cells).astype(np.int16) for _ in range(count)]
        return [m.constant(d, scale) for d in data] if are_there else [-1] * count

    operands += vectors(peeps, 3)
    for _ in range(_GATES):
        bias = rng.integers(-3000, 3000, cells).astype(np.int64 if x.dtype == "int16" else np.int32)
        operands.append(m.constant(bias, 0.0001))
    cell_scale = 2.0 ** -number(step, "cell_bits")
    operands += [weights(cells, outputs) if outputs else -1, -1]
    operands.append(_state(m, (batch, made), x.dtype, *hidden))
    operands += [_state(m, (batch, cells), "int16", cell_scale, 0), *vectors(norms, 4)]
    if couples:
        for position in (1, 5, 9, 12, 20):
            operands[position] = -1
    out = m.tensor((outer, inner, made), x.dtype, *hidden)
    fields = {
        "FusedActivationFunction": _TANH,
        "TimeMajor": time_major,
        "CellClip": real(step, "clip"),
        "ProjClip": real(step, "projection_clip"),
    }
    options = ("UnidirectionalSequenceLSTMOptions", fields)
    m.operator("UNIDIRECTIONAL_SEQUENCE_LSTM", operands, [out], options)
    m.operators[-1].intermediates = intermediates(
        m, real(step, "gate_scale") if norms else None, real(step, "inside_scale"), hidden[1]
    )
    return (out,)


def _propose_lstm(scope: Scope, x: Ref) -> Step:
    draw, cells = scope.draw, scope.draw.between(1, 20)
    peeps = draw.chance(0.3)
    outputs = 0 if draw.chance(0.6) else cells if peeps else draw.between(1, 20)
    attributes = {
        "cells": cells,
        "couples": draw.chance(0.3),
        "peeps": peeps,
        "norms": draw.chance(0.3),
        "outputs": outputs,
        "projection_clip": 0.0 if draw.chance(0.7) else float(np.float32(draw.rng.uniform(0.1, 2))),
        "gate_scale": float(np.float32(10 ** draw.rng.uniform(-4, -3))),
        "time_major": draw.chance(0.3),
        "clip": 0.0 if draw.chance(0.7) else float(np.float32(draw.rng.uniform(0.5, 8))),
        "cell_bits": draw.between(9, 15),
        "weight_scale": float(np.float32(10 ** draw.rng.uniform(-3, -1.5))),
        "fill": draw.fill(),
        "scale": float(np.float32(2 ** draw.rng.uniform(-8, -6))),
        "zero_point": draw.zero_point(),
        "inside_scale": float(np.float32(2 ** draw.rng.uniform(-8, -6))),
    }
    if scope.spec(x).dtype == "int16":
        plain = dict.fromkeys(("couples", "peeps", "norms"), False)
        scale = float(np.float32(2 ** draw.rng.uniform(-16, -14)))
        attributes |= {**plain, "outputs": 0, "scale": scale, "zero_point": 0}
    return Step("UNIDIRECTIONAL_SEQUENCE_LSTM", (x,), attributes, draw.seed())


def _sequence(draw: Draw) -> Shape:
    return (draw.between(1, 3), draw.between(1, 6), draw.between(1, 24))


OPERATIONS = {
    "SVDF": Operation(
        _svdf,
        _propose_svdf,
        lambda spec: len(spec.shape) == 2 and spec.shape[1] <= 500,
        lambda draw: (draw.between(1, 3), draw.between(1, 40)),
    ),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": Operation(
        _lstm,
        _propose_lstm,
        lambda spec: len(spec.shape) == 3 and math.prod(spec.shape) <= 1000,
        _sequence,
    ),
}
