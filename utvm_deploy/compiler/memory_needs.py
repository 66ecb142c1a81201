"""Bytes that a model needs: a type that loads without TVM, for verbs that compile nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryNeeds:
    """Bytes that a model takes of a board's RAM and flash, the code of its kernels aside."""

    name: str
    arena_bytes: int
    weights_bytes: int
    stack_bytes: int = 0
    #: Whether the model may need more: its kernels are not made yet.
    is_least: bool = False


#: Raises an error if a model with these needs is not to be compiled any further.
CheckNeeds = Callable[[MemoryNeeds], None]
