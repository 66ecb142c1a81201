"""What a name of a QDQ model stands for while it is converted, and where its bytes lie.

ONNX keeps channels behind the batch, TFLite keeps them last. A value remembers which way its tensor
is stored, so that a chain of convolutions costs no transposition; one is written only where an
operator really needs the other order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from utvm_deploy.frontend.qdq.operators import Array, Node
from utvm_deploy.frontend.qdq.tflite_write import FileTensor, ModelFile, options_of
from utvm_deploy.graph.element_type import element_type

#: The type of a quantized activation -> the type of its biases.
_BIAS_TYPES: Mapping[str, str] = {"int8": "int32", "int16": "int64"}


@dataclass(frozen=True)
class Scale:
    """real = scale * (q - zero_point), q of that type."""

    scale: float
    zero_point: int
    dtype: str = "int8"

    @property
    def is_quantized(self) -> bool:
        """Whether elements are quantized; otherwise they are plain numbers or booleans."""
        return self.dtype in _BIAS_TYPES

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the largest q."""
        bounds = np.iinfo(self.dtype)
        return int(bounds.min), int(bounds.max)


def plain_scale(dtype: str) -> Scale:
    """The scale of elements that are not quantized."""
    return Scale(1.0, 0, dtype)


#: The scale of an activation that stays float32.
FLOAT = plain_scale("float32")


@dataclass(frozen=True)
class Quantized:
    """An activation in the file: int8 or int16 steps, or a plain type (``Scale.is_quantized``)."""

    tensor: int
    shape: tuple[int, ...]  # in ONNX's order
    is_last: bool  # whether the file has the channels last


@dataclass(frozen=True)
class Flattened:
    """An image with its channels last whose elements were put in a row in ONNX's order.

    A fully connected layer can have its weights permuted instead.
    """

    image: Quantized
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Constant:
    """Integers with their scales, or reals (no scales)."""

    data: Array
    scales: Array | None = None
    zero_points: Array | None = None
    axis: int | None = None  # None: one scale for all

    @property
    def is_narrow(self) -> bool:
        """Whether the integers have four bits, a type that onnx adds to those of NumPy."""
        return self.data.dtype.name in ("int4", "uint4")

    @property
    def real(self) -> Array:
        """The real numbers."""
        if self.scales is None or self.zero_points is None:
            return self.data
        shape = [1] * self.data.ndim
        if self.axis is not None:
            shape[self.axis] = -1
        steps = self.data.astype(np.float64) - self.zero_points.reshape(shape)
        real: Array = steps * self.scales.astype(np.float64).reshape(shape)
        return real


@dataclass(frozen=True)
class Raw:
    """A model input that nothing has quantized yet."""

    name: str


@dataclass(frozen=True, eq=False)
class Pending:
    """A result in real numbers: written once it is known what it is quantized to."""

    node: Node
    arguments: tuple[Value | None, ...]
    low: float = -math.inf
    high: float = math.inf


Value: TypeAlias = Quantized | Flattened | Constant | Raw | Pending


