"""Operators of booleans, bytes of 0 or 1: comparisons, AND, OR, NOT, SELECT, and CAST."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from utvm_deploy.graph.attributes import EQUALITIES
from utvm_deploy.graph.element_type import element_type
from utvm_deploy.graph.shapes import select_sides
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.extents import flags_label, label
from utvm_deploy.kernels.contract.lazy_tvm import tirx
from utvm_deploy.kernels.contract.operands import element_count, quantization_of, stored
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.portable.integers.elementwise import SCALING, Scalars, rescaled, scaling
from utvm_deploy.kernels.portable.schedules.skeletons import (
    BroadcastLoops,
    Flags,
    Unary,
    merged_shapes,
)

#: The bits by which the reference raises quantized values before it compares them.
_COMPARED_BITS = 8
_FUNCTIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "EQUAL": lambda a, b: a.equal(b),
    "GREATER": lambda a, b: a > b,
    "GREATER_EQUAL": lambda a, b: a >= b,
    "LESS": lambda a, b: a < b,
    "LESS_EQUAL": lambda a, b: a <= b,
    "LOGICAL_AND": lambda a, b: tirx.all(a != 0, b != 0),
    "LOGICAL_OR": lambda a, b: tirx.any(a != 0, b != 0),
    "NOT_EQUAL": lambda a, b: a != b,
}


@dataclass(frozen=True)
class _OfSides(BroadcastLoops):
    """A base of kernels of several inputs that broadcast."""

    follows: tuple[Flags, ...]  # of each input
    dtype: str

    @property
    def types(self) -> tuple[str, ...]:
        """The type of each input."""
        return (self.dtype, self.dtype)

    @property
    def name(self) -> str:
        sides = "_".join(map(flags_label, self.follows))
        return f"{self.what}_{label(self.extents)}_{sides}_{self.dtype}"

    @property
    def inputs(self) -> Sequence[tuple[str, str, Flags]]:
        pairs = zip(self.types, self.follows, strict=True)
        return [(f"input_{i}", dtype, follows) for i, (dtype, follows) in enumerate(pairs)]


@dataclass(frozen=True)
class Compared(_OfSides):
    """Comparisons, AND and OR of two inputs."""

    kind: str
    is_scaled: bool  # quantized values are compared at a common scale

    @property
    def what(self) -> str:
        return self.kind.lower()

    @property
    def scalars(self) -> tuple[str, ...]:
        sides = ("left", "right") if self.is_scaled else ()
        return tuple(f"{side}_{name}" for side in sides for name in SCALING)

    def element_of(self, values: Sequence[Any], scalars: Scalars) -> Any:
        if self.is_scaled:
            values = [
                rescaled(value.astype("int32"), side, _COMPARED_BITS, scalars)
                for side, value in zip(("left", "right"), values, strict=True)
            ]
        return _FUNCTIONS[self.kind](*values).astype("uint8")


@dataclass(frozen=True)
class Selected(_OfSides):
    """SELECT and SELECT_V2: the second input where the first is true, else the third."""

    what: ClassVar[str] = "select"

    @property
    def types(self) -> tuple[str, ...]:
        return ("uint8", self.dtype, self.dtype)

    def element_of(self, values: Sequence[Any], scalars: Scalars) -> Any:
        return tirx.if_then_else(values[0] != 0, values[1], values[2])


@dataclass(frozen=True)
class Converted(Unary):
    """CAST to another type or to a boolean, and LOGICAL_NOT."""

    what: str = "cast"  # or "truth", or "not"

    @property
    def name(self) -> str:
        return f"{self.what}_{self.count}_{self.source}_{self.result}"

    def element(self, value: Any, given: Mapping[str, Any]) -> Any:
        if self.what == "cast":
            return _cast(value, self.source, self.result)
        is_true = value != 0 if self.what == "truth" else value.equal(0)
        return is_true.astype(self.result)


def _cast(value: Any, source: str, result: str) -> Any:
    """CAST; what C leaves undefined, the nearest number of the type, and 0 for NaN."""
    if source != "float32" or result == "float32":
        return value.astype(result)
    lowest, highest = element_type(result).limits
    # Both are powers of two, so float32 has them: a number below the first one fits.
    beyond, least = float(highest + 1), float(lowest)
    fits = tirx.all(value > tirx.const(least - (least > -(2.0**24)), source), value < beyond)
    inside = tirx.if_then_else(fits, value, tirx.const(0, source)).astype(result)
    most, low = (tirx.const(one, result) for one in (highest, lowest))
    outside = tirx.Select(value >= beyond, most, tirx.Select(value <= least, low, inside))
    return outside


def lower_comparison(op: Operation) -> KernelCall:
    """The comparisons, LOGICAL_AND and LOGICAL_OR."""
    sides = {"left": op.input(0), "right": op.input(1)}
    dtype = op.source.dtype
    scalars: dict[str, int] = {}
    # The reference compares the order of int16 without its scales.
    by_scale = dtype == "int8" or (dtype == "int16" and op.kind in EQUALITIES)
    for name, side in sides.items() if by_scale else ():
        scalars |= scaling(name, side, quantization_of(side).scale)
    shape = merged_shapes((side.shape for side in sides.values()), op.result.shape)
    kernel = Compared(*shape, stored(dtype), op.kind, is_scaled=bool(scalars))
    return op.call(kernel, scalars, inputs=(0, 1))


def lower_select(op: Operation) -> KernelCall:
    """SELECT and SELECT_V2."""
    result = op.result
    shape = merged_shapes(select_sides(op.graph, op.operator), result.shape)
    return op.call(Selected(*shape, stored(result.dtype)), inputs=(0, 1, 2))


def lower_cast(op: Operation) -> KernelCall:
    """CAST and LOGICAL_NOT."""
    source, result = op.source, op.result
    what = "truth" if result.dtype == "bool" else "cast"
    what = "not" if op.kind == "LOGICAL_NOT" else what
    kernel = Converted(element_count(result), stored(source.dtype), stored(result.dtype), what)
    return op.call(kernel)


LOWERINGS = {
    **dict.fromkeys(_FUNCTIONS, lower_comparison),
    "CAST": lower_cast,
    "LOGICAL_NOT": lower_cast,
    "SELECT": lower_select,
    "SELECT_V2": lower_select,
}
