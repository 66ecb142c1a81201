"""The user's samples, in the shape of the model's inputs, and what is wrong with them."""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from utvm_deploy.base.errors import ModelError
from utvm_deploy.base.files import check_regular
from utvm_deploy.graph.model import Array, Tensor
from utvm_deploy.graph.names import short_name
from utvm_deploy.graph.user_arrays import accepted_shapes, shapes_text
from utvm_deploy.quantizing.facts import FEW_SAMPLES, Range

#: Samples that are read at once.
_BATCH = 64


class Samples(Protocol):
    """Samples that are read when they are needed."""

    def __len__(self) -> int: ...

    def batch(self, start: int, stop: int) -> tuple[Array, ...]:
        """One array per model input; the first axis counts the samples."""
        ...


@dataclass(frozen=True, eq=False)
class ArraySamples:
    """Samples in memory, one array per model input."""

    arrays: tuple[Array, ...]

    def __len__(self) -> int:
        return len(self.arrays[0])

    def batch(self, start: int, stop: int) -> tuple[Array, ...]:
        """These samples of each input."""
        return tuple(array[start:stop] for array in self.arrays)


def samples_of(data: Any, inputs: Sequence[Tensor]) -> Samples:
    """What the user gave as data: a file, arrays, or an object with a length and ``batch``.

    Raises ModelError if there are not as many arrays as inputs.
    """
    if isinstance(data, str | Path):
        return _of_file(Path(data), inputs)
    if hasattr(data, "batch"):
        samples: Samples = data
        return samples
    names = [short_name(tensor.name) for tensor in inputs]
    if isinstance(data, Mapping):
        missing = [name for name in names if name not in data]
        if missing:
            raise ModelError(
                f"the data have no array {missing[0]!r}; the model's inputs: {', '.join(names)}"
            )
        arrays = [np.asarray(data[name]) for name in names]
    elif isinstance(data, tuple) or (isinstance(data, list) and len(inputs) > 1):
        arrays = [np.asarray(array) for array in data]
    else:
        arrays = [np.asarray(data)]
    return _of_arrays(arrays, inputs)


def _of_arrays(arrays: Sequence[Array], inputs: Sequence[Tensor]) -> Samples:
    if len(arrays) != len(inputs):
        raise ModelError(
            f"the model has {len(inputs)} inputs, but the data have {len(arrays)} arrays; give one "
            "array per input"
        )
    if any(array.ndim == 0 for array in arrays):
        raise ModelError("the data have an array without dimensions; its first axis counts samples")
    counts = {len(array) for array in arrays}
    if len(counts) > 1:
        raise ModelError(
            f"the arrays of the data have {' and '.join(map(str, sorted(counts)))} samples; give "
            "the same number for each input"
        )
    return ArraySamples(tuple(arrays))


