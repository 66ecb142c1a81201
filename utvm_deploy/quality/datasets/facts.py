"""What a dataset is, and what it must fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
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
    recording. ``positions`` are the numbers of the samples in the data if some are left out.
    """

    count: int
    read: Read
    origin: str
    labels: NDArray[np.int64] | None = None
    targets: NDArray[np.float64] | None = None
    class_names: tuple[str, ...] | None = None
    groups: NDArray[np.int64] | None = None
    positions: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return self.count

    def batch(self, start: int, stop: int) -> tuple[Array, ...]:
        """Some samples: for each input of the model an array whose first axis counts samples.

        Every sample has the shape of the model's input. Floats are float32; integers are as the
        data have them. Raises DataError for a file that cannot be read, and for NaN and infinity.
        """
        return self.read(start, min(stop, self.count))

    def in_turns(self, count: int) -> Dataset:
        """The samples with those of the classes in turns, if the first ``count`` lack a class.

        Data are often sorted by class. Without labels, and with all classes in the first samples,
        the dataset is as it was.
        """
        if self.labels is None or not self.count:
            return self
        classes = len(np.unique(self.labels))
        if len(np.unique(self.labels[:count])) >= min(classes, count, self.count):
            return self
        by_class = np.argsort(self.labels, kind="stable")
        ordered = self.labels[by_class]
        turns = np.arange(self.count) - np.searchsorted(ordered, ordered)
        return self._of(by_class[np.argsort(turns, kind="stable")])

    def spread(self, count: int) -> Dataset:
        """``count`` samples, or recordings, at equal distances: sorted data keep all classes."""
        marks = np.arange(self.count) if self.groups is None else self.groups
        recordings = np.unique(marks)
        if count >= len(recordings):
            return self
        places = np.arange(count) * len(recordings) // count
        return self._of(np.flatnonzero(np.isin(marks, recordings[places])))

    def shuffled(self, order: np.random.Generator) -> Dataset:
        """The samples in an order by chance."""
        return self._of(order.permutation(self.count))

    def _of(self, kept: NDArray[np.int64]) -> Dataset:
        """The samples at these places, in this order."""

        def read(start: int, stop: int) -> tuple[Array, ...]:
            one_by_one = [self.read(place, place + 1) for place in kept[start:stop].tolist()]
            return tuple(np.concatenate(arrays) for arrays in zip(*one_by_one, strict=True))

        def cut(values: Any) -> Any:
            return None if values is None else values[kept]

        return replace(
            self,
            count=len(kept),
            read=read,
            labels=cut(self.labels),
            targets=cut(self.targets),
            groups=cut(self.groups),
            positions=kept if self.positions is None else self.positions[kept],
        )
