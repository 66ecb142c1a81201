"""Kernels of two inputs, element by element, all of which broadcast: ADD, SUB, MUL and their kin.

Dimensions that both sides follow, or only one does, are merged with their neighbours, so that most
layers are one or two loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from utvm_deploy.graph.attributes import (
    Add,
    Extremum,
    Multiply,
    Prelu,
    SquaredDifference,
    Subtract,
)
from utvm_deploy.graph.model import Graph, Operator, Tensor
from utvm_deploy.kernels.contract.call import Argument, KernelCall, ScalarArgument, TensorArgument
from utvm_deploy.kernels.contract.extents import label, merge
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.operands import input_of, operand_of, output_of, quantization_of
from utvm_deploy.kernels.contract.requantization import (
    INT8_MAX,
    INT8_MIN,
    add_wrapping,
    clamped,
    quantize_multiplier,
    requantize,
    requantize_right,
)
from utvm_deploy.kernels.portable.lookup import table_call

#: The reference scales both operands of ADD and SUB up by as many bits before it rounds them.
HEADROOM_BITS = {"int8": 20, "int16": 15}
#: And of SQUARED_DIFFERENCE, which has to be squared in 32 bits.
_SQUARE_BITS = 7
_SCALING = ("zero_point", "multiplier", "shift")


@dataclass(frozen=True)
class Broadcast:
    """Merged dimensions; a side that does not follow one is repeated along it."""

    extents: tuple[int, ...]
    left_follows: tuple[bool, ...]
    right_follows: tuple[bool, ...]
    dtype: str = "int8"
    # The output's scale of int16 is less than one half: nothing shifts left.
    shifts_right: bool = field(default=False, kw_only=True)

    @property
    def _what(self) -> str:
        raise NotImplementedError

    @property
    def _scalars(self) -> tuple[str, ...]:
        raise NotImplementedError

    @property
    def _wide(self) -> str:
        """What elements are calculated in."""
        return "int64" if self.dtype == "int64" else "int32"

    def _element(self, left: Any, right: Any, scalars: dict[str, Any]) -> Any:
        """One element of the output: TIR, or of ints an int."""
        raise NotImplementedError

    def _without_zero_points(self, *names: str) -> tuple[str, ...]:
        """The scalars; int16 has no zero points."""
        return tuple(n for n in names if self.dtype == "int8" or not n.endswith("zero_point"))

    def _output(self, value: Any, scalars: dict[str, Any]) -> Any:
        """Requantized and within the limits; of int16, ``value`` is 2**30 at most."""
        zero_point, multiplier, shift = (scalars.get(f"output_{name}", 0) for name in _SCALING)
        scale = requantize_right if self.shifts_right else requantize
        result = scale(value, multiplier, shift) + zero_point
        return clamped(result, scalars["low"], scalars["high"], self.dtype)

    @property
    def name(self) -> str:
        name = f"{self._what}_{label(self.extents)}"
        if self.dtype != "int8":
            name += f"_{self.dtype}{'_right' * self.shifts_right}"
        if all(self.left_follows) and all(self.right_follows):
            return name
        sides = ("".join("01"[f] for f in s) for s in (self.left_follows, self.right_follows))
        return f"{name}_{'_'.join(sides)}"

    def prim_func(self) -> Any:
        left = te.placeholder(self._shape(self.left_follows), self.dtype, "left")
        right = te.placeholder(self._shape(self.right_follows), self.dtype, "right")
        scalars = {name: te.var(name, "int32") for name in self._scalars}

        def element(*index: Any) -> Any:
            a = left[self._index(self.left_follows, index)]
            b = right[self._index(self.right_follows, index)]
            return self._element(a.astype(self._wide), b.astype(self._wide), scalars)

        output = te.compute(self.extents, element, name=self._what)
        return te.create_prim_func([left, right, *scalars.values(), output])

    def schedule(self, sch: Any, core: str) -> str:
        return "generic C, one element at a time"

    def _shape(self, follows: tuple[bool, ...]) -> tuple[int, ...]:
        return tuple(e if f else 1 for e, f in zip(self.extents, follows, strict=True))

    @staticmethod
    def _index(follows: tuple[bool, ...], index: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(i if f else 0 for i, f in zip(index, follows, strict=True))


@dataclass(frozen=True)
class BroadcastAdd(Broadcast):
    """ADD and SUB: both sides at a common scale, then at the output's."""

    subtracts: bool = False

    @property
    def _what(self) -> str:
        return "subtract" if self.subtracts else "add"

    @property
    def _scalars(self) -> tuple[str, ...]:
        scaling = [f"{side}_{name}" for side in ("left", "right", "output") for name in _SCALING]
        return self._without_zero_points(*scaling, "low", "high")

    def _element(self, left: Any, right: Any, scalars: dict[str, Any]) -> Any:
        def scaled(value: Any, side: str) -> Any:
            zero_point, multiplier, shift = (scalars.get(f"{side}_{n}", 0) for n in _SCALING)
            raised = (value - zero_point) * (1 << HEADROOM_BITS[self.dtype])
            return requantize(raised, multiplier, shift)

        second = scaled(right, "right")
        total = add_wrapping(scaled(left, "left"), 0 - second if self.subtracts else second)
        return self._output(total, scalars)


