"""Datasets in folders: a folder for each class, or MLPerf Tiny's files with ``y_labels.csv``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from utvm_deploy.base.errors import DataError
from utvm_deploy.quality.datasets.arrays import Inputs, unreadable
from utvm_deploy.quality.datasets.facts import Dataset, ModelInput
from utvm_deploy.quality.datasets.sample_files import ENDINGS, SampleFile, read_samples
from utvm_deploy.quality.datasets.tables import read_rows

#: The table of MLPerf Tiny: file,classes,label, and for windows also window_bytes,stride_bytes.
LABEL_TABLE = "y_labels.csv"


def load_folder(path: Path, inputs: Inputs, raw_type: str | None) -> Dataset:
    """A dataset whose samples are files, which are read as they are needed."""
    if len(inputs) > 1:
        raise DataError(
            f"the files in {path} are samples of one input, and the model has {len(inputs)}; write "
            "them into an .npz file"
        )
    if (path / LABEL_TABLE).exists():
        return _of_table(path, inputs[0], raw_type)
    return _of_classes(path, inputs[0], raw_type)


def _of_classes(path: Path, one: ModelInput, raw_type: str | None) -> Dataset:
    folders = [entry for entry in _visible(path) if entry.is_dir()]
    if not folders:
        raise DataError(
            f"{path} holds no folders and no {LABEL_TABLE}; put the samples of each class into a "
            "folder that has the name of the class"
        )
    names = [folder.name for folder in folders]
    is_numbered = all(name.isascii() and name.isdigit() and len(name) < 6 for name in names)
    if is_numbered:
        folders.sort(key=lambda folder: int(folder.name))
    files: list[SampleFile] = []
    labels: list[int] = []
    for place, folder in enumerate(folders):
        for file in _visible(folder):
            if file.suffix.lower() not in ENDINGS:
                raise DataError(
                    f"{file} is not a sample; a sample is a file ending in {', '.join(ENDINGS)}: "
                    "convert it, or remove it"
                )
            files.append(SampleFile(file))
            labels.append(int(folder.name) if is_numbered else place)
    class_names = None if is_numbered else tuple(folder.name for folder in folders)
    return _dataset(path, files, one, raw_type, labels, class_names, None)


def _of_table(path: Path, one: ModelInput, raw_type: str | None) -> Dataset:
    table = path / LABEL_TABLE
    files: list[SampleFile] = []
    labels: list[int] = []
    groups: list[int] = []
    for place, row in enumerate(read_rows(table)):
        where = f"{table}, row {place + 1}"
        cells = [cell.strip() for cell in row]
        numbers = cells[1:]
        if len(cells) not in (3, 5) or not all(n.isascii() and n.isdigit() for n in numbers):
            if place == 0 and len(cells) > 1 and not cells[1].isdigit():
                continue  # a header
            raise DataError(
                f"{where} is {','.join(cells)[:60]!r}; give file,classes,label or "
                "file,classes,label,window_bytes,stride_bytes"
            )
        classes, label = int(numbers[0]), int(numbers[1])
        if label >= classes:
            raise DataError(f"{where} has label {label} of {classes} classes; correct the row")
        file = path / cells[0]
        parts = [SampleFile(file)] if len(cells) == 3 else _windows(file, *map(int, numbers[2:]))
        files += parts
        labels += [label] * len(parts)
        groups += [place] * len(parts)
    grouped = groups if len(set(groups)) < len(groups) else None
    return _dataset(path, files, one, raw_type, labels, None, grouped)


def _windows(file: Path, window: int, stride: int) -> list[SampleFile]:
    """The windows of a recording that are complete."""
    try:
        size = file.stat().st_size
    except OSError as error:
        raise unreadable(file, error) from error
    if not window or not stride or size < window:
        raise DataError(
            f"{file} has {size:,} bytes, less than a window of {window:,} bytes, or "
            f"the stride {stride:,} is 0; correct its row in {LABEL_TABLE}"
        )
    return [SampleFile(file, offset, window) for offset in range(0, size - window + 1, stride)]


def _dataset(
    path: Path,
    files: Sequence[SampleFile],
    one: ModelInput,
    raw_type: str | None,
    labels: Sequence[int],
    class_names: tuple[str, ...] | None,
    groups: Sequence[int] | None,
) -> Dataset:
    if not files:
        raise DataError(
            f"{path} holds no sample; a sample is a file ending in {', '.join(ENDINGS)}"
        )
    return Dataset(
        len(files),
        lambda start, stop: (read_samples(files[start:stop], one, raw_type, start),),
        f"of the folder {path.name or path}",
        np.array(labels, np.int64),
        None,
        class_names,
        None if groups is None else np.array(groups, np.int64),
    )


def _visible(folder: Path) -> list[Path]:
    try:
        return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise unreadable(folder, error) from error
