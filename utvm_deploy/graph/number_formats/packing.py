"""Which constants are kept in a number format."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.graph.number_formats.formats import Codes, NumberFormat


def is_table(values: NDArray[Any]) -> bool:
    """Whether a constant is a table of float32 with two dimensions or more, such as weights."""
    return values.dtype == np.float32 and sum(extent > 1 for extent in values.shape) > 1


def packed(values: NDArray[Any], own: NumberFormat) -> Codes | None:
    """A table as numbers of the format; None unless each of its values is one."""
    if not is_table(values):
        return None
    codes = own.encoded(values)
    return codes if own.decoded(codes).tobytes() == values.tobytes() else None
