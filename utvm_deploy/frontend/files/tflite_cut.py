"""A .tflite file without some of its operators, whose tensors become ends of the model.

The file is changed in place: entries of the operators' list go, and new lists of inputs and outputs
are put at the end of the file. So everything else of the file stays as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence

from utvm_deploy.base.errors import ModelError

# Fields of the schema's tables, by their number.
_SUBGRAPHS_OF_MODEL, _INPUTS_OF_SUBGRAPH, _OUTPUTS_OF_SUBGRAPH, _OPERATORS_OF_SUBGRAPH = 2, 1, 2, 3


def without_operators(data: bytes, operators: Collection[int], inputs: Sequence[int]) -> bytes:
    """The file without the operators at these positions, with these tensors as further inputs.

    ModelError if the file is damaged.
    """
    return _cut(data, lambda position: position not in operators, inputs)


def only_operators(
    data: bytes, operators: Collection[int], inputs: Sequence[int], outputs: Sequence[int]
) -> bytes:
    """The file with only the operators at these positions, and these tensors as its ends.

    ModelError if the file is damaged.
    """
    return _cut(data, lambda position: position in operators, inputs, outputs)


def _cut(
    given: bytes,
    is_kept: Callable[[int], bool],
    inputs: Sequence[int],
    outputs: Sequence[int] | None = None,
) -> bytes:
    """Without ``outputs``, those of the file stay, and ``inputs`` are further ones."""
    data = bytearray(given)
    try:
        model = _number(data, 0)
        subgraphs = _vector(data, model, _SUBGRAPHS_OF_MODEL)
        subgraph = subgraphs + 4 + _number(data, subgraphs + 4)
        _remove(data, _vector(data, subgraph, _OPERATORS_OF_SUBGRAPH), is_kept)
        if outputs is None:
            old = _vector(data, subgraph, _INPUTS_OF_SUBGRAPH)
            inputs = (*struct.unpack_from(f"<{_number(data, old)}i", data, old + 4), *inputs)
        else:
            _set_list(data, _field(data, subgraph, _OUTPUTS_OF_SUBGRAPH), outputs)
        _set_list(data, _field(data, subgraph, _INPUTS_OF_SUBGRAPH), inputs)
    except (struct.error, IndexError) as error:
        raise ModelError(
            "the file is damaged or cut short: something in it is said to lie beyond its "
            f"{len(given):,} bytes; copy or convert the model again"
        ) from error
    return bytes(data)


def _set_list(data: bytearray, field: int, numbers: Sequence[int]) -> None:
    """Put a list at the end, and let the field name it."""
    data += bytes(-len(data) % 4)
    struct.pack_into("<I", data, field, len(data) - field)
    data += struct.pack(f"<I{len(numbers)}i", len(numbers), *numbers)


def _remove(data: bytearray, vector: int, is_kept: Callable[[int], bool]) -> None:
    """Take entries out of a list of tables; each entry counts from its own place."""
    count = _number(data, vector)
    places = [vector + 4 + 4 * index for index in range(count)]
    kept = [place + _number(data, place) for index, place in enumerate(places) if is_kept(index)]
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
