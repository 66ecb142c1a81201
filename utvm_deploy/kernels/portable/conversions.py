"""QUANTIZE and DEQUANTIZE: between float32 and integers, and between integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from utvm_deploy.graph.attributes import Relu
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.contract.call import (
    ConstantArgument,
    KernelCall,
    ScalarArgument,
    TensorArgument,
)
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.operands import (
    element_count,
    input_of,
    operand_of,
    output_of,
    quantization_of,
)
from utvm_deploy.kernels.contract.requantization import (
    add_wrapping,
    clamped,
    quantize_multiplier,
    requantize,
)
from utvm_deploy.kernels.portable.lookup import lower_lookup


@dataclass(frozen=True)
class QuantizeFloat:
    """float32 -> integers: divide by the scale, round half away from zero, saturate."""

    count: int
    dtype: str = "int8"

    @property
    def name(self) -> str:
        return f"quantize_{self.count}" + ("" if self.dtype == "int8" else f"_{self.dtype}")

    def prim_func(self) -> Any:
        source = te.placeholder((self.count,), "float32", "input")
        scale = te.placeholder((1,), "float32", "scale")
        zero_point = te.var("zero_point", "int32")
        limits = np.iinfo(self.dtype)

        def element(i: Any) -> Any:
            rounded = tirx.call_pure_extern("int32", "utvm_quantize", source[i] / scale[0])
            return clamped(rounded + zero_point, int(limits.min), int(limits.max), self.dtype)

        output = te.compute((self.count,), element, name="quantize")
        return te.create_prim_func([source, scale, zero_point, output])

    def schedule(self, sch: Any, core: str) -> str:
        return "float32 division, one element at a time"


@dataclass(frozen=True)
class DequantizeInteger:
    """Integers -> float32."""

    count: int
    dtype: str = "int8"

    @property
    def name(self) -> str:
        return f"dequantize_{self.count}" + ("" if self.dtype == "int8" else f"_{self.dtype}")

    def prim_func(self) -> Any:
        source = te.placeholder((self.count,), self.dtype, "input")
        scale = te.placeholder((1,), "float32", "scale")
        zero_point = te.var("zero_point", "int32")
        output = te.compute(
            (self.count,),
            lambda i: (source[i].astype("int32") - zero_point).astype("float32") * scale[0],
            name="dequantize",
        )
        return te.create_prim_func([source, scale, zero_point, output])

    def schedule(self, sch: Any, core: str) -> str:
        return "float32 multiplication, one element at a time"


@dataclass(frozen=True)
class Requantize:
    """Integers -> integers of another scale, where a table would be too large."""

    count: int
    source: str
    result: str

    @property
    def name(self) -> str:
        return f"requantize_{self.count}_{self.source}_{self.result}"

    def prim_func(self) -> Any:
        source = te.placeholder((self.count,), self.source, "input")
        names = ("zero_point", "multiplier", "shift", "output_zero_point", "low", "high")
        scalars = [te.var(name, "int32") for name in names]
        zero_point, multiplier, shift, output_zero_point, low, high = scalars

        def element(i: Any) -> Any:
            # Only an int32 may be so large that the difference wraps, as the reference's does.
            value = source[i].astype("int32")
            is_int32 = self.source == "int32"
            value = add_wrapping(value, 0 - zero_point) if is_int32 else value - zero_point
            scaled = requantize(value, multiplier, shift)
            return clamped(add_wrapping(scaled, output_zero_point), low, high, self.result)

        output = te.compute((self.count,), element, name="requantize")
        return te.create_prim_func([source, *scalars, output])

    def schedule(self, sch: Any, core: str) -> str:
        return "generic C, one element at a time"


def lower_quantize(graph: Graph, operator: Operator) -> KernelCall:
    """QUANTIZE of float32, or of integers with another scale or type."""
    position, source = input_of(graph, operator, 0)
    output, result = output_of(graph, operator)
    quantization = quantization_of(result)
    if source.dtype == "float32":
        return KernelCall(
            QuantizeFloat(element_count(result), result.dtype),
            (
                operand_of(position, source),
                ConstantArgument("scale", np.array([quantization.scale], dtype=np.float32)),
                ScalarArgument("zero_point", quantization.zero_point),
                TensorArgument(output),
            ),
        )
    if np.dtype(source.dtype).itemsize == np.dtype(result.dtype).itemsize == 1:
        return lower_lookup(graph, operator)
    limits = np.iinfo(result.dtype)
    ratio = quantization_of(source).scale / quantization.scale
    return lower_requantize(graph, operator, ratio, (int(limits.min), int(limits.max)))


def lower_relu_int16(graph: Graph, operator: Operator) -> KernelCall:
    """RELU and its kin of int16."""
    assert isinstance(operator.attributes, Relu)
    source, result = input_of(graph, operator, 0)[1], output_of(graph, operator)[1]
    scales = [np.float32(quantization_of(tensor).scale) for tensor in (source, result)]
    # The reference divides in float32 here.
    return lower_requantize(
        graph, operator, float(scales[0] / scales[1]), operator.attributes.clamp
    )


def lower_requantize(
    graph: Graph, operator: Operator, ratio: float, clamp: tuple[int, int]
) -> KernelCall:
    """Integers times a ratio of scales, then a clamp."""
    position, source = input_of(graph, operator, 0)
    output, result = output_of(graph, operator)
    multiplier, shift = quantize_multiplier(ratio)
    return KernelCall(
        Requantize(element_count(result), source.dtype, result.dtype),
        (
            operand_of(position, source),
            ScalarArgument("zero_point", quantization_of(source).zero_point),
            ScalarArgument("multiplier", multiplier),
            ScalarArgument("shift", shift),
            ScalarArgument("output_zero_point", quantization_of(result).zero_point),
            ScalarArgument("low", clamp[0]),
            ScalarArgument("high", clamp[1]),
            TensorArgument(output),
        ),
    )


def lower_dequantize(graph: Graph, operator: Operator) -> KernelCall:
    """DEQUANTIZE of integers."""
    position, source = input_of(graph, operator, 0)
    output, result = output_of(graph, operator)
    quantization = quantization_of(source)
    return KernelCall(
        DequantizeInteger(element_count(result), source.dtype),
        (
            operand_of(position, source),
            ConstantArgument("scale", np.array([quantization.scale], dtype=np.float32)),
            ScalarArgument("zero_point", quantization.zero_point),
            TensorArgument(output),
        ),
    )
