"""Rewrites of Fourier transforms: products with constant matrices."""

from __future__ import annotations

import numpy as np

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.frontend.onnx_rewrites.arrays import Array
from utvm_deploy.frontend.onnx_rewrites.state import Rewriting

#: Elements of a matrix that a transform may become.
_MOST = 1 << 20


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
    has = shape[axis]
    is_back = is_inverse and is_half  # from half of the frequencies to reals
    default = 2 * (has - 1) if is_back else has
    count = default if length is None else int(length.reshape(-1)[0])
    kept = min(has, count // 2 + 1 if is_back else count)
    if count * kept > _MOST:
        raise UnsupportedOperator(f"{r.place} transforms {count} values; use fewer")
    made = count // 2 + 1 if is_half and not is_back else count
    turns = np.outer(np.arange(kept), np.arange(made)) * (2 * np.pi / count)
    factor = np.full((kept, 1), 1 / count if is_inverse else 1.0)
    if is_back:
        middle = np.arange(kept)
        factor = factor * np.where((middle == 0) | (2 * middle == count), 1, 2)[:, None]
    cosine, sine = np.cos(turns) * factor, np.sin(turns) * factor
    sine = sine if is_inverse else -sine
    if kept < has:
        x = r.part(x, 0, kept, axis)
    last = len(shape) - 1
    parts = [r.taken(x, part, last) for part in range(shape[last])]
    turned = [_last(r, part, axis) for part in parts]
    dtype = np.float32
    by_cosine, by_sine = (r.constant(matrix.astype(dtype)) for matrix in (cosine, sine))
    real = r.add("MatMul", turned[0], by_cosine)
    imaginary = "" if is_back else r.add("MatMul", turned[0], by_sine)
    if len(turned) == 2:
        # (a + ib)(c + is) = ac - bs + i(as + bc)
        real = r.add("Sub", real, r.add("MatMul", turned[1], by_sine))
        if not is_back:
            imaginary = r.add("Add", imaginary, r.add("MatMul", turned[1], by_cosine))
    sides = [_unlast(r, part, axis) for part in ((real,) if is_back else (real, imaginary))]
    wide = [r.reshaped(side, (*r.shape_of(side), 1)) for side in sides]
    return wide[0] if len(wide) == 1 else r.add("Concat", *wide, axis=last)


def _last(r: Rewriting, x: str, axis: int) -> str:
    rank = len(r.shape_of(x))
    if axis == rank - 1:
        return x
    return r.add("Transpose", x, perm=[*(i for i in range(rank) if i != axis), axis])


def _unlast(r: Rewriting, x: str, axis: int) -> str:
    rank = len(r.shape_of(x))
    if axis == rank - 1:
        return x
    order = [*(i for i in range(rank) if i != axis), axis]
    return r.add("Transpose", x, perm=[order.index(i) for i in range(rank)])


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
    if len(r.shape_of(frames)) == 3:
        frames = r.reshaped(frames, (*r.shape_of(frames), 1))
    if r.has(2):
        frames = r.add("Mul", frames, r.reshaped(r.input(2), (size, 1)))
    is_half = bool(r.given.get("onesided", 1))
    return _transformed(r, frames, 2, None, False, is_half)
