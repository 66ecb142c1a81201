"""A .tflite file without some of its operators, whose outputs become inputs of the model.

The file is changed in place: entries of the operators' list go, and a longer list of inputs is put
at the end of the file. So everything else of the file stays as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence

from utvm_deploy.base.errors import ModelError

# Fields of the schema's tables, by their number.
_SUBGRAPHS_OF_MODEL, _INPUTS_OF_SUBGRAPH, _OPERATORS_OF_SUBGRAPH = 2, 1, 3


def without_operators(data: bytes, operators: Collection[int], inputs: Sequence[int]) -> bytes:
    """The file without the operators at these positions, with these tensors as further inputs.

    ModelError if the file is damaged.
    """
    try:
        return _cut(bytearray(data), operators, inputs)
    except (struct.error, IndexError) as error:
        raise ModelError(
            "the file is damaged or cut short: something in it is said to lie beyond its "
            f"{len(data):,} bytes; copy or convert the model again"
        ) from error


def _cut(data: bytearray, operators: Collection[int], inputs: Sequence[int]) -> bytes:
    model = _number(data, 0)
    subgraphs = _vector(data, model, _SUBGRAPHS_OF_MODEL)
    subgraph = subgraphs + 4 + _number(data, subgraphs + 4)
    _remove(data, _vector(data, subgraph, _OPERATORS_OF_SUBGRAPH), operators)
    field = _field(data, subgraph, _INPUTS_OF_SUBGRAPH)
    old = field + _number(data, field)
    count = _number(data, old)
    numbers = [*struct.unpack_from(f"<{count}i", data, old + 4), *inputs]
    data += bytes(-len(data) % 4)
    struct.pack_into("<I", data, field, len(data) - field)
    data += struct.pack(f"<I{len(numbers)}i", len(numbers), *numbers)
    return bytes(data)


def _remove(data: bytearray, vector: int, positions: Collection[int]) -> None:
    """Take entries out of a list of tables; each entry counts from its own place."""
    count = _number(data, vector)
    places = [vector + 4 + 4 * index for index in range(count)]
    kept = [
        place + _number(data, place) for index, place in enumerate(places) if index not in positions
    ]
    struct.pack_into("<I", data, vector, len(kept))
    for place, target in zip(places, kept, strict=False):
        struct.pack_into("<I", data, place, target - place)


def _vector(data: bytearray, table: int, number: int) -> int:
    field = _field(data, table, number)
    return field + _number(data, field)


def _field(data: bytearray, table: int, number: int) -> int:
    """Where a table has a field."""
    (back,) = struct.unpack_from("<i", data, table)
    layout = table - back
    size, _ = struct.unpack_from("<HH", data, layout)
    offset = 0
    if 4 + 2 * number < size:
        (offset,) = struct.unpack_from("<H", data, layout + 4 + 2 * number)
    if not offset:
        raise IndexError(number)
    return table + offset


def _number(data: bytearray, place: int) -> int:
    (number,) = struct.unpack_from("<I", data, place)
    return int(number)
