"""Datasets in NumPy's files: .npz, .npy, and arrays in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.base.errors import DataError
from utvm_deploy.base.files import check_regular
from utvm_deploy.graph.model import Array
from utvm_deploy.graph.user_arrays import DAMAGED
from utvm_deploy.quality.datasets.facts import Dataset, ModelInput
from utvm_deploy.quality.datasets.fitting import check_type, fitted, sample_shape
from utvm_deploy.quality.datasets.labels import Answers, answers_of, labels_of, targets_of

Inputs = tuple[ModelInput, ...]
Found = TypeVar("Found")

_WRITE = "write one with numpy.savez(path, inputs=..., labels=...)"


def load_npz(path: Path, inputs: Inputs, labels: Path | None) -> Dataset:
    """Arrays ``inputs`` (or one for each input, by name), ``labels`` and ``targets``."""
    return dataset_of(load_arrays(path), inputs, str(path), f"of {path.name}", labels)


def dataset_of(
    arrays: Mapping[str, Any],
    inputs: Inputs,
    what: str,
    origin: str,
    labels: Path | None = None,
) -> Dataset:
    """The dataset that these arrays are; ``what`` names their file."""
    columns = [_column(arrays, one, place, inputs, what) for place, one in enumerate(inputs)]
    answers = {
        role: read(np.asarray(arrays[role]), len(columns[0]), f"array {role!r} of {what}")
        for role, read in (("labels", labels_of), ("targets", targets_of))
        if role in arrays
    }
    found = Answers(
        answers["labels"].labels if "labels" in answers else None,
        answers["targets"].targets if "targets" in answers else None,
        answers["labels"].class_names if "labels" in answers else None,
    )
    return _dataset(columns, inputs, what, origin, found, labels)


def load_npy(path: Path, inputs: Inputs, labels: Path | None) -> Dataset:
    """One array, read as needed; STEM_labels.npy or STEM_targets.npy in the same folder."""
    if len(inputs) > 1:
        raise DataError(
            f"{path} holds one array, and the model has {len(inputs)} inputs; write them into an "
            ".npz file"
        )
    array = load_array(path, mmap_mode="r")
    found = Answers()
    for role, read in (("labels", labels_of), ("targets", targets_of)):
        beside = path.with_name(f"{path.stem}_{role}.npy")
        if labels is None and beside.exists() and array.ndim:
            found = read(load_array(beside), len(array), str(beside))
            break
    return _dataset([array], inputs, str(path), f"of {path.name}", found, labels)


def load_answers(path: Path, count: int) -> Answers:
    """The file of --labels: integers or names are labels, other numbers are targets."""
    return answers_of(load_array(path), count, str(path))


def _dataset(
    columns: list[Array],
    inputs: Inputs,
    what: str,
    origin: str,
    found: Answers,
    labels: Path | None,
) -> Dataset:
    named = [f"array {one.name!r} of {what}" for one in inputs] if len(inputs) > 1 else [what]
    for column, one, name in zip(columns, inputs, named, strict=True):
        check_type(column, one, name)
        if column.ndim == 0:
            raise DataError(f"{name} is a single number; its first axis should count samples")
        sample_shape(column.shape[1:], one, name)
    counts = sorted({len(column) for column in columns})
    if len(counts) > 1:
        raise DataError(
            f"the inputs in {what} have different numbers of samples: "
            f"{', '.join(f'{count:,}' for count in counts)}; give each input as many"
        )
    if not counts[0]:
        raise DataError(f"{what} holds no sample; give at least one")
    if labels is not None:
        found = load_answers(labels, counts[0])

    def read(start: int, stop: int) -> tuple[Array, ...]:
        rows = zip(columns, inputs, named, strict=True)
        return tuple(fitted(array[start:stop], one, start, name) for array, one, name in rows)

    return Dataset(counts[0], read, origin, **_fields(found))


def _fields(found: Answers) -> dict[str, Any]:
    # asdict would copy the arrays.
    return {name: getattr(found, name) for name in ("labels", "targets", "class_names")}


def _column(
    arrays: Mapping[str, Any], one: ModelInput, place: int, inputs: Inputs, what: str
) -> Array:
    names = [one.name, f"inputs_{place}"] if len(inputs) > 1 else ["inputs", one.name]
    # Converters write more around the name that the author gave.
    short = one.name.removeprefix("serving_default_").removesuffix(":0")
    for name in (*names, short):
        if name in arrays:
            return np.asarray(arrays[name])
    held = ", ".join(sorted(arrays)[:8]) or "nothing"
    raise DataError(
        f"{what} holds {held}, and no array {names[0]!r} (or {names[1]!r}); name the samples so"
    )


def load_arrays(path: Path, most_bytes: int | None = None) -> dict[str, Array]:
    """The arrays of an .npz file, which have ``most_bytes`` in all. Raises DataError."""

    def load() -> dict[str, Array]:
        # NumPy leaves a damaged file open if it opens it itself.
        with path.open("rb") as opened:
            loaded = np.load(opened, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                raise ValueError("one array without a name")
            with loaded as file:
                size = sum(member.file_size for member in file.zip.infolist())
                if most_bytes is not None and size > most_bytes:
                    raise DataError(
                        f"the arrays of {path} have {size:,} bytes, and {most_bytes:,} are the "
                        "most that is taken; give fewer samples"
                    )
                return {name: member(file, name) for name in file.files}

    def member(file: Any, name: str) -> Array:
        try:
            found: Array = file[name]
        except ValueError as error:
            raise _of_objects(error, f"array {name!r} of {path}") from error
        return found

    return _loaded(path, load, f"is not an .npz file of arrays; {_WRITE}")


def load_array(path: Path, mmap_mode: Any = None) -> NDArray[Any]:
    """The array of one .npy file."""

    def load() -> NDArray[Any]:
        try:
            found = np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
        except ValueError as error:
            raise _of_objects(error, str(path)) from error
        if not isinstance(found, np.ndarray):
            raise ValueError("several arrays")
        return found

    return _loaded(path, load, "is not an .npy array; write one with numpy.save")


def _loaded(path: Path, load: Callable[[], Found], otherwise: str) -> Found:
    try:
        check_regular(path)
        return load()
    except OSError as error:
        raise unreadable(path, error) from error
    except DAMAGED as error:
        raise DataError(f"{path} {otherwise}") from error


def _of_objects(error: ValueError, what: str) -> Exception:
    """A DataError if NumPy refused an array of Python objects, else the error itself.

    NumPy raises a plain ValueError here, and such an array may run code when it is read.
    """
    if not any(word in str(error) for word in ("Object arrays", "Python objects")):
        return error
    return DataError(
        f"{what} holds Python objects; convert it with astype to numbers, or labels to text, "
        "before saving it"
    )


def unreadable(path: Path, error: OSError) -> DataError:
    """What to say of data that the system does not hand out."""
    return DataError(
        f"cannot read the data {path}: {error.strerror or error}; give a file or a folder that you "
        "may read"
    )
