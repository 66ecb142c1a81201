"""Rewrites of operators that move elements."""

from __future__ import annotations

import itertools
import math

import numpy as np

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.frontend.onnx_rewrites.state import Rewriting


def split(r: Rewriting) -> bool:
    """Slices for the parts that have elements, if others have none."""
    shape = r.shape(0)
    axis = r.axis("axis", 0, len(shape))
    parts = [r.output_shape(position)[axis] for position in range(len(r.node.output))]
    if all(parts):
        return False
    first = 0
    for position, size in enumerate(parts):
        if size:
            r.finish(r.part(r.input(0), first, first + size, axis), position)
        else:
            r.state.remember(
                r.node.output[position], np.zeros(r.output_shape(position), r.dtype(0))
            )
        first += size
    return True


def concat(r: Rewriting) -> str | bool:
    """Only the parts that have elements."""
    shapes = [r.state.shape(name) for name in r.node.input]
    if any(shape is None for shape in shapes):
        return False
    full = [name for name, s in zip(r.node.input, shapes, strict=True) if s and all(s)]
    if len(full) == len(shapes):
        return False
    return full[0] if len(full) == 1 else r.add("Concat", *full, axis=r.given["axis"])


def one_hot(r: Rewriting) -> str:
    """A comparison with the numbers of the classes."""
    depth = r.value(1)
    if depth is None:
        raise UnsupportedOperator(f"{r.place} has a computed depth; make it a constant")
    count, shape = int(depth.reshape(-1)[0]), r.shape(0)
    axis = r.axis("axis", -1, len(shape) + 1)
    # Negative indices count from behind. All are compared as int32, or as floats.
    dtype = np.dtype(np.float32 if r.dtype(0).kind == "f" else np.int32)
    places = r.cast(r.input(0), dtype)
    zero, most = r.constant(0, dtype), r.constant(count, dtype)
    places = r.add("Where", r.add("Less", places, zero), r.add("Add", places, most), places)
    wide = r.reshaped(places, (*shape[:axis], 1, *shape[axis:]))
    classes = r.constant(np.arange(count).reshape(-1, *(1,) * (len(shape) - axis)), dtype)
    off, on = (r.taken(r.input(2), place, 0) for place in (0, 1))
    return r.add("Where", r.add("Equal", wide, classes), on, off)


def reverse_sequence(r: Rewriting) -> str:
    """The first elements of each sequence of the batch, in reverse."""
    shape = r.shape(0)
    batch, time = r.axis("batch_axis", 1, len(shape)), r.axis("time_axis", 0, len(shape))
    lengths = r.value(1)
    steps = np.arange(shape[time])
    if lengths is not None:
        rows = []
        for number, length in enumerate(lengths.reshape(-1).tolist()):
            row = r.part(r.input(0), number, number + 1, batch)
            places = np.where(steps < length, length - 1 - steps, steps)
            rows.append(r.taken(row, places, time))
        return rows[0] if len(rows) == 1 else r.add("Concat", *rows, axis=batch)
    along_batch = [shape[i] if i == batch else 1 for i in range(len(shape))]
    along_time = [shape[i] if i == time else 1 for i in range(len(shape))]
    numbers = r.constant(steps.reshape(along_time), np.int64)
    lengths_of = r.reshaped(r.cast(r.input(1), np.int64), along_batch)
    last = r.add("Sub", lengths_of, r.constant(1, np.int64))
    is_inside = r.add("Less", numbers, lengths_of)
    places_of = r.add("Where", is_inside, r.add("Sub", last, numbers), numbers)
    return r.add("GatherElements", r.input(0), r.expanded(places_of, shape), axis=time)


