"""Reads fields of a .tflite file's tables: vectors, names, quantization.

What the schema's generated readers give is bounded before anything is made of it.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.files.limits import MAX_NAME_BYTES, Budget
from utvm_deploy.graph.element_type import element_type
from utvm_deploy.graph.model import Array, Quantization

#: What the schema's readers and numpy raise on bytes that are not what they claim to be: where
#: these would lie beyond the file, and in all cases.
BEYOND = (struct.error, IndexError)
READER_ERRORS = (
    *BEYOND,
    *(KeyError, ValueError, TypeError, AttributeError, OverflowError, MemoryError),
)
#: Of a newer schema than that of the generated readers: scales are in other tensors.
_BLOCKWISE = 2


def array_of(found: Any) -> Array:
    """A vector of numbers; the generated readers say 0 for an absent one."""
    return found if isinstance(found, np.ndarray) else np.empty(0, np.int32)


def vector_of(found: Any, budget: Budget, where: str) -> list[Any]:
    """The numbers of a vector, counted before anything is made of them."""
    array = array_of(found)
    budget.take(array.size, where)
    numbers: list[Any] = array.tolist()
    return numbers


def text_of(raw: bytes | None, what: str) -> str:
    """A name on one line, empty if there is none; ``what`` has it, for messages."""
    if raw is None:
        return ""
    if len(raw) > MAX_NAME_BYTES:
        raise ModelError(
            f"the file is damaged: the name of {what} has {len(raw)} bytes, "
            f"more than {MAX_NAME_BYTES}"
        )
    # Names end up in messages and C comments: one line, printable.
    decoded = raw.decode("utf-8", errors="replace")
    odd = {ord(c): "\N{REPLACEMENT CHARACTER}" for c in set(decoded) if not c.isprintable()}
    return decoded.translate(odd) if odd else decoded


def quantization_of(
    tensor: Any, name: str, dtype: str, shape: tuple[int, ...], budget: Budget
) -> Quantization | None:
    """How a tensor is quantized; ``name`` is for messages. None where it is not."""
    table = tensor.Quantization()
    if table is None:
        return None
    where = f"the quantization of '{name}'"
    scales = vector_of(table.ScaleAsNumpy(), budget, where)
    zero_points = vector_of(table.ZeroPointAsNumpy(), budget, where)
    if table.DetailsType() == _BLOCKWISE:
        raise ModelError(
            f"tensor '{name}' has scales of blocks, which no kernel of integers takes; quantize "
            "the model with one scale for each channel"
        )
    if not scales:
        return None
    if len(scales) != len(zero_points):
        raise ModelError(
            f"tensor '{name}' has {len(scales)} scales but {len(zero_points)} zero points; "
            "convert the model again"
        )
    axis = None
    if len(scales) > 1:
        axis = table.QuantizedDimension()
        if not 0 <= axis < len(shape) or shape[axis] != len(scales):
            raise ModelError(
                f"tensor '{name}' of shape {shape} has {len(scales)} scales along dimension {axis},"
                " which does not have that many slices; convert the model again"
            )
    if not 0 <= table.QuantizedDimension() < max(len(shape), 1):
        raise ModelError(
            f"tensor '{name}' has {len(shape)} dimensions and is quantized along dimension "
            f"{table.QuantizedDimension()}, which LiteRT does not take; convert the model again"
        )
    # The scale of a bias is never used (it is that of its inputs), so it may underflow to zero.
    if dtype != "int32":
        for scale in scales:
            if not (math.isfinite(scale) and scale > 0):
                raise ModelError(
                    f"tensor '{name}' has the scale {scale}, which must be positive and finite; "
                    "convert the model again"
                )
    if dtype in ("int4", "int8", "uint8", "int16"):
        low, high = element_type(dtype).limits
        for zero_point in zero_points:
            if not low <= zero_point <= high:
                raise ModelError(
                    f"tensor '{name}' has the zero point {zero_point}, which is not a {dtype}; "
                    "convert the model again"
                )
    return Quantization(tuple(scales), tuple(zero_points), axis)
