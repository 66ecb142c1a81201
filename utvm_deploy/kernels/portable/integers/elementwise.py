"""Operators of two quantized inputs that broadcast, element by element: ADD, SUB, MUL and others.

Neighbouring dimensions that the same inputs follow are merged, so most layers are one or two loops.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from utvm_deploy.graph.attributes import Add, IntegerArithmetic, Multiply, Subtract
from utvm_deploy.graph.model import Tensor
from utvm_deploy.graph.rounding import HEADROOM_BITS
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.extents import flags_label, label
from utvm_deploy.kernels.contract.lazy_tvm import tirx
from utvm_deploy.kernels.contract.operands import quantization_of
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.contract.requantization import (
    INT8_MAX,
    INT8_MIN,
    add_wrapping,
    clamped,
    quantize_multiplier,
    requantize,
    requantize_right,
)
from utvm_deploy.kernels.portable.integers.lookup import table_call
from utvm_deploy.kernels.portable.schedules.skeletons import BroadcastLoops, Flags, merged_shapes

#: As ``HEADROOM_BITS``, for SQUARED_DIFFERENCE, whose square must fit into 32 bits.
_SQUARE_BITS = 7
#: How a tensor's quantization becomes parameters, such as ``left_zero_point``.
SCALING = ("zero_point", "multiplier", "shift")
_LEFT, _RIGHT, _OUTPUT = (
    tuple(f"{side}_{name}" for name in SCALING) for side in ("left", "right", "output")
)
_LIMITS = ("low", "high")

Scalars = Mapping[str, Any]


@dataclass(frozen=True)
class Broadcast(BroadcastLoops):
    """A base of kernels of two inputs of one type, ``left`` and ``right``."""

    left_follows: Flags
    right_follows: Flags
    dtype: str = "int8"
    # The output's scale of int16 is less than one half: nothing shifts left.
    shifts_right: bool = field(default=False, kw_only=True)

    #: The int32 parameters of int8; kernels of int16 have no zero points.
    parameters: ClassVar[tuple[str, ...]] = ()

    def element(self, left: Any, right: Any, scalars: Scalars) -> Any:
        """An element of the output: TIR, or an int if both inputs are ints."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        name = f"{self.what}_{label(self.extents)}"
        if self.dtype != "int8":
            name += f"_{self.dtype}{'_right' * self.shifts_right}"
        if all(self.left_follows) and all(self.right_follows):
            return name
        return f"{name}_{flags_label(self.left_follows)}_{flags_label(self.right_follows)}"

    @property
    def inputs(self) -> Sequence[tuple[str, str, Flags]]:
        return ("left", self.dtype, self.left_follows), ("right", self.dtype, self.right_follows)

    @property
    def scalars(self) -> tuple[str, ...]:
        has_zero_points = self.dtype == "int8"
        return tuple(n for n in self.parameters if has_zero_points or not n.endswith("zero_point"))

    @property
    def wide(self) -> str:
        """The type in which elements are calculated."""
        return "int64" if self.dtype == "int64" else "int32"

    def element_of(self, values: Sequence[Any], scalars: Scalars) -> Any:
        left, right = (value.astype(self.wide) for value in values)
        return self.element(left, right, scalars)

    def _output(self, value: Any, scalars: Scalars) -> Any:
        """``value`` at the output's scale, limited; for int16, ``value`` is at most 2**30."""
        zero_point, multiplier, shift = (scalars.get(name, 0) for name in _OUTPUT)
        scale = requantize_right if self.shifts_right else requantize
        result = scale(value, multiplier, shift) + zero_point
        return clamped(result, scalars["low"], scalars["high"], self.dtype)


def rescaled(value: Any, side: str, bits: int, scalars: Scalars) -> Any:
    """An input's real value, raised by ``bits``, at the common scale of both inputs."""
    zero_point, multiplier, shift = (scalars.get(f"{side}_{name}", 0) for name in SCALING)
    return requantize((value - zero_point) * (1 << bits), multiplier, shift)


