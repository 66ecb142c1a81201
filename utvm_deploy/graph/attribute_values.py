"""Types and limits of what the attributes of operators hold."""

from __future__ import annotations

from typing import TypeAlias

#: Rows added above, below, left and right of the image.
Padding: TypeAlias = tuple[int, int, int, int]
#: Smallest and largest quantized output value.
Clamp: TypeAlias = tuple[int, int]
#: Smallest and largest float32 output value; None if there are none.
Limits: TypeAlias = tuple[float, float] | None
#: The largest finite float32 number.
FLOAT_MAX = (2 - 2**-23) * 2.0**127
#: What ``clamp`` is in operators of float32, which have ``limits`` instead.
NO_CLAMP: Clamp = (0, 0)
Shape: TypeAlias = tuple[int, ...]
#: Positions along one dimension, in the order in which they are taken.
Indices: TypeAlias = tuple[int, ...]
