"""What REDUCE_PROD of quantized values multiplies, and how it rescales each product."""

from __future__ import annotations

import math
from collections.abc import Sequence


def merged_product(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, int, int] | None:
    """The extents before, of and after the dimensions that are multiplied.

    None if another dimension of more than one element lies between them.
    """
    wide = [axis for axis in axes if shape[axis] > 1] or list(axes[:1])
    first, end = wide[0], wide[-1] + 1
    if any(shape[axis] > 1 and axis not in wide for axis in range(first, end)):
        return None
    return math.prod(shape[:first]), math.prod(shape[first:end]), math.prod(shape[end:])


def factor_of_product(scale: float, output_scale: float, count: int) -> float:
    """What each of ``count`` products is multiplied by; the reference computes it so."""
    return scale / math.pow(output_scale, 1.0 / count)
