"""Brings arrays into the shape and type of a model's input, or says why they do not fit."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.base.errors import DataError
from utvm_deploy.graph.model import Array
from utvm_deploy.graph.user_arrays import accepted_shapes, other_order, shapes_text
from utvm_deploy.quality.datasets.facts import ModelInput


def check_type(array: Array, one: ModelInput, what: str) -> None:
    """DataError for a type that is neither the input's nor a float."""
    if array.dtype == np.dtype(one.dtype) or np.issubdtype(array.dtype, np.floating):
        return
    takes = "float32" if one.dtype == "float32" else f"{one.dtype}, or floats to be quantized"
    raise DataError(
        f"{what} is {array.dtype}, and input {one.name!r} takes {takes}; convert it with astype, "
        "scaled as the model was trained"
    )


def sample_shape(shape: tuple[int, ...], one: ModelInput, what: str) -> None:
    """DataError if samples of this shape are not samples of the input."""
    is_scalar = math.prod(one.shape) == 1 and math.prod(shape) == 1
    if is_scalar or shape in accepted_shapes(one.shape):
        return
    wanted = shapes_text(one.shape)
    hint = f"give samples of shape {wanted}"
    if _without_ones(shape) == _without_ones(one.shape):
        extents = ", ".join(map(str, accepted_shapes(one.shape)[-1]))
        hint = f"only axes of 1 differ: give array.reshape(-1, {extents})"
    elif sorted(_without_ones(shape)) == sorted(_without_ones(one.shape)):
        hint = other_order(shape, one.shape) or "the axes are in another order: transpose the array"
    elif math.prod(shape) == math.prod(one.shape):
        hint = f"reshape each sample to {wanted}"
    raise DataError(
        f"{what} has samples of shape {shape}, and input {one.name!r} takes {wanted}; {hint}"
    )


def _without_ones(shape: tuple[int, ...]) -> list[int]:
    return [extent for extent in shape if extent != 1]


def fitted(array: Array, one: ModelInput, first: int, what: str) -> Array:
    """Samples, of a shape and type that were checked, as ``Dataset.batch`` gives them.

    ``first`` is the number of the first one, for messages. Raises DataError for NaN and infinity.
    """
    if np.issubdtype(array.dtype, np.floating):
        array = as_float32(array, first, what)
    return np.ascontiguousarray(array.reshape(len(array), *one.shape))


def as_float32(array: Array, first: int, what: str) -> NDArray[np.float32]:
    """Floats as float32; DataError for NaN, and for what is infinite there."""
    with np.errstate(over="ignore"):
        found = array.astype(np.float32)
    finite = np.isfinite(found).reshape(len(found), -1).all(axis=1)
    if not finite.all():
        place = int(np.argmin(finite))
        values = found[place][~np.isfinite(found[place])]
        raise DataError(
            f"{what}, sample {first + place}, holds {float(values.flat[0])}; remove the sample or "
            "replace the value by a finite one"
        )
    return found
