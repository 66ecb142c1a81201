"""Kernels that compute each output element from one element of each input.

Whatever maps int8 to int8 (RELU, RELU6, requantizing QUANTIZE) is one lookup in a 256-byte table
that is computed here. ADD broadcasts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from utvm_deploy.graph.attributes import Add, Clamp, Relu
from utvm_deploy.graph.model import Array, Graph, Operator, Tensor
from utvm_deploy.kernels.call import (
    Argument,
    ConstantArgument,
    KernelCall,
    ScalarArgument,
    TensorArgument,
)
from utvm_deploy.kernels.extents import label, merge
from utvm_deploy.kernels.operands import input_of, output_of, quantization_of
from utvm_deploy.kernels.quantize import (
    INT8_MAX,
    INT8_MIN,
    add_wrapping,
    clamp_int8,
    quantize_multiplier,
    requantize,
    requantized,
)

# The reference scales both operands of ADD up by 2**20 before it rounds them.
_ADD_HEADROOM_BITS = 20


@dataclass(frozen=True)
class Lookup:
    """``output[i] = table[input[i]]``; the table starts with the entry of -128."""

    count: int

    @property
    def name(self) -> str:
        return f"lookup_{self.count}"

    def prim_func(self) -> Any:
        source = te.placeholder((self.count,), "int8", "input")
        table = te.placeholder((256,), "int8", "table")
        output = te.compute(
            (self.count,), lambda i: table[source[i].astype("int32") - INT8_MIN], name="lookup"
        )
        return te.create_prim_func([source, table, output])

    def schedule(self, sch: Any, core: str) -> str:
        return "one table lookup per element"


@dataclass(frozen=True)
class BroadcastAdd:
    """ADD over merged dimensions; a side that does not follow one is repeated along it."""

    extents: tuple[int, ...]
    left_follows: tuple[bool, ...]
    right_follows: tuple[bool, ...]

    @property
    def name(self) -> str:
        if all(self.left_follows) and all(self.right_follows):
            return f"add_{label(self.extents)}"
        sides = ("".join("01"[f] for f in s) for s in (self.left_follows, self.right_follows))
        return f"add_{label(self.extents)}_{'_'.join(sides)}"

    def prim_func(self) -> Any:
        left = te.placeholder(self._shape(self.left_follows), "int8", "left")
        right = te.placeholder(self._shape(self.right_follows), "int8", "right")
        scalars = [
            te.var(name, "int32")
            for side in ("left", "right", "output")
            for name in (f"{side}_zero_point", f"{side}_multiplier", f"{side}_shift")
        ]
        low, high = te.var("low", "int32"), te.var("high", "int32")
        left_scaling, right_scaling = scalars[0:3], scalars[3:6]
        zero_point, multiplier, shift = scalars[6:9]

        def scaled(value: Any, zero_point: Any, multiplier: Any, shift: Any) -> Any:
            raised = (value.astype("int32") - zero_point) * (1 << _ADD_HEADROOM_BITS)
            return requantize(raised, multiplier, shift)

        def element(*index: Any) -> Any:
            a = left[self._index(self.left_follows, index)]
            b = right[self._index(self.right_follows, index)]
            total = add_wrapping(scaled(a, *left_scaling), scaled(b, *right_scaling))
            return clamp_int8(requantize(total, multiplier, shift) + zero_point, low, high)

        output = te.compute(self.extents, element, name="add")
        return te.create_prim_func([left, right, *scalars, low, high, output])

    def schedule(self, sch: Any, core: str) -> str:
        return "generic C, one element at a time"

    def _shape(self, follows: tuple[bool, ...]) -> tuple[int, ...]:
        return tuple(e if f else 1 for e, f in zip(self.extents, follows, strict=True))

    @staticmethod
    def _index(follows: tuple[bool, ...], index: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(i if f else 0 for i, f in zip(index, follows, strict=True))


@dataclass(frozen=True)
class QuantizeFloat:
    """float32 -> int8: divide by the scale, round half away from zero, saturate."""

    count: int

    @property
    def name(self) -> str:
        return f"quantize_{self.count}"

    def prim_func(self) -> Any:
        source = te.placeholder((self.count,), "float32", "input")
        scale = te.placeholder((1,), "float32", "scale")
        zero_point = te.var("zero_point", "int32")

        def element(i: Any) -> Any:
            rounded = tirx.call_pure_extern("int32", "utvm_quantize", source[i] / scale[0])
            return clamp_int8(rounded + zero_point, INT8_MIN, INT8_MAX)

        output = te.compute((self.count,), element, name="quantize")
        return te.create_prim_func([source, scale, zero_point, output])

    def schedule(self, sch: Any, core: str) -> str:
        return "float32 division, one element at a time"


@dataclass(frozen=True)
class DequantizeInt8:
    """int8 -> float32."""

    count: int

    @property
    def name(self) -> str:
        return f"dequantize_{self.count}"

    def prim_func(self) -> Any:
        source = te.placeholder((self.count,), "int8", "input")
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


def lower_add(graph: Graph, operator: Operator) -> KernelCall:
    """ADD of activations or constants, with broadcasting."""
    attributes = operator.attributes
    assert isinstance(attributes, Add)
    positions, sides = zip(*(input_of(graph, operator, i) for i in (0, 1)), strict=True)
    output, result = output_of(graph, operator)
    shape = result.shape or (1,)
    aligned = [(1,) * (len(shape) - len(side.shape)) + side.shape for side in sides]
    roles = [
        tuple(extents[axis] == extent for extents in aligned) for axis, extent in enumerate(shape)
    ]
    extents, merged = merge(shape, roles)
    left_follows, right_follows = zip(*merged, strict=True)
    scalars: list[Argument] = []
    scales = [quantization_of(side).scale for side in sides]
    # In float32 the reference's doubling is exact, so this double is its very value.
    twice_largest = 2 * max(scales)
    ratios = [(side, scale / twice_largest) for side, scale in zip((*sides,), scales, strict=True)]
    ratios.append(
        (result, twice_largest / ((1 << _ADD_HEADROOM_BITS) * quantization_of(result).scale))
    )
    for name, (tensor, ratio) in zip(("left", "right", "output"), ratios, strict=True):
        multiplier, shift = quantize_multiplier(ratio)
        scalars += [
            ScalarArgument(f"{name}_zero_point", quantization_of(tensor).zero_point),
            ScalarArgument(f"{name}_multiplier", multiplier),
            ScalarArgument(f"{name}_shift", shift),
        ]
    return KernelCall(
        BroadcastAdd(tuple(extents), left_follows, right_follows),
        (
            *(_operand(position, side) for position, side in zip(positions, sides, strict=True)),
            *scalars,
            ScalarArgument("low", attributes.clamp[0]),
            ScalarArgument("high", attributes.clamp[1]),
            TensorArgument(output),
        ),
        # A side that is not repeated is read exactly where the output is written.
        in_place=tuple(
            (output, position)
            for position, side, follows in zip(
                positions, sides, (left_follows, right_follows), strict=True
            )
            if side.data is None and all(follows)
        ),
    )


def lower_relu(graph: Graph, operator: Operator) -> KernelCall:
    """RELU and RELU6 that stand alone."""
    assert isinstance(operator.attributes, Relu)
    source = quantization_of(input_of(graph, operator, 0)[1])
    result = quantization_of(output_of(graph, operator)[1])
    # The reference divides in float32 here, and only here.
    ratio = float(np.float32(source.scale) / np.float32(result.scale))
    return _lookup(graph, operator, ratio, operator.attributes.clamp)


def lower_quantize(graph: Graph, operator: Operator) -> KernelCall:
    """QUANTIZE of float32, or of int8 with another scale."""
    position, source = input_of(graph, operator, 0)
    output, result = output_of(graph, operator)
    quantization = quantization_of(result)
    if source.dtype == "int8":
        ratio = quantization_of(source).scale / quantization.scale
        return _lookup(graph, operator, ratio, (INT8_MIN, INT8_MAX))
    return KernelCall(
        QuantizeFloat(_count(result)),
        (
            TensorArgument(position),
            ConstantArgument("scale", np.array([quantization.scale], dtype=np.float32)),
            ScalarArgument("zero_point", quantization.zero_point),
            TensorArgument(output),
        ),
    )


def lower_dequantize(graph: Graph, operator: Operator) -> KernelCall:
    """DEQUANTIZE of int8."""
    position, source = input_of(graph, operator, 0)
    output, result = output_of(graph, operator)
    quantization = quantization_of(source)
    return KernelCall(
        DequantizeInt8(_count(result)),
        (
            TensorArgument(position),
            ConstantArgument("scale", np.array([quantization.scale], dtype=np.float32)),
            ScalarArgument("zero_point", quantization.zero_point),
            TensorArgument(output),
        ),
    )


def lookup_table(function: Callable[[int], int]) -> Array:
    """The values of ``function`` for -128 .. 127, as int8."""
    return np.array([function(q) for q in range(INT8_MIN, INT8_MAX + 1)], dtype=np.int8)


def _lookup(graph: Graph, operator: Operator, ratio: float, clamp: Clamp) -> KernelCall:
    position, source = input_of(graph, operator, 0)
    output, result = output_of(graph, operator)
    zero_point = quantization_of(source).zero_point
    output_zero_point = quantization_of(result).zero_point
    multiplier, shift = quantize_multiplier(ratio)
    low, high = clamp

    def element(q: int) -> int:
        scaled = requantized(q - zero_point, multiplier, shift) + output_zero_point
        return min(max(scaled, low), high)

    return KernelCall(
        Lookup(_count(result)),
        (
            TensorArgument(position),
            ConstantArgument("table", lookup_table(element)),
            TensorArgument(output),
        ),
        in_place=((output, position),),
    )


def _operand(position: int, tensor: Tensor) -> Argument:
    if tensor.data is None:
        return TensorArgument(position)
    return ConstantArgument("addend", tensor.data)


def _count(tensor: Tensor) -> int:
    return int(np.prod(tensor.shape, dtype=np.int64))
