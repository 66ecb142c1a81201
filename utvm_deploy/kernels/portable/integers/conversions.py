"""QUANTIZE, DEQUANTIZE, and RELU of int16: elements at another scale or of another type."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from utvm_deploy.graph.attributes import Relu
from utvm_deploy.graph.element_type import element_type
from utvm_deploy.graph.model import Tensor
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.extents import type_label
from utvm_deploy.kernels.contract.lazy_tvm import tirx
from utvm_deploy.kernels.contract.operands import element_count, quantization_of
from utvm_deploy.kernels.contract.operation import Operation, Parameters
from utvm_deploy.kernels.contract.requantization import (
    add_wrapping,
    clamped,
    quantize_multiplier,
    requantize,
)
from utvm_deploy.kernels.portable.integers.lookup import lower_lookup
from utvm_deploy.kernels.portable.schedules.skeletons import Unary

#: Type of the result -> bits, least and margin of ``utvm_quantize_by``. Of what is always divided,
#: nearly all is beyond the range of the type.
FRACTIONS = {"int8": (16, 7, 4), "uint8": (16, 7, 4), "int16": (14, 2, 67)}
#: The exponents of a float32 that say zero or denormal, and infinity or NaN.
_SMALLEST, _LARGEST = 0, 255


@dataclass(frozen=True)
class _OfFloat(Unary):
    """A base of conversions between float32 and integers of one scale."""

    tables: ClassVar[Mapping[str, tuple[int, str]]] = {"scale": (1, "float32")}
    parameters: ClassVar[tuple[str, ...]] = ("zero_point",)


@dataclass(frozen=True)
class QuantizeFloat(_OfFloat):
    """float32 to integers: divide by the scale, round half away from zero, saturate."""

    what: ClassVar[str] = "quantize"
    why: ClassVar[str] = "float32 division, one element at a time"

    @property
    def name(self) -> str:
        return f"quantize_{self.count}{type_label(self.result)}"

    def element(self, value: Any, given: Mapping[str, Any]) -> Any:
        rounded = self.rounded(value, given)
        return clamped(
            rounded + given["zero_point"], *element_type(self.result).limits, self.result
        )

    def rounded(self, value: Any, given: Mapping[str, Any]) -> Any:
        """TIR: the quotient as an int32."""
        return tirx.call_pure_extern("int32", "utvm_quantize", value / given["scale"][0])


@dataclass(frozen=True)
class QuantizeByReciprocal(QuantizeFloat):
    """The same, by the reciprocal of the scale; what is near a half is divided."""

    parameters: ClassVar[tuple[str, ...]] = ("zero_point", "reciprocal", "exponent")
    why: ClassVar[str] = "integer product with the scale's reciprocal; divided near a half"

    @property
    def name(self) -> str:
        return f"quantize_by_reciprocal_{self.count}{type_label(self.result)}"

    def rounded(self, value: Any, given: Mapping[str, Any]) -> Any:
        numbers = (value, given["scale"][0], given["reciprocal"], given["exponent"])
        fraction = FRACTIONS[self.result]
        return tirx.call_pure_extern("int32", "utvm_quantize_by", *numbers, *fraction)


@dataclass(frozen=True)
class DequantizeInteger(_OfFloat):
    """Integers to float32."""

    what: ClassVar[str] = "dequantize"
    why: ClassVar[str] = "float32 multiplication, one element at a time"

    @property
    def name(self) -> str:
        return f"dequantize_{self.count}{type_label(self.source)}"

    def element(self, value: Any, given: Mapping[str, Any]) -> Any:
        difference = value.astype("int32") - given["zero_point"]
        return difference.astype("float32") * given["scale"][0]


@dataclass(frozen=True)
class Requantize(Unary):
    """Integers to integers of another scale, where a table would be too large."""

    what: ClassVar[str] = "requantize"
    parameters: ClassVar[tuple[str, ...]] = (
        *("zero_point", "multiplier", "shift"),
        *("output_zero_point", "low", "high"),
    )

    @property
    def name(self) -> str:
        return f"requantize_{self.count}_{self.source}_{self.result}"

    def element(self, value: Any, given: Mapping[str, Any]) -> Any:
        zero_point, multiplier, shift, output_zero_point, low, high = given.values()
        # Only an int32 may be so large that the difference wraps, as the reference's does.
        value = value.astype("int32")
        is_int32 = self.source == "int32"
        value = add_wrapping(value, 0 - zero_point) if is_int32 else value - zero_point
        scaled = requantize(value, multiplier, shift)
        return clamped(add_wrapping(scaled, output_zero_point), low, high, self.result)


def lower_quantize(op: Operation) -> KernelCall:
    """QUANTIZE of float32, or of integers to another scale or type."""
    source, result = op.source, op.result
    if source.dtype == "float32":
        return _quantize_call(op)
    if source.element.bits == result.element.bits == 8:
        return lower_lookup(op)
    start, end = op.ends
    return _requantize_call(op, start.scale / end.scale, result.element.limits)


def _quantize_call(op: Operation) -> KernelCall:
    result = op.result
    sizes, scale = (element_count(result), op.source.dtype, result.dtype), _scale_of(result)
    found = reciprocal_of(quantization_of(result).scale, result.dtype)
    if found is None:
        return op.call(QuantizeFloat(*sizes), scale)
    reciprocal, exponent = found
    given = {"reciprocal": reciprocal - (1 << 32), "exponent": exponent}  # as int32
    return op.call(QuantizeByReciprocal(*sizes), {**scale, **given})


def reciprocal_of(scale: float, dtype: str) -> tuple[int, int] | None:
    """The reciprocal, of 32 bits, and the exponent of a scale for ``utvm_quantize_by``.

    None for scales near the ends of float32, for which its shifts are not enough.
    """
    bits, least, _ = FRACTIONS[dtype]
    fraction, power = math.frexp(np.float32(scale))
    reciprocal = round(2**31 / Fraction(fraction))
    if reciprocal == 1 << 32:
        reciprocal, power = reciprocal >> 1, power - 1
    exponent = 126 - bits + 31 + power
    # Shifts must make zero of zeros, and infinity and NaN must be divided.
    if exponent - _SMALLEST < 32 or exponent - _LARGEST >= least:
        return None
    return reciprocal, exponent


def lower_relu_int16(op: Operation) -> KernelCall:
    """RELU and RELU6 of int16."""
    clamp = op.attributes(Relu).clamp
    # The reference divides in float32 here.
    source, result = (np.float32(end.scale) for end in op.ends)
    return _requantize_call(op, float(source / result), clamp)


def _requantize_call(op: Operation, ratio: float, clamp: tuple[int, int]) -> KernelCall:
    """Integers times the ratio of the scales, then a clamp."""
    source, result = op.source, op.result
    multiplier, shift = quantize_multiplier(ratio)
    zero_point = quantization_of(source).zero_point
    scalars = {"zero_point": zero_point, "multiplier": multiplier, "shift": shift}
    kernel = Requantize(element_count(result), source.dtype, result.dtype)
    return op.call(kernel, {**scalars, **op.output_parameters(clamp)})


def lower_dequantize(op: Operation) -> KernelCall:
    """DEQUANTIZE of integers."""
    source = op.source
    kernel = DequantizeInteger(element_count(source), source.dtype, "float32")
    return op.call(kernel, _scale_of(source))


def _scale_of(tensor: Tensor) -> Parameters:
    """The parameters of a conversion from or to float32."""
    quantization = quantization_of(tensor)
    scale = np.array([quantization.scale], dtype=np.float32)
    return {"scale": scale, "zero_point": quantization.zero_point}


LOWERINGS = {"DEQUANTIZE": lower_dequantize, "QUANTIZE": lower_quantize}
INT16_LOWERINGS = {"RELU": lower_relu_int16, "RELU6": lower_relu_int16}
