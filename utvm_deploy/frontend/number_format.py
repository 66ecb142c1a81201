"""Models whose weights have the values of a number format, as floats.

A model in a format is the same file with other weights: those of the nearest numbers. So every
reference computes it as it is, and kernels keep each weight as a number, without a further error.
Only tables with two or more dimensions are rounded. Biases are small.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.relax.facts import is_relax, loaded
from utvm_deploy.frontend.relax.road import with_constants
from utvm_deploy.frontend.tflite_dense import densified
from utvm_deploy.frontend.tflite_tables import called_subgraphs, read_file
from utvm_deploy.graph.model import Array
from utvm_deploy.graph.number_formats import NumberFormat
from utvm_deploy.graph.number_formats.formats import is_table


@lru_cache(maxsize=2)
def in_format(data: bytes, own: NumberFormat, path: Path) -> bytes:
    """A .tflite file or a Relax model whose tables of float32 have values of the format.

    ``path`` is for messages. Raises ModelError for a model without such tables, and for a weight
    that the format cannot hold.
    """
    count = 0

    def rounded(values: Array) -> Array:
        nonlocal count
        if not is_table(values):
            return values
        count += 1
        made = own.rounded(values)
        lost = np.flatnonzero(np.isfinite(values) & ~np.isfinite(made))
        if lost.size:
            raise ModelError(
                f"{path}: a weight is {values.reshape(-1)[lost[0]]:g}, which {own.name} cannot "
                "hold; choose a format with a larger range"
            )
        return made

    if is_relax(data):
        made = with_constants(loaded(data), rounded).dumped()
    else:
        try:
            made = with_tables(densified(data), rounded)
        except ModelError as exc:
            raise ModelError(f"{path}: {str(exc).removeprefix(f'{path}: ')}") from exc
    if not count and not own.computes:
        raise ModelError(
            f"{path} has no float32 weights, so --format does not apply; it is for float models"
        )
    return made


def with_tables(data: bytes, rounded: object) -> bytes:
    """A .tflite file with other values of its constants."""
    assert callable(rounded)
    changed = bytearray(data)
    begin = _address(np.frombuffer(data, np.uint8))
    for source in (called_subgraphs(data) or {0: read_file(data)}).values():
        for tensor in source.tensors:
            # What shares its bytes with a table has the table's values, too.
            if tensor.data is not None and is_table(tensor.data):
                place = _address(tensor.data) - begin
                if not 0 <= place <= len(data) - tensor.data.nbytes:
                    raise ModelError(
                        f"tensor '{tensor.name}' of a loop or branch is stored without zeros, "
                        "which --format does not take; convert the model without sparsity"
                    )
                made = rounded(tensor.data).astype("<f4").tobytes()
                changed[place : place + len(made)] = made
    return bytes(changed)


def _address(array: Array) -> int:
    """Constants are views of the file's bytes, so addresses say where they are."""
    found: int = array.__array_interface__["data"][0]
    return found