class Storage:
    """The file under construction, in terms of values."""

    def __init__(self, file: ModelFile) -> None:
        self.file = file
        self._reals: dict[tuple[int, bool], Quantized] = {}

    def scale_of(self, value: Quantized) -> Scale:
        """How a value is quantized."""
        tensor = self.file.tensors[value.tensor]
        if not tensor.scales:
            return plain_scale(tensor.dtype)
        return Scale(tensor.scales[0], tensor.zero_points[0], tensor.dtype)

    def activation(
        self, name: str, shape: Sequence[int], scale: Scale, *, is_last: bool = False
    ) -> Quantized:
        """A new activation; ``shape`` is in ONNX's order."""
        stored = channels_last(shape) if is_last else tuple(shape)
        tensor = FileTensor(name, stored, scale.dtype, *_stated(scale))
        return Quantized(self.file.tensor(tensor), tuple(shape), is_last)

    def stored(self, value: Quantized) -> tuple[int, ...]:
        """The shape that the file has."""
        return self.file.tensors[value.tensor].shape

    def numbers(self, values: Sequence[int] | Array, name: str) -> int:
        """A constant of int32 that an operator takes as an input."""
        data = np.asarray(values, np.int32)
        return self.file.tensor(FileTensor(name, data.shape, "int32", data=data.tobytes()))

    def weights(
        self, data: Array, scales: Sequence[float], axis: int, name: str, dtype: str = "int8"
    ) -> int:
        """A constant with zero points of zero and one scale, or one for each slice of an axis."""
        element = element_type(dtype)
        array = np.ascontiguousarray(data, dtype=element.numpy)
        tensor = FileTensor(
            name,
            array.shape,
            dtype,
            tuple(float(s) for s in scales),
            (0,) * len(scales),
            axis,
            element.packed(array),
        )
        return self.file.tensor(tensor)

    def bias(self, steps: Array, source: Scale, scales: Array, name: str) -> int:
        """A bias in steps of input scale times weight scale, as TFLite demands of it."""
        products = [float(np.float32(source.scale) * np.float32(scale)) for scale in scales]
        return self.weights(steps, products, 0, name, dtype=_BIAS_TYPES[source.dtype])

    def operand(self, data: Array, scale: Scale, name: str) -> int:
        """A constant in the place of an activation."""
        array = np.asarray(data, dtype=scale.dtype)
        tensor = FileTensor(name, array.shape, scale.dtype, *_stated(scale), data=array.tobytes())
        return self.file.tensor(tensor)

    def apply(
        self,
        kind: str,
        inputs: Sequence[int],
        name: str,
        shape: Sequence[int],
        scale: Scale,
        *,
        is_last: bool = False,
        **options: Any,
    ) -> Quantized:
        """Write an operator and its output; ``options`` are the schema's fields."""
        made = self.activation(name, shape, scale, is_last=is_last)
        self.file.operator(kind, inputs, [made.tensor], options_of(kind, options))
        return made

    def reshaped(self, value: Quantized, stored: Sequence[int], name: str) -> int:
        """The tensor with another shape; ``stored`` is the file's."""
        if self.stored(value) == tuple(stored):
            return value.tensor
        shape = self.numbers(stored, f"{name}_shape")
        numbers = [value.tensor, shape]
        return self.apply("RESHAPE", numbers, name, stored, self.scale_of(value)).tensor

    def requantized(self, value: Quantized, scale: Scale, name: str) -> Quantized:
        """The value with another scale."""
        before = self.scale_of(value)
        if before == scale:
            return value
        kind = "QUANTIZE"
        if not scale.is_quantized:
            kind = "DEQUANTIZE" if before.is_quantized and scale == FLOAT else "CAST"
        elif before != FLOAT and not before.is_quantized:
            value = self.requantized(value, FLOAT, f"{name}_float")
        return self.apply(kind, [value.tensor], name, value.shape, scale, is_last=value.is_last)

    def real(self, value: Quantized) -> Quantized:
        """The value in float32; one DEQUANTIZE serves all its readers."""
        key = (value.tensor, value.is_last)
        if key not in self._reals:
            name = f"{self.file.tensors[value.tensor].name}_float"
            self._reals[key] = self.requantized(value, FLOAT, name)
        return self._reals[key]

    def permuted(self, value: Quantized, order: Sequence[int], name: str) -> Quantized:
        """The value with its dimensions in another order; both are in ONNX's order."""
        shape = tuple(value.shape[axis] for axis in order)
        numbers = [value.tensor, self.numbers(order, f"{name}_order")]
        return self.apply("TRANSPOSE", numbers, name, shape, self.scale_of(value))

    def last(self, value: Value) -> Quantized:
        """The value with its channels last."""
        value = self.settled(value)
        rank = len(value.shape)
        return value if value.is_last or rank < 3 else self._turned(value, True)

    def plain(self, value: Value) -> Quantized:
        """The value in ONNX's order."""
        value = self.settled(value)
        return self._turned(value, False) if value.is_last else value

    def settled(self, value: Value) -> Quantized:
        """The value as a tensor of its shape."""
        if isinstance(value, Flattened):
            image = self.plain(value.image)
            name = f"{self.file.tensors[image.tensor].name}_flat"
            return Quantized(self.reshaped(image, value.shape, name), value.shape, False)
        assert isinstance(value, Quantized), "what else there is was refused before"
        return value

    def _turned(self, value: Quantized, is_last: bool) -> Quantized:
        before = self.stored(value)
        rank = len(before)
        order = (0, *range(2, rank), 1) if is_last else (0, rank - 1, *range(1, rank - 1))
        after = tuple(before[axis] for axis in order)
        name = f"{self.file.tensors[value.tensor].name}_{'last' if is_last else 'first'}"
        # Moving a dimension of one past others moves no byte.
        if [a for a in order if before[a] != 1] == [a for a in range(rank) if before[a] != 1]:
            return replace(value, tensor=self.reshaped(value, after, name), is_last=is_last)
        numbers = [value.tensor, self.numbers(order, f"{name}_order")]
        scale = self.scale_of(value)
        return self.apply("TRANSPOSE", numbers, name, value.shape, scale, is_last=is_last)


def _stated(scale: Scale) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Scales and zero points, as a tensor of the file states them."""
    return ((scale.scale,), (scale.zero_point,)) if scale.is_quantized else ((), ())


def channels_last(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape of rank 3 or more, with dimension 1 behind the others."""
    return (shape[0], *shape[2:], shape[1]) if len(shape) >= 3 else tuple(shape)


def stored_axis(axis: int, rank: int, is_last: bool) -> int:
    """The position of an axis in the file."""
    axis %= rank
    if not is_last or axis == 0 or rank < 3:
        return axis
    return rank - 1 if axis == 1 else axis - 1
