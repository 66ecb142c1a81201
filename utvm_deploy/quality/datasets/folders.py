"""Datasets in folders: a folder for each class, or MLPerf Tiny's files with ``y_labels.csv``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.base.errors import DataError
from utvm_deploy.graph.element_type import element_type
from utvm_deploy.graph.model import Array
from utvm_deploy.quality.datasets.arrays import Inputs, load_array, unreadable
from utvm_deploy.quality.datasets.facts import Dataset, ModelInput
from utvm_deploy.quality.datasets.fitting import as_float32, check_type, sample_shape
from utvm_deploy.quality.datasets.tables import number, read_rows

RAW_ENDINGS = (".bin", ".raw")
ENDINGS = (".npy", *RAW_ENDINGS, ".csv")
#: What raw bytes may be, as ``raw_type`` names it. uint8 is for int8 inputs, 128 above them.
RAW_TYPES = ("int8", "uint8", "int16", "float32")


@dataclass(frozen=True)
class SampleFile:
    """A file, or a part of it, that is one sample."""

    path: Path
    offset: int = 0
    size: int | None = None  # bytes; None for the whole file


def read_samples(
    files: Sequence[SampleFile], one: ModelInput, raw_type: str | None, first: int
) -> Array:
    """One array of all samples; ``first`` is the number of the first one, for messages."""
    arrays = [_read(file, one, raw_type) for file in files]
    found: list[Array] = []
    for place, (file, array) in enumerate(zip(files, arrays, strict=True)):
        check_type(array, one, str(file.path))
        if array.dtype != arrays[0].dtype and array.dtype.kind != arrays[0].dtype.kind:
            raise DataError(
                f"{file.path} is {array.dtype}, and {files[0].path} is {arrays[0].dtype}; give all "
                "samples one type"
            )
        if array.dtype.kind == "f":
            array = as_float32(array[None], first + place, str(file.path))[0]
        found.append(array.reshape(one.shape))
    return np.stack(found) if found else np.empty((0, *one.shape), one.dtype)


def _read(file: SampleFile, one: ModelInput, raw_type: str | None) -> Array:
    ending = file.path.suffix.lower()
    if ending in RAW_ENDINGS:
        return _raw(file, one, raw_type)
    array = load_array(file.path) if ending == ".npy" else _table(file.path)
    if ending == ".csv" and array.size == math.prod(one.shape):
        return array.reshape(one.shape)
    sample_shape(array.shape, one, str(file.path))
    return array


def _table(path: Path) -> NDArray[np.float64]:
    """The numbers of a table, row by row; a first row of names is left out."""
    rows = read_rows(path)
    try:
        [float(cell) for cell in rows[0]] if rows else []
    except ValueError:
        rows = rows[1:]
    cells = [
        [number(cell, f"{path}, row {place + 1}") for cell in row] for place, row in enumerate(rows)
    ]
    return np.array([value for row in cells for value in row])


def _raw(file: SampleFile, one: ModelInput, raw_type: str | None) -> Array:
    try:
        with file.path.open("rb") as opened:
            opened.seek(file.offset)
            data = opened.read() if file.size is None else opened.read(file.size)
    except OSError as error:
        raise unreadable(file.path, error) from error
    elements = math.prod(one.shape)
    kind = raw_type or _type_by_size(len(data), elements, one)
    if raw_type is None and kind == "int8":
        raise DataError(
            f"{file.path} holds {len(data):,} raw bytes for an int8 input, and nothing says "
            "whether they are signed; give --raw-type int8, or --raw-type uint8 for pixels from 0 "
            "to 255"
        )
    if kind is None or len(data) != element_type(kind).size_bytes(elements):
        wanted_type = element_type(kind or one.dtype)
        wanted = f"{wanted_type.size_bytes(elements):,} bytes of {wanted_type.name}"
        raise DataError(
            f"{file.path} gives {len(data):,} bytes for a sample, and input {one.name!r} of shape "
            f"{one.shape} takes {wanted}; choose the type with --raw-type, or other files"
        )
    array = np.frombuffer(data, np.dtype(kind).newbyteorder("<")).astype(kind)
    if kind == "uint8" and one.dtype == "int8":
        return (array.astype(np.int16) - 128).astype(np.int8)
    return array


def _type_by_size(size: int, elements: int, one: ModelInput) -> str | None:
    for kind in (one.dtype, "float32"):
        if size == element_type(kind).size_bytes(elements):
            return kind
    return None


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
