"""Functions of one element, comparisons and choices of a QDQ model, and what is made of several."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from utvm_deploy.frontend.qdq.elementwise import fixed_range
from utvm_deploy.frontend.qdq.job import Emitter, Job, activation, in_steps, operand_of
from utvm_deploy.frontend.qdq.operators import Array
from utvm_deploy.frontend.qdq.values import (
    FLOAT,
    Constant,
    Flattened,
    Pending,
    Quantized,
    Scale,
    Storage,
    Value,
    plain_scale,
)

#: Functions of one element that TFLite has by the same name.
_UNARY = ("Cos", "Exp", "Floor", "Log", "Sin", "Sqrt", "Square")
_COMPARISONS: Mapping[str, str] = {
    "Equal": "EQUAL",
    "Greater": "GREATER",
    "GreaterOrEqual": "GREATER_EQUAL",
    "Less": "LESS",
    "LessOrEqual": "LESS_EQUAL",
    "NotEqual": "NOT_EQUAL",
}
_LOGICAL = ("And", "Not", "Or")
_BOOL = plain_scale("bool")


class Chain:
    """Operators on float32 of one shape that together are an operator of ONNX's."""

    def __init__(self, job: Job, x: Quantized) -> None:
        self.job, self.x, self.count = job, x, 0

    def name(self) -> str:
        """A name for the next tensor."""
        self.count += 1
        return f"{self.job.name}_{self.count}"

    def apply(self, kind: str, x: Quantized) -> Quantized:
        """A function of one element."""
        return self._written(kind, [x.tensor], x)

    def number(self, value: float | Array) -> int:
        """A constant of float32."""
        return self.job.store.operand(np.asarray(value), FLOAT, self.name())

    def binary(self, kind: str, left: Quantized, right: Quantized | float | Array) -> Quantized:
        """Two operands of which the second may be repeated; the result has the first's shape."""
        second = right.tensor if isinstance(right, Quantized) else self.number(right)
        return self._written(kind, [left.tensor, second], left)

    def reversed(self, kind: str, left: float, right: Quantized) -> Quantized:
        """A number and an activation."""
        return self._written(kind, [self.number(left), right.tensor], right)

    def _written(self, kind: str, numbers: list[int], like: Quantized) -> Quantized:
        store, name = self.job.store, self.name()
        return store.apply(kind, numbers, name, like.shape, FLOAT, is_last=like.is_last)


def chain(job: Job) -> Chain:
    """The chain of an operator whose first argument is an activation of float32."""
    return Chain(job, job.settled())


def unary(job: Job) -> Quantized:
    """Functions that TFLite has by themselves."""
    x = job.settled()
    return job.apply(job.node.kind.upper(), [x.tensor], is_last=x.is_last)


def gelu(job: Job) -> Quantized:
    """Gelu, exact or by tanh."""
    x = job.settled()
    by_tanh = job.node.text("approximate", "none") == "tanh"
    is_approximate = by_tanh or job.node.kind == "FastGelu"
    return job.apply("GELU", [x.tensor], is_last=x.is_last, Approximate=is_approximate)


def silu(job: Job) -> Quantized:
    """x * sigmoid(x); the sigmoid has TFLite's fixed scale."""
    store = job.store
    x = job.settled()
    scale = fixed_range("Sigmoid", store.scale_of(x))
    name = f"{job.name}_sigmoid"
    share = store.apply("LOGISTIC", [x.tensor], name, x.shape, scale, is_last=x.is_last)
    return job.apply("MUL", [x.tensor, share.tensor], is_last=x.is_last)


def elu(job: Job) -> Quantized:
    """max(x, 0) + alpha * (exp(min(x, 0)) - 1), and Selu, Celu."""
    node, made = job.node, chain(job)
    gain, alpha, inner = 1.0, node.number("alpha", 1.0), 1.0
    if node.kind == "Selu":
        alpha = node.number("alpha", 1.67326319217681884765625)
        gain = node.number("gamma", 1.05070102214813232421875)
    elif node.kind == "Celu":
        inner = alpha
    below = made.binary("MINIMUM", made.x, 0.0)
    if inner != 1.0:
        below = made.binary("DIV", below, inner)
    grown = made.binary("SUB", made.apply("EXP", below), 1.0)
    if gain * alpha != 1.0:
        grown = made.binary("MUL", grown, gain * alpha)
    above = made.binary("MAXIMUM", made.x, 0.0)
    if gain != 1.0:
        above = made.binary("MUL", above, gain)
    return made.binary("ADD", above, grown)


