"""Which shapes and places a user's array may have for a tensor of a model.

And errors of damaged files, and in which order the dimensions of an image are.
"""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence

from utvm_deploy.graph.attributes import Concatenation, Gather, UpdateSlice
from utvm_deploy.graph.model import Array, Graph, Operator
from utvm_deploy.graph.rewrite import consumers

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


#: Operators that hand integers on as they are.
_HANDING = ("CAST", "EXPAND_DIMS", "RESHAPE", "SQUEEZE")


def greatest_places(graph: Graph) -> Mapping[int, int]:
    """An input tensor that says places, such as a token or a position -> the greatest of these.

    The least is 0. Inputs that operators only compute with are not there. Nor is one that says
    where a slice begins in all dimensions.
    """
    read = consumers(graph)

    def limits(tensor: int) -> Iterator[int]:
        for position in read.get(tensor, ()):
            operator = graph.operators[position]
            if isinstance(operator.attributes, Gather) and operator.inputs[1] == tensor:
                assert operator.inputs[0] is not None
                shape = graph.tensors[operator.inputs[0]].shape
                yield shape[operator.attributes.axis] - 1
            elif isinstance(operator.attributes, Concatenation):
                yield from _of_slices(graph, operator, tensor, read)
            elif operator.kind in _HANDING:
                yield from limits(operator.outputs[0])
            elif operator.kind == "ADD":
                yield from _of_sum(graph, operator, list(limits(operator.outputs[0])))

    found = {}
    for number in graph.inputs:
        tensor = graph.tensors[number]
        known = [*limits(number), *([] if tensor.most is None else [tensor.most])]
        if known and tensor.dtype in ("int32", "int64"):
            found[number] = max(min(known), 0)
    return found


def _of_slices(
    graph: Graph, joined: Operator, tensor: int, read: Mapping[int, list[int]]
) -> Iterator[int]:
    """The greatest places along one dimension, of slices whose beginning ``joined`` says."""
    ahead = joined.inputs[: joined.inputs.index(tensor)]
    axis = sum(graph.tensors[one].shape[0] for one in ahead if one is not None)
    for position in read.get(joined.outputs[0], ()):
        operator = graph.operators[position]
        if isinstance(operator.attributes, UpdateSlice):
            whole, part = (graph.tensors[i].shape for i in operator.inputs[:2] if i is not None)
            if whole[axis] > part[axis]:  # else a part has one place
                yield whole[axis] - part[axis]


def _of_sum(graph: Graph, operator: Operator, limits: list[int]) -> Iterator[int]:
    """The same before a constant is added."""
    tensors = [graph.tensors[i] for i in operator.inputs if i is not None]
    known = [one.data for one in tensors if one.data is not None]
    given = [one.shape for one in tensors if one.data is None]
    added = most_added(known[0], given[0]) if len(known) == len(given) == 1 else None
    if added is not None:
        yield from (limit - added for limit in limits)


def most_added(constant: Array, shape: Shape) -> int | None:
    """What a sum with a constant adds at most to each element of a tensor of this shape.

    Such as the last of 0, 1, 2 for a row of places. Of offsets for single elements, it is the
    least one. None if the constant does not begin with 0: the least place is another one then.
    """
    if not constant.size or constant.min() != 0:
        return None
    extents = (*(1 for _ in constant.shape[len(shape) :]), *shape)
    constant = constant.reshape((*(1 for _ in extents[constant.ndim :]), *constant.shape))
    repeated = tuple(axis for axis, extent in enumerate(extents) if extent == 1)
    return int(constant.max(repeated, keepdims=True).min())
