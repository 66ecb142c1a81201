"""Rewrites of Fourier transforms: products with constant matrices."""

from __future__ import annotations

import math

import numpy as np

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.frontend.onnx_rewrites.arrays import Array
from utvm_deploy.frontend.onnx_rewrites.state import Rewriting
from utvm_deploy.graph.signals.fft_plan import Transform

#: Elements of a matrix that a transform may become; that of a fast one is not on the board.
_MOST, _MOST_FAST = 1 << 20, 1 << 23


def fourier(r: Rewriting) -> str:
    """DFT: a product for each part of the numbers."""
    shape = r.shape(0)
    length = r.value(1)
    if (r.has(1) and length is None) or (r.has(2) and r.value(2) is None):
        raise UnsupportedOperator(f"{r.place} has a computed length or axis; make it a constant")
    axis_value = r.value(2)
    if axis_value is not None:
        axis = int(axis_value.reshape(-1)[0])
    else:
        axis = int(r.given.get("axis", 1 if r.state.version < 20 else -2))
    axis %= len(shape)
    is_inverse, is_half = (bool(r.given.get(name, 0)) for name in ("inverse", "onesided"))
    made = _transformed(r, r.input(0), axis, length, is_inverse, is_half)
    return made


def _transformed(
    r: Rewriting, x: str, axis: int, length: Array | None, is_inverse: bool, is_half: bool
) -> str:
    """The transform along an axis; the last axis has real and imaginary parts."""
    shape = r.shape_of(x)
    has, last = shape[axis], len(shape) - 1
    is_back = is_inverse and is_half  # from half of the frequencies to reals
    default = 2 * (has - 1) if is_back else has
    count = default if length is None else int(length.reshape(-1)[0])
    if is_back:
        half = count // 2 + 1
        x = _turned(r, _resized(r, x, half, axis), axis)
        if shape[last] == 1:
            x = _resized(r, x, 2, last)
        pairs = r.reshaped(x, (*r.shape_of(x)[:-2], 2 * half))
        made = _product(r, pairs, Transform(count, count, is_inverse=True))
        return _turned(r, r.reshaped(made, (*r.shape_of(made), 1)), axis, is_back=True)
    x = _turned(r, _resized(r, x, min(has, count), axis), axis)
    sides = []
    for part in range(shape[last]):
        side = r.taken(x, part, last) if shape[last] > 1 else r.reshaped(x, r.shape_of(x)[:-1])
        side = _product(r, side, Transform(count, min(has, count)))
        pairs = r.reshaped(side, (*r.shape_of(side)[:-1], count // 2 + 1, 2))
        sides.append(pairs if is_half else _mirrored(r, pairs, count))
    share = 1 / count if is_inverse else 1.0
    factors = np.array([share, -share] if is_inverse else [1, 1], np.float32)
    whole = r.add("Mul", sides[0], r.constant(factors)) if is_inverse else sides[0]
    if len(sides) == 2:
        # i (a + ib) = -b + ia, and the inverse has the conjugates of both.
        factors = np.array([share, share] if is_inverse else [-1, 1], np.float32)
        swapped = r.taken(sides[1], [1, 0], last)
        whole = r.add("Add", whole, r.add("Mul", swapped, r.constant(factors)))
    return _turned(r, whole, axis, is_back=True)


def _product(r: Rewriting, x: str, transform: Transform) -> str:
    """The product with the matrix of a transform, which the import recognizes if it is fast."""
    most = _MOST_FAST if transform.is_fast else _MOST
    if math.prod(transform.shape) > most:
        raise UnsupportedOperator(f"{r.place} transforms {transform.length} values; use fewer")
    shape = r.shape_of(x)
    rows = r.reshaped(x, (1, *shape)) if len(shape) == 1 else x
    made = r.add("MatMul", rows, r.constant(transform.matrix()))
    return r.reshaped(made, (*shape[:-1], transform.shape[1]))


def _mirrored(r: Rewriting, pairs: str, count: int) -> str:
    """All frequencies of real numbers: those above the half are the conjugates of the others."""
    places = np.arange(count)
    is_above = 2 * places > count
    rank = len(r.shape_of(pairs))
    signs = np.stack([np.ones(count), np.where(is_above, -1, 1)], axis=-1).astype(np.float32)
    taken = r.taken(pairs, np.where(is_above, count - places, places), rank - 2)
    return r.add("Mul", taken, r.constant(signs))


def _resized(r: Rewriting, x: str, size: int, axis: int) -> str:
    """The first elements along an axis, or all of them and zeros behind."""
    shape = list(r.shape_of(x))
    if size <= shape[axis]:
        return x if size == shape[axis] else r.part(x, 0, size, axis)
    shape[axis] = size - shape[axis]
    return r.add("Concat", x, r.constant(np.zeros(shape, np.float32)), axis=axis)


def _turned(r: Rewriting, x: str, axis: int, is_back: bool = False) -> str:
    """The tensor with an axis in front of the last one, or from there back to its place."""
    rank = len(r.shape_of(x))
    order = [*(i for i in range(rank - 1) if i != axis), axis, rank - 1]
    if order == list(range(rank)):
        return x
    return r.add("Transpose", x, perm=[order.index(i) for i in range(rank)] if is_back else order)


def short_time_fourier(r: Rewriting) -> str:
    """STFT: frames of the signal, by constant places, and their transforms."""
    step, length = r.value(1), r.value(3)
    if step is None or (r.has(3) and length is None):
        raise UnsupportedOperator(f"{r.place} has computed frames; make their length a constant")
    shape = r.shape(0)
    size = int(length.reshape(-1)[0]) if length is not None else r.shape(2)[0]
    stride = int(step.reshape(-1)[0])
    count = (shape[1] - size) // stride + 1
    places = np.arange(count)[:, None] * stride + np.arange(size)[None]
    frames = r.taken(r.input(0), places, 1)
    is_complex = len(shape) == 3 and shape[2] == 2
    if not is_complex:
        frames = r.reshaped(frames, (shape[0], count, size))
    if r.has(2):
        window_shape = (size, 1) if is_complex else (size,)
        frames = r.add("Mul", frames, r.reshaped(r.input(2), window_shape))
    if not is_complex:
        frames = r.reshaped(frames, (shape[0], count, size, 1))
    is_half = bool(r.given.get("onesided", 1))
    return _transformed(r, frames, 2, None, False, is_half)