def softplus(job: Job) -> Quantized:
    """max(x, 0) + log(exp(-|x|) + 1), which cannot overflow; Mish is x * tanh of it."""
    made = chain(job)
    share = made.apply("EXP", made.apply("NEG", made.apply("ABS", made.x)))
    small = made.apply("LOG", made.binary("ADD", share, 1.0))
    result = made.binary("ADD", made.binary("MAXIMUM", made.x, 0.0), small)
    if job.node.kind == "Mish":
        result = made.binary("MUL", made.x, made.apply("TANH", result))
    return result


def hard_sigmoid(job: Job) -> Quantized:
    """max(0, min(1, alpha * x + beta))."""
    made, node = chain(job), job.node
    line = made.binary("MUL", made.x, node.number("alpha", 0.2))
    line = made.binary("ADD", line, node.number("beta", 0.5))
    return made.binary("MINIMUM", made.binary("MAXIMUM", line, 0.0), 1.0)


def reciprocal(job: Job) -> Quantized:
    """1 / x."""
    made = chain(job)
    return made.reversed("DIV", 1.0, made.x)


def inverse_root(job: Job) -> Quantized:
    """1 / sqrt(x)."""
    made = chain(job)
    return made.apply("RSQRT", made.x)


def softsign(job: Job) -> Quantized:
    """x / (1 + |x|)."""
    made = chain(job)
    size = made.binary("ADD", made.apply("ABS", made.x), 1.0)
    return made.binary("DIV", made.x, size)


def _operands(job: Job, scales: tuple[Scale | None, ...]) -> tuple[list[int], bool]:
    """Tensors of one rank and order; of a scale, where one is given. And whether channels are last.

    Constants without a scale get that of the first activation.
    """
    store, rank = job.store, len(job.shape)
    values = [job.value(i) for i in range(len(scales))]
    is_last = rank >= 3 and any(isinstance(v, Quantized) and v.is_last for v in values)
    numbers = []
    for position, (value, scale) in enumerate(zip(values, scales, strict=True)):
        name = f"{job.name}_{position}"
        if isinstance(value, Constant):
            data, kept = _constant(job, value, scale)
            full = data.reshape((1,) * (rank - data.ndim) + data.shape)
            full = np.moveaxis(full, 1, -1) if is_last else full
            numbers.append(store.operand(full, kept, name))
            continue
        known = store.settled(activation(job.node, value))
        if len(known.shape) != rank:
            shape = (1,) * (rank - len(known.shape)) + known.shape
            plain = store.plain(known)
            known = Quantized(store.reshaped(plain, shape, f"{name}_shape"), shape, False)
        known = store.last(known) if is_last else store.plain(known)
        if scale is not None:
            known = store.requantized(known, scale, name)
        numbers.append(known.tensor)
    return numbers, is_last


def _constant(job: Job, value: Constant, scale: Scale | None) -> tuple[Array, Scale]:
    if scale is not None:
        return in_steps(np.asarray(value.real), scale), scale
    return operand_of(job, value)


def division(job: Job) -> Quantized:
    """Div; by a constant it is a product, in integers."""
    kind, scale, divisor = "DIV", FLOAT, job.value(1)
    if job.scale.is_quantized and isinstance(divisor, Constant):
        kind, scale = "MUL", job.scale
        job = replace(job, arguments=(job.value(), _inverse(job, divisor)))
    each = None if kind == "MUL" else FLOAT
    numbers, is_last = _operands(job, (each, each))
    fused = {"FusedActivationFunction": job.activation}
    return job.apply(kind, numbers, scale=scale, is_last=is_last, **fused)


def _inverse(job: Job, divisor: Constant) -> Constant:
    """One over a constant, in steps that its largest magnitude gives."""
    real = np.asarray(divisor.real, np.float64)
    inverse = 1.0 / real
    dtype = job.scale.dtype
    most = np.iinfo(dtype).max
    scale = float(np.float32(np.abs(inverse).max() / most))
    steps = np.clip(np.rint(inverse / scale), -most, most).astype(dtype)
    return Constant(steps, np.array([scale]), np.zeros(1, np.int64))


def power(job: Job) -> Quantized:
    """Pow; of a constant exponent 2 it is a product, of 0.5 a root."""
    exponent = _exponent(job.arguments)
    if exponent == 2.0:
        x = job.settled()
        return job.apply("MUL", [x.tensor, x.tensor], is_last=x.is_last)
    if exponent == 0.5:
        made = chain(job)
        return made.apply("SQRT", made.x)
    if exponent == 1.0:
        return job.store.requantized(job.settled(), job.scale, job.name)
    numbers, is_last = _operands(job, (FLOAT, FLOAT))
    return job.apply("POW", numbers, scale=FLOAT, is_last=is_last)


def _exponent(arguments: Sequence[Value | None]) -> float | None:
    value = arguments[1] if len(arguments) > 1 else None
    if not isinstance(value, Constant) or value.data.size != 1:
        return None
    return float(np.asarray(value.real).reshape(-1)[0])


