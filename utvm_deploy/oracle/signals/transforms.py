"""KISS FFT's transforms of real numbers in NumPy, rounded and wrapped around as its C does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.graph.signals.fft_plan import FftPlan

#: Real and imaginary parts, of float32 or as int64.
Pair = tuple[Any, Any]


@dataclass(frozen=True)
class _Arithmetic:
    """Numbers of a type; integers are fractions of its largest number."""

    dtype: str

    def kept(self, value: Any) -> Any:
        """The value as the type keeps it."""
        return value if self.dtype == "float32" else value.astype(self.dtype).astype(np.int64)

    def rounded(self, value: Any) -> Any:
        """A sum of products, which has twice the fractional bits."""
        if self.dtype == "float32":
            return value
        bits = np.iinfo(self.dtype).bits - 1
        return self.kept((value + (1 << (bits - 1))) >> bits)

    def half(self, value: Any) -> Any:
        """What remains of one bit less; a sum of int16 is not wrapped around before."""
        return value * np.float32(0.5) if self.dtype == "float32" else self.kept(value >> 1)

    def part(self, pair: Pair, radix: int) -> Pair:
        """Divided by a radix, if of integers."""
        if self.dtype == "float32":
            return pair
        share = int(np.iinfo(self.dtype).max) // radix
        return self.rounded(pair[0] * share), self.rounded(pair[1] * share)

    def sum(self, a: Pair, b: Pair) -> Pair:
        return self.kept(a[0] + b[0]), self.kept(a[1] + b[1])

    def less(self, a: Pair, b: Pair) -> Pair:
        return self.kept(a[0] - b[0]), self.kept(a[1] - b[1])

    def turned(self, a: Pair, by: Any) -> Pair:
        cosine, sine = by[..., 0], by[..., 1]
        return (
            self.rounded(a[0] * cosine - a[1] * sine),
            self.rounded(a[0] * sine + a[1] * cosine),
        )


def rfft(x: Array, length: int) -> Array:
    """SignalRfft along the last dimension."""
    plan, given = FftPlan(length, x.dtype.name), _Arithmetic(x.dtype.name)
    values = np.zeros((*x.shape[:-1], length), x.dtype)
    values[..., : x.shape[-1]] = x
    wide, count = _wide(values), plan.count
    re, im = _stages(plan, given, (wide[..., ::2], wide[..., 1::2]))
    made = np.zeros((*x.shape[:-1], count + 1, 2), wide.dtype)
    first = given.part((re[..., 0], im[..., 0]), 2)
    made[..., 0, 0], made[..., count, 0] = first[0] + first[1], first[0] - first[1]
    here, there, sums, turned = _mirrored(plan, given, re, im)
    wraps = given.kept if x.dtype == np.int32 else lambda value: value
    made[..., here, 0] = given.half(wraps(sums[0] + turned[0]))
    made[..., here, 1] = given.half(wraps(sums[1] + turned[1]))
    made[..., there, 0] = given.half(wraps(sums[0] - turned[0]))
    made[..., there, 1] = given.half(wraps(turned[1] - sums[1]))
    return made.reshape(*x.shape[:-1], length + 2).astype(x.dtype)


def irfft(x: Array, length: int) -> Array:
    """SignalIrfft along the last dimension."""
    plan, given = FftPlan(length, x.dtype.name, is_inverse=True), _Arithmetic(x.dtype.name)
    wide, count = _wide(x), plan.count
    re, im = wide[..., ::2], wide[..., 1::2]
    ends = re[..., 0], re[..., count]
    first = given.part((given.kept(ends[0] + ends[1]), given.kept(ends[0] - ends[1])), 2)
    here, there, sums, turned = _mirrored(plan, given, re, im)
    packed = np.zeros((2, *x.shape[:-1], count), wide.dtype)
    packed[0, ..., 0], packed[1, ..., 0] = first
    packed[0, ..., here], packed[1, ..., here] = (
        np.moveaxis(part, -1, 0) for part in given.sum(sums, turned)
    )
    less = given.less(sums, turned)
    packed[0, ..., there] = np.moveaxis(less[0], -1, 0)
    packed[1, ..., there] = np.moveaxis(given.kept(-less[1]), -1, 0)
    made = np.stack(_stages(plan, given, (packed[0], packed[1])), axis=-1)
    flat = made.reshape(*x.shape[:-1], length)
    return (flat / np.float32(length) if x.dtype == np.float32 else flat).astype(x.dtype)


def _mirrored(
    plan: FftPlan, given: _Arithmetic, re: Any, im: Any
) -> tuple[Array, Array, Pair, Pair]:
    """Bins and their mirror images, the sums of both, and their turned differences."""
    here = np.arange(1, plan.count // 2 + 1)
    there = plan.count - here
    a = given.part((re[..., here], im[..., here]), 2)
    b = given.part((re[..., there], given.kept(-im[..., there])), 2)
    turned = given.turned(given.less(a, b), _wide(plan.real_twiddles()))
    return here, there, given.sum(a, b), turned


def _wide(values: Array) -> Any:
    return values if values.dtype == np.float32 else values.astype(np.int64)


def _stages(plan: FftPlan, given: _Arithmetic, values: Pair) -> Pair:
    """The complex transform: each stage joins ``radix`` transforms of ``span`` numbers."""
    order = np.argsort(plan.places())
    re, im = values[0][..., order], values[1][..., order]
    twiddles, span = _wide(plan.twiddles()), 1
    for radix in plan.stages:
        step = plan.count // (radix * span)
        shape = (*re.shape[:-1], step, radix, span)
        parts = given.part((re.reshape(shape), im.reshape(shape)), radix)
        x = [(parts[0][..., k, :], parts[1][..., k, :]) for k in range(radix)]
        for k in range(1, radix):
            x[k] = given.turned(x[k], twiddles[np.arange(span) * step * k])
        root = step * span
        made = _JOINED[radix](
            given, x, twiddles[root % plan.count], twiddles[2 * root % plan.count]
        )
        if radix == 4 and plan.is_inverse:
            made[1], made[3] = made[3], made[1]
        re, im = (np.stack(one, axis=-2).reshape(re.shape) for one in zip(*made, strict=True))
        span *= radix
    return re, im


def _of_two(given: _Arithmetic, x: list[Pair], one: Any, two: Any) -> list[Pair]:
    return [given.sum(*x), given.less(*x)]


def _of_three(given: _Arithmetic, x: list[Pair], one: Any, two: Any) -> list[Pair]:
    """With half of a sum for the cosine of a third of a turn; ``one`` has the sine."""
    both, less = given.sum(x[1], x[2]), given.less(x[1], x[2])
    middle = given.less(x[0], (given.half(both[0]), given.half(both[1])))
    re, im = (given.rounded(part * one[1]) for part in less)
    return [given.sum(x[0], both), given.less(middle, (im, -re)), given.sum(middle, (im, -re))]


def _of_four(given: _Arithmetic, x: list[Pair], one: Any, two: Any) -> list[Pair]:
    even, odd = given.sum(x[0], x[2]), given.sum(x[1], x[3])
    a, (re, im) = given.less(x[0], x[2]), given.less(x[1], x[3])
    quarters = given.sum(a, (im, -re)), given.less(a, (im, -re))
    return [given.sum(even, odd), quarters[0], given.less(even, odd), quarters[1]]


def _of_five(given: _Arithmetic, x: list[Pair], one: Any, two: Any) -> list[Pair]:
    """``one`` and ``two`` are one fifth of a turn and two."""

    def times(pair: Pair, factor: Any) -> Pair:
        return given.rounded(pair[0] * factor), given.rounded(pair[1] * factor)

    s, d = given.sum(x[1], x[4]), given.less(x[1], x[4])
    t, e = given.sum(x[2], x[3]), given.less(x[2], x[3])
    made: list[Pair] = [given.sum(x[0], given.sum(s, t))]
    near = given.sum(given.sum(x[0], times(s, one[0])), times(t, two[0]))
    far = given.sum(given.sum(x[0], times(s, two[0])), times(t, one[0]))
    d_one, e_two, d_two, e_one = (
        times(d, one[1]),
        times(e, two[1]),
        times(d, two[1]),
        times(e, one[1]),
    )
    b = given.kept(d_one[1] + e_two[1]), given.kept(-d_one[0] - e_two[0])
    c = given.kept(e_one[1] - d_two[1]), given.kept(d_two[0] - e_one[0])
    made += [given.less(near, b), given.sum(far, c), given.less(far, c), given.sum(near, b)]
    return made


_JOINED = {2: _of_two, 3: _of_three, 4: _of_four, 5: _of_five}
