"""Keeps what functions make of assembly, ordered by the list scheduler or as it was written.

Ordering takes most of the time that assembly takes, and changes no size. So what is only weighed
stays as it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")

#: Results of each function that are kept.
_MOST_KEPT = 256
_is_ordered = ContextVar("is_ordered", default=True)


def is_ordered() -> bool:
    """Whether scheduled code is ordered now."""
    return _is_ordered.get()


@contextmanager
def as_written() -> Iterator[None]:
    """Code that is made here has its instructions in the order of the source."""
    token = _is_ordered.set(False)
    try:
        yield
    finally:
        _is_ordered.reset(token)


def code_cache(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """``lru_cache`` for a function whose result depends on the order of instructions."""

    caches: list[Callable[..., _R]] = [lru_cache(_MOST_KEPT)(function) for _ in range(2)]

    @wraps(function)
    def found(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        return caches[is_ordered()](*args, **kwargs)

    return found
