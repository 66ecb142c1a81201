"""Files with one sample, or windows of one recording: .npy, raw bytes and tables."""

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
from utvm_deploy.quality.datasets.arrays import load_array, unreadable
from utvm_deploy.quality.datasets.facts import ModelInput
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
