"""Inputs of integer operators that ignore quantization, and the shapes that they broadcast."""

from __future__ import annotations

from tflite_writer import ModelWriter

#: The shapes of two inputs.
SHAPES = (
    ((5,), (5,)),
    ((300,), (300,)),
    ((1, 4, 4, 3), (3,)),
    ((), (7, 9)),
    ((7, 9), ()),
    ((4, 1, 3), (1, 5, 1)),
    ((2, 1, 3, 1, 2), (1, 4, 1, 5, 2)),
    ((2, 1, 2, 1, 3, 1, 2, 1), (1, 2, 1, 2, 1, 3, 1, 2)),  # the largest rank
)


def scale_of(dtype: str) -> float | None:
    """One for int8, which a model takes and makes with a scale only."""
    return 0.1 if dtype == "int8" else None


def typed(m: ModelWriter, shape: tuple[int, ...], dtype: str, zero_point: int = 0) -> int:
    """A model input."""
    m.inputs.append(m.tensor(shape, dtype, scale_of(dtype), zero_point))
    return m.inputs[-1]
