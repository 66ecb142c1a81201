"""Computes at import what a model computes from shapes: SHAPE, and integers from constants.

Converters write such operators around a RESHAPE if a batch size was left open. They write FILL if a
recurrent layer starts from zeros. Loops count by them, and compare. Every shape is fixed here, so
the results are constants. The operators are removed before anything else reads the file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from utvm_deploy.frontend.files.source import ModelFile, Several, SourceOperator
from utvm_deploy.frontend.operators.importers import importer_of
from utvm_deploy.frontend.operators.operands import MOVABLE
from utvm_deploy.graph.constant_folding import evaluate
from utvm_deploy.graph.model import Array, Graph, Operator, Tensor
from utvm_deploy.graph.shapes import shapes_of

_INTEGERS = ("int32", "int64")
_SIGNED = (*_INTEGERS, "int8", "int16")
_BOOL = "bool"
#: Which types of outputs are made here, where not only integers and booleans.
_TYPES: Mapping[str, tuple[str, ...]] = {
    "FILL": (*MOVABLE, _BOOL),
    "ZEROS_LIKE": (*_INTEGERS, "float32"),
}
# Shapes are short; longer tensors are data, and stay in the model.
_MOST_ELEMENTS = 4096

Arithmetic: TypeAlias = Callable[[SourceOperator, Sequence[Array]], Array]


def fold_shapes(source: ModelFile) -> ModelFile:
    """The file's contents without the operators that depend only on shapes and constants."""
    known = source.tensors
    kept: list[SourceOperator] = []
    for op in source.operators:
        op = replace(op, tensors=known)
        made = computed(op)
        if made is None:
            kept.append(op)
            continue
        changed = list(known)
        for number, array in made.items():
            changed[number] = replace(changed[number], data=array)
        known = tuple(changed)
    if len(kept) == len(source.operators):
        return source
    operators = tuple(replace(op, tensors=known) for op in kept)
    return replace(source, operators=operators, tensors=known)


def computed(op: SourceOperator) -> Mapping[int, Array] | None:
    """The values of an operator's outputs, None where they are not known or not ours to know."""
    outputs = [op.tensors[number] for number in op.outputs]
    types = _TYPES.get(op.kind, (*_INTEGERS, _BOOL))
    if not outputs or any(
        out.dtype not in types or out.data is not None or math.prod(out.shape) > _MOST_ELEMENTS
        for out in outputs
    ):
        return None
    if op.kind in _OF_SHAPES:
        return {op.outputs[0]: _fitting(op, outputs[0], _OF_SHAPES[op.kind](op.input(0)))}
    read = [op.tensors[i] for i in op.inputs if i is not None]
    constants = [tensor.data for tensor in read if tensor.data is not None]
    if len(constants) != len(op.inputs) or not constants:
        return None
    # Comparisons of int8 and int16 are by their scales.
    wanted = (*_INTEGERS, _BOOL) if outputs[0].dtype == _BOOL else (*_SIGNED, _BOOL)
    if op.kind != "FILL" and any(tensor.dtype not in wanted for tensor in read):
        return None
    if op.kind in _ARITHMETIC:
        return {op.outputs[0]: _fitting(op, outputs[0], _ARITHMETIC[op.kind](op, constants))}
    row = importer_of(op)
    if row is None:
        return None
    imported = row.importer(op)
    if isinstance(imported, Several):
        return None
    parts = (imported,) if isinstance(imported, Operator) else imported
    graph = Graph("", op.tensors, parts, (), (), "")
    values: dict[int, Array] = {}
    for part in parts:
        (shape,) = shapes_of(graph, part)
        if shape != op.tensors[part.outputs[0]].shape:  # before it is made: it may be huge
            raise op.damaged(f"it makes {shape}, not {op.tensors[part.outputs[0]].shape}")
        sources = [op.tensors[i].data for i in part.inputs if i is not None]
        moved = evaluate(graph, part, [data for data in sources if data is not None])
        if moved is None:
            return None
        (number,) = part.outputs
        values[number] = _fitting(op, op.tensors[number], moved)
    return values


def counted(op: SourceOperator) -> Mapping[int, Array] | None:
    """The value of a float32 counter, or of a comparison with one; None for other operators."""
    read = [op.tensors[number] for number in op.inputs if number is not None]
    arrays = [tensor.data for tensor in read if tensor.data is not None and tensor.data.size == 1]
    if (
        op.kind not in _COUNTING
        or len(arrays) != 2
        or op.options.get("FusedActivationFunction")
        or any(tensor.dtype != "float32" for tensor in read)
    ):
        return None
    with np.errstate(all="ignore"):
        value = _COUNTING[op.kind](arrays[0], arrays[1])
    return {op.outputs[0]: _fitting(op, op.output(), value.reshape(op.output().shape))}


def _fitting(op: SourceOperator, out: Tensor, array: Array) -> Array:
    """The array as the file declares it."""
    if array.shape != out.shape:
        raise op.damaged(f"it computes the shape {array.shape}, but the file says {out.shape}")
    dtype = np.uint8 if out.dtype == _BOOL else np.dtype(out.dtype)  # booleans are 0 or 1
    fitting: Array = np.ascontiguousarray(array).astype(dtype).reshape(out.shape)
    fitting.flags.writeable = False
    return fitting


def _floor_div(op: SourceOperator, arrays: Sequence[Array]) -> Array:
    if not arrays[1].all():
        raise op.damaged("it divides by 0")
    quotient: Array = np.floor_divide(arrays[0].astype(np.int64), arrays[1].astype(np.int64))
    return quotient