@dataclass(frozen=True)
class BroadcastAdd(Broadcast):
    """ADD and SUB: both inputs at a common scale, then their sum at the output's."""

    subtracts: bool = False

    parameters: ClassVar[tuple[str, ...]] = (*_LEFT, *_RIGHT, *_OUTPUT, *_LIMITS)

    @property
    def what(self) -> str:
        return "subtract" if self.subtracts else "add"

    def element(self, left: Any, right: Any, scalars: Scalars) -> Any:
        bits = HEADROOM_BITS[self.dtype]
        second = rescaled(right, "right", bits, scalars)
        first = rescaled(left, "left", bits, scalars)
        return self._output(add_wrapping(first, 0 - second if self.subtracts else second), scalars)


@dataclass(frozen=True)
class BroadcastShiftedSum(Broadcast):
    """ADD and SUB of scales that are powers of two: each input is only shifted right."""

    shifts: tuple[int, int] = (0, 0)
    subtracts: bool = False

    parameters: ClassVar[tuple[str, ...]] = _LIMITS

    @property
    def what(self) -> str:
        return f"{'subtract' if self.subtracts else 'add'}_shifted_{label(self.shifts)}"

    def element(self, left: Any, right: Any, scalars: Scalars) -> Any:
        def shifted(value: Any, bits: int) -> Any:
            if bits == 0:
                return value
            return tirx.call_pure_extern("int32", "utvm_rounded_shift", value, bits)

        one, other = shifted(left, self.shifts[0]), shifted(right, self.shifts[1])
        total = one - other if self.subtracts else one + other
        return clamped(total, scalars["low"], scalars["high"], self.dtype)


@dataclass(frozen=True)
class BroadcastMultiply(Broadcast):
    """MUL: the product of both real values, requantized."""

    what: ClassVar[str] = "multiply"
    parameters: ClassVar[tuple[str, ...]] = (
        *("left_zero_point", "right_zero_point"),
        *_OUTPUT,
        *_LIMITS,
    )

    def element(self, left: Any, right: Any, scalars: Scalars) -> Any:
        zero, other_zero = (scalars.get(f"{side}_zero_point", 0) for side in ("left", "right"))
        return self._output((left - zero) * (right - other_zero), scalars)


@dataclass(frozen=True)
class BroadcastSquaredDifference(Broadcast):
    """SQUARED_DIFFERENCE: the difference at a common scale, as in SUB, then its square."""

    what: ClassVar[str] = "squared_difference"
    parameters: ClassVar[tuple[str, ...]] = (*_LEFT, *_RIGHT, *_OUTPUT)

    def element(self, left: Any, right: Any, scalars: Scalars) -> Any:
        difference = rescaled(left, "left", _SQUARE_BITS, scalars) - rescaled(
            right, "right", _SQUARE_BITS, scalars
        )
        limits = {"low": INT8_MIN, "high": INT8_MAX}
        return self._output(difference * difference, {**scalars, **limits})


@dataclass(frozen=True)
class BroadcastExtremum(Broadcast):
    """MINIMUM and MAXIMUM of the stored values, which all have one quantization."""

    takes_largest: bool = False

    @property
    def what(self) -> str:
        return "maximum" if self.takes_largest else "minimum"

    def element(self, left: Any, right: Any, scalars: Scalars) -> Any:
        if isinstance(left, int):
            return max(left, right) if self.takes_largest else min(left, right)
        choose = tirx.max if self.takes_largest else tirx.min
        return choose(left, right).astype(self.dtype)