@dataclass(frozen=True)
class BroadcastShiftedSum(Broadcast):
    """ADD and SUB of scales that are powers of two: each side shifted right, no more."""

    shifts: tuple[int, int] = (0, 0)
    subtracts: bool = False

    @property
    def _what(self) -> str:
        what = "subtract" if self.subtracts else "add"
        return f"{what}_shifted_{label(self.shifts)}"

    @property
    def _scalars(self) -> tuple[str, ...]:
        return ("low", "high")

    def _element(self, left: Any, right: Any, scalars: dict[str, Any]) -> Any:
        def shifted(value: Any, bits: int) -> Any:
            if bits == 0:
                return value
            return tirx.call_pure_extern("int32", "utvm_rounded_shift", value, bits)

        one, other = shifted(left, self.shifts[0]), shifted(right, self.shifts[1])
        total = one - other if self.subtracts else one + other
        return clamped(total, scalars["low"], scalars["high"], self.dtype)


@dataclass(frozen=True)
class BroadcastMultiply(Broadcast):
    """MUL: the product of both sides, requantized."""

    @property
    def _what(self) -> str:
        return "multiply"

    @property
    def _scalars(self) -> tuple[str, ...]:
        output = [f"output_{name}" for name in _SCALING]
        sides = ("left_zero_point", "right_zero_point")
        return self._without_zero_points(*sides, *output, "low", "high")

    def _element(self, left: Any, right: Any, scalars: dict[str, Any]) -> Any:
        zero, other_zero = (scalars.get(f"{side}_zero_point", 0) for side in ("left", "right"))
        product = (left - zero) * (right - other_zero)
        return self._output(product, scalars)


@dataclass(frozen=True)
class BroadcastSquaredDifference(Broadcast):
    """SQUARED_DIFFERENCE: both sides at a common scale, as in SUB, then the difference's square."""

    @property
    def _what(self) -> str:
        return "squared_difference"

    @property
    def _scalars(self) -> tuple[str, ...]:
        return tuple(f"{side}_{n}" for side in ("left", "right", "output") for n in _SCALING)

    def _element(self, left: Any, right: Any, scalars: dict[str, Any]) -> Any:
        def scaled(value: Any, side: str) -> Any:
            zero_point, multiplier, shift = (scalars[f"{side}_{name}"] for name in _SCALING)
            return requantize((value - zero_point) * (1 << _SQUARE_BITS), multiplier, shift)

        difference = scaled(left, "left") - scaled(right, "right")
        zero_point, multiplier, shift = (scalars[f"output_{name}"] for name in _SCALING)
        square = requantize(difference * difference, multiplier, shift)
        return clamped(square + zero_point, INT8_MIN, INT8_MAX, self.dtype)


@dataclass(frozen=True)
class BroadcastExtremum(Broadcast):
    """MINIMUM and MAXIMUM of the quantized values themselves."""

    takes_largest: bool = False

    @property
    def _what(self) -> str:
        return "maximum" if self.takes_largest else "minimum"

    @property
    def _scalars(self) -> tuple[str, ...]:
        return ()

    def _element(self, left: Any, right: Any, scalars: dict[str, Any]) -> Any:
        if isinstance(left, int):
            return max(left, right) if self.takes_largest else min(left, right)
        choose = tirx.max if self.takes_largest else tirx.min
        return choose(left, right).astype(self.dtype)


