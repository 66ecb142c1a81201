"""Which shapes a user's array may have for a tensor of a model, and errors of damaged files."""

from __future__ import annotations

import tokenize
import zipfile
import zlib

from utvm_deploy.graph.model import Array

Shape = tuple[int, ...]

#: What ``numpy.load`` raises on damaged files: NumPy parses a header as Python, and ``zipfile``
#: raises RuntimeError for encrypted files and for methods that it does not know.
DAMAGED = (
    ValueError,
    EOFError,
    AttributeError,
    KeyError,
    MemoryError,
    OverflowError,
    RuntimeError,
    SyntaxError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def accepted_shapes(shape: Shape) -> tuple[Shape, ...]:
    """The tensor's own shape, and the same without its leading 1.

    Any other order of dimensions, such as NCHW for NHWC, would mix up the values.
    """
    return (shape, shape[1:]) if shape[:1] == (1,) else (shape,)


def in_shape(array: Array, shape: Shape) -> Array | None:
    """The array in the tensor's shape; None if it has none of the accepted shapes."""
    return array.reshape(shape) if array.shape in accepted_shapes(shape) else None


def shapes_text(shape: Shape) -> str:
    """The accepted shapes in words."""
    return " or ".join(map(str, accepted_shapes(shape)))
