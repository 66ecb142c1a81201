"""Datasets in .csv files: a header, a row for each sample, and the answer in column ``target``."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.base.errors import DataError
from utvm_deploy.base.files import check_regular
from utvm_deploy.quality.datasets.arrays import Inputs, load_answers, unreadable
from utvm_deploy.quality.datasets.facts import Dataset
from utvm_deploy.quality.datasets.labels import Answers, labels_of, targets_of

_TARGET = "target"


def load_csv(path: Path, inputs: Inputs, labels: Path | None) -> Dataset:
    """Columns other than ``target`` are the input's elements, in their order."""
    if len(inputs) > 1:
        raise DataError(
            f"{path} is a table of one input, and the model has {len(inputs)}; write them into an "
            ".npz file"
        )
    (one,) = inputs
    rows = read_rows(path)
    if not rows:
        raise DataError(f"{path} is empty; give a header and a row for each sample")
    header = [cell.strip() for cell in rows[0]]
    if all(_is_number(cell) for cell in header):
        raise DataError(f"{path} has no header; name the columns in its first line")
    if header.count(_TARGET) > 1:
        raise DataError(f"{path} has several columns {_TARGET!r}; leave one of them")
    wanted = math.prod(one.shape)
    places = [place for place, name in enumerate(header) if name != _TARGET]
    if len(places) != wanted:
        raise DataError(
            f"{path} has {len(places)} columns {_besides(header)}, and input {one.name!r} has "
            f"{wanted} elements; give a column for each element, and name that of the answers "
            f"{_TARGET!r}"
        )
    samples = rows[1:]
    if not samples:
        raise DataError(f"{path} holds no sample; give a row for each sample below the header")
    values = np.empty((len(samples), wanted), np.float32)
    for place, row in enumerate(samples):
        if len(row) != len(header):
            raise DataError(
                f"{path}, row {place + 1}, has {len(row)} cells below a header of {len(header)}; "
                "give a cell for each column"
            )
        for at, column in enumerate(places):
            where = f"{path}, row {place + 1}, column {header[column]!r}"
            values[place, at] = number(row[column], where)
    found = Answers()
    if labels is not None:
        found = load_answers(labels, len(samples))
    elif _TARGET in header:
        at = header.index(_TARGET)
        found = _answers([row[at].strip() for row in samples], path)
    shaped = values.reshape(len(samples), *one.shape)
    return Dataset(
        len(samples),
        lambda start, stop: (shaped[start:stop],),
        f"of {path.name}",
        found.labels,
        found.targets,
        found.class_names,
    )


def _besides(header: Sequence[str]) -> str:
    return f"besides {_TARGET!r}" if _TARGET in header else f"and none is {_TARGET!r}"


def read_rows(path: Path) -> list[list[str]]:
    """The rows of a table that are not empty; columns are separated by commas or semicolons."""
    try:
        check_regular(path)
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            file.seek(0)
            delimiter = ";" if ";" in first and "," not in first else ","
            return [row for row in csv.reader(file, delimiter=delimiter) if any(row)]
    except OSError as error:
        raise unreadable(path, error) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a table of text ({error}); write it as UTF-8") from error


def number(cell: str, where: str) -> float:
    """A finite number of float32's range; DataError for any other cell."""
    text = cell.strip()
    if not text:
        raise DataError(f"{where} is empty; give a number, or remove the row")
    if not _is_number(text):
        raise DataError(
            f"{where} is {text[:40]!r}, which is not a number; encode it as in training"
        )
    value = float(text)
    if not abs(value) <= np.finfo(np.float32).max:
        raise DataError(f"{where} is {text[:40]}; give a finite number of float32's range")
    return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text  # Python reads 1_000; tables do not mean that


def _answers(cells: Sequence[str], path: Path) -> Answers:
    """Integers that are not negative are classes, other numbers targets, texts class names."""
    what = f"column {_TARGET!r} of {path}"
    if "" in cells:
        raise DataError(f"{what} is empty in row {cells.index('') + 1}; give it a value there")
    if all(cell.isascii() and cell.isdigit() and len(cell) < 10 for cell in cells):
        return labels_of(np.array([int(cell) for cell in cells]), len(cells), what)
    if all(map(_is_number, cells)):
        numbers: NDArray[np.float64] = np.array([float(cell) for cell in cells])
        return targets_of(numbers, len(cells), what)
    return labels_of(np.array(cells), len(cells), what)
