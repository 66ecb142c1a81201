"""Random choices with the weights that find faults: usual values mostly, extreme ones often."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from tflite_serializer import TensorSpec
from tflite_writer import ModelWriter

from random_models.recipe import CONSTANT, INPUT, QUANTIZED, Ref, Step, Unfit, add_step

_T = TypeVar("_T")

#: Small enough for the slowest emulated core: a model runs in milliseconds.
MAX_ELEMENTS = 6000
MAX_MACS = 200_000
MAX_CHANNELS = 70
#: Of the few layers that are wider: more than eight bits count.
WIDE_CHANNELS = 260
#: Of an int16 in one of an int8.
STEPS_OF_INT16 = 256

Shape = tuple[int, ...]


class Draw:
    """A seeded source of model parts; windows are mostly of a pixel if it is ``pointwise``."""

    def __init__(self, seed: int | Sequence[int], *, pointwise: bool = False) -> None:
        self.rng, self.pointwise = np.random.default_rng(seed), pointwise

    def between(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return int(self.rng.integers(low, max(low, high), endpoint=True))

    def chance(self, probability: float) -> bool:
        """True that often."""
        return bool(self.rng.random() < probability)

    def one(self, choices: Sequence[_T]) -> _T:
        """One of them."""
        return choices[int(self.rng.integers(len(choices)))]

    def seed(self) -> int:
        """A seed for a step's constants."""
        return self.between(0, 2**31 - 1)

    def channels(self) -> int:
        """Mostly few, sometimes what vector units like, sometimes anything."""
        kind = self.rng.random()
        if kind < 0.55:
            return self.between(1, 12)
        if kind < 0.7:
            return self.one((1, 3, 4, 8, 16, 32, 64))
        return self.between(1, MAX_CHANNELS if kind < 0.96 else WIDE_CHANNELS)

    def extent(self, most: int = 12) -> int:
        """Rows or columns."""
        return 1 if self.chance(0.1) else self.between(1, most)

    def shape(self, rank: int | None = None) -> Shape:
        """Any shape of that rank, or of rank 1 to 5."""
        rank = self.between(1, 5) if rank is None else rank
        while True:
            lead = [self.between(1, 3) if rank > 2 else self.extent() for _ in range(rank - 1)]
            middle = [self.extent(9) for _ in lead[1:]]
            shape = (*lead[:1], *middle, self.channels())
            if math.prod(shape) <= MAX_ELEMENTS:
                return tuple(shape)

    def image(self) -> Shape:
        """A batch of images."""
        while True:
            batch = 1 if self.chance(0.85) else self.between(2, 3)
            sides = (1, 1) if self.chance(0.05) else (self.extent(14), self.extent(14))
            shape = (batch, *sides, self.channels())
            if math.prod(shape) <= MAX_ELEMENTS:
                return shape

    def scale(self) -> float:
        """Of an activation: the usual range mostly, powers of two, and extremes."""
        kind = self.rng.random()
        if kind < 0.7:
            value = 10 ** self.rng.uniform(-3, 0)
        elif kind < 0.85:
            value = 10 ** self.rng.uniform(-6, 3)
        else:
            value = self.one((1.0, 0.5, 2.0**-7, 1 / 255, 1 / 256, 2.0**-20, 100.0, 1e-8, 1e6))
        return float(np.float32(value))

    def scale_near(self, natural: float) -> float:
        """For an output whose values have the size ``natural`` * 127: near it, or far away."""
        kind = self.rng.random()
        wide = 1.5 if kind < 0.75 else 8.0 if kind < 0.9 else 20.0
        value = np.float32(natural * 2 ** self.rng.uniform(-wide, wide))
        return float(np.clip(value, np.float32(1e-30), np.float32(1e30)))

    def zero_point(self) -> int:
        """Often at an end, or in the middle."""
        return self.one((-128, 127, 0)) if self.chance(0.45) else self.between(-128, 127)

    def activation(self) -> str:
        """A fused activation."""
        return self.one(("NONE", "NONE", "NONE", "RELU", "RELU6", "RELU_N1_TO_1"))

    def fill(self) -> str:
        """What weights hold."""
        return self.one(("random",) * 8 + ("ends", "zeros"))