def space_to_depth(r: Rewriting) -> str | bool:
    """ONNX's own definition, if the channels stay together."""
    if r.text("mode", "DCR") == "DCR":
        return False
    size = int(r.given["blocksize"])
    batch, channels, rows, columns = r.shape(0)
    wide = r.reshaped(r.input(0), (batch, channels, rows // size, size, columns // size, size))
    turned = r.add("Transpose", wide, perm=[0, 1, 3, 5, 2, 4])
    return r.reshaped(turned, (batch, channels * size * size, rows // size, columns // size))


def compress(r: Rewriting) -> str:
    """The elements that a constant condition selects."""
    condition = r.value(1)
    if condition is None:
        raise UnsupportedOperator(
            f"{r.place} selects by computed values; make the condition a constant"
        )
    places = np.flatnonzero(condition)
    shape = r.shape(0)
    x, axis = r.input(0), r.axis("axis", 0, len(shape))
    if "axis" not in r.given:
        x = r.reshaped(x, (math.prod(shape),))
    return r.taken(x, places, axis)


def tensor_scatter(r: Rewriting) -> str:
    """An update of a cache from a place on, which each sequence of the batch has."""
    cache, update = r.shape(0), r.shape(1)
    axis = r.axis("axis", -2, len(cache))
    along = [update[axis] if i == axis else 1 for i in range(len(cache))]
    places = r.constant(np.arange(update[axis]).reshape(along), np.int64)
    if r.has(2):
        first = r.reshaped(r.cast(r.input(2), np.int64), (-1, *(1,) * (len(cache) - 1)))
        places = r.add("Add", places, first)
    if r.text("mode", "linear") == "circular":
        places = r.add("Mod", places, r.constant(cache[axis], np.int64))
    return r.add("ScatterElements", r.input(0), r.expanded(places, update), r.input(1), axis=axis)


def axis_in_list(r: Rewriting) -> str | bool:
    """PyTorch's exporter writes one axis of Squeeze and Unsqueeze as a number."""
    axis = r.value(1)
    if axis is None or axis.ndim:
        return False
    return r.add(r.kind, r.input(0), r.constant(axis.reshape(1)))


def feature_extractor(r: Rewriting) -> str:
    """Elements along the last dimension."""
    shape = r.shape(0)
    found = r.add("Gather", r.input(0), r.input(1), axis=len(shape) - 1)
    count = math.prod(r.shape(1))
    outer = shape[:-1] if len(shape) > 1 else (1,)
    return r.reshaped(found, (*outer, count))


def column_to_image(r: Rewriting) -> str:
    """A transposed convolution whose weights put each value of a column at its place."""
    image, block = r.value(1), r.value(2)
    if image is None or block is None:
        raise UnsupportedOperator(f"{r.place} has computed shapes; make them constants")
    sizes, window = image.reshape(-1).tolist(), block.reshape(-1).tolist()
    rank = len(window)
    ones = [1] * rank
    strides, dilations = (list(r.given.get(n, ones)) for n in ("strides", "dilations"))
    pads = list(r.given.get("pads", [0] * (2 * rank)))
    reach = [(w - 1) * d + 1 for w, d in zip(window, dilations, strict=True)]
    padded = [size + pads[i] + pads[i + rank] for i, size in enumerate(sizes)]
    counts = [(p - e) // s + 1 for p, e, s in zip(padded, reach, strides, strict=True)]
    batch, rows, _ = r.shape(0)
    taps = math.prod(window)
    weights = np.zeros((taps, 1, *window), np.float32)
    for number, place in enumerate(itertools.product(*map(range, window))):
        weights[number, 0][place] = 1
    columns = r.reshaped(r.input(0), (batch * rows // taps, taps, *counts))
    made = r.add(
        "ConvTranspose", columns, r.constant(weights), strides=strides, dilations=dilations
    )
    full = [(c - 1) * s + e for c, s, e in zip(counts, strides, reach, strict=True)]
    for i in range(rank):
        last = min(pads[i] + sizes[i], full[i])
        if (pads[i], last) != (0, full[i]):
            made = r.part(made, pads[i], last, 2 + i)
        if missing := pads[i] + sizes[i] - last:
            shape = list(r.shape_of(made))
            shape[2 + i] = missing
            zeros = r.constant(np.zeros(shape, np.float32))
            made = r.add("Concat", made, zeros, axis=2 + i)
    return r.reshaped(made, (batch, rows // taps, *sizes))
