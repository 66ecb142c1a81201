"""A random model before it is a file: steps in order, each an operator with plain attributes.

Everything is data, so that the minimizer can drop a step or change an attribute and write the model
again: shapes follow from the steps before, weights from a step's seed. A model input is a step
without inputs (INPUT), and so is a constant (CONSTANT).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from sparse_writer import prune
from tflite_serializer import TensorSpec
from tflite_writer import ModelWriter

#: A number, a flag, a word or a list of whole numbers.
Attribute = bool | int | float | str | tuple[int, ...]
#: A value: which step makes it, and which of that step's outputs it is.
Ref = tuple[int, int]

INPUT, CONSTANT = "INPUT", "CONSTANT"
#: The quantized types, with the range of their values.
QUANTIZED = ("int8", "uint8", "int16")


#: Operators whose output has a scale of its own: 1/32768 of int16.
_FIXED_SCALE = ("LOGISTIC", "SOFTMAX", "TANH")


class Unfit(Exception):
    """The attributes do not fit the shapes that they meet: there is no such model."""


@dataclass(frozen=True)
class Step:
    """One operator, input or constant."""

    kind: str  # TFLite's name, INPUT or CONSTANT
    inputs: tuple[Ref, ...] = ()
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    seed: int = 0  # of its weights and other constants


@dataclass(frozen=True)
class Recipe:
    """A whole model."""

    steps: tuple[Step, ...]
    outputs: tuple[Ref, ...]
    of_float: bool = False  # its quantized tensors are written as the float32 that they mean
    is_narrow: bool = False  # its int8 weights are written as int4
    is_sparse: bool = False  # most of its int8 weights are zeros, and many are stored without these
    stores_zeros: bool = False  # the same model, with all zeros

    @property
    def kinds(self) -> tuple[str, ...]:
        """The operators in order."""
        return tuple(s.kind for s in self.steps if s.kind not in (INPUT, CONSTANT))


def write(recipe: Recipe) -> ModelWriter:
    """The model; Unfit if the steps do not fit each other."""
    writer = ModelWriter("utvm_deploy random model")
    made: list[tuple[int, ...]] = []
    for step in recipe.steps:
        made.append(add_step(writer, made, step))
    if not recipe.outputs or not recipe.kinds:
        raise Unfit("a model needs an operator and an output")
    writer.output(*(made[step][output] for step, output in recipe.outputs))
    if recipe.is_narrow:
        writer.pack_weights()
    if recipe.is_sparse:
        prune(writer, stores_zeros=recipe.stores_zeros)
    if recipe.of_float:
        writer.tensors[:] = map(_as_float, writer.tensors)
    return writer


def _as_float(spec: TensorSpec) -> TensorSpec:
    """The float32 that a quantized tensor means; others, such as shapes, stay as they are."""
    if not spec.scales:
        return spec
    data = None
    if spec.data is not None:
        steps = np.frombuffer(spec.data, spec.dtype).reshape(spec.shape).astype(np.int64)
        scales, zero_points = np.array(spec.scales), np.array(spec.zero_points)
        if len(spec.scales) > 1:
            along = [-1 if axis == spec.axis else 1 for axis in range(len(spec.shape))]
            scales, zero_points = scales.reshape(along), zero_points.reshape(along)
        data = ((steps - zero_points) * scales).astype(np.float32).tobytes()
    return replace(spec, dtype="float32", scales=(), zero_points=(), data=data)


def add_step(writer: ModelWriter, made: list[tuple[int, ...]], step: Step) -> tuple[int, ...]:
    """Write one step behind those that ``made`` tells of; the tensors that it makes."""
    from random_models.operations import OPERATIONS

    try:
        inputs = [made[step_number][output] for step_number, output in step.inputs]
        if step.kind == INPUT:
            return (_input(writer, step),)
        if step.kind == CONSTANT:
            return (_constant(writer, step),)
        before = len(writer.tensors)
        outputs = OPERATIONS[step.kind].build(writer, step, inputs)
        if step.kind != "QUANTIZE" and any(writer.tensors[i].dtype == "int16" for i in inputs):
            _widen(writer, before, step.kind)
    except (IndexError, ValueError, ZeroDivisionError, OverflowError) as exc:
        raise Unfit(f"{step.kind}: {exc}") from exc
    inside = {number for op in writer.operators for number in op.intermediates}
    for number, spec in enumerate(writer.tensors[before:], before):
        if number not in inside and any(d < 1 for d in spec.shape):
            raise Unfit(f"{step.kind}: shape {spec.shape}")
    return outputs


def _widen(writer: ModelWriter, first: int, kind: str) -> None:
    """Make int16 of what an operator on int16 computes, and int64 of its bias."""
    for number, spec in enumerate(writer.tensors[first:], first):
        if spec.dtype in ("int8", "int16") and spec.data is None:
            scales = (1 / 32768,) if kind in _FIXED_SCALE else spec.scales
            spec = replace(spec, dtype="int16", scales=scales, zero_points=(0,))
        elif spec.dtype == "int32" and spec.data is not None and spec.scales:
            wide = np.frombuffer(spec.data, np.int32).astype(np.int64)
            spec = replace(spec, dtype="int64", data=wide.tobytes())
        writer.tensors[number] = spec


def values(rng: np.random.Generator, fill: str, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Contents of a constant: ``fill`` is random, ends (only the extremes), ones, zeros or causal.

    A causal one has its most below the diagonal and on it, and its least above.
    """
    if fill == "causal":
        counts = np.broadcast_to(np.tri(*shape[-2:], k=shape[-1] - shape[-2], dtype=bool), shape)
        return counts if dtype == "bool" else np.where(counts, 127, -128).astype(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    info = np.iinfo(dtype)
    if fill == "random":
        return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    if fill == "ends":
        return rng.choice(np.array([info.min, info.max], dtype), shape)
    return np.full(shape, {"ones": 1, "zeros": 0}[fill], dtype)


def _quantization(step: Step) -> tuple[float | None, int]:
    if "scale" not in step.attributes:
        return None, 0
    return float(step.attributes["scale"]), int(step.attributes["zero_point"])


def _input(writer: ModelWriter, step: Step) -> int:
    shape, dtype = step.attributes["shape"], str(step.attributes["dtype"])
    number = writer.tensor(shape, dtype, *_quantization(step))
    writer.inputs.append(number)
    return number


def _constant(writer: ModelWriter, step: Step) -> int:
    rng = np.random.default_rng(step.seed)
    shape, dtype = step.attributes["shape"], str(step.attributes["dtype"])
    data = values(rng, str(step.attributes["fill"]), shape, dtype)
    return writer.constant(data, *_quantization(step))
