"""The plan of a fast Fourier transform: radices, the order of its input, and its twiddles.

And the same transform as a matrix, which importers write and recognize.

TFLite Micro computes with KISS FFT (version 130, ``kiss_fft.c`` and ``kiss_fftr.c``). A transform
of real numbers is one of half as many complex numbers, whose results are then taken apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, floor, pi, prod, sin

import numpy as np
from numpy.typing import NDArray

#: In this order; TFLite Micro crashes at other factors, for which KISS FFT asks for heap memory.
RADICES = (4, 2, 3, 5)
#: How far the elements of a matrix may be from the cosines and sines of a transform.
_NEAR = 2.0**-23


def radices(count: int) -> tuple[int, ...]:
    """The factors of a number of complex values, the outermost stage first; () if others remain."""
    found = []
    for radix in RADICES:
        while count % radix == 0:
            found.append(radix)
            count //= radix
    return tuple(found) if count == 1 else ()


@dataclass(frozen=True)
class FftPlan:
    """A transform of ``length`` real numbers, or back to them."""

    length: int
    dtype: str  # int16, int32 or float32
    is_inverse: bool = False

    @property
    def count(self) -> int:
        """Complex numbers that are transformed."""
        return self.length // 2

    @property
    def stages(self) -> tuple[int, ...]:
        """Radices, the innermost stage first."""
        return radices(self.count)[::-1]

    def places(self) -> NDArray[np.uint16]:
        """The position of each input for the first stage: its mixed-radix digits in reverse."""
        found = np.zeros(self.count, np.uint16)
        rest, span = np.arange(self.count), self.count
        for radix in self.stages[::-1]:
            span //= radix
            found += (rest % radix * span).astype(np.uint16)
            rest = rest // radix
        return found

    def twiddles(self) -> NDArray[np.generic]:
        """The powers of the root of unity: pairs of a cosine and a sine."""
        sign = -1 if self.is_inverse else 1
        return self._pairs([-2 * pi * k / self.count * sign for k in range(self.count)])

    def real_twiddles(self) -> NDArray[np.generic]:
        """The factors that take two halves of a transform of real numbers apart."""
        sign = -1 if self.is_inverse else 1
        rows = range(self.count // 2)
        return self._pairs([-pi * ((k + 1) / self.count + 0.5) * sign for k in rows])

    def _pairs(self, phases: list[float]) -> NDArray[np.generic]:
        values = [[cos(phase), sin(phase)] for phase in phases]
        if self.dtype == "float32":
            return np.array(values, np.float32).reshape(-1, 2)
        most = np.iinfo(self.dtype).max
        made = [[floor(0.5 + most * one) for one in pair] for pair in values]
        return np.array(made, self.dtype).reshape(-1, 2)

    @property
    def macs(self) -> int:
        """Multiplications of the stages, for reports."""
        return self.count * (4 * len(self.stages) + 2) if prod(self.stages) else 0


@dataclass(frozen=True)
class Transform:
    """A transform of ``length`` real numbers as a matrix, whose rows are the values that it reads.

    Frequencies are pairs of a real and an imaginary part, from 0 to half of the length. Zeros
    follow ``kept`` real numbers.
    """

    length: int
    kept: int
    is_inverse: bool = False

    @property
    def is_fast(self) -> bool:
        """Whether stages of our radices compute it."""
        return self.length % 2 == 0 and radices(self.length // 2) != () and self.length < 1 << 17

    @property
    def shape(self) -> tuple[int, int]:
        """Of the matrix."""
        pairs = 2 * (self.length // 2 + 1)
        return (pairs, self.length) if self.is_inverse else (self.kept, pairs)

    def matrix(self) -> NDArray[np.float32]:
        """The matrix."""
        half = np.arange(self.length // 2 + 1)
        turns = np.outer(np.arange(self.kept), half) % self.length * (2 * pi / self.length)
        factors = np.ones(half.size)
        if self.is_inverse:
            is_end = (half == 0) | (2 * half == self.length)
            factors = np.where(is_end, 1, 2) / self.length
        # The imaginary parts of both ends are 0 for real numbers.
        sine = np.where(2 * half % self.length == 0, 0, -np.sin(turns))
        made = np.stack([np.cos(turns) * factors, sine * factors], axis=-1).astype(np.float32)
        rows = made.reshape(self.kept, -1)
        return np.ascontiguousarray(rows.T) if self.is_inverse else rows


def transform_of(matrix: NDArray[np.float32]) -> Transform | None:
    """The fast transform that a matrix is; None if it is something else."""
    rows, columns = matrix.shape
    for found in (Transform(columns - 2, rows), Transform(columns, columns, is_inverse=True)):
        fits = found.length >= found.kept and found.is_fast and found.shape == matrix.shape
        if fits and np.abs(matrix - found.matrix()).max() <= _NEAR / (
            found.length if found.is_inverse else 1
        ):
            return found
    return None
