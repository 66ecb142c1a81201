"""What a table row says: how to write an operator, and how to think of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tflite_serializer import Options, TensorSpec
from tflite_writer import ModelWriter

from random_models.draw import Draw, Scope, Shape
from random_models.recipe import Attribute, Ref, Step

#: Writes the operator behind its input tensors; returns its output tensors. What does not fit
#: raises ValueError or IndexError.
Build = Callable[[ModelWriter, Step, Sequence[int]], tuple[int, ...]]
#: Thinks of a step that reads ``x``, adding inputs or constants to the scope as it needs them; None
#: if there is none.
Propose = Callable[[Scope, Ref], Step | None]


@dataclass(frozen=True)
class Operation:
    """One operator of TFLite."""

    build: Build
    propose: Propose
    # Whether ``propose`` can do with a value, and a shape that it likes.
    takes: Callable[[TensorSpec], bool] = lambda spec: True
    shape: Callable[[Draw], Shape] = Draw.shape


def is_image(spec: TensorSpec) -> bool:
    """Whether it has four dimensions."""
    return len(spec.shape) == 4


def number(step: Step, name: str) -> int:
    """A whole number among the attributes."""
    value = step.attributes[name]
    assert isinstance(value, int)
    return value


def numbers(step: Step, name: str) -> tuple[int, ...]:
    """A list among the attributes."""
    value = step.attributes[name]
    assert isinstance(value, tuple)
    return value


def pair(step: Step, name: str) -> tuple[int, int]:
    """Two whole numbers that must be positive."""
    first, second = numbers(step, name)
    if min(first, second) < 1:
        raise ValueError(f"{name} {first}, {second}")
    return first, second


def real(step: Step, name: str) -> float:
    """A real number among the attributes."""
    return float(step.attributes[name])  # type: ignore[arg-type]


def word(step: Step, name: str) -> str:
    """A word among the attributes."""
    return str(step.attributes[name])


def quantized(step: Step) -> dict[str, float | int]:
    """The output quantization among the attributes, as keyword arguments."""
    return {"scale": real(step, "scale"), "zero_point": number(step, "zero_point")}


def output_quantization(draw: Draw, natural: float) -> dict[str, Attribute]:
    """Attributes for an output whose values are about ``natural`` * 127."""
    return {"scale": draw.scale_near(natural), "zero_point": draw.zero_point()}


def like(
    m: ModelWriter,
    kind: str,
    inputs: Sequence[int],
    shape: Sequence[int],
    options: Options | None = None,
) -> int:
    """An operator whose output is quantized like its first input (RESHAPE, SLICE...)."""
    x = m.tensors[inputs[0]]
    out = m.tensor(shape, x.dtype, x.scales or None, x.zero_points or 0)
    m.operator(kind, inputs, [out], options)
    return out


def same_quantization(a: TensorSpec, b: TensorSpec) -> bool:
    """Whether equal bytes mean equal numbers."""
    return (a.dtype, a.scales, a.zero_points) == (b.dtype, b.scales, b.zero_points)


def partner(scope: Scope, x: Ref, shape: Shape, *, equal: bool = False) -> Ref:
    """A second operand of that shape and type: a value, a constant or a new input.

    ``equal``: it must be quantized as ``x``.
    """
    like = scope.spec(x)
    found = scope.pick(
        lambda s: s.shape == shape and (not equal or same_quantization(s, like)), like.dtype
    )
    if found is not None and scope.draw.chance(0.6):
        return found
    make = scope.constant if scope.draw.chance(0.4) else scope.input
    if not like.scales:
        return make(shape, like.dtype)
    if equal:
        return make(shape, like.dtype, like.scales[0], like.zero_points[0])
    if scope.draw.chance(0.7):  # of a size that both count in the result
        return make(shape, like.dtype, scope.draw.scale_near(like.scales[0]))
    return make(shape, like.dtype)
