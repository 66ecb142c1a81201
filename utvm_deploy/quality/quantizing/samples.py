"""The user's calibration data as a dataset, and what is suspicious about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from utvm_deploy.base.errors import DataError
from utvm_deploy.graph.model import Array
from utvm_deploy.graph.user_arrays import DAMAGED
from utvm_deploy.quality.datasets import Dataset, ModelInput, dataset_of_arrays, load_dataset
from utvm_deploy.quality.quantizing.facts import COMPARED_SAMPLES, FEW_SAMPLES, Range

#: Samples that are read at once.
BATCH = 64


def dataset_for(data: Any, inputs: tuple[ModelInput, ...]) -> Dataset:
    """What the user gave as data: a path, a dataset, or arrays whose first axis counts samples.

    Several inputs need a mapping of their names to arrays, a list of such samples, a tuple in their
    order, or a ``TensorDataset``. The first
    samples, on which models are compared, are of all classes. Raises DataError if the data do not
    fit the inputs.
    """
    return _dataset_for(data, inputs).in_turns(COMPARED_SAMPLES)


def _dataset_for(data: Any, inputs: tuple[ModelInput, ...]) -> Dataset:
    if isinstance(data, Dataset):
        return data
    if isinstance(data, str | Path):
        return load_dataset(data, inputs)
    if isinstance(data, Mapping):
        return dataset_of_arrays(data, inputs)
    if isinstance(data, list | tuple) and data and all(isinstance(one, Mapping) for one in data):
        return dataset_of_arrays(_together(data), inputs)
    if hasattr(data, "tensors"):  # a TensorDataset of PyTorch
        data = tuple(np.asarray(one) for one in data.tensors[: len(inputs)])
    arrays = tuple(data) if isinstance(data, tuple) or len(inputs) > 1 else (data,)
    if len(arrays) != len(inputs):
        raise DataError(
            f"the model has {len(inputs)} inputs, but the data have {len(arrays)} arrays; give one "
            "array for each input"
        )
    names = ["inputs"] if len(inputs) == 1 else [f"inputs_{i}" for i in range(len(inputs))]
    return dataset_of_arrays(dict(zip(names, arrays, strict=True)), inputs)


def names_in(data: Any) -> frozenset[str]:
    """The names of the arrays that data have; empty where they have none, or cannot be read."""
    if isinstance(data, list | tuple) and data and isinstance(data[0], Mapping):
        data = data[0]
    if isinstance(data, Mapping):
        return frozenset(map(str, data))
    if not isinstance(data, str | Path) or Path(data).suffix.lower() != ".npz":
        return frozenset()
    try:
        with np.load(data, allow_pickle=False) as file:
            return frozenset(file.files)
    except (*DAMAGED, OSError):  # who reads the samples says so
        return frozenset()


def _together(samples: Sequence[Mapping[str, Any]]) -> dict[str, Array]:
    """An array for each name, of samples that map the same names to their values."""
    names = samples[0].keys()
    if any(one.keys() != names for one in samples):
        raise DataError("the samples do not have the same names; give each a value for each input")
    found = {name: [np.asarray(one[name]) for one in samples] for name in names}
    for name, arrays in found.items():
        shapes = sorted({one.shape for one in arrays})
        if len(shapes) > 1:
            raise DataError(
                f"'{name}' has the shape {shapes[0]} in some samples, and {shapes[1]} in others; "
                "give all the shape that the model takes"
            )
    return {name: np.stack(arrays) for name, arrays in found.items()}


class Watch:
    """Collects what is suspicious about the samples while they go by."""

    def __init__(self, inputs: Sequence[ModelInput], declared: Range | None) -> None:
        self.inputs = inputs
        self.declared = declared
        self.count = 0
        self.ranges: list[Range | None] = [None] * len(inputs)
        self.first: tuple[Array, ...] | None = None
        self.is_always_first = True
        self.outside = [0] * len(inputs)

    def see(self, arrays: Sequence[Array]) -> None:
        """Take a batch into account; DataError for values that are too far apart for a scale."""
        if self.first is None:
            self.first = tuple(array[0] for array in arrays)
        self.count += len(arrays[0])
        for index, array in enumerate(arrays):
            self.is_always_first &= bool((array == self.first[index]).all())
            low, high = float(array.min()), float(array.max())
            before = self.ranges[index]
            if before is not None:
                low, high = min(low, before.low), max(high, before.high)
            seen = self.ranges[index] = Range(low, high)
            if self.declared is None and seen.is_too_wide:
                raise DataError(
                    f"the data for input {self.inputs[index].name!r} reach from {low:g} to "
                    f"{high:g}, too far for a scale in float32; give values as the model was "
                    "trained on, or declare --input-range"
                )
            if self.declared is not None and self.inputs[index].dtype == "float32":
                beyond = np.less(array, self.declared.low) | np.greater(array, self.declared.high)
                self.outside[index] += int(beyond.reshape(len(array), -1).any(axis=1).sum())

    def warnings(self) -> Iterator[str]:
        """One sentence for each suspicion."""
        if self.count < FEW_SAMPLES:
            yield (
                f"{self.count} samples are few to calibrate with; give a few hundred typical inputs"
            )
        yield from self.about_values()

    def about_values(self) -> Iterator[str]:
        """One sentence for each suspicion about what the samples hold."""
        if self.is_always_first and self.count > 1:
            yield "all samples are equal; give different ones"
        for tensor, seen, outside in zip(self.inputs, self.ranges, self.outside, strict=True):
            name = tensor.name
            if seen is not None and seen.low == seen.high:
                yield f"input {name!r} is {seen.low:g} everywhere in all samples"
            elif seen is not None and seen.high - seen.low < np.finfo(np.float32).tiny:
                yield (
                    f"input {name!r} reaches from {seen.low:g} to {seen.high:g}, which no scale in "
                    "float32 can tell apart; give values as the model was trained on"
                )
            if outside and seen is not None and self.declared is not None:
                yield (
                    f"{outside} of {self.count} samples of input {name!r} have values outside the "
                    f"declared range {self.declared.low:g} to {self.declared.high:g}: from "
                    f"{seen.low:g} to {seen.high:g}; preprocess them as for inference"
                )
