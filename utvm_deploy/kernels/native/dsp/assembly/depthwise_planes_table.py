"""Weights of a depthwise convolution over planes, as the inner block reads them and in few bytes.

    table    int32 [output channel][row][word of two taps], then bias, multiplier, offset, shift
    packed   int8  [output channel][bias (4 bytes), multiplier (4), shift, zero point, taps]
             Taps of int4 have 8 added. Two are in a byte, the first in the lower half.

Requantization takes the doubled sum, so both hold the doubled bias, and the table doubled taps.
With one rounding (``single_rounding.py``), nothing is doubled, and there is no packed form.

At odd strides, word t of a row holds the taps t and t + 1. At even strides, every output meets a
tap in the same half of a word. There a row is its taps in order, with zeros to fill its words.

The packed form saves flash. Its taps are unpacked to a table in scratch, once for a block of
channels, since all rows of the output read them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.native.micro_kernel import HALVES_OFFSET
from utvm_deploy.kernels.native.scaling import Scaling

#: How a row ends whose outputs do not fill the last block. PARTIAL: the last block stores fewer.
#: SHIFTED: it begins earlier and stores some outputs again. SINGLE: the row is one whole block, and
#: each input channel has one output channel.
PARTIAL, SHIFTED, SINGLE = "partial", "shifted", "single"
#: Outputs of a block.
OUTPUTS = (8, 6, 4, 2)
#: The largest windows, whose taps are written out.
LARGEST_ROWS, LARGEST_COLUMNS = 7, 7
#: Words of taps in registers, while a block has at most four outputs.
_MOST_WORDS = 6
_SCALING_WORDS = 4
_PACKED_SCALING_BYTES = 10


class Variant(NamedTuple):
    """A variant of the inner block: what its code and its table depend on."""

    rows: int
    columns: int
    stride: int
    odd: int  # 1: the first window begins at an odd column of the plane
    outputs: int
    tail: str
    once: bool = False  # requantized with one rounding
    halves: bool = False  # the taps of the packed form are int4

    @property
    def words(self) -> int:
        """Words of taps in a row."""
        if self.stride % 2:
            return max(self.columns - 1, 1)
        return -(-(self.columns + self.odd) // 2)

    @property
    def reach(self) -> int:
        """Columns that a block of outputs loads, an even number."""
        return -(-(self.odd + self.stride * (self.outputs - 1) + self.columns) // 2) * 2

    @property
    def tap_words(self) -> int:
        """Words of all taps of a channel; its scaling follows them."""
        return self.rows * self.words

    @property
    def channel_words(self) -> int:
        """Words of the table for an output channel."""
        return self.tap_words + _SCALING_WORDS

    @property
    def packed_bytes(self) -> int:
        """Bytes of an output channel in the packed form."""
        taps = self.rows * self.columns
        return _PACKED_SCALING_BYTES + (-(-taps // 2) if self.halves else taps)

    @property
    def function(self) -> str:
        """The C function of the inner block."""
        odd = "_odd" if self.odd else ""
        window = f"{self.rows}x{self.columns}_s{self.stride}{odd}"
        once = "_once" if self.once else ""
        return f"utvm_planes_{window}_by_{self.outputs}_{self.tail}{once}"

    @property
    def unpack_function(self) -> str:
        """The C function that unpacks a table; it does not depend on the outputs of a block."""
        halves = "pairs" if self.stride % 2 else ("odd" if self.odd else "even")
        return f"utvm_unpack_{self.rows}x{self.columns}_{halves}{'_int4' if self.halves else ''}"

    @property
    def fits(self) -> bool:
        """Whether the window is not too large, and there are enough registers."""
        words = _MOST_WORDS - max(0, self.outputs - 4)
        are_enough = self.outputs <= OUTPUTS[0] and self.words <= words
        return are_enough and self.rows <= LARGEST_ROWS and self.columns <= LARGEST_COLUMNS

    def places(self, tap: int) -> list[tuple[int, int]]:
        """Where a row's words hold a tap: the word, and 1 for its top half."""
        if self.stride % 2 == 0:
            return [divmod(tap + self.odd, 2)]
        return [(word, tap - word) for word in (tap, tap - 1) if 0 <= word < self.words]

    def product(self, tap: int) -> tuple[str, int] | None:
        """The instruction for a word of the plane whose bottom half meets ``tap``.

        Its mnemonic and its word of taps; None if neither half meets a tap of the row.
        """
        met = [one for one in (tap, tap + 1) if 0 <= one < self.columns]
        if not met:
            return None
        word, half = self.places(met[0])[0]
        if len(met) == 2 or self.stride % 2 == 0:
            return "smlad", word
        return f"smla{'bt'[met[0] - tap]}{'bt'[half]}", word


