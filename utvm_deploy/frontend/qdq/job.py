"""One operator of a QDQ model that is about to be written, and what every kind needs of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.frontend.qdq.operators import Array, Node
from utvm_deploy.frontend.qdq.values import (
    Constant,
    Flattened,
    Pending,
    Quantized,
    Raw,
    Scale,
    Storage,
    Value,
)

NONE, RELU, RELU_N1_TO_1, RELU6 = range(4)
#: The schema's numbers of fused activations.
_ACTIVATIONS: Mapping[tuple[float, float], int] = {(-1.0, 1.0): RELU_N1_TO_1, (0.0, 6.0): RELU6}


@dataclass(frozen=True, eq=False)
class Step:
    """An operator that is about to be written, and what it is given."""

    store: Storage
    node: Node
    arguments: tuple[Value | None, ...]
    shapes: Mapping[str, tuple[int, ...]]  # of the model's activations, in ONNX's order
    name: str  # of the result

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result, in ONNX's order."""
        return self.shapes[self.node.outputs[0]]

    def has(self, position: int) -> bool:
        """Whether an optional input is there."""
        return position < len(self.arguments) and self.arguments[position] is not None

    def value(self, position: int = 0) -> Value:
        """An input that must be there."""
        value = self.arguments[position] if position < len(self.arguments) else None
        if value is None:
            raise self.node.damaged(f"input {position} is missing")
        return value

    def quantized(self, position: int = 0) -> Quantized | Flattened:
        """An input that must be an activation."""
        return activation(self.node, self.value(position))

    def settled(self) -> Quantized:
        """The first input, an activation, as a tensor of its shape."""
        return self.store.settled(self.quantized())

    def constant(self, position: int, what: str) -> Constant:
        """An input that must be known."""
        return constant(self.node, self.value(position), what)

    def moved(self, kind: str, x: Quantized, *more: int, **options: Any) -> Quantized:
        """Write the operator that makes the result of an activation, with its scale and order."""
        numbers, scale = [x.tensor, *more], self.store.scale_of(x)
        return self.store.apply(
            kind, numbers, self.name, self.shape, scale, is_last=x.is_last, **options
        )


@dataclass(frozen=True, eq=False)
class Job(Step):
    """A pending operator and the quantization of its result."""

    scale: Scale
    activation: int  # NONE where the operator cannot clamp by itself
    # The limits of a Relu or Clip, of the operator itself or behind it.
    low: float
    high: float

    def apply(self, kind: str, inputs: Sequence[int], **options: Any) -> Quantized:
        """Write the operator that makes the result."""
        given = {"scale": self.scale, **options}
        return self.store.apply(kind, inputs, self.name, self.shape, **given)


Emitter: TypeAlias = Callable[[Job], Quantized]
#: Writes an operator that only moves elements; a value for each output.
Mover: TypeAlias = Callable[[Step], Sequence[Value]]


def activation(node: Node, value: Value) -> Quantized | Flattened:
    """The value, if it is a quantized activation."""
    if isinstance(value, Pending):
        raise node.unsupported(
            f"its input, made by operator {value.node.index} ({value.node.kind}), is not "
            "quantized; quantize every operator, or cut the model off before it"
        )
    if isinstance(value, Raw):
        raise node.unsupported(f"model input '{value.name}' is not quantized before it is used")
    if isinstance(value, Constant):
        raise node.unsupported("its first input is a constant; fold constants before quantizing")
    return value


def constant(node: Node, value: Value, what: str) -> Constant:
    """The value, if it is known."""
    if not isinstance(value, Constant):
        raise node.unsupported(f"its {what} are computed; only constant ones are supported")
    return value


def symmetric_int8(node: Node, weights: Constant, what: str, axis: int) -> tuple[Array, Array]:
    """Weights of int8 with zero points of zero, and their scales: one, or one along ``axis``.

    Weights that have zero points are moved by them. What is too large for int8 then is rounded,
    with a larger scale for its channel.
    """
    known = weights.data.dtype in (np.int8, np.uint8) or weights.is_narrow
    if weights.scales is None or weights.zero_points is None or not known:
        raise node.unsupported(f"its {what} are not quantized to 8 bits; quantize them to int8")
    if weights.axis is not None and weights.axis != axis and weights.scales.size > 1:
        raise node.unsupported(
            f"its {what} have scales along dimension {weights.axis}; "
            f"only dimension {axis}, the output channels, is supported"
        )
    scales = weights.scales.reshape(-1)
    along = [-1 if place == axis else 1 for place in range(weights.data.ndim)]
    moved = weights.data.astype(np.int32) - weights.zero_points.astype(np.int32).reshape(along)
    if moved.min(initial=0) >= -128 and moved.max(initial=0) <= 127:
        return moved.astype(np.int8), scales
    others = tuple(place for place in range(moved.ndim) if place != axis)
    factors = np.maximum(np.abs(moved).max(axis=others) / 127, 1)
    return np.rint(moved / factors.reshape(along)).astype(np.int8), scales * factors