def _floor_mod(op: SourceOperator, arrays: Sequence[Array]) -> Array:
    if not arrays[1].all():
        raise op.damaged("it divides by 0")
    rest: Array = np.mod(arrays[0].astype(np.int64), arrays[1].astype(np.int64))
    return rest


def _selected(op: SourceOperator, arrays: Sequence[Array]) -> Array:
    try:
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError:
        shape = ()
    if len(arrays) != 3 or shape != op.output().shape:
        raise op.damaged(f"its inputs do not make {op.output().shape}")
    return np.where(arrays[0] != 0, arrays[1], arrays[2])


def _elementwise(function: Callable[[Array, Array], Array]) -> Arithmetic:
    def compute(op: SourceOperator, arrays: Sequence[Array]) -> Array:
        left, right = (array.astype(np.int64) for array in arrays)
        out = op.output().shape
        try:
            fits = np.broadcast_shapes(left.shape, right.shape) == out
        except ValueError:
            fits = False
        # Before it is computed: broadcast, small constants become huge ones.
        if not fits:
            raise op.damaged(f"shapes {left.shape} and {right.shape} do not make {out}")
        return function(left, right)

    return compute


def _product(op: SourceOperator, arrays: Sequence[Array]) -> Array:
    rank = arrays[0].ndim
    axes = [int(axis) for axis in arrays[1].reshape(-1)]
    if any(not -rank <= axis < rank for axis in axes):
        raise op.damaged(f"its axes {axes} are not dimensions of {arrays[0].shape}")
    unique = tuple({axis % rank for axis in axes})
    keeps = len(op.output().shape) == rank
    product: Array = np.prod(arrays[0].astype(np.int64), axis=unique, keepdims=keeps)
    return np.asarray(product)


def _fill(op: SourceOperator, arrays: Sequence[Array]) -> Array:
    out = op.output()
    if arrays[0].dtype.kind != "i":
        raise op.damaged(f"its dimensions are of {arrays[0].dtype}")
    shape = tuple(int(extent) for extent in arrays[0].reshape(-1))
    value = op.input(1)
    alike = out.dtype in _INTEGERS or value.quantization == out.quantization
    if arrays[1].size != 1 or value.dtype != out.dtype or not alike:
        raise op.damaged(f"its value '{value.name}' is none of '{out.name}'")
    if shape != out.shape:  # before it is made: it may be huge
        raise op.damaged(f"it computes the shape {shape}, but the file says {out.shape}")
    return np.full(shape, arrays[1].reshape(-1)[0])


def _range(op: SourceOperator, arrays: Sequence[Array]) -> Array:
    if len(arrays) != 3 or any(array.size != 1 for array in arrays):
        raise op.damaged("it lacks a start, a limit or a step")
    start, limit, step = (int(array.reshape(-1)[0]) for array in arrays)
    if step == 0:
        raise op.damaged("its step is 0")
    shape = (max(0, -((start - limit) // step)),)
    if shape != op.output().shape:  # before it is made: it may be huge
        raise op.damaged(f"it computes the shape {shape}, but the file says {op.output().shape}")
    return np.array(range(start, limit, step), np.int64)


#: What needs to know no more of a tensor than how it looks.
_OF_SHAPES: Mapping[str, Callable[[Tensor], Array]] = {
    "RANK": lambda x: np.array(len(x.shape)),
    "SHAPE": lambda x: np.array(x.shape),
    "ZEROS_LIKE": lambda x: np.zeros(x.shape, np.int64),
}
_ARITHMETIC: Mapping[str, Arithmetic] = {
    "ABS": lambda op, arrays: np.abs(arrays[0].astype(np.int64)),
    "ADD": _elementwise(np.add),
    "CAST": lambda op, arrays: arrays[0],
    "EQUAL": _elementwise(np.equal),
    "FILL": _fill,
    "FLOOR_DIV": _floor_div,
    "FLOOR_MOD": _floor_mod,
    "GREATER": _elementwise(np.greater),
    "GREATER_EQUAL": _elementwise(np.greater_equal),
    "LESS": _elementwise(np.less),
    "LESS_EQUAL": _elementwise(np.less_equal),
    "LOGICAL_AND": _elementwise(np.bitwise_and),
    "LOGICAL_NOT": lambda op, arrays: arrays[0] == 0,
    "LOGICAL_OR": _elementwise(np.bitwise_or),
    "MAXIMUM": _elementwise(np.maximum),
    "MINIMUM": _elementwise(np.minimum),
    "MUL": _elementwise(np.multiply),
    "NEG": lambda op, arrays: -arrays[0].astype(np.int64),
    "NOT_EQUAL": _elementwise(np.not_equal),
    "RANGE": _range,
    "REDUCE_PROD": _product,
    "SELECT": _selected,
    "SELECT_V2": _selected,
    "SUB": _elementwise(np.subtract),
}

#: What a loop does with a counter of float32, in which numpy rounds as the reference does.
_COUNTING: Mapping[str, Callable[[Array, Array], Array]] = {
    "ADD": np.add,
    "EQUAL": np.equal,
    "GREATER": np.greater,
    "GREATER_EQUAL": np.greater_equal,
    "LESS": np.less,
    "LESS_EQUAL": np.less_equal,
    "MUL": np.multiply,
    "NOT_EQUAL": np.not_equal,
    "SUB": np.subtract,
}

#: What is computed at import where nothing else than shapes and constants goes in.
FOLDED = tuple(sorted({*_OF_SHAPES, *_ARITHMETIC}))