def _of_file(path: Path, inputs: Sequence[Tensor]) -> Samples:
    try:
        check_regular(path)
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except OSError as error:
        raise ModelError(
            f"cannot read the data {path}: {error.strerror or error}; write them with "
            "numpy.savez(path, inputs=...)"
        ) from error
    except (ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise ModelError(
            f"{path} is no .npz file of arrays; write one with numpy.savez(path, inputs=...)"
        ) from error
    if len(inputs) == 1 and "inputs" in arrays:
        return _of_arrays([arrays["inputs"]], inputs)
    return samples_of(arrays, inputs)


def shaped_batches(samples: Samples, inputs: Sequence[Tensor]) -> Iterator[tuple[Array, ...]]:
    """All samples in batches; each array is (samples, *shape of the input) of the input's type.

    Raises ModelError for a sample of another shape, and for NaN and infinity.
    """
    count = len(samples)
    for start in range(0, count, _BATCH):
        arrays = samples.batch(start, min(start + _BATCH, count))
        yield tuple(
            _checked(np.asarray(array), tensor, start)
            for array, tensor in zip(arrays, inputs, strict=True)
        )


def _checked(array: Array, tensor: Tensor, start: int) -> Array:
    name, shape = short_name(tensor.name), tensor.shape
    if array.shape[1:] not in accepted_shapes(shape):
        hint = _other_layout(array.shape[1:], shape)
        raise ModelError(
            f"a sample of input {name!r} has the shape {array.shape[1:]}, but the model takes "
            f"{shapes_text(shape)}; {hint or 'preprocess the data as for inference'}"
        )
    is_float = np.issubdtype(array.dtype, np.floating)
    if tensor.dtype != "float32":
        if is_float or not np.can_cast(array.dtype, tensor.dtype, "same_kind"):
            raise ModelError(
                f"input {name!r} takes {tensor.dtype}, but the data are {array.dtype}; convert them"
            )
    elif array.dtype.kind not in "fiub":
        raise ModelError(f"the data of input {name!r} are {array.dtype}, and not numbers")
    with np.errstate(over="ignore"):
        made = array.reshape(len(array), *shape).astype(tensor.dtype)
    if is_float:
        bad = ~np.isfinite(made.reshape(len(made), -1)).all(axis=1)
        if bad.any():
            sample = int(np.argmax(bad))
            what = "NaN" if np.isnan(made[sample]).any() else "an infinite number"
            raise ModelError(
                f"sample {start + sample} of input {name!r} holds {what}; remove it from the data"
            )
    return made


def _other_layout(given: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """What to do if the axes are those of the model in another order; empty if they are not."""
    for target in accepted_shapes(wanted):
        orders = [
            order
            for order in itertools.permutations(range(len(given)))
            if len(given) == len(target) <= 4 and tuple(given[i] for i in order) == target
        ]
        # The usual mistakes first: channels from the front to the back, and the reverse.
        for order in sorted(orders, key=lambda one: -_is_rotation(one)):
            axes = (0, *(i + 1 for i in order))
            return f"its axes are in another order: give numpy.transpose(data, {axes})"
    return ""


def _is_rotation(order: tuple[int, ...]) -> bool:
    first = order[0]
    return order == tuple((first + i) % len(order) for i in range(len(order)))


class Watch:
    """Collects what is suspicious about the samples while they go by."""

    def __init__(self, inputs: Sequence[Tensor], declared: Range | None) -> None:
        self.inputs = inputs
        self.declared = declared
        self.count = 0
        self.ranges: list[Range | None] = [None] * len(inputs)
        self.first: tuple[Array, ...] | None = None
        self.is_always_first = True
        self.outside = [0] * len(inputs)

    def see(self, arrays: Sequence[Array]) -> None:
        """Take a batch into account."""
        if self.first is None:
            self.first = tuple(array[0] for array in arrays)
        self.count += len(arrays[0])
        for index, array in enumerate(arrays):
            self.is_always_first &= bool((array == self.first[index]).all())
            low, high = float(array.min()), float(array.max())
            before = self.ranges[index]
            if before is not None:
                low, high = min(low, before.low), max(high, before.high)
            self.ranges[index] = Range(low, high)
            if self.declared is not None and self.inputs[index].dtype == "float32":
                beyond = np.less(array, self.declared.low) | np.greater(array, self.declared.high)
                self.outside[index] += int(beyond.reshape(len(array), -1).any(axis=1).sum())

    def warnings(self) -> Iterator[str]:
        """One sentence for each suspicion."""
        if self.count < FEW_SAMPLES:
            yield (
                f"{self.count} samples are few to calibrate with; give a few hundred typical inputs"
            )
        if self.is_always_first:
            yield "all samples are equal; give different ones"
        for tensor, seen, outside in zip(self.inputs, self.ranges, self.outside, strict=True):
            name = short_name(tensor.name)
            if seen is not None and seen.low == seen.high:
                yield f"input {name!r} is {seen.low:g} everywhere in all samples"
            if outside and seen is not None and self.declared is not None:
                yield (
                    f"{outside} of {self.count} samples of input {name!r} have values outside the "
                    f"declared range {self.declared.low:g} to {self.declared.high:g}: from "
                    f"{seen.low:g} to {seen.high:g}; preprocess them as for inference"
                )
