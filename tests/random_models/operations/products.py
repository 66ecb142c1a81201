"""Operators that multiply matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tflite_writer import ModelWriter

from random_models.draw import MAX_MACS, STEPS_OF_INT16, Scope
from random_models.operations.operation import (
    Operation,
    number,
    output_quantization,
    quantized,
    real,
    word,
)
from random_models.operations.windows import bias_of, weight_scales, weighted_attributes, weights_of
from random_models.recipe import Ref, Step


def _dense(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    shape, depth = m.tensors[inputs[0]].shape, number(step, "depth")
    keeps = bool(step.attributes["keep_num_dims"])
    if depth < 1 or math.prod(shape) % depth or (keeps and shape[-1] != depth):
        raise ValueError(f"depth {depth} of {shape}")
    channels = number(step, "channels")
    made = m.fully_connected(
        inputs[0],
        weights_of(step, (channels, depth)),
        bias_of(step, channels),
        weight_scale=weight_scales(step, channels),
        activation=word(step, "activation"),
        keep_num_dims=keeps,
        **quantized(step),
    )
    return (made,)


def _propose_dense(scope: Scope, x: Ref) -> Step | None:
    draw, spec = scope.draw, scope.spec(x)
    elements, depth = math.prod(spec.shape), spec.shape[-1]
    keeps = draw.chance(0.3)
    if not keeps and draw.chance(0.4):
        # It flattens: to one row, or to as many as divide the elements.
        rows = [r for r in range(1, 9) if elements % r == 0]
        depth = elements // (1 if draw.chance(0.6) else draw.one(rows))
    most = MAX_MACS // elements
    attributes = {
        "channels": max(1, min(draw.channels(), most)),
        "depth": depth,
        "keep_num_dims": keeps,
        **weighted_attributes(draw, spec.scales[0], depth),
    }
    if draw.chance(0.2):
        attributes["bias"] = "none"
    return Step("FULLY_CONNECTED", (x,), attributes, draw.seed())


def _matmul(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    a, b = (m.tensors[i] for i in inputs)
    adjoint = bool(step.attributes["adj_x"]), bool(step.attributes["adj_y"])
    left, right = (
        (*s.shape[:-2], s.shape[-1], s.shape[-2]) if swap else s.shape
        for s, swap in zip((a, b), adjoint, strict=True)
    )
    if len(left) < 2 or len(right) < 2 or left[-1] != right[-2]:
        raise ValueError(f"{left} times {right}")
    shape = (*np.broadcast_shapes(left[:-2], right[:-2]), left[-2], right[-1])
    out = m.tensor(shape, "int8", real(step, "scale"), number(step, "zero_point"))
    if step.attributes.get("by_column"):
        # In place of the constant, one with a scale for each of its columns.
        axis = len(b.shape) - (2 if adjoint[1] else 1)
        rng = np.random.default_rng(step.seed)
        scales = b.scales[0] * 2 ** rng.uniform(-2, 2, b.shape[axis])
        data = np.frombuffer(b.data or b"", np.int8).reshape(b.shape)
        inputs = (inputs[0], m.constant(data, list(map(float, scales)), axis=axis))
    options = {"AdjX": adjoint[0], "AdjY": adjoint[1]}
    m.operator("BATCH_MATMUL", inputs, [out], ("BatchMatMulOptions", options))
    return (out,)


def _propose_matmul(scope: Scope, x: Ref) -> Step | None:
    draw, spec = scope.draw, scope.spec(x)
    *batch, rows, depth = spec.shape
    adjoint = draw.chance(0.3), draw.chance(0.3)
    if adjoint[0]:
        rows, depth = depth, rows
    columns = max(1, min(draw.channels(), MAX_MACS // math.prod(spec.shape)))
    other = (columns, depth) if adjoint[1] else (depth, columns)
    if draw.chance(0.3):
        batch = [1 if draw.chance(0.5) else extent for extent in batch]
    make = scope.constant if draw.chance(0.4) else scope.input
    by_column = not adjoint[0] and not scope.of_float and draw.chance(0.2)
    if by_column:
        y = scope.constant((*(1 for _ in batch), *other), "int8", zero_point=0)
    elif spec.dtype == "int16" and draw.chance(0.5):
        y = make((*batch, *other), "int8", zero_point=0)
    else:
        y = make((*batch, *other), spec.dtype)
    natural = spec.scales[0] * scope.spec(y).scales[0] * 90 * math.sqrt(depth)
    if scope.spec(y).dtype == "int16":
        natural *= STEPS_OF_INT16
    attributes = {
        "adj_x": adjoint[0],
        "adj_y": adjoint[1],
        **output_quantization(draw, natural),
    }
    if by_column:
        attributes["by_column"] = True
    return Step("BATCH_MATMUL", (x, y), attributes, draw.seed())


OPERATIONS = {
    "FULLY_CONNECTED": Operation(_dense, _propose_dense),
    "BATCH_MATMUL": Operation(
        _matmul,
        _propose_matmul,
        lambda spec: 2 <= len(spec.shape) <= 5,
        lambda draw: draw.shape(draw.between(2, 5)),
    ),
}