@dataclass(frozen=True)
class BroadcastPrelu(Broadcast):
    """PRELU: the left input requantized; where it is negative, its product with the right one."""

    what: ClassVar[str] = "prelu"
    parameters: ClassVar[tuple[str, ...]] = (
        *("left_zero_point", "right_zero_point"),
        *_OUTPUT,
        *("negative_multiplier", "negative_shift"),
        *_LIMITS,
    )

    def element(self, left: Any, right: Any, scalars: Scalars) -> Any:
        value = left - scalars["left_zero_point"]
        zero_point, multiplier, shift = (scalars[name] for name in _OUTPUT)
        positive = requantize(value, multiplier, shift)
        product = value * (right - scalars["right_zero_point"])
        negative = requantize(product, scalars["negative_multiplier"], scalars["negative_shift"])
        if isinstance(left, int):
            scaled = positive if value >= 0 else negative
        else:
            scaled = tirx.if_then_else(value >= 0, positive, negative)
        return clamped(scaled + zero_point, scalars["low"], scalars["high"], self.dtype)


@dataclass(frozen=True)
class BroadcastArithmetic(Broadcast):
    """ADD, SUB, MUL, SQUARED_DIFFERENCE of plain int32 or int64, which wrap around."""

    operation: str = "add"

    @property
    def what(self) -> str:
        return f"{self.operation}_plain"

    def element(self, left: Any, right: Any, scalars: Scalars) -> Any:
        unsigned = f"u{self.dtype}"
        sides = left.astype(unsigned), right.astype(unsigned)
        return _ARITHMETIC[self.operation](*sides).astype(self.dtype)


#: In uint32 or uint64, whose overflow is defined.
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "mul": operator.mul,
    "squared_difference": lambda left, right: (left - right) * (left - right),
    "sub": operator.sub,
}


def lower_plain(op: Operation) -> KernelCall:
    """ADD, SUB, MUL and SQUARED_DIFFERENCE of plain integers."""
    return broadcast_call(op, partial(BroadcastArithmetic, operation=op.kind.lower()), {})


def lower_add(op: Operation) -> KernelCall:
    """ADD and SUB of activations or constants."""
    attributes, result = op.operator.attributes, op.result
    if isinstance(attributes, IntegerArithmetic):
        return lower_plain(op)
    assert isinstance(attributes, Add | Subtract)
    limits, subtracts = _limits(attributes.clamp), isinstance(attributes, Subtract)
    if attributes.shifts is not None:
        make = partial(BroadcastShiftedSum, shifts=attributes.shifts, subtracts=subtracts)
        return broadcast_call(op, make, limits)
    scalars, twice_largest = _common_scaling(op)
    headroom = 1 << HEADROOM_BITS[result.dtype]
    output_scale = quantization_of(result).scale
    scalars |= scaling("output", result, twice_largest / (headroom * output_scale))
    return broadcast_call(op, partial(BroadcastAdd, subtracts=subtracts), scalars | limits)


def lower_multiply(op: Operation) -> KernelCall:
    """MUL."""
    if isinstance(op.operator.attributes, IntegerArithmetic):
        return lower_plain(op)
    # The reference computes this ratio in float32.
    left, right, output = _float32_scales(op)
    scalars = scaling("output", op.result, float(left * right / output)) | _zero_points(op)
    limits = _limits(op.attributes(Multiply).clamp)
    return broadcast_call(op, BroadcastMultiply, scalars | limits)


def lower_squared_difference(op: Operation) -> KernelCall:
    """SQUARED_DIFFERENCE."""
    if isinstance(op.operator.attributes, IntegerArithmetic):
        return lower_plain(op)
    scalars, twice_largest = _common_scaling(op)
    steps = (1 << 2 * _SQUARE_BITS) * np.float32(quantization_of(op.result).scale)
    scalars |= scaling("output", op.result, twice_largest * twice_largest / float(steps))
    return broadcast_call(op, BroadcastSquaredDifference, scalars)


def lower_extremum(op: Operation) -> KernelCall:
    """MINIMUM and MAXIMUM."""
    make = partial(BroadcastExtremum, takes_largest=op.kind == "MAXIMUM")
    return broadcast_call(op, make, {})


def lower_prelu(op: Operation) -> KernelCall:
    """PRELU."""
    # The reference computes these ratios in float32.
    source, alpha, output = _float32_scales(op)
    scalars = scaling("output", op.result, float(source / output))
    multiplier, shift = quantize_multiplier(float(source * alpha / output))
    scalars |= {"negative_multiplier": multiplier, "negative_shift": shift}
    limits = _limits((INT8_MIN, INT8_MAX))
    return broadcast_call(op, BroadcastPrelu, scalars | _zero_points(op) | limits)


