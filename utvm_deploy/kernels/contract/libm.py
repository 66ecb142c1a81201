"""Functions of a float32 by the C library.

The reference calls the same ones (``expf``, ``erfcf``, ...), whose last bit is not always that of
the double-precision function rounded, and differs between versions of the library.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np


@functools.cache
def single(name: str) -> Callable[[Any], Any]:
    """A function of ``math.h`` on float32, by its name on double: ``erfc`` is ``erfcf``.

    Without a C library to ask, the double-precision function is rounded.
    """
    library = ctypes.util.find_library("m")
    found = getattr(ctypes.CDLL(library), f"{name}f", None) if library else None
    if found is None:
        return lambda x: np.float32(getattr(math, name)(float(x)))
    found.argtypes, found.restype = [ctypes.c_float], ctypes.c_float
    return lambda x: np.float32(found(float(x)))
