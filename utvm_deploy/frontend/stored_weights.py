"""Constants that a float model stores in fewer bits, with a DEQUANTIZE behind each of them.

Converters write float16 weights this way, and integer weights whose activations stay float32. Here
such constants become float32, with the values that DEQUANTIZE computes, and the operators go.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.files.source import ModelFile, SourceOperator
from utvm_deploy.frontend.operators.importers import works_in_float
from utvm_deploy.graph.model import Array, Tensor

#: Elements of all such constants together. Many may name the same bytes of the file.
MAX_WIDENED = 32 * 1024 * 1024
_INTEGERS = ("int4", "int8", "uint8", "int16")


def widen_constants(source: ModelFile) -> ModelFile:
    """The file's contents with float32 constants instead of these operators."""
    readers: dict[int, list[SourceOperator]] = {}
    for op in source.operators:
        for number in op.inputs:
            if number is not None:
                readers.setdefault(number, []).append(op)
    widened: dict[int, Array] = {}
    gone: set[int] = set()
    elements = 0
    for op in source.operators:
        stored = _stored(source, op, readers)
        if stored is None:
            continue
        elements += math.prod(stored.shape)
        if elements > MAX_WIDENED:
            raise ModelError(
                f"{op.place}: its constants and those before have more than {MAX_WIDENED:,} "
                "elements as float32; choose a model for microcontrollers"
            )
        widened[op.outputs[0]] = _as_float(stored)
        gone.add(op.index)
    return _without(source, widened, gone) if gone else source


def _stored(
    source: ModelFile, op: SourceOperator, readers: Mapping[int, Sequence[SourceOperator]]
) -> Tensor | None:
    """The constant that an operator makes float32 of; None if it stays."""
    if op.kind != "DEQUANTIZE" or len(op.inputs) != 1 or len(op.outputs) != 1:
        return None
    stored, out = op.input(0), op.output()
    if stored.data is None or out.dtype != "float32" or out.shape != stored.shape:
        return None
    if op.outputs[0] in source.outputs or out.data is not None:
        return None
    if stored.dtype == "float16":
        return stored
    # A model of integers may convert its result back: those bytes pass through other operators.
    of_float = all(works_in_float(one) for one in readers.get(op.outputs[0], ()))
    return stored if of_float and stored.dtype in _INTEGERS and stored.quantization else None


def _as_float(stored: Tensor) -> Array:
    """What DEQUANTIZE makes of a constant: float16 exactly, integers times their scale."""
    assert stored.data is not None
    if stored.quantization is None:
        made = stored.data.astype(np.float32)
    else:
        scales = np.asarray(stored.quantization.scales, np.float32)
        zero_points = np.asarray(stored.quantization.zero_points, np.int32)
        if stored.quantization.axis is not None:
            shape = [1] * len(stored.shape)
            shape[stored.quantization.axis] = -1
            scales, zero_points = scales.reshape(shape), zero_points.reshape(shape)
        made = scales * (stored.data.astype(np.int32) - zero_points).astype(np.float32)
    made.flags.writeable = False
    return made


def _without(source: ModelFile, widened: Mapping[int, Array], gone: set[int]) -> ModelFile:
    tensors = tuple(
        replace(tensor, data=widened[number]) if number in widened else tensor
        for number, tensor in enumerate(source.tensors)
    )
    operators = tuple(
        replace(op, tensors=tensors) for op in source.operators if op.index not in gone
    )
    return replace(source, operators=operators, tensors=tensors)