class Scope:
    """A model under construction: what has been made, and what a next step may use."""

    def __init__(self, draw: Draw, *, of_float: bool = False) -> None:
        self.draw = draw
        self.of_float = of_float  # numbers of int8 become float32 when the model is written
        self.steps: list[Step] = []
        self.writer = ModelWriter()
        self.made: list[tuple[int, ...]] = []

    def add(self, step: Step) -> Ref:
        """Add a step; its first output. Unfit, and nothing is changed, if it does not fit."""
        kept = [len(part) for part in self._parts]
        try:
            made = add_step(self.writer, self.made, step)
            for spec in (self.writer.tensors[number] for number in made):
                if math.prod(spec.shape) > MAX_ELEMENTS:
                    raise Unfit(f"{step.kind} makes a large tensor of shape {spec.shape}")
        except Unfit:
            for part, length in zip(self._parts, kept, strict=True):
                del part[length:]
            raise
        self.made.append(made)
        self.steps.append(step)
        return (len(self.steps) - 1, 0)

    def cut(self, steps: int) -> None:
        """Forget all but the first ``steps``, none of which an operator may be behind."""
        for step in self.steps[steps:]:
            assert step.kind in (INPUT, CONSTANT)
            if step.kind == INPUT:
                self.writer.inputs.pop()
            self.writer.tensors.pop()
        del self.steps[steps:], self.made[steps:]

    @property
    def _parts(self) -> tuple[list, ...]:
        return self.writer.tensors, self.writer.operators, self.writer.inputs

    def spec(self, ref: Ref) -> TensorSpec:
        """Shape, type and quantization of a value."""
        return self.writer.tensors[self.made[ref[0]][ref[1]]]

    def refs(self) -> list[Ref]:
        """Every value that is not a constant, in order."""
        return [
            (step, output)
            for step, made in enumerate(self.made)
            for output in range(len(made))
            if self.steps[step].kind != CONSTANT
        ]

    def pick(
        self, fits: Callable[[TensorSpec], bool] = lambda _: True, dtype: str = "int8"
    ) -> Ref | None:
        """A value of that type, rather a late one; None if none fits."""
        found = [r for r in self.refs() if self.spec(r).dtype == dtype and fits(self.spec(r))]
        if not found:
            return None
        return found[-1] if self.draw.chance(0.5) else self.draw.one(found)

    def input(
        self,
        shape: Shape,
        dtype: str = "int8",
        scale: float | None = None,
        zero_point: int | None = None,
    ) -> Ref:
        """A new model input, quantized as said or at random."""
        return self.add(Step(INPUT, (), self._tensor(shape, dtype, scale, zero_point)))

    def constant(
        self,
        shape: Shape,
        dtype: str = "int8",
        scale: float | None = None,
        zero_point: int | None = None,
    ) -> Ref:
        """A new constant."""
        attributes = self._tensor(shape, dtype, scale, zero_point)
        attributes["fill"] = self.draw.one(("random", "random", "random", "ends", "zeros"))
        return self.add(Step(CONSTANT, (), attributes, self.draw.seed()))

    def causal(
        self,
        shape: Shape,
        dtype: str = "bool",
        scale: float | None = None,
        zero_point: int | None = None,
    ) -> Ref:
        """A constant mask: each row sees its own place and those before it."""
        attributes = self._tensor(shape, dtype, scale, zero_point)
        return self.add(Step(CONSTANT, (), {**attributes, "fill": "causal"}, self.draw.seed()))

    def _tensor(self, shape: Shape, dtype: str, scale: float | None, zero: int | None) -> dict:
        attributes: dict = {"shape": tuple(shape), "dtype": dtype}
        if dtype in QUANTIZED or scale is not None:
            if scale is None:
                scale = self.draw.scale() / (STEPS_OF_INT16 if dtype == "int16" else 1)
            if zero is None:
                offset = 128 if dtype == "uint8" else 0
                zero = 0 if dtype == "int16" else self.draw.zero_point() + offset
            attributes.update(scale=scale, zero_point=zero)
        return attributes
