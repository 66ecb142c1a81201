"""Tensors of a .tflite file and their data, as ``tflite_tables`` reads them.

On a damaged file the readers raise any Python exception; ``tflite_tables`` handles that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tflite

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.assemble import refuse_custom_operators
from utvm_deploy.frontend.files.fields import array_of, quantization_of, text_of, vector_of
from utvm_deploy.frontend.files.limits import MAX_RANK, MAX_TENSOR_ELEMENTS, Budget
from utvm_deploy.frontend.files.source import SourceOperator
from utvm_deploy.frontend.tflite_sparse import dense_data
from utvm_deploy.graph.element_type import ElementType, element_type
from utvm_deploy.graph.model import Array, Tensor
from utvm_deploy.graph.names import short_name

# The place of Tensor.external_buffer in its table, as flatbuffers count.
_EXTERNAL_BUFFER_SLOT = 24
# Of a newer schema than that of the generated readers.
_INT2 = 19


def names_of(enumeration: type) -> Mapping[int, str]:
    """The names of an enumeration of the schema, by their numbers."""
    return {v: k for k, v in vars(enumeration).items() if isinstance(v, int)}


_TYPE_NAMES = {number: name.lower() for number, name in names_of(tflite.TensorType).items()}
# Element types of variables, and of constants that can be read. Others may appear, but no importer
# takes them.
_VARIABLES = ("int8", "uint8", "int16", "int32", "int64", "float16", "float32", "bool")
_CONSTANTS = (*_VARIABLES, "int4")


def read_buffer(data: bytes, buffer: Any, index: int) -> Array | None:
    """The bytes of a buffer; None for the empty one that activations share."""
    offset, size = buffer.Offset(), buffer.Size()
    if offset > 1:  # 0 and 1 mean that the bytes are in the flatbuffer
        if offset + size > len(data):
            raise ModelError(
                f"buffer {index} ends at byte {offset + size}, but the file has {len(data)} bytes; "
                "copy or convert the model again"
            )
        return np.frombuffer(data, np.uint8, size, offset)
    raw = array_of(buffer.DataAsNumpy())
    return raw if raw.size else None


def read_tensor(
    tensor: Any,
    index: int,
    buffers: Sequence[Array | None],
    budget: Budget,
    faults: dict[int, str] | None,
) -> Tensor:
    """The tensor; with ``faults`` a stand-in without data where it cannot be used."""
    try:
        return _tensor(tensor, index, buffers, budget)
    except ModelError as exc:
        if faults is None:
            raise
        faults[index] = str(exc)
    name = text_of(tensor.Name(), f"tensor {index}") or f"tensor_{index}"
    shape = vector_of(tensor.ShapeAsNumpy(), budget, f"tensor {index}")[:MAX_RANK]
    dtype = _TYPE_NAMES.get(tensor.Type(), "unknown")
    return Tensor(name, tuple(max(extent, 0) for extent in shape), dtype, source=index)


def _tensor(tensor: Any, index: int, buffers: Sequence[Array | None], budget: Budget) -> Tensor:
    name = text_of(tensor.Name(), f"tensor {index}") or f"tensor_{index}"
    shown = short_name(name)
    # Newer than the generated readers: the number of a group of weights outside the file.
    if tensor._tab.Offset(_EXTERNAL_BUFFER_SLOT):
        raise ModelError(
            f"tensor '{shown}' has its data in another file; convert the model into a single one"
        )
    dtype = _TYPE_NAMES.get(tensor.Type())
    if tensor.Type() == _INT2:
        raise ModelError(
            f"tensor '{shown}' is int2, which has no kernel; quantize it to 4 or 8 bits"
        )
    if dtype is None:
        raise ModelError(f"the file is damaged: tensor '{shown}' has element type {tensor.Type()}")
    shape = _shape(vector_of(tensor.ShapeAsNumpy(), budget, f"tensor {index}"), shown)
    number = tensor.Buffer()
    if not 0 <= number < len(buffers):
        raise ModelError(
            f"the file is damaged: tensor '{shown}' names buffer {number}, "
            f"but there are {len(buffers)}"
        )
    raw = buffers[number]
    if raw is None and tensor.Sparsity() is not None:
        raw = np.empty(0, np.uint8)  # of zeros only
    if raw is not None and tensor.IsVariable():
        raise ModelError(
            f"tensor '{shown}' is a variable and has data, which LiteRT does not take; convert the "
            "model again"
        )
    if tensor.IsVariable() and dtype not in _VARIABLES:
        raise ModelError(
            f"tensor '{shown}' is a variable of {dtype}, which LiteRT does not take; convert the "
            "model again"
        )
    data = None
    if raw is not None and min(shape, default=1) < 0:
        raise _dynamic_or_empty(name, shape)
    if raw is not None and dtype in _CONSTANTS:
        element = element_type(dtype)
        if tensor.Sparsity() is not None:
            data = dense_data(tensor, raw, element, shape, shown, budget)
        else:
            data = _data(raw, element, shape, shown, budget)
        if dtype == "bool":
            data = (data != 0).astype(np.uint8)  # as it is stored: 0 or 1
    elif raw is not None:
        data = (
            raw  # of a type that no importer takes: kept only to distinguish it from an activation
        )
    quantization = quantization_of(tensor, shown, dtype, shape, budget)
    return Tensor(name, shape, dtype, quantization, data, index)


def _data(
    raw: Array, element: ElementType, shape: tuple[int, ...], shown: str, budget: Budget
) -> Array:
    """The constant that a buffer has, of a tensor that is not sparse."""
    expected = element.size_bytes(math.prod(shape))
    if raw.size != expected:
        raise ModelError(
            f"tensor '{shown}' of shape {shape} and type {element.name} needs {expected} bytes, "
            f"but its buffer has {raw.size}; copy or convert the model again"
        )
    # A view where it can be: many tensors may name one buffer, and buffers may overlap.
    if element.name in ("bool", "int4"):
        budget.copy(math.prod(shape), f"tensor '{shown}'")
    return element.unpacked(raw.view(np.uint8), shape)


def _shape(dimensions: Sequence[int], name: str) -> tuple[int, ...]:
    if len(dimensions) > MAX_RANK:
        raise ModelError(f"tensor '{name}' has {len(dimensions)} dimensions, more than {MAX_RANK}")
    shape = tuple(dimensions)
    if math.prod(shape) > MAX_TENSOR_ELEMENTS:
        raise ModelError(
            f"tensor '{name}' of shape {shape} has more than {MAX_TENSOR_ELEMENTS:,} elements; "
            "choose a model for microcontrollers"
        )
    return shape


def check_shapes(
    tensors: Sequence[Tensor],
    operators: Sequence[SourceOperator],
    ends: Sequence[int],
    faults: dict[int, str] | None,
) -> None:
    """Only tensors without a value may be empty: the converter writes an LSTM's intermediates so.

    A custom operator is reported first, because it may be why a shape is not known.
    """
    operands = (number for op in operators for number in (*op.inputs, *op.outputs))
    for number in dict.fromkeys((*ends, *operands)):
        if number is None or min(tensors[number].shape, default=1) >= 1:
            continue
        error = _dynamic_or_empty(short_name(tensors[number].name), tensors[number].shape)
        if faults is None:
            refuse_custom_operators(operators)
            raise error
        faults.setdefault(number, str(error))


def _dynamic_or_empty(name: str, shape: tuple[int, ...]) -> ModelError:
    return ModelError(
        f"tensor '{name}' has the dynamic or empty shape {shape}; "
        "convert the model with a fixed input shape"
    )
