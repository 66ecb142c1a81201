"""Keeps what a function of arrays found, for arrays of the same content."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

_P = ParamSpec("_P")
_Found = TypeVar("_Found")
#: What is kept of each function. The oldest goes first.
MOST_KEPT = 1024


def by_content(function: Callable[_P, _Found]) -> Callable[_P, _Found]:
    """Call ``function`` once for equal arguments; the arrays of its result are read-only.

    A search for a plan makes the calls of a layer again for each kernel and each graph. The arrays
    are then other ones, and what is in them is the same.
    """
    kept: dict[Hashable, _Found] = {}

    @wraps(function)
    def found(*args: _P.args, **kwargs: _P.kwargs) -> _Found:
        key = (*map(_key, args), *((name, _key(value)) for name, value in kwargs.items()))
        if key not in kept:
            made = function(*args, **kwargs)
            for part in made if isinstance(made, tuple) else ():
                if isinstance(part, np.ndarray):
                    part.flags.writeable = False
            if len(kept) >= MOST_KEPT:
                del kept[next(iter(kept))]
            kept[key] = made
        return kept[key]

    return found


def _key(value: Any) -> Hashable:
    if isinstance(value, np.ndarray):
        digest = hashlib.blake2b(np.ascontiguousarray(value).tobytes(), digest_size=16).digest()
        return value.shape, value.dtype.str, digest
    if isinstance(value, tuple) and any(isinstance(part, np.ndarray) for part in value):
        return tuple(map(_key, value))
    return value  # type: ignore[no-any-return]
