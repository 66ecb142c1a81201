"""Kernels of booleans, bytes of 0 or 1: comparisons, AND, OR, NOT, SELECT, and CAST.

All that has several inputs broadcasts, by merged dimensions as in ``elementwise.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.graph.shapes import select_sides
from utvm_deploy.kernels.contract.call import Argument, KernelCall, ScalarArgument, TensorArgument
from utvm_deploy.kernels.contract.extents import label, merge
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.operands import (
    element_count,
    input_of,
    operand_of,
    output_of,
    quantization_of,
    stored,
)
from utvm_deploy.kernels.contract.requantization import quantize_multiplier, requantize

#: What the reference scales quantized values up by before it compares them.
_COMPARED_BITS = 8
_SCALING = ("zero_point", "multiplier", "shift")
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
class _OfSides:
    """Merged dimensions; an input that does not follow one is repeated along it."""

    extents: tuple[int, ...]
    follows: tuple[tuple[bool, ...], ...]  # of each input
    dtype: str

    @property
    def _what(self) -> str:
        raise NotImplementedError

    @property
    def _types(self) -> tuple[str, ...]:
        raise NotImplementedError

    @property
    def _scalars(self) -> tuple[str, ...]:
        return ()

    def _element(self, values: list[Any], scalars: dict[str, Any]) -> Any:
        raise NotImplementedError

    @property
    def name(self) -> str:
        sides = "_".join("".join("01"[f] for f in follows) for follows in self.follows)
        return f"{self._what}_{label(self.extents)}_{sides}_{self.dtype}"

    def prim_func(self) -> Any:
        shapes = [
            tuple(e if f else 1 for e, f in zip(self.extents, follows, strict=True))
            for follows in self.follows
        ]
        sides = [
            te.placeholder(shape, dtype, f"input_{i}")
            for i, (shape, dtype) in enumerate(zip(shapes, self._types, strict=True))
        ]
        scalars = {name: te.var(name, "int32") for name in self._scalars}

        def element(*index: Any) -> Any:
            values = [
                side[tuple(i if f else 0 for i, f in zip(index, follows, strict=True))]
                for side, follows in zip(sides, self.follows, strict=True)
            ]
            return self._element(values, scalars)

        output = te.compute(self.extents, element, name=self._what)
        return te.create_prim_func([*sides, *scalars.values(), output])

    def schedule(self, sch: Any, core: str) -> str:
        return "generic C, one element at a time"


@dataclass(frozen=True)
class Compared(_OfSides):
    """Comparisons, AND and OR of two inputs."""

    kind: str
    is_scaled: bool  # of quantized values, at a common scale

    @property
    def _what(self) -> str:
        return self.kind.lower()

    @property
    def _types(self) -> tuple[str, ...]:
        return (self.dtype, self.dtype)

    @property
    def _scalars(self) -> tuple[str, ...]:
        sides = ("left", "right") if self.is_scaled else ()
        return tuple(f"{side}_{name}" for side in sides for name in _SCALING)

    def _element(self, values: list[Any], scalars: dict[str, Any]) -> Any:
        if self.is_scaled:
            values = [
                requantize(
                    (value.astype("int32") - scalars[f"{side}_zero_point"]) * (1 << _COMPARED_BITS),
                    scalars[f"{side}_multiplier"],
                    scalars[f"{side}_shift"],
                )
                for side, value in zip(("left", "right"), values, strict=True)
            ]
        return _FUNCTIONS[self.kind](*values).astype("uint8")


@dataclass(frozen=True)
class Selected(_OfSides):
    """SELECT and SELECT_V2: of the second input where the first is true, else of the third."""

    @property
    def _what(self) -> str:
        return "select"

    @property
    def _types(self) -> tuple[str, ...]:
        return ("uint8", self.dtype, self.dtype)

    def _element(self, values: list[Any], scalars: dict[str, Any]) -> Any:
        return tirx.if_then_else(values[0] != 0, values[1], values[2])


@dataclass(frozen=True)
class Converted:
    """CAST and LOGICAL_NOT: every element as another type, whether it is true, or whether not."""

    count: int
    source: str
    result: str
    what: str  # "cast", "truth" or "not"

    @property
    def name(self) -> str:
        return f"{self.what}_{self.count}_{self.source}_{self.result}"

    def prim_func(self) -> Any:
        source = te.placeholder((self.count,), self.source, "input")

        def element(i: Any) -> Any:
            if self.what == "cast":
                return source[i].astype(self.result)
            is_true = source[i] != 0 if self.what == "truth" else source[i].equal(0)
            return is_true.astype(self.result)

        output = te.compute((self.count,), element, name=self.what)
        return te.create_prim_func([source, output])

    def schedule(self, sch: Any, core: str) -> str:
        return "generic C, one element at a time"


def lower_comparison(graph: Graph, operator: Operator) -> KernelCall:
    """EQUAL and its kin, LOGICAL_AND and LOGICAL_OR."""
    sides = [input_of(graph, operator, i)[1] for i in (0, 1)]
    _, result = output_of(graph, operator)
    is_scaled = sides[0].dtype == "int8"
    scalars: list[Argument] = []
    for name, side in zip(("left", "right"), sides if is_scaled else (), strict=False):
        quantization = quantization_of(side)
        values = (quantization.zero_point, *quantize_multiplier(quantization.scale))
        scalars += [
            ScalarArgument(f"{name}_{part}", value)
            for part, value in zip(_SCALING, values, strict=True)
        ]
    extents, follows = _merged([side.shape for side in sides], result.shape)
    kernel = Compared(extents, follows, stored(sides[0].dtype), operator.kind, is_scaled)
    return _call(graph, operator, kernel, scalars)


def lower_select(graph: Graph, operator: Operator) -> KernelCall:
    """SELECT and SELECT_V2."""
    _, result = output_of(graph, operator)
    extents, follows = _merged(select_sides(graph, operator), result.shape)
    return _call(graph, operator, Selected(extents, follows, stored(result.dtype)), [])


def lower_cast(graph: Graph, operator: Operator) -> KernelCall:
    """CAST and LOGICAL_NOT."""
    position, source = input_of(graph, operator, 0)
    output, result = output_of(graph, operator)
    what = "truth" if result.dtype == "bool" else "cast"
    what = "not" if operator.kind == "LOGICAL_NOT" else what
    kernel = Converted(element_count(result), stored(source.dtype), stored(result.dtype), what)
    return KernelCall(kernel, (operand_of(position, source), TensorArgument(output)))


def _merged(
    shapes: list[tuple[int, ...]], result: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[tuple[bool, ...], ...]]:
    """Extents of the loops, and along which of them each input goes."""
    whole = result or (1,)
    aligned = [(1,) * (len(whole) - len(shape)) + shape for shape in shapes]
    roles = [
        tuple(extents[axis] == extent for extents in aligned) for axis, extent in enumerate(whole)
    ]
    extents, merged = merge(whole, roles)
    return tuple(extents), tuple(zip(*merged, strict=True))


def _call(
    graph: Graph, operator: Operator, kernel: _OfSides, scalars: list[Argument]
) -> KernelCall:
    inputs = [input_of(graph, operator, i) for i in range(len(kernel.follows))]
    output, _ = output_of(graph, operator)
    operands = [operand_of(position, tensor) for position, tensor in inputs]
    return KernelCall(kernel, (*operands, *scalars, TensorArgument(output)))