def scaling(side: str, tensor: Tensor, ratio: float) -> dict[str, int]:
    """The parameters that bring the values of an input or of the output to another scale."""
    values = (quantization_of(tensor).zero_point, *quantize_multiplier(ratio))
    return {f"{side}_{name}": value for name, value in zip(SCALING, values, strict=True)}


def _limits(clamp: tuple[int, int]) -> dict[str, int]:
    return {"low": clamp[0], "high": clamp[1]}


def _common_scaling(op: Operation) -> tuple[dict[str, int], float]:
    """The parameters that bring both inputs to a common scale, and that scale: twice the larger.

    The reference doubles a float32, which is exact, so this double has the same value.
    """
    left, right = (quantization_of(op.input(i)).scale for i in (0, 1))
    twice_largest = 2 * max(left, right)
    scalars = scaling("left", op.input(0), left / twice_largest)
    return scalars | scaling("right", op.input(1), right / twice_largest), twice_largest


def _float32_scales(op: Operation) -> list[Any]:
    """The scales of both inputs and of the output."""
    tensors = (op.input(0), op.input(1), op.result)
    return [np.float32(quantization_of(tensor).scale) for tensor in tensors]


def _zero_points(op: Operation) -> dict[str, int]:
    sides = enumerate(("left", "right"))
    return {f"{side}_zero_point": quantization_of(op.input(i)).zero_point for i, side in sides}


def broadcast_call(
    op: Operation, make: Callable[..., Broadcast], scalars: Mapping[str, int]
) -> KernelCall:
    """The call of the kernel that ``make`` makes, or of a table if one int8 input decides.

    ``make`` takes the first fields of ``Broadcast``, and ``shifts_right``.
    """
    result = op.result
    extents, follows = merged_shapes([op.input(i).shape for i in (0, 1)], result.shape)
    shifts_right = result.dtype == "int16" and -30 <= scalars.get("output_shift", 0) < 0
    kernel = make(extents, *follows, result.dtype, shifts_right=shifts_right)
    table = _table_of_one_side(op, kernel, scalars)
    if table is not None:
        return table
    return op.call(
        kernel,
        {name: scalars[name] for name in kernel.scalars},
        inputs=(0, 1),
        # An input that is not repeated is read exactly where the output is written.
        in_place=[i for i, flags in enumerate(follows) if all(flags)],
    )


def _table_of_one_side(
    op: Operation, kernel: Broadcast, scalars: Mapping[str, int]
) -> KernelCall | None:
    """The call as a table of 256 bytes, if a byte of the output depends on one byte only."""
    if kernel.dtype != "int8":
        return None
    left, right = op.input(0), op.input(1)
    if op.operator.inputs[0] == op.operator.inputs[1]:
        return table_call(op, 0, lambda q: int(kernel.element(q, q, scalars)))
    if (constant := _only_value(right)) is not None and all(kernel.left_follows):
        return table_call(op, 0, lambda q: int(kernel.element(q, constant, scalars)))
    if (constant := _only_value(left)) is not None and all(kernel.right_follows):
        return table_call(op, 1, lambda q: int(kernel.element(constant, q, scalars)))
    return None


def _only_value(tensor: Tensor) -> int | None:
    """The value of a constant whose elements are all equal."""
    if tensor.data is None or tensor.data.size == 0 or (tensor.data != tensor.data.flat[0]).any():
        return None
    return int(tensor.data.flat[0])


LOWERINGS = {
    "ADD": lower_add,
    "MAXIMUM": lower_extremum,
    "MINIMUM": lower_extremum,
    "MUL": lower_multiply,
    "PRELU": lower_prelu,
    "SQUARED_DIFFERENCE": lower_squared_difference,
    "SUB": lower_add,
}