@dataclass(frozen=True)
class BroadcastPrelu(Broadcast):
    """PRELU: the left side requantized, times the right one (alpha) where it is negative."""

    @property
    def _what(self) -> str:
        return "prelu"

    @property
    def _scalars(self) -> tuple[str, ...]:
        negative = ("negative_multiplier", "negative_shift")
        output = [f"output_{name}" for name in _SCALING]
        return ("left_zero_point", "right_zero_point", *output, *negative, "low", "high")

    def _element(self, left: Any, right: Any, scalars: dict[str, Any]) -> Any:
        value = left - scalars["left_zero_point"]
        zero_point, multiplier, shift = (scalars[f"output_{name}"] for name in _SCALING)
        positive = requantize(value, multiplier, shift)
        negative = requantize(
            value * (right - scalars["right_zero_point"]),
            scalars["negative_multiplier"],
            scalars["negative_shift"],
        )
        if isinstance(left, int):
            scaled = positive if value >= 0 else negative
        else:
            scaled = tirx.if_then_else(value >= 0, positive, negative)
        return clamped(scaled + zero_point, scalars["low"], scalars["high"], self.dtype)


def lower_add(graph: Graph, operator: Operator) -> KernelCall:
    """ADD and SUB of activations or constants, with broadcasting."""
    attributes = operator.attributes
    assert isinstance(attributes, Add | Subtract)
    sides, result = two_sides(graph, operator)
    limits = {"low": attributes.clamp[0], "high": attributes.clamp[1]}
    shape, subtracts = merged_sides(sides, result), isinstance(attributes, Subtract)
    if attributes.shifts is not None:
        shifted = BroadcastShiftedSum(*shape, result.dtype, attributes.shifts, subtracts)
        return broadcast_call(graph, operator, shifted, limits)
    scales = [quantization_of(side).scale for side in sides]
    # In float32 the reference's doubling is exact, so this double is its very value.
    twice_largest = 2 * max(scales)
    headroom = 1 << HEADROOM_BITS[result.dtype]
    scalars = _scaling("left", sides[0], scales[0] / twice_largest)
    scalars |= _scaling("right", sides[1], scales[1] / twice_largest)
    output_scale = quantization_of(result).scale
    scalars |= _scaling("output", result, twice_largest / (headroom * output_scale))
    shifts_right = _shifts_right(result, scalars)
    kernel = BroadcastAdd(*shape, result.dtype, subtracts, shifts_right=shifts_right)
    return broadcast_call(graph, operator, kernel, scalars | limits)


def lower_multiply(graph: Graph, operator: Operator) -> KernelCall:
    """MUL."""
    attributes = operator.attributes
    assert isinstance(attributes, Multiply)
    sides, result = two_sides(graph, operator)
    scales = [np.float32(quantization_of(side).scale) for side in (*sides, result)]
    # The reference computes this one in float32.
    scalars = _scaling("output", result, float(scales[0] * scales[1] / scales[2]))
    scalars |= _zero_points(sides)
    scalars |= {"low": attributes.clamp[0], "high": attributes.clamp[1]}
    shifts_right = _shifts_right(result, scalars)
    kernel = BroadcastMultiply(
        *merged_sides(sides, result), result.dtype, shifts_right=shifts_right
    )
    return broadcast_call(graph, operator, kernel, scalars)


def lower_squared_difference(graph: Graph, operator: Operator) -> KernelCall:
    """SQUARED_DIFFERENCE."""
    assert isinstance(operator.attributes, SquaredDifference)
    sides, result = two_sides(graph, operator)
    scales = [quantization_of(side).scale for side in sides]
    twice_largest = 2 * max(scales)
    scalars = _scaling("left", sides[0], scales[0] / twice_largest)
    scalars |= _scaling("right", sides[1], scales[1] / twice_largest)
    steps = (1 << 2 * _SQUARE_BITS) * np.float32(quantization_of(result).scale)
    scalars |= _scaling("output", result, twice_largest * twice_largest / float(steps))
    kernel = BroadcastSquaredDifference(*merged_sides(sides, result), result.dtype)
    return broadcast_call(graph, operator, kernel, scalars)


def lower_extremum(graph: Graph, operator: Operator) -> KernelCall:
    """MINIMUM and MAXIMUM."""
    assert isinstance(operator.attributes, Extremum)
    sides, result = two_sides(graph, operator)
    shape = merged_sides(sides, result)
    kernel = BroadcastExtremum(*shape, result.dtype, operator.kind == "MAXIMUM")
    return broadcast_call(graph, operator, kernel, {})


