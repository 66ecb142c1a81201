"""The shapes of inputs that the user gives for models whose own are symbolic."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

from utvm_deploy.base.errors import ModelError

#: Name of an input -> its shape.
Shapes: TypeAlias = Mapping[str, tuple[int, ...]]

#: Formats and TVM hold no larger extents.
MOST_EXTENT = 2**31 - 1

_given: ContextVar[Shapes] = ContextVar("given_shapes", default={})  # noqa: B039


@contextmanager
def given_shapes(shapes: Shapes) -> Iterator[None]:
    """In the block, models are imported with these shapes of their inputs."""
    token = _given.set(shapes)
    try:
        yield
    finally:
        _given.reset(token)


def shapes_given() -> Shapes:
    """The shapes for what is imported now; empty if the user gave none."""
    return _given.get()


def shapes_of_inputs(inputs: Any) -> Shapes:
    """Shapes of inputs by name, each from a shape or from an example array.

    Raises ModelError for what is neither.
    """
    if not isinstance(inputs, Mapping):
        raise ModelError(
            f"inputs is of type {type(inputs).__name__}; give a dict from the names of inputs to "
            "shapes or arrays"
        )
    return {name: _shape(name, given) for name, given in inputs.items()}


def _shape(name: str, given: Any) -> tuple[int, ...]:
    shape = getattr(given, "shape", given)
    try:
        extents = tuple(operator.index(extent) for extent in shape)
    except TypeError:
        raise ModelError(
            f"input '{name}' has neither a shape, such as (1, 64), nor an array: {given!r}"
        ) from None
    if any(extent < 1 for extent in extents):
        raise ModelError(f"input '{name}' has the shape {extents}; extents are at least 1")
    if any(extent > MOST_EXTENT for extent in extents):
        raise ModelError(
            f"input '{name}' has the shape {extents}; extents are at most {MOST_EXTENT:,}"
        )
    return extents


def parsed_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """The name and the shape in a text such as ``x=1,64``; ValueError if it is none."""
    name, equals, numbers = text.rpartition("=")
    if not name or not equals:
        raise ValueError(f"{text!r} is not NAME=SHAPE, such as x=1,64")
    try:
        shape = tuple(int(number) for number in numbers.split(","))
    except ValueError:
        raise ValueError(f"{numbers!r} is not a shape, such as 1,64") from None
    if any(extent < 1 for extent in shape):
        raise ValueError(f"{numbers!r} has an extent below 1")
    if any(extent > MOST_EXTENT for extent in shape):
        raise ValueError(f"{numbers!r} has an extent above {MOST_EXTENT:,}")
    return name, shape