def real_bias(job: Job, position: int, outputs: int) -> Array:
    """The bias in real numbers; zeros if there is none."""
    if not job.has(position):
        return np.zeros(outputs)
    bias = job.constant(position, "biases")
    real = np.asarray(bias.real, np.float64).reshape(-1)
    if real.size not in (1, outputs):
        raise job.node.damaged(f"it has {real.size} biases for {outputs} outputs")
    return np.broadcast_to(real, (outputs,))


def operand_of(job: Job, value: Constant) -> tuple[Array, Scale]:
    """A constant operand and its scale; of an operator in float32 or integers, plain numbers."""
    real = np.asarray(value.real, np.float64)
    if not job.scale.is_quantized:
        return real.astype(job.scale.dtype), job.scale
    if not real.any():
        # Zeros have any scale. One that is far from the result's would be undefined in LiteRT.
        scale = Scale(job.scale.scale, 0, job.scale.dtype)
        return in_steps(real, scale), scale
    if value.scales is not None and value.zero_points is not None:
        if value.scales.size != 1:
            raise job.node.unsupported("its constant has one scale per channel; use a single one")
        return value.data, Scale(
            float(value.scales.reshape(-1)[0]),
            int(value.zero_points.reshape(-1)[0]),
            str(value.data.dtype),
        )
    # One number is exact at the end of the range; of several, the largest is.
    largest = float(np.abs(real).max(initial=0.0))
    step = float(np.float32(largest / job.scale.limits[1])) or job.scale.scale
    scale = Scale(step, 0, job.scale.dtype)
    return in_steps(real, scale), scale


#: An activation's type -> the bits of a bias besides its sign. Sums of int16 products have 48 bits
#: in all, as TFLite's kernels say.
BIAS_BITS: Mapping[str, int] = {"int8": 31, "int16": 47}


def bias_steps(job: Job, position: int, source: Scale, scales: Array, outputs: int) -> Array:
    """The bias in steps of input scale times weight scale; zeros if there is none."""
    real = real_bias(job, position, outputs)
    steps = np.rint(real / (float(source.scale) * scales.astype(np.float64)))
    bits = BIAS_BITS[source.dtype]
    return np.clip(steps, -(2**bits), 2**bits - 1).astype(np.int64)


def fused_activation(low: float, high: float, scale: Scale) -> int | None:
    """The schema's number of a clamp, NONE if the type clamps as much, None if there is none."""
    if not scale.is_quantized:
        kinds = {(-math.inf, math.inf): NONE, (0.0, math.inf): RELU, **_ACTIVATIONS}
        return kinds.get((low, high))
    bottom, top = (scale.scale * (limit - scale.zero_point) for limit in scale.limits)
    # Half a step: what rounds to the last value is not clamped.
    if low <= bottom + scale.scale / 2 and high >= top - scale.scale / 2:
        return NONE
    if low == 0.0 and high >= top - scale.scale / 2:
        return RELU
    return _ACTIVATIONS.get((low, high))


def steps_of(real: float, scale: Scale) -> float:
    """A real number in steps of that scale; of float32, the number itself."""
    if not scale.is_quantized:
        return real
    if math.isinf(real):
        return scale.limits[real > 0]
    return int(np.clip(np.rint(real / scale.scale) + scale.zero_point, *scale.limits))


def in_steps(real: Array, scale: Scale) -> Array:
    """Real numbers in steps of that scale; of a plain type, the numbers themselves."""
    if scale.is_quantized:
        real = np.clip(np.rint(real / scale.scale) + scale.zero_point, *scale.limits)
    steps: Array = real.astype(scale.dtype)
    return steps


def all_at_once(problems: Sequence[UnsupportedOperator]) -> UnsupportedOperator:
    """One error for everything that cannot be imported."""
    count = "1 operator" if len(problems) == 1 else f"{len(problems)} operators"
    told = "; ".join(str(problem) for problem in problems)
    return UnsupportedOperator(f"{count} cannot be imported: {told}")
