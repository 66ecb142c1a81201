"""Which shapes a user's array may have for a tensor of a model, and errors of damaged files.

And in which order the dimensions of an image are.
"""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections.abc import Sequence

from utvm_deploy.graph.model import Array

Shape = tuple[int, ...]

NHWC, NCHW = "nhwc", "nchw"
_CHANNELS = (1, 3, 4)

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


def order_of(shape: Sequence[int]) -> str:
    """NHWC, NCHW, or nothing where no dimension has 1, 3 or 4 channels.

    Where both could be, it is NHWC.
    """
    if len(shape) != 4:
        return ""
    if shape[3] in _CHANNELS:
        return NHWC
    return NCHW if shape[1] in _CHANNELS else ""


def other_order(shape: Shape, wanted: Shape) -> str:
    """What to do with images whose channels are at the other end; empty for other arrays."""
    given, (*_, first, second, third) = shape[-3:], (0, 0, 0, *wanted)
    if len(given) < 3 or given == wanted[-3:]:
        return ""
    if given == (third, first, second) and third > 1:
        return (
            "its channels come first (NCHW), and those of the model last (NHWC): give "
            "numpy.moveaxis(array, -3, -1), or compile with --input nchw"
        )
    if given == (second, third, first) and first > 1:
        return (
            "its channels come last (NHWC), and those of the model first (NCHW): give "
            "numpy.moveaxis(array, -1, -3), or compile with --input nhwc"
        )
    return ""
