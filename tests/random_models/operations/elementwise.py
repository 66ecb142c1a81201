"""Operators that work on one element at a time, and those that change the type."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from tflite_serializer import Options
from tflite_writer import ModelWriter

from random_models.draw import STEPS_OF_INT16, Draw, Scope, Shape
from random_models.operations.operation import (
    Operation,
    Propose,
    number,
    output_quantization,
    partner,
    real,
    word,
)
from random_models.recipe import QUANTIZED, Attribute, Ref, Step, values

_ACTIVATIONS = {"NONE": 0, "RELU": 1, "RELU_N1_TO_1": 2, "RELU6": 3}
#: Options table, whether it fuses an activation, whether all scales must be equal.
_BINARY = {
    "ADD": ("AddOptions", True, False),
    "SUB": ("SubOptions", True, False),
    "MUL": ("MulOptions", True, False),
    "MINIMUM": ("MaximumMinimumOptions", False, True),
    "MAXIMUM": ("MaximumMinimumOptions", False, True),
    "SQUARED_DIFFERENCE": ("SquaredDifferenceOptions", False, False),
}


def broadcastable(draw: Draw, shape: Shape) -> Shape:
    """Another shape that broadcasts with this one, mostly to this one."""
    kind = draw.rng.random()
    if kind < 0.5:
        return shape
    if kind < 0.6:
        return (1,) * draw.between(1, len(shape))
    if kind < 0.75:
        return shape[draw.between(0, len(shape) - 1) :]
    other = [d if draw.chance(0.6) else 1 for d in shape]
    if kind < 0.9:
        other = [d if d > 1 or draw.chance(0.6) else draw.between(1, 4) for d in other]
    return tuple(other)


def _binary(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    table, fuses, _ = _BINARY[step.kind]
    shape = np.broadcast_shapes(*(m.tensors[i].shape for i in inputs))
    x = m.tensors[inputs[0]]
    if "scale" in step.attributes:
        out = m.tensor(shape, x.dtype, real(step, "scale"), number(step, "zero_point"))
    else:
        out = m.tensor(shape, x.dtype, x.scales, x.zero_points)
    fields = {"FusedActivationFunction": _ACTIVATIONS[word(step, "activation")]} if fuses else {}
    m.operator(step.kind, inputs, [out], (table, fields))
    return (out,)


def _proposed_binary(kind: str) -> Propose:
    _, fuses, equal = _BINARY[kind]

    def propose(scope: Scope, x: Ref) -> Step:
        draw, spec = scope.draw, scope.spec(x)
        y = partner(scope, x, broadcastable(draw, spec.shape), equal=equal)
        one, other = spec.scales[0], scope.spec(y).scales[0]
        attributes: dict[str, Attribute] = {}
        if kind == "SQUARED_DIFFERENCE":
            # The reference aborts where the square is large for its scale.
            natural = max(one, other) ** 2 * 120
            attributes = output_quantization(draw, natural)
            least = float(np.float32(max(one, other) ** 2 * 2.0**-12 * 1.01))
            attributes["scale"] = max(float(attributes["scale"]), least)  # type: ignore[arg-type]
        elif kind == "MUL":
            steps = STEPS_OF_INT16 if spec.dtype == "int16" else 1
            attributes = output_quantization(draw, one * other * 60 * steps)
        elif not equal:
            attributes = output_quantization(draw, max(one, other) * 1.5)
        if fuses:
            attributes["activation"] = draw.activation()
        return Step(kind, (x, y) if draw.chance(0.7) else (y, x), attributes)

    return propose


#: How often an operator gets int32 or int64, which the generator starts no step with.
_OF_INT32 = 0.3


def _xor(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    shape = np.broadcast_shapes(*(m.tensors[i].shape for i in inputs))
    x = m.tensors[inputs[0]]
    out = m.tensor(shape, x.dtype, x.scales or None, x.zero_points or 0)
    m.operator("BITWISE_XOR", inputs, [out], ("BitwiseXorOptions", {}))
    return (out,)


def _propose_xor(scope: Scope, x: Ref) -> Step:
    draw, shape = scope.draw, scope.spec(x).shape
    if draw.chance(_OF_INT32):
        x = scope.pick(lambda s: s.shape == shape, "int32") or scope.input(shape, "int32")
    y = partner(scope, x, broadcastable(draw, shape))
    return Step("BITWISE_XOR", (x, y) if draw.chance(0.7) else (y, x))


def _sign(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    x = m.tensors[inputs[0]]
    out = m.tensor(x.shape, x.dtype, x.scales or None, x.zero_points or 0)
    m.operator("SIGN", inputs, [out], ("SignOptions", {}))
    return (out,)


def _propose_sign(scope: Scope, x: Ref) -> Step:
    return Step("SIGN", (_plain(scope, x),))


def _add_n(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    x = m.tensors[inputs[0]]
    out = m.tensor(x.shape, x.dtype, x.scales or None, x.zero_points or 0)
    m.operator("ADD_N", inputs, [out], ("AddNOptions", {}))
    return (out,)


def _propose_add_n(scope: Scope, x: Ref) -> Step:
    x = _plain(scope, x)
    shape = scope.spec(x).shape
    others = [partner(scope, x, shape) for _ in range(scope.draw.between(1, 4))]
    return Step("ADD_N", (x, *others))


def _plain(scope: Scope, x: Ref) -> Ref:
    """An int32 of that shape; in a model of float32, the value itself."""
    if scope.of_float:
        return x
    shape = scope.spec(x).shape
    return scope.pick(lambda s: s.shape == shape, "int32") or scope.input(shape, "int32")


#: How often RIGHT_SHIFT gets shifts that are mostly from 0 to the type's bits.
_OF_FEW_BITS = 0.6


def _right_shift(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    x = m.tensors[inputs[0]]
    if len(inputs) == 1:
        limits = np.iinfo(x.dtype)
        shape = step.attributes["shape"]
        rng = np.random.default_rng(step.seed)
        bits = np.array(rng.integers(max(-1, limits.min), limits.bits + 2, shape))
        inputs = (*inputs, m.constant(bits.astype(x.dtype)))
    shape = np.broadcast_shapes(*(m.tensors[i].shape for i in inputs))
    out = m.tensor(shape, x.dtype, x.scales or None, x.zero_points or 0)
    m.operator("RIGHT_SHIFT", inputs, [out], ("RightShiftOptions", {}))
    return (out,)


def _propose_right_shift(scope: Scope, x: Ref) -> Step:
    draw, shape = scope.draw, scope.spec(x).shape
    if draw.chance(_OF_INT32):
        x = scope.pick(lambda s: s.shape == shape, "int32") or scope.input(shape, "int32")
    other = broadcastable(draw, shape)
    if draw.chance(_OF_FEW_BITS):
        return Step("RIGHT_SHIFT", (x,), {"shape": other}, draw.seed())
    y = partner(scope, x, other)
    return Step("RIGHT_SHIFT", (x, y) if draw.chance(0.7) else (y, x))


#: How often the divisor of FLOOR_MOD is computed.
_OF_COMPUTED = 0.3


def _floor_mod(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    x = m.tensors[inputs[0]]
    quantization = (x.scales or None, x.zero_points or 0)
    if len(inputs) == 2:
        # The reference stops at a divisor of 0, so none is below 1.
        y = m.tensors[inputs[1]]
        one = m.constant(np.array([1], y.dtype), y.scales, y.zero_points)
        divisor = m.tensor(y.shape, y.dtype, y.scales, y.zero_points)
        table = _BINARY["MAXIMUM"][0]
        m.operator("MAXIMUM", [inputs[1], one], [divisor], (table, {}))
    else:
        divisor = _divisors(m, step, x.dtype)
    out = m.tensor(np.broadcast_shapes(x.shape, m.tensors[divisor].shape), x.dtype, *quantization)
    m.operator("FLOOR_MOD", [inputs[0], divisor], [out], ("FloorModOptions", {}))
    return (out,)


def _divisors(m: ModelWriter, step: Step, dtype: str) -> int:
    """A constant without 0, at which the reference stops; it may crash at -1, too."""
    shape = tuple(step.attributes["divisors"])  # type: ignore[arg-type]
    data = values(np.random.default_rng(step.seed), word(step, "fill"), shape, dtype)
    return m.constant(np.where((data == 0) | (data == -1), 5, data).astype(dtype))


def _quotient(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    divisor = _divisors(m, step, "int32")
    shape = np.broadcast_shapes(m.tensors[inputs[0]].shape, m.tensors[divisor].shape)
    return (m.node("DIV", [inputs[0], divisor], shape, ("DivOptions", {})),)


def _propose_quotient(scope: Scope, x: Ref) -> Step:
    draw, shape = scope.draw, scope.spec(x).shape
    x = scope.pick(lambda s: s.shape == shape, "int32") or scope.input(shape, "int32")
    attributes: dict[str, Attribute] = {
        "divisors": broadcastable(draw, shape),
        "fill": draw.fill(),
    }
    return Step("DIV", (x,), attributes, draw.seed())


def _propose_floor_mod(scope: Scope, x: Ref) -> Step:
    draw, shape = scope.draw, scope.spec(x).shape
    divisors = broadcastable(draw, shape)
    if draw.chance(_OF_COMPUTED):
        return Step("FLOOR_MOD", (x, partner(scope, x, divisors)))
    if draw.chance(_OF_INT32):
        dtype = draw.one(("int32", "int64"))
        x = scope.pick(lambda s: s.shape == shape, dtype) or scope.input(shape, dtype)
    attributes: dict[str, Attribute] = {"divisors": divisors, "fill": draw.fill()}
    return Step("FLOOR_MOD", (x,), attributes, draw.seed())


#: Options table of operators that requantize; the size of the output beside the input's.
_UNARY: dict[str, Options | None] = {
    "RELU": None,
    "RELU6": None,
    "RELU_N1_TO_1": None,
    "RELU_0_TO_1": None,
    "HARD_SWISH": ("HardSwishOptions", {}),
    "ABS": ("AbsOptions", {}),
}
#: Functions of real numbers: the size of what they make of a scale and a zero point.
_FUNCTIONS: dict[str, tuple[Options | None, Callable[[float, int], float]]] = {
    "ELU": (None, lambda scale, zero: scale),
    "EXP": (("ExpOptions", {}), lambda scale, zero: math.exp(scale * (127 - zero)) / 127),
    "GELU": (("GeluOptions", {"Approximate": True}), lambda scale, zero: scale),
    "LOG": (None, lambda scale, zero: (abs(math.log(scale)) + 5) / 127),
    "RSQRT": (None, lambda scale, zero: 1 / math.sqrt(scale) / 127),
    "SQRT": (None, lambda scale, zero: math.sqrt(scale * 255) / 127),
}
_OF_POSITIVE = ("RSQRT", "SQRT")
_MOST_EXPONENT = 60


def _function(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    x = m.tensors[inputs[0]]
    out = m.tensor(x.shape, x.dtype, real(step, "scale"), number(step, "zero_point"))
    options = _FUNCTIONS[step.kind][0]
    if step.kind == "GELU":
        options = ("GeluOptions", {"Approximate": bool(step.attributes["approximate"])})
    m.operator(step.kind, inputs, [out], options)
    return (out,)


def _proposed_function(kind: str) -> Propose:
    def propose(scope: Scope, x: Ref) -> Step | None:
        spec, draw = scope.spec(x), scope.draw
        scale, zero_point = spec.scales[0], spec.zero_points[0]
        if kind in _OF_POSITIVE and zero_point != -128:
            x = scope.input(spec.shape, "int8", scale, -128)
        steps = STEPS_OF_INT16 if spec.dtype == "int16" else 1
        if kind == "EXP" and scale * steps * (127 - zero_point) > _MOST_EXPONENT:
            zero_point = max(zero_point, -128)
            x = scope.input(spec.shape, spec.dtype, scale := 0.05 / steps, zero_point)
        natural = _FUNCTIONS[kind][1](scale * steps, zero_point) / steps
        attributes = output_quantization(draw, natural)
        if kind == "GELU":
            attributes["approximate"] = draw.chance(0.5)
        return Step(kind, (x,), attributes)

    return propose


#: The only output quantization that these have.
_FIXED = {"LOGISTIC": (1 / 256, -128), "TANH": (1 / 128, 0)}


def _unary(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    options = _UNARY.get(step.kind)
    scale, zero_point = _FIXED.get(step.kind) or (real(step, "scale"), number(step, "zero_point"))
    x = m.tensors[inputs[0]]
    out = m.tensor(x.shape, x.dtype, scale, zero_point)
    m.operator(step.kind, inputs, [out], options)
    return (out,)


def _proposed_unary(kind: str) -> Propose:
    def propose(scope: Scope, x: Ref) -> Step:
        spec, draw = scope.spec(x), scope.draw
        if kind in _FIXED:
            return Step(kind, (x,))
        attributes = output_quantization(draw, spec.scales[0])
        if draw.chance(0.25):  # it may then be fused into what comes before
            attributes = {"scale": spec.scales[0], "zero_point": spec.zero_points[0]}
        return Step(kind, (x,), attributes)

    return propose


def _same(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    x = m.tensors[inputs[0]]
    out = m.tensor(x.shape, x.dtype, x.scales, x.zero_points)
    m.operator(step.kind, inputs, [out], ("NegOptions", {}))
    return (out,)


def _leaky(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    x = m.tensors[inputs[0]]
    out = m.tensor(x.shape, x.dtype, real(step, "scale"), number(step, "zero_point"))
    m.operator(step.kind, inputs, [out], ("LeakyReluOptions", {"Alpha": real(step, "alpha")}))
    return (out,)


def _propose_leaky(scope: Scope, x: Ref) -> Step:
    draw = scope.draw
    alpha = float(np.float32(draw.one((0.1, 0.01, 0.3, 0.5, 0.999, draw.rng.uniform(0, 1.5)))))
    quantization = output_quantization(draw, scope.spec(x).scales[0])
    return Step("LEAKY_RELU", (x,), {"alpha": alpha, **quantization})


def _prelu(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    x = m.tensors[inputs[0]]
    shape = tuple(step.attributes["alpha_shape"])  # type: ignore[arg-type]
    if np.broadcast_shapes(x.shape, shape) != x.shape:
        raise ValueError(f"alpha of {shape} for {x.shape}")
    data = values(np.random.default_rng(step.seed), word(step, "fill"), shape, "int8")
    alpha = m.constant(data, real(step, "alpha_scale"), number(step, "alpha_zero_point"))
    out = m.tensor(x.shape, x.dtype, real(step, "scale"), number(step, "zero_point"))
    m.operator("PRELU", [inputs[0], alpha], [out])
    return (out,)


def _propose_prelu(scope: Scope, x: Ref) -> Step:
    draw, spec = scope.draw, scope.spec(x)
    shape = draw.one(((*(1,) * (len(spec.shape) - 2), spec.shape[-1]), spec.shape[1:], spec.shape))
    attributes = {
        "alpha_shape": shape or (1,),
        "alpha_scale": float(np.float32(10 ** draw.rng.uniform(-4, -1))),
        "alpha_zero_point": draw.zero_point(),
        "fill": draw.fill(),
        **output_quantization(draw, spec.scales[0]),
    }
    return Step("PRELU", (x,), attributes, draw.seed())


def _quantize(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    x, dtype = m.tensors[inputs[0]], word(step, "dtype")
    out = m.tensor(x.shape, dtype, real(step, "scale"), number(step, "zero_point"))
    m.operator("QUANTIZE", inputs, [out], ("QuantizeOptions", {}))
    return (out,)


def _propose_quantize(scope: Scope, x: Ref) -> Step:
    draw, spec = scope.draw, scope.spec(x)
    natural = spec.scales[0] if spec.dtype in QUANTIZED else 0.02
    if spec.dtype == "int16":
        natural *= STEPS_OF_INT16
    attributes: dict[str, Attribute] = {"dtype": "int8", **output_quantization(draw, natural)}
    kind = draw.rng.random()
    if spec.dtype == "int16" and kind > 0.8:
        scale = draw.scale_near(spec.scales[0] / STEPS_OF_INT16)
        attributes.update(dtype="int32", scale=scale, zero_point=0)
    elif spec.dtype == "int8" and kind > 0.85:
        x = scope.input(spec.shape, "int32", natural * 2.0**-24, 0)
    if spec.dtype == "int8" and kind < 0.15:
        attributes.update(dtype="uint8", zero_point=draw.between(0, 255))
    elif spec.dtype != "uint8" and kind < 0.3:
        scale = draw.scale_near(natural / STEPS_OF_INT16)
        attributes.update(dtype="int16", scale=scale, zero_point=0)
    return Step("QUANTIZE", (x,), attributes)


def _dequantize(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    return (m.dequantize(inputs[0]),)


OPERATIONS = {
    **{kind: Operation(_binary, _proposed_binary(kind)) for kind in _BINARY},
    **{kind: Operation(_unary, _proposed_unary(kind)) for kind in (*_UNARY, *_FIXED)},
    **{kind: Operation(_function, _proposed_function(kind)) for kind in _FUNCTIONS},
    "ADD_N": Operation(_add_n, _propose_add_n),
    "BITWISE_XOR": Operation(_xor, _propose_xor),
    "DIV": Operation(_quotient, _propose_quotient),
    "FLOOR_MOD": Operation(_floor_mod, _propose_floor_mod),
    "RIGHT_SHIFT": Operation(_right_shift, _propose_right_shift),
    "SIGN": Operation(_sign, _propose_sign),
    "NEG": Operation(_same, lambda scope, x: Step("NEG", (x,))),
    "LEAKY_RELU": Operation(_leaky, _propose_leaky),
    "PRELU": Operation(
        _prelu,
        _propose_prelu,
        lambda spec: len(spec.shape) >= 2,
        lambda d: d.shape(d.between(2, 4)),
    ),
    "QUANTIZE": Operation(_quantize, _propose_quantize),
    "DEQUANTIZE": Operation(_dequantize, lambda scope, x: Step("DEQUANTIZE", (x,))),
}
