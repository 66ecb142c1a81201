"""Where the elements of an operation's feature maps lie, as its registers say it.

The input feature maps are IFM and IFM2, the output feature map is OFM. Each has up to four tiles,
and a format: NHWC, or NHCWB16 with blocks of 16 channels. Sources: the register command stream
generators of ethos-u-vela 5.2.0 (Apache-2.0), which write these registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.backends.ethos_u.stream import Operation, Stream, defect

#: Modes of ELEMENTWISE with one input: LRELU, ABS, CLZ, NOT.
UNARY = (5, 6, 7, 36)
#: Modes of POOL.
REDUCE_SUM, NO_POOL = 2, 4
_SCALAR_OF_U55, _SCALAR_OF_U85 = 1 << 7, 8
# Bits of U85's broadcast modes, and of U55's, by the dimensions height, width and channels.
_BROADCASTS = (1, 2, 4)
_CHANNEL_BLOCK = 16
#: More than any NPU's memory has elements.
_MOST_ELEMENTS = 1 << 26
# Activation storage of U85: tiles in memory as on U55, or no memory.
_TILES_2X2, _CHAINED, _NO_STORAGE = 0, 2, 3
# U85's transpositions: number -> the axes of (height, width, channels) in the order of the memory.
_TRANSPOSED = {0: (0, 1, 2), 1: (1, 0, 2), 2: (0, 2, 1), 3: (1, 2, 0), 6: (2, 0, 1), 7: (2, 1, 0)}

Shape: TypeAlias = tuple[int, int, int]
#: Bytes of a region, by their distance from its begin.
Places: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """A feature map in memory."""

    region: int
    places: Places  # [height, width, channels]: the first byte of each element in the region
    element_bytes: int
    is_signed: bool

    @property
    def bytes(self) -> Places:
        """The places of all of its bytes."""
        return (self.places[..., None] + np.arange(self.element_bytes)).reshape(-1)


def output_shape(operation: Operation) -> Shape:
    """Height, width and channels of what is computed, before a transposition."""
    height, width, depth = (operation[f"OFM_{one}_M1"] + 1 for one in ("HEIGHT", "WIDTH", "DEPTH"))
    return height, width, depth


def strides(operation: Operation) -> tuple[int, int]:
    """Of the kernel, in y and x."""
    bits = operation["KERNEL_STRIDE"]
    return 1 + (bits >> 1 & 1 | (bits >> 9 & 1) << 1), 1 + (bits & 1 | (bits >> 6 & 1) << 1)


def input_shape(operation: Operation) -> Shape:
    """Height, width and channels of IFM that the operation reads."""
    height, width, depth = output_shape(operation)
    if operation.name == "ELEMENTWISE":
        return height, width, depth
    kernel = operation["KERNEL_HEIGHT_M1"] + 1, operation["KERNEL_WIDTH_M1"] + 1
    if operation.name == "RESIZE":
        return *kernel, operation["IFM_DEPTH_M1"] + 1
    padding = (("TOP", "BOTTOM"), ("LEFT", "RIGHT"))
    sizes = [
        (size - 1) * stride + extent - sum(operation[f"IFM_PAD_{side}"] for side in sides)
        for size, stride, extent, sides in zip(
            (height, width), strides(operation), kernel, padding, strict=True
        )
    ]
    if operation["IFM_UPSCALE"]:  # twice as large as in memory
        sizes = [-(-size // 2) for size in sizes]
    if min(sizes) < 1:
        raise defect(f"has {operation.shown} with a padding that is larger than its input")
    return sizes[0], sizes[1], operation["IFM_DEPTH_M1"] + 1


def inputs_of(stream: Stream, operation: Operation) -> Iterator[FeatureMap]:
    """The feature maps that an operation reads from memory."""
    if operation.name == "CONV" and stream.is_u85 and operation.parameter & 1:
        raise defect(f"has {operation.shown} with weights of IFM2, which the decoder does not know")
    shape = input_shape(operation)
    is_null_pool = stream.is_u85 and operation.name == "POOL" and operation.parameter == NO_POOL
    if not is_null_pool:
        yield from _input(stream, operation, "IFM", shape)
    is_binary = operation.name == "ELEMENTWISE" and operation.parameter not in UNARY
    accumulates = stream.is_u85 and operation["ACC_FORMAT"] >> 4 & 3 == 2
    if is_binary or is_null_pool or accumulates:
        given = output_shape(operation) if accumulates else shape
        yield from _input(stream, operation, "IFM2", given)


def _input(stream: Stream, operation: Operation, name: str, shape: Shape) -> Iterator[FeatureMap]:
    bits = operation[f"{name}_PRECISION"]
    if stream.is_u85 and bits >> 14 in (_CHAINED, _NO_STORAGE):
        return
    if operation.name == "ELEMENTWISE" and (name == "IFM2" or stream.is_u85):
        mode = operation[f"{name}_BROADCAST"]
        if mode & (_SCALAR_OF_U85 if stream.is_u85 else _SCALAR_OF_U55):
            return
        height, width, depth = (
            1 if mode & bit else size for size, bit in zip(shape, _BROADCASTS, strict=True)
        )
        shape = height, width, depth
    yield _feature_map(stream, operation, name, shape, bits >> 2 & 3)


def output_of(stream: Stream, operation: Operation) -> FeatureMap | None:
    """The feature map that an operation writes to memory; None if the next one gets it."""
    bits = operation["OFM_PRECISION"]
    shape = output_shape(operation)
    if not stream.is_u85:
        return _feature_map(stream, operation, "OFM", shape, bits >> 1 & 3)
    if bits >> 14 in (_CHAINED, _NO_STORAGE):
        return None
    order = _TRANSPOSED.get(bits >> 11 & 7)
    if order is None or bits >> 9 & 3:
        raise defect(f"has {operation.shown} with an order of elements that is not known")
    height, width, depth = (shape[axis] for axis in order)
    return _feature_map(stream, operation, "OFM", (height, width, depth), bits >> 1 & 3)


def _feature_map(
    stream: Stream, operation: Operation, name: str, shape: Shape, precision: int
) -> FeatureMap:
    bits = operation[f"{name}_PRECISION"]
    size = 1 << precision
    if int(np.prod(shape)) > _MOST_ELEMENTS:
        raise defect(f"has {operation.shown} with {name} of shape {shape}, which is too large")
    if stream.is_u85 and bits >> 14 != _TILES_2X2:
        raise defect(f"has {operation.shown} with tiles of {name} that the decoder does not know")
    y, x, c = (np.arange(one, dtype=np.int64) for one in shape)
    step_y, step_x, step_c = (operation[f"{name}_STRIDE_{one}"] for one in "YXC")
    in_blocks = bits >> 6 & 3
    block, channel = np.divmod(c, _CHANNEL_BLOCK)
    channels = block * step_c + channel * size if in_blocks else c * size
    split = operation[f"{name}_WIDTH0_M1"] + 1
    places = np.zeros(shape, np.int64)
    for right, below in product((0, 1), (0, 1)):
        high = operation[f"{name}_HEIGHT{right}_M1"] + 1
        rows, columns = y >= high if below else y < high, x >= split if right else x < split
        if rows.any() and columns.any():
            base = operation[f"{name}_BASE{right + 2 * below}"]
            if in_blocks and base % _CHANNEL_BLOCK:
                raise defect(f"has {operation.shown} with {name} at {base:#x}, not aligned to 16")
            part = (
                (y[rows] - below * high)[:, None, None] * step_y
                + (x[columns] - right * split)[None, :, None] * step_x
                + channels
            )
            places[np.ix_(rows, columns)] = base + part
    return FeatureMap(operation[f"{name}_REGION"] & 7, places, size, bool(bits & 1))