def comparison(job: Job) -> Quantized:
    """Comparisons, which make bool; a constant without a scale gets that of the activation."""
    wanted = _common(job)
    numbers, is_last = _operands(job, (wanted, wanted))
    return job.apply(_COMPARISONS[job.node.kind], numbers, scale=_BOOL, is_last=is_last)


def _common(job: Job) -> Scale | None:
    """What both operands of a comparison become; None: they stay as they are, in int8."""
    scales = []
    for position in range(2):
        value = job.value(position)
        if isinstance(value, Constant):
            if value.scales is None and value.data.dtype.kind == "f":
                return FLOAT
            continue
        scales.append(job.store.scale_of(job.store.settled(activation(job.node, value))))
    if all(scale.dtype == "int8" for scale in scales):
        return None if len(scales) == 2 else scales[0]
    integers = [scale for scale in scales if scale.dtype in ("int32", "int64")]
    return integers[0] if len(integers) == len(scales) and integers else FLOAT


def logical(job: Job) -> Quantized:
    """And, Or, Not."""
    numbers, is_last = _operands(job, (_BOOL,) * len(job.node.inputs))
    kind = f"LOGICAL_{job.node.kind.upper()}"
    return job.apply(kind, numbers, scale=_BOOL, is_last=is_last)


def choice(job: Job) -> Quantized:
    """Where: the condition is bool, both choices get the scale of the result."""
    numbers, is_last = _operands(job, (_BOOL, job.scale, job.scale))
    return job.apply("SELECT_V2", numbers, is_last=is_last)


def running_sum(job: Job) -> Quantized:
    """CumSum along a constant axis."""
    x = job.store.plain(job.quantized(0))
    axis = int(job.constant(1, "axis").data.reshape(-1)[0]) % len(x.shape)
    numbers = [x.tensor, job.store.numbers(np.array(axis), f"{job.name}_axis")]
    flags = {name.title(): bool(job.node.integer(name, 0)) for name in ("exclusive", "reverse")}
    return job.apply("CUMSUM", numbers, scale=FLOAT, **flags)


def _scale_of(store: Storage, value: Value | None) -> Scale | None:
    if isinstance(value, Flattened):
        value = value.image
    return store.scale_of(value) if isinstance(value, Quantized) else None


def _starts_at_zero(store: Storage, pending: Pending) -> bool:
    """TFLite's root of int8 reads steps above the least."""
    scale = _scale_of(store, pending.arguments[0])
    return scale is not None and scale.zero_point == scale.limits[0]


def _is_by_constant(store: Storage, pending: Pending) -> bool:
    divisor = pending.arguments[1]
    if not isinstance(divisor, Constant):
        return False
    real = np.abs(np.asarray(divisor.real, np.float64))
    # Divisors of very different sizes have inverses that one scale cannot hold.
    return bool(np.all(real > 0)) and float(real.max() / real.min()) < 2.0


def _is_square(store: Storage, pending: Pending) -> bool:
    return _exponent(pending.arguments) in (1.0, 2.0)


def _is_in_order(store: Storage, pending: Pending) -> bool:
    """Whether exp of the largest input is within what the kernel's table holds."""
    scale = _scale_of(store, pending.arguments[0])
    return scale is not None and scale.scale * (scale.limits[1] - scale.zero_point) < math.log(
        2**20
    )


EMITTERS: Mapping[str, Emitter] = {
    **dict.fromkeys(_UNARY, unary),
    **dict.fromkeys(_COMPARISONS, comparison),
    **dict.fromkeys(_LOGICAL, logical),
    **dict.fromkeys(("Celu", "Elu", "Selu"), elu),
    **dict.fromkeys(("Mish", "Softplus"), softplus),
    "CumSum": running_sum,
    "Div": division,
    "FastGelu": gelu,
    "Gelu": gelu,
    "HardSigmoid": hard_sigmoid,
    "Pow": power,
    "Reciprocal": reciprocal,
    "Rsqrt": inverse_root,
    "Silu": silu,
    "Softsign": softsign,
    "Where": choice,
}
FLOAT_ONLY = frozenset(
    (
        *("Celu", "Cos", "CumSum", "Elu", "Floor", "HardSigmoid", "Mish", "Reciprocal", "Rsqrt"),
        *("Selu", "Sin", "Softplus", "Softsign", "Square"),
    )
)
INT8_ONLY = frozenset(("Sqrt",))
NEEDS: Mapping[str, Callable[[Storage, Pending], bool]] = {
    "Div": _is_by_constant,
    "Exp": _is_in_order,
    "Log": _starts_at_zero,
    "Pow": _is_square,
    "Sqrt": _starts_at_zero,
}
#: Kinds that make bool: written at once.
LOGIC = frozenset((*_COMPARISONS, *_LOGICAL))