def lower_prelu(graph: Graph, operator: Operator) -> KernelCall:
    """PRELU."""
    assert isinstance(operator.attributes, Prelu)
    sides, result = two_sides(graph, operator)
    source, alpha, output = (np.float32(quantization_of(t).scale) for t in (*sides, result))
    # In float32, too.
    scalars = _scaling("output", result, float(source / output))
    multiplier, shift = quantize_multiplier(float(source * alpha / output))
    scalars |= {"negative_multiplier": multiplier, "negative_shift": shift}
    limits = np.iinfo(result.dtype)
    scalars |= _zero_points(sides) | {"low": int(limits.min), "high": int(limits.max)}
    return broadcast_call(
        graph, operator, BroadcastPrelu(*merged_sides(sides, result), result.dtype), scalars
    )


def two_sides(graph: Graph, operator: Operator) -> tuple[list[Tensor], Tensor]:
    """Both inputs, and the output."""
    sides = [input_of(graph, operator, i)[1] for i in (0, 1)]
    return sides, output_of(graph, operator)[1]


def merged_sides(
    sides: Sequence[Tensor], result: Tensor
) -> tuple[tuple[int, ...], tuple[bool, ...], tuple[bool, ...]]:
    """Extents of the loops, and along which of them each side goes."""
    shape = result.shape or (1,)
    aligned = [(1,) * (len(shape) - len(side.shape)) + side.shape for side in sides]
    roles = [
        tuple(extents[axis] == extent for extents in aligned) for axis, extent in enumerate(shape)
    ]
    extents, merged = merge(shape, roles)
    left_follows, right_follows = zip(*merged, strict=True)
    return tuple(extents), left_follows, right_follows


def _scaling(side: str, tensor: Tensor, ratio: float) -> dict[str, int]:
    multiplier, shift = quantize_multiplier(ratio)
    values = (quantization_of(tensor).zero_point, multiplier, shift)
    return {f"{side}_{name}": value for name, value in zip(_SCALING, values, strict=True)}


def _shifts_right(result: Tensor, scalars: Mapping[str, int]) -> bool:
    return result.dtype == "int16" and -30 <= scalars["output_shift"] < 0


def _zero_points(sides: Sequence[Tensor]) -> dict[str, int]:
    return {
        f"{name}_zero_point": quantization_of(side).zero_point
        for name, side in zip(("left", "right"), sides, strict=True)
    }


def broadcast_call(
    graph: Graph, operator: Operator, kernel: Broadcast, scalars: dict[str, int]
) -> KernelCall:
    """The call of ``kernel``, or of a table if one int8 input decides the output."""
    positions, sides = zip(*(input_of(graph, operator, i) for i in (0, 1)), strict=True)
    output, _ = output_of(graph, operator)
    of_one = _of_one_side(graph, operator, kernel, scalars)
    if of_one is not None:
        return of_one
    values: list[Argument] = [ScalarArgument(name, scalars[name]) for name in kernel._scalars]
    return KernelCall(
        kernel,
        (
            *(operand_of(position, side) for position, side in zip(positions, sides, strict=True)),
            *values,
            TensorArgument(output),
        ),
        # A side that is not repeated is read exactly where the output is written.
        in_place=tuple(
            (output, position)
            for position, side, follows in zip(
                positions, sides, (kernel.left_follows, kernel.right_follows), strict=True
            )
            if side.data is None and all(follows)
        ),
    )


def _of_one_side(
    graph: Graph, operator: Operator, kernel: Broadcast, scalars: dict[str, int]
) -> KernelCall | None:
    """The call as a table, where a byte of the output depends on one byte only."""
    if kernel.dtype != "int8":
        return None
    (a, left), (b, right) = (input_of(graph, operator, i) for i in (0, 1))
    if a == b:
        return table_call(graph, operator, a, lambda q: int(kernel._element(q, q, scalars)))
    whole_left, whole_right = all(kernel.left_follows), all(kernel.right_follows)
    if (constant := _everywhere(right)) is not None and whole_left:
        return table_call(graph, operator, a, lambda q: int(kernel._element(q, constant, scalars)))
    if (constant := _everywhere(left)) is not None and whole_right:
        return table_call(graph, operator, b, lambda q: int(kernel._element(constant, q, scalars)))
    return None


def _everywhere(tensor: Tensor) -> int | None:
    """The value that a constant has everywhere."""
    if tensor.data is None or tensor.data.size == 0 or (tensor.data != tensor.data.flat[0]).any():
        return None
    return int(tensor.data.flat[0])
