"""A depthwise table in few bytes of flash, and the C that makes of it what the inner block reads.

packed  int8 [output channel][bias (4 bytes) | multiplier (4) | right shift | zero point | taps]

The bias is doubled, as in the table; its offset is what the zero point and the shift come to. A
block of channels is unpacked once, before its first row, into scratch: the assembly then reads it
from there row by row, where otherwise it would fetch larger tables from flash each time.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.native.dsp.depthwise_planes_code import PlanesForm
from utvm_deploy.kernels.native.scaling import Scaling

_HEAD_BYTES = 10


def packed_bytes(form: PlanesForm) -> int:
    """Of a channel."""
    return _HEAD_BYTES + form.rows * form.columns


def pack_compact(weights: Array, scaling: Scaling, form: PlanesForm) -> Array:
    """[rows, columns, channels] and the scales -> the layout above."""
    channels = weights.shape[2]
    packed = np.empty((channels, packed_bytes(form)), dtype=np.int8)
    words = np.stack([2 * scaling.bias.astype(np.int64), scaling.multiplier], axis=1)
    packed[:, :8] = words.astype("<i4").view(np.int8)
    packed[:, 8] = scaling.shift
    packed[:, 9] = np.right_shift(scaling.offset, scaling.shift)
    packed[:, _HEAD_BYTES:] = weights.reshape(-1, channels).T
    return packed.reshape(-1)


def unpack_name(form: PlanesForm) -> str:
    """The C function for a form."""
    halves = "pairs" if form.stride % 2 else ("odd" if form.odd else "even")
    return f"utvm_unpack_{form.rows}x{form.columns}_{halves}"


@lru_cache(maxsize=32)
def unpack_text(form: PlanesForm) -> str:
    """The C text of the function, the same for all numbers of outputs at a time."""
    lines = [
        f"UTVM_ONCE static void {unpack_name(form)}(",
        "    const int8_t *packed, int32_t *table, int32_t channels) {",
        "    for (int32_t c = 0; c < channels; c++) {",
        "        int32_t head[2];",
        "        __builtin_memcpy(head, packed, 8);",
        "        const int32_t shift = packed[8];",
    ]
    tap = _HEAD_BYTES
    word = 0
    for _ in range(form.rows):
        halves: dict[int, list[str]] = {}
        for column in range(form.columns):
            value = f"packed[{tap + column}]"
            places = [form.place(column)]
            if form.stride % 2 and 0 < column < form.columns - 1:
                places.append((column - 1, 1))
            for at, half in places:
                low = f"(uint32_t)(uint16_t)(2 * {value})"
                high = f"(uint32_t)(2 * {value}) << 16"
                halves.setdefault(at, []).append(high if half else low)
        for at in range(form.words):
            lines.append(f"        table[{word + at}] = (int32_t)({' | '.join(halves[at])});")
        tap += form.columns
        word += form.words
    lines += [
        f"        table[{word}] = head[0];",
        f"        table[{word + 1}] = head[1];",
        f"        table[{word + 2}] = (2 * packed[9] + 1) * (1 << (shift - 1));",
        f"        table[{word + 3}] = shift;",
        f"        packed += {tap};",
        f"        table += {word + 4};",
        "    }",
        "}",
    ]
    return "\n".join(lines) + "\n"