@lru_cache(maxsize=256)
def products_of_block(variant: Variant) -> int:
    """Products of words that a row of a block of outputs takes."""
    return sum(
        variant.product(column - variant.odd - variant.stride * output) is not None
        for column in range(0, variant.reach, 2)
        for output in range(variant.outputs)
    )


def variant_of(
    kernel: tuple[int, int], stride: int, odd: int, outputs: int, output_width: int, multiplier: int
) -> Variant:
    """The variant for rows of ``output_width`` outputs, in blocks of ``outputs``.

    ``multiplier`` counts the outputs of an input channel.
    """
    # The last block can begin earlier only by an even number of columns.
    shift = -output_width % outputs * stride
    tail = PARTIAL if output_width < outputs or shift % 2 else SHIFTED
    if output_width == outputs and multiplier == 1:
        tail = SINGLE
    return Variant(*kernel, stride, odd, outputs, tail)


def pack_table(weights: Array, scaling: Scaling, variant: Variant) -> Array:
    """The table of int32, from weights of [rows, columns, output channels]."""
    factor = 1 if variant.once else 2
    table = np.zeros((weights.shape[2], variant.channel_words), dtype=np.int64)
    for row, tap in np.ndindex(variant.rows, variant.columns):
        taps = factor * weights[row, tap].astype(np.int64) & 0xFFFF
        for word, half in variant.places(tap):
            table[:, row * variant.words + word] |= taps << (16 * half)
    table[:, variant.tap_words :] = np.stack(scaling, axis=1)
    table[:, variant.tap_words] *= factor  # the bias
    packed: Array = table.reshape(-1).astype(np.uint32).view(np.int32)
    return packed


def pack_compact(weights: Array, scaling: Scaling, variant: Variant) -> Array:
    """The packed form of int8, from weights of [rows, columns, output channels]."""
    channels = weights.shape[2]
    packed = np.empty((channels, variant.packed_bytes), dtype=np.int8)
    words = np.stack([2 * scaling.bias.astype(np.int64), scaling.multiplier], axis=1)
    packed[:, :8] = words.astype("<i4").view(np.int8)
    packed[:, 8] = scaling.shift
    packed[:, 9] = np.right_shift(scaling.offset, scaling.shift)
    taps = weights.reshape(-1, channels).T
    if variant.halves:
        stored = np.pad(taps + HALVES_OFFSET, ((0, 0), (0, taps.shape[1] % 2))).astype(np.uint8)
        taps = (stored[:, ::2] | stored[:, 1::2] << 4).view(np.int8)
    packed[:, _PACKED_SCALING_BYTES:] = taps
    return packed.reshape(-1)


@lru_cache(maxsize=32)
def unpack_text(variant: Variant) -> str:
    """The C text of ``unpack_function``: from the packed form to the table."""
    words: dict[int, list[str]] = {}
    for row, tap in np.ndindex(variant.rows, variant.columns):
        number = row * variant.columns + tap
        doubled = f"2 * packed[{_PACKED_SCALING_BYTES + number}]"
        if variant.halves:
            byte = f"(uint8_t)packed[{_PACKED_SCALING_BYTES + number // 2}]"
            value = f"({byte} >> 4)" if number % 2 else f"({byte} & 15)"
            doubled = f"2 * {value} - {2 * HALVES_OFFSET}"
        halves = f"(uint32_t)(uint16_t)({doubled})", f"(uint32_t)({doubled}) << 16"
        for word, half in variant.places(tap):
            words.setdefault(row * variant.words + word, []).append(halves[half])
    end = variant.tap_words
    taps = [f"table[{n}] = (int32_t)({' | '.join(words[n])});" for n in range(end)]
    lines = [
        "int32_t head[2];",
        "__builtin_memcpy(head, packed, 8);",
        "const int32_t shift = packed[8];",
        *taps,
        f"table[{end}] = head[0];",
        f"table[{end + 1}] = head[1];",
        f"table[{end + 2}] = (2 * packed[9] + 1) * (1 << (shift - 1));",
        f"table[{end + 3}] = shift;",
        f"packed += {variant.packed_bytes};",
        f"table += {variant.channel_words};",
    ]
    body = "".join(f"        {line}\n" for line in lines)
    return (
        f"UTVM_ONCE static void {variant.unpack_function}(\n"
        "    const int8_t *packed, int32_t *table, int32_t channels) {\n"
        f"    for (int32_t c = 0; c < channels; c++) {{\n{body}    }}\n}}\n"
    )
