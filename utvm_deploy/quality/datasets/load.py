"""Finds out what kind of dataset a path is, and reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from utvm_deploy.base.errors import DataError, last_words
from utvm_deploy.quality.datasets.arrays import (
    dataset_of,
    load_answers,
    load_npy,
    load_npz,
    unreadable,
)
from utvm_deploy.quality.datasets.facts import Dataset, ModelInput
from utvm_deploy.quality.datasets.folders import load_folder
from utvm_deploy.quality.datasets.tables import load_csv

_LOADERS = {".npz": load_npz, ".npy": load_npy, ".csv": load_csv}


def load_dataset(
    path: str | Path,
    inputs: tuple[ModelInput, ...],
    *,
    labels: str | Path | None = None,
    raw_type: str | None = None,
) -> Dataset:
    """The samples of a file or a folder, checked against the inputs of a model.

    - ``.npz``: ``inputs``, or an array for each input by its name; ``labels`` or ``targets``;
    - ``.npy``: the samples; STEM_labels.npy or STEM_targets.npy in the same folder;
    - ``.csv``: a header, a row for each sample, the answer in column ``target``;
    - a folder with a folder for each class, or with MLPerf Tiny's ``y_labels.csv``.

    ``labels`` is an .npy file with the answers instead. ``raw_type`` is the type of raw files; by
    default their size says it, except for bytes of an int8 input. Samples are read when ``batch``
    asks for them, where the format allows it. Raises DataError.
    """
    path = Path(path)
    answers = None if labels is None else Path(labels)
    try:
        is_folder = path.is_dir()
    except OSError as error:  # such as a folder above it that is closed
        raise unreadable(path, error) from error
    if is_folder:
        found = load_folder(path, inputs, raw_type)
        if answers is None:
            return found
        given = load_answers(answers, len(found))
        return replace(
            found,
            origin=f"{found.origin}, with {answers.name} instead of its classes",
            labels=given.labels,
            targets=given.targets,
            class_names=given.class_names,
        )
    load = _LOADERS.get(path.suffix.lower())
    if load is None:
        raise DataError(
            f"{path} is not a dataset; give a file ending in {', '.join(_LOADERS)}, or a folder "
            "with a folder for each class"
        )
    return load(path, inputs, answers)


def dataset_of_arrays(arrays: Mapping[str, Any], inputs: tuple[ModelInput, ...]) -> Dataset:
    """The same from arrays in memory, named as in an .npz file."""
    found = {name: _as_array(name, value) for name, value in arrays.items()}
    return dataset_of(found, inputs, "the data", "in memory")


def _as_array(name: str, value: Any) -> Any:
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:  # such as rows of unequal length
        told = last_words(error).rstrip(".")
        raise DataError(f"{name!r} cannot become an array ({told}); give a NumPy array") from error
