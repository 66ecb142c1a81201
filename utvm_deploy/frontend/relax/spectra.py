"""Products with the matrix of a Fourier transform become fast transforms.

The module as it was given keeps the matrix, so the reference multiplies by it. Frames that are
taken by constant places, a window behind them, and squared amounts belong to the transform: then
only one frame is held at a time. These are calls of packed functions, as in ``operators.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import ir, relax

from utvm_deploy.frontend.relax.operators import (
    constant_of,
    number_of,
    operator_name,
    our_call,
    readers_of,
    shape_of,
    with_bindings,
)
from utvm_deploy.graph.signals.fft_plan import Transform, transform_of

_SAME_ORDER = ("relax.reshape", "relax.squeeze", "relax.expand_dims")
_TAKE, _SLICE, _MULTIPLY = "relax.take", "relax.strided_slice", "relax.multiply"


@dataclass(frozen=True, eq=False)
class _Frames:
    """Frames of a signal, a window, and their transforms."""

    source: Any  # the Relax variable with the samples along its last axis
    window: Any
    transform: Transform
    step: int
    is_power: bool = False

    def call(self) -> Any:
        """The call, whose shape is that of the operator."""
        *outer, samples = shape_of(self.source)
        length, size = self.transform.length, self.transform.kept
        bins = length // 2 + 1 if self.is_power else length + 2
        given = {"length": length, "size": size, "step": self.step, "is_power": self.is_power}
        shape = (*outer, (samples - size) // self.step + 1, bins)
        window = relax.const(self.window.astype(np.float32))
        return _packed("SignalSpectrogram", given, shape, self.source, window)


def with_spectra(module: Any, main: str) -> Any:
    """The module with fast transforms."""
    function = module[main]
    if len(function.body.blocks) != 1:
        return module
    bindings = list(function.body.blocks[0].bindings)
    made = list(_Spectra(bindings, function.body.body).rewritten(bindings))
    if all(one is other for one, other in zip(made, bindings, strict=False)):
        return module
    return relax.transform.DeadCodeElimination([main])(with_bindings(module, main, made))


class _Spectra:
    """What the variables of a block are, and the spectra among them."""

    def __init__(self, bindings: list[Any], result: Any) -> None:
        self._values = {binding.var: binding.value for binding in bindings}
        self._readers = readers_of(bindings, result)
        self._spectra: dict[Any, _Frames] = {}

    def rewritten(self, bindings: list[Any]) -> Iterator[Any]:
        for binding in bindings:
            call = self._transformed(binding)
            if call is None:
                call = self._power(binding.value)
            if call is None:
                yield binding
            elif shape_of(call) == shape_of(binding.var):
                yield relax.VarBinding(binding.var, call)
            else:
                whole = relax.DataflowVar(f"{binding.var.name}_spectra", call.ty)
                yield relax.VarBinding(whole, call)
                flat = relax.op.reshape(whole, shape_of(binding.var))
                yield relax.VarBinding(binding.var, relax.BlockBuilder().normalize(flat))

    def _transformed(self, binding: Any) -> Any:
        """The call that a product with the matrix of a transform becomes; None for others."""
        if not _is(binding.value, "relax.matmul"):
            return None
        x, weights = binding.value.args
        matrix = constant_of(weights)
        if matrix is None or matrix.ndim != 2 or not isinstance(x, relax.Var):
            return None
        transform = transform_of(matrix)
        if transform is None:
            return None
        frames = None if transform.is_inverse else self._frames(x, transform)
        if frames is not None:
            self._spectra[binding.var] = frames
            return frames.call()
        kind = "SignalIrfft" if transform.is_inverse else "SignalRfft"
        return _packed(kind, {"length": transform.length}, shape_of(binding.value), x)

    def _frames(self, x: Any, transform: Transform) -> _Frames | None:
        """The frames that a tensor has, if they are taken of a signal."""
        size = transform.kept
        made, window = self._value(x), np.ones(size)
        if _is(made, _MULTIPLY):
            factors = [_along_last(one, shape_of(made), size) for one in made.args]
            if (factors[0] is None) == (factors[1] is None):
                return None
            window, other = next(
                (found, other)
                for found, other in zip(factors, made.args[::-1], strict=True)
                if found is not None
            )
            made = self._value(other)
        if not _is(made, _TAKE) or not isinstance(made.args[0], relax.Var):
            return None
        source, places = made.args
        shape = shape_of(source)
        if made.attrs.axis is None or int(made.attrs.axis) % len(shape) != len(shape) - 1:
            return None
        if not isinstance(places, ir.GenericConst) or str(source.ty.dtype) != "float32":
            return None
        found = places.value.numpy().reshape(-1)
        if found.size % size or shape_of(x)[-1] != size:
            return None
        starts = found.reshape(-1, size)[:, 0]
        step = int(starts[1]) if starts.size > 1 else shape[-1]
        if step <= 0 or starts.size != (shape[-1] - size) // step + 1:
            return None
        expected = np.arange(starts.size)[:, None] * step + np.arange(size)
        is_same = bool((found == expected.reshape(-1)).all())
        return _Frames(source, window, transform, step) if is_same else None

    def _power(self, value: Any) -> Any:
        """The call that squared amounts of a spectrum become; None for other values."""
        if _is(value, "relax.sum"):
            rank = len(shape_of(value.args[0]))
            if [int(axis) % rank for axis in value.attrs.axis or ()] != [rank - 1]:
                return None
            pairs = self._squared(value.args[0])
        elif _is(value, "relax.add"):
            sides = [self._side(one) for one in value.args]
            if None in sides or {place for _, place in sides} != {0, 1}:  # type: ignore[misc]
                return None
            pairs = sides[0][0]  # type: ignore[index]
            if not pairs.same_as(sides[1][0]):  # type: ignore[index]
                return None
        else:
            return None
        if not isinstance(pairs, relax.Var) or shape_of(pairs)[-1] != 2:
            return None
        spectrum = self._root(pairs)
        frames = self._spectra.get(spectrum)
        # If something else reads the numbers, they are computed anyway.
        if frames is None or len(self._readers[spectrum]) != 1 or len(self._readers[pairs]) > 2:
            return None
        return replace(frames, is_power=True).call()

    def _side(self, value: Any) -> tuple[Any, int] | None:
        """Of a square of real or imaginary parts: the pairs, and which of both it is."""
        part = self._squared(value)
        taken: Any = None if part is None else self._value(part)
        if _is(taken, _TAKE) and taken.attrs.axis is not None:
            rank = len(shape_of(taken.args[0]))
            place = taken.args[1]
            if int(taken.attrs.axis) % rank == rank - 1 and isinstance(place, ir.GenericConst):
                places = place.value.numpy().reshape(-1)
                return (taken.args[0], int(places[0])) if places.size == 1 else None
        if _is(taken, _SLICE):
            axes, starts, ends = ([int(one) for one in given] for given in taken.args[1:4])
            rank = len(shape_of(taken.args[0]))
            if [axis % rank for axis in axes] == [rank - 1] and ends[0] == starts[0] + 1:
                return taken.args[0], starts[0]
        return None

    def _squared(self, variable: Any) -> Any:
        """What is squared; None if nothing is."""
        value: Any = self._values.get(variable) if isinstance(variable, relax.Var) else None
        if _is(value, _MULTIPLY) and value.args[0].same_as(value.args[1]):
            return value.args[0]
        if _is(value, "relax.square"):
            return value.args[0]
        is_square = _is(value, "relax.power") and number_of(value.args[1]) == 2.0
        return value.args[0] if is_square else None

    def _root(self, variable: Any) -> Any:
        """The variable with the same numbers in the same order that was made first."""
        while _is(self._values.get(variable), *_SAME_ORDER):
            variable = self._values[variable].args[0]
        return variable

    def _value(self, variable: Any) -> Any:
        return self._values.get(self._root(variable))


def _along_last(expression: Any, shape: tuple[int, ...], size: int) -> Any:
    """A constant with ``size`` elements along the last axis of more than one; else None."""
    constant = constant_of(expression)
    if constant is None or constant.size != size:
        return None
    wide = (1,) * (len(shape) - constant.ndim) + constant.shape
    places = [axis for axis, extent in enumerate(shape) if extent > 1]
    is_last = bool(places) and wide[places[-1]] == shape[places[-1]] == size
    return constant.reshape(-1) if is_last else None


def _is(value: Any, *names: str) -> bool:
    return operator_name(value) in names


def _packed(kind: str, given: Mapping[str, Any], shape: tuple[int, ...], *operands: Any) -> Any:
    call = our_call(kind, operands, relax.TensorType(shape, "float32"), given)
    return relax.BlockBuilder().normalize(call)
