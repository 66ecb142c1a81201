"""What a dataset is, and what it must fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.graph.model import Array, Quantization, Tensor
from utvm_deploy.graph.names import short_name

#: Reads the samples from ``start`` up to, not including, ``stop``: one array for each input.
Read = Callable[[int, int], tuple[Array, ...]]


@dataclass(frozen=True)
class ModelInput:
    """An input of a model. ``shape`` is that of one run, with its leading 1."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # numpy's name
    quantization: Quantization | None = None

    @classmethod
    def of(cls, tensor: Tensor) -> ModelInput:
        """The facts about a tensor of a graph."""
        return cls(short_name(tensor.name), tensor.shape, tensor.dtype, tensor.quantization)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples, and what is known about each of them.

    ``labels`` (a class for each sample), ``targets`` (numbers for each sample) and ``groups`` are
    None where the data have none. Samples with equal numbers in ``groups`` are windows of one
    recording.
    """

    count: int
    read: Read
    origin: str
    labels: NDArray[np.int64] | None = None
    targets: NDArray[np.float64] | None = None
    class_names: tuple[str, ...] | None = None
    groups: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return self.count

    def batch(self, start: int, stop: int) -> tuple[Array, ...]:
        """Some samples: for each input of the model an array whose first axis counts samples.

        Every sample has the shape of the model's input. Floats are float32; integers are as the
        data have them. Raises DataError for a file that cannot be read, and for NaN and infinity.
        """
        return self.read(start, min(stop, self.count))

    def first(self, count: int) -> Dataset:
        """The first samples alone."""
        if count >= self.count:
            return self

        def cut(values: Any) -> Any:
            return None if values is None else values[:count]

        return Dataset(
            count,
            self.read,
            self.origin,
            cut(self.labels),
            cut(self.targets),
            self.class_names,
            cut(self.groups),
        )
