"""Micro-kernels of convolutions: what they have in common, and the layout of their tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import (
    ConstantArgument,
    KernelCall,
    NativeKernel,
    ScalarArgument,
)
from utvm_deploy.kernels.contract.driver import Operand

#: Added to weights of int4 in packed tables.
HALVES_OFFSET = 8


class MicroKernel(Protocol):
    """A C function of scheduled assembly, and what the report says of it."""

    @property
    def label(self) -> str:
        """Part of the kernel's name."""

    @property
    def function(self) -> str:
        """The C function's name."""

    @property
    def why(self) -> str:
        """What it does, for the report."""

    def texts(self, core: str) -> tuple[str, ...]:
        """The C texts that define the function, ordered for a core."""


def table_arguments(
    packed: Iterable[tuple[Array, Array]], limits: Sequence[int]
) -> tuple[ConstantArgument, ...]:
    """The arguments for weights, scaling and limits; ``packed``: the first two, of each group."""
    weights, scaling = (np.concatenate(tables) for tables in zip(*packed, strict=True))
    return (
        ConstantArgument("weights", weights),
        ConstantArgument("scaling", scaling),
        ConstantArgument("limits", np.array(limits, dtype=np.int32)),
    )


def windows_call(
    call: KernelCall,
    kernel: NativeKernel,
    geometry: Array,
    tables: Iterable[ConstantArgument],
    border: int,
    *others: ConstantArgument,
) -> KernelCall:
    """The call of a kernel that takes the geometry of windows, instead of the portable call."""
    arguments = (
        call.arguments[0],
        ConstantArgument("geometry", geometry),
        *tables,
        ScalarArgument("border", border),
        *others,
        call.arguments[-1],
    )
    return replace(call, kernel=kernel, arguments=arguments)


def equal_blocks(total: int, size: int) -> list[tuple[int, int, int]]:
    """Blocks of ``size`` elements, then of the rest: the first element, how many blocks, size."""
    size = min(size, total)
    count, rest = divmod(total, size)
    runs = [(0, count, size), (count * size, 1, rest)]
    return runs if rest else runs[:1]


def by_groups(rows: Array | Sequence[Array], size: int) -> Array:
    """[row, channel] -> [group of ``size`` channels, row, slot], with zeros where channels end."""
    table = np.asarray(rows)
    count, channels = table.shape
    filled = np.pad(table, ((0, 0), (0, -channels % size)))
    return np.ascontiguousarray(filled.reshape(count, -1, size).swapaxes(0, 1))


def line_of(line: Operand) -> str:
    """Scratch of words as the bytes that weights of int4 are unpacked to."""
    return f"(int8_t *){line.name}"


def packed_halves(table: Array) -> Array:
    """A table of int8 whose values are those of int4, in half of the bytes.

    A packed word has two words of the table. The lower halves of its bytes are the bytes of the
    first, the upper halves those of the second. Each has ``HALVES_OFFSET`` added. Zeros fill up the
    last word.
    """
    flat = table.reshape(-1)
    words = np.pad(flat, (0, -flat.size % 8)).reshape(-1, 2, 4)
    stored = (words.astype(np.int16) + HALVES_OFFSET).astype(np.uint8)
    packed: Array = (stored[:, 0] | stored[:, 1] << 4).reshape(-1).view(np.int8)
    return packed
