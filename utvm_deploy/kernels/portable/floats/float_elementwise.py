"""Operators of float32 that compute each output from one element of each input.

The formulas are those of LiteRT's reference kernels, in the same order, so that results have equal
bits. Functions such as exp are our own; ``graph/float_bounds.py`` has their bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from utvm_deploy.graph.attribute_values import Limits
from utvm_deploy.graph.attributes import Add, Divide, Gelu, LeakyRelu, Multiply, Relu, Subtract
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.extents import flags_label, label
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.operands import element_count
from utvm_deploy.kernels.contract.operation import Lowering, Operation
from utvm_deploy.kernels.portable.schedules.float_values import call, limited, limits_label, number
from utvm_deploy.kernels.portable.schedules.skeletons import (
    BroadcastLoops,
    DefaultLoops,
    Flags,
    merged_shapes,
)

# Outside of these the reference does not compute 1 / (1 + exp(-x)).
_LEAST_LOGISTIC, _MOST_LOGISTIC = -9.0, 16.619047164916992


def _logistic(x: Any) -> Any:
    power = call("expf", tirx.Select(x < number(_LEAST_LOGISTIC), x, number(0) - x))
    inside = tirx.Select(x < number(_LEAST_LOGISTIC), power, number(1) / (number(1) + power))
    return tirx.Select(x > number(_MOST_LOGISTIC), number(1), inside)


def _hard_swish(x: Any) -> Any:
    return x * limited(x + number(3), (0.0, 6.0)) / number(6)


def _gelu(x: Any) -> Any:
    return number(0.5) * x * call("erfcf", x * number(-math.sqrt(0.5)))


def _gelu_by_tanh(x: Any) -> Any:
    inner = x + number(0.044715) * x * x * x
    return number(0.5) * x * (number(1) + call("tanhf", number(math.sqrt(2 / math.pi)) * inner))


def _floor_mod(a: Any, b: Any) -> Any:
    rest = call("fmodf", a, b)
    differs = tirx.all(rest != number(0), (b < number(0)) != (rest < number(0)))
    return tirx.Select(differs, rest + b, rest)


def _sign(x: Any) -> Any:
    """What is not a number stays so; a zero of either sign becomes 0."""
    zero = number(0)
    whole = tirx.Select(x < zero, number(-1), tirx.Select(x.equal(zero), zero, x))
    return tirx.Select(x > zero, number(1), whole)


def _round(x: Any) -> Any:
    """Halves become even numbers, and what is below 0 does not become -0."""
    found = tirx.Var("found", "float32")
    vanishes = tirx.all(found.equal(number(0)), x < number(0))
    return tirx.Let(found, call("nearbyintf", x), tirx.Select(vanishes, number(0), found))


#: Name -> the function of one element.
_OF_ONE: Mapping[str, Callable[[Any], Any]] = {
    "abs": lambda x: call("fabsf", x),
    "ceil": lambda x: call("ceilf", x),
    "cos": lambda x: call("cosf", x),
    "elu": lambda x: tirx.Select(x < number(0), call("expm1f", x), x),
    "exp": lambda x: call("expf", x),
    "floor": lambda x: call("floorf", x),
    "gelu": _gelu,
    "gelu_by_tanh": _gelu_by_tanh,
    "hard_swish": _hard_swish,
    "log": lambda x: call("logf", x),
    "logistic": _logistic,
    "neg": lambda x: number(-1) * x,
    "round": _round,
    "rsqrt": lambda x: number(1) / call("sqrtf", x),
    "sign": _sign,
    "sin": lambda x: call("sinf", x),
    "sqrt": lambda x: call("sqrtf", x),
    "square": lambda x: x * x,
    "tanh": lambda x: call("tanhf", x),
}
#: Name -> the function of one element of each input.
_OF_TWO: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "atan2": lambda a, b: call("atan2f", a, b),
    "div": lambda a, b: a / b,
    "floor_div": lambda a, b: call("floorf", a / b),
    "floor_mod": _floor_mod,
    "maximum": lambda a, b: tirx.Select(a > b, a, b),
    "minimum": lambda a, b: tirx.Select(a < b, a, b),
    "mul": lambda a, b: a * b,
    "pow": lambda a, b: call("powf", a, b),
    "prelu": lambda a, b: tirx.Select(a >= number(0), a, a * b),
    "squared_difference": lambda a, b: (a - b) * (a - b),
    "sub": lambda a, b: a - b,
}


@dataclass(frozen=True)
class FloatOfOne(DefaultLoops):
    """``output[i]`` is a function of ``input[i]``, within limits."""

    count: int
    function: str
    limits: Limits = None

    @property
    def name(self) -> str:
        ends = limits_label(self.limits) if self.limits else ""
        return f"{self.function}_float_{self.count}{ends}"

    def prim_func(self) -> Any:
        source = te.placeholder((self.count,), "float32", "input")
        function = _OF_ONE.get(self.function, lambda x: x)
        output = te.compute(
            (self.count,), lambda i: limited(function(source[i]), self.limits), self.function
        )
        return te.create_prim_func([source, output])


@dataclass(frozen=True)
class FloatLeakyRelu(DefaultLoops):
    """LEAKY_RELU."""

    count: int

    @property
    def name(self) -> str:
        return f"leaky_relu_float_{self.count}"

    def prim_func(self) -> Any:
        source = te.placeholder((self.count,), "float32", "input")
        alpha = te.placeholder((1,), "float32", "alpha")
        output = te.compute(
            (self.count,),
            lambda i: tirx.Select(source[i] > number(0), source[i], source[i] * alpha[0]),
            "leaky_relu",
        )
        return te.create_prim_func([source, alpha, output])


@dataclass(frozen=True)
class FloatOfTwo(BroadcastLoops):
    """A function of one element of each input, within limits."""

    follows: tuple[Flags, ...]  # of each input
    function: str
    limits: Limits

    @property
    def what(self) -> str:
        return self.function

    @property
    def name(self) -> str:
        sides = "_".join(map(flags_label, self.follows))
        ends = limits_label(self.limits) if self.limits else ""
        return f"{self.function}_float_{label(self.extents)}_{sides}{ends}"

    @property
    def inputs(self) -> Sequence[tuple[str, str, Flags]]:
        return [(f"input_{i}", "float32", follows) for i, follows in enumerate(self.follows)]

    def element_of(self, values: Sequence[Any], scalars: Mapping[str, Any]) -> Any:
        return limited(_OF_TWO[self.function](*values), self.limits)


def lower_of_one(op: Operation) -> KernelCall:
    """Functions of one element, and RELU and its kin."""
    a, count = op.operator.attributes, element_count(op.result)
    if isinstance(a, LeakyRelu):
        alpha = np.array([a.alpha], np.float32)
        return op.call(FloatLeakyRelu(count), {"alpha": alpha}, in_place=[0])
    if isinstance(a, Relu):
        return op.call(FloatOfOne(count, "relu", a.limits), in_place=[0])
    approximates = isinstance(a, Gelu) and a.approximates
    function = "gelu_by_tanh" if approximates else op.kind.lower()
    return op.call(FloatOfOne(count, function), in_place=[0])


def lower_of_two(op: Operation) -> KernelCall:
    """Functions of one element of each input."""
    a, result = op.operator.attributes, op.result
    limits = a.limits if isinstance(a, Add | Subtract | Multiply | Divide) else None
    shape = merged_shapes((op.input(i).shape for i in (0, 1)), result.shape)
    in_place = [i for i in (0, 1) if op.input(i).shape == result.shape]
    return op.call(FloatOfTwo(*shape, op.kind.lower(), limits), inputs=(0, 1), in_place=in_place)


_RELUS = ("RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1")
FLOAT_LOWERINGS: Mapping[str, Lowering] = {
    **{name.upper(): lower_of_one for name in _OF_ONE if name != "gelu_by_tanh"},
    **dict.fromkeys((*_RELUS, "LEAKY_RELU"), lower_of_one),
    **{name.upper(): lower_of_two for name in _OF_TWO},
}
