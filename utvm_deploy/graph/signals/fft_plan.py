"""The plan of a fast Fourier transform: radices, the order of its input, and its twiddles.

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
