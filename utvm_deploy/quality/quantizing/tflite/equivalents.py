"""Replaces float operators that have no exact integer kernel by others of the same result.

NEG x    -> MUL x, -1          LiteRT's integer kernel ignores the zero point
SUM x    -> MUL MEAN x, count  LiteRT's kernel reads int8 as unsigned bytes
DIV x, c -> MUL x, 1 / c       LiteRT has no integer kernel
SQUARE x -> MUL x, x           LiteRT has no integer kernel
DIV x, SQRT y -> MUL x, RSQRT y

AVERAGE_POOL_2D over a whole image -> MEAN     its integer kernel keeps the scale of the input,
                                               which is coarse for a mean; MEAN has its own
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from utvm_deploy.frontend.files import tflite_schema as schema


def replace_by_equivalents(model: Any) -> None:
    """Change these operators of a float model."""
    graph = model.subgraphs[0]
    made: list[Any] = []
    roots: dict[int, int] = {}  # what SQRT makes -> what it reads
    for operator in graph.operators:
        kind = schema.kind_of(model, operator)
        inputs = schema.numbers(operator.inputs)
        if not inputs or graph.tensors[inputs[0]].type != schema.FLOAT32:
            made.append(operator)
        elif kind == "NEG":
            made.append(_multiplied(model, operator, inputs[0], -1.0))
        elif kind == "SQUARE":
            made.append(_product(model, operator, inputs[0], inputs[0]))
        elif kind == "DIV":
            made += _by_inverse_root(model, operator, roots) or [
                _by_inverse(model, operator) or operator
            ]
        elif kind == "AVERAGE_POOL_2D" and _is_global(graph, operator):
            made.append(_mean_of_image(model, operator))
        elif kind == "SUM":
            made += _mean_and_product(model, operator)
        else:
            if kind == "SQRT":
                roots[int(operator.outputs[0])] = inputs[0]
            made.append(operator)
    graph.operators = made


def _product(model: Any, operator: Any, left: int, right: int) -> Any:
    """The operator as MUL of two tensors, with the fused activation that it has."""
    activation = getattr(operator.builtinOptions, "fusedActivationFunction", 0)
    schema.become(model, operator, "MUL", "MulOptions", fusedActivationFunction=activation)
    operator.inputs = [left, right]
    return operator


def _multiplied(model: Any, operator: Any, source: int, factor: float) -> Any:
    name = schema.name_of(model, operator.outputs[0]) + "/factor"
    value = np.array([factor], np.float32)
    return _product(model, operator, source, schema.new_constant(model, name, value))


def _by_inverse(model: Any, operator: Any) -> Any:
    """A division by a constant as MUL; None if it is computed, or not all inverses are finite."""
    dividend, divisor = schema.numbers(operator.inputs)
    tensor = model.subgraphs[0].tensors[divisor]
    known = schema.constant(model, tensor)
    if known is None or schema.constant(model, model.subgraphs[0].tensors[dividend]) is not None:
        return None
    with np.errstate(all="ignore"):
        inverse = np.reciprocal(known.astype(np.float32))
    if not np.isfinite(inverse).all():
        return None
    name = schema.name_of(model, operator.outputs[0]) + "/inverse"
    return _product(model, operator, dividend, schema.new_constant(model, name, inverse))


def _by_inverse_root(model: Any, operator: Any, roots: Mapping[int, int]) -> list[Any]:
    """A division by a square root as RSQRT, and MUL unless it divides 1; none for others."""
    graph = model.subgraphs[0]
    dividend, divisor = schema.numbers(operator.inputs)
    if divisor not in roots:
        return []
    (output,) = schema.numbers(operator.outputs)
    known = schema.constant(model, graph.tensors[dividend])
    shapes = {tuple(schema.numbers(graph.tensors[one].shape)) for one in (divisor, output)}
    activation = operator.builtinOptions.fusedActivationFunction
    if known is not None and (known == 1).all() and not activation and len(shapes) == 1:
        return [schema.operator(model, "RSQRT", 2, roots[divisor], output)]
    name = graph.tensors[output].name + b"/inverse_root"
    root = schema.new_tensor(model, graph, graph.tensors[divisor], name, schema.FLOAT32, None)
    made = schema.operator(model, "RSQRT", 2, roots[divisor], root)
    return [made, _product(model, operator, dividend, root)]


def _is_global(graph: Any, operator: Any) -> bool:
    """Whether a pool has one window, which is the whole image, and no fused activation."""
    options = operator.builtinOptions
    _, height, width, _ = schema.numbers(graph.tensors[operator.inputs[0]].shape)
    _, rows, columns, _ = schema.numbers(graph.tensors[operator.outputs[0]].shape)
    is_whole = (options.filterHeight, options.filterWidth) == (height, width)
    return is_whole and rows == columns == 1 and not options.fusedActivationFunction


def _mean_of_image(model: Any, operator: Any) -> Any:
    name = schema.name_of(model, operator.outputs[0]) + "/axes"
    axes = schema.new_constant(model, name, np.array([1, 2], np.int32))
    schema.become(model, operator, "MEAN", "ReducerOptions", keepDims=True)
    operator.inputs = [int(operator.inputs[0]), axes]
    return operator


def _mean_and_product(model: Any, operator: Any) -> list[Any]:
    """SUM as MEAN and MUL; unchanged if the axes are computed."""
    graph = model.subgraphs[0]
    source, axes = schema.numbers(operator.inputs)
    along = schema.constant(model, graph.tensors[axes])
    shape = schema.numbers(graph.tensors[source].shape)
    if along is None or not shape:
        return [operator]
    count = math.prod(shape[axis] for axis in {int(one) % len(shape) for one in along.reshape(-1)})
    (output,) = schema.numbers(operator.outputs)
    name = graph.tensors[output].name + b"/mean"
    mean = schema.new_tensor(model, graph, graph.tensors[output], name, schema.FLOAT32, None)
    # MEAN has the options of SUM.
    operator.opcodeIndex = schema.code_index(model, "MEAN", 2)
    operator.outputs = [mean]
    product = schema.operator(model, "MUL", 2, mean, output)
    return [operator, _multiplied(model, product, mean, float(count))]
