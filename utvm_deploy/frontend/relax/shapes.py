"""Symbolic shapes of a Relax module's inputs, bound to numbers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

from tvm import relax, tirx

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.relax.check import shown_shape

#: Names of inputs -> the shapes that are given, by name. Raises ModelError for another name.
ShapesFor: TypeAlias = Callable[[Collection[str]], Mapping[str, Sequence[int]]]


def with_shapes(module: Any, shapes_for: ShapesFor) -> tuple[Any, tuple[str, ...]]:
    """The module with the inputs' shapes that are given, and notes for the user.

    A symbolic first dimension, the batch, that is not given becomes 1. Raises ModelError if a shape
    does not fit, or is for no input.
    """
    main = module["main"]
    known = {parameter.name: parameter for parameter in main.params}
    shapes = shapes_for(known)
    values: dict[Any, int] = {}
    notes: list[str] = []
    for name, parameter in known.items():
        shape = getattr(parameter.ty, "shape", None)
        if not isinstance(shape, relax.ShapeExpr):
            continue  # what is checked later, with a message
        extents = list(shape.values)
        if name in shapes:
            _bind(name, extents, shapes[name], values)
        elif extents and not isinstance(extents[0], tirx.IntImm) and extents[0] not in values:
            values[extents[0]] = 1
            notes.append(f"the batch '{extents[0]}' of input '{name}' is bound to 1")
    symbols = {symbol: value for symbol, value in values.items() if isinstance(symbol, tirx.Var)}
    bound = relax.transform.BindSymbolicVars(symbols, "main")(module) if symbols else module
    return bound, tuple(notes)


def _bind(name: str, extents: Sequence[Any], given: Sequence[int], values: dict[Any, int]) -> None:
    """Bind the symbols of one input's shape."""
    shown = shown_shape(extents)
    told = ",".join(map(str, given))
    if len(given) != len(extents):
        raise ModelError(
            f"input '{name}' has {len(extents)} dimensions ({shown}), but the given shape {told} "
            f"has {len(given)}"
        )
    for extent, value in zip(extents, given, strict=True):
        fixed = int(extent) if isinstance(extent, tirx.IntImm) else values.get(extent)
        if fixed is not None and fixed != value:
            raise ModelError(f"input '{name}' has the shape ({shown}), which {told} does not fit")
        if not isinstance(extent, tirx.IntImm):
            values[extent] = value
