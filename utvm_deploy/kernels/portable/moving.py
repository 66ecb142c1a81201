"""MOVE, SHIFT and DYNAMIC_UPDATE_SLICE: runs of bytes to other addresses, or over old ones."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass
from typing import ClassVar

from utvm_deploy.graph.attributes import Move, Shift
from utvm_deploy.graph.element_type import element_type
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import Address, Driver, Index, Operand
from utvm_deploy.kernels.contract.extents import label
from utvm_deploy.kernels.contract.lag import Lag
from utvm_deploy.kernels.contract.operands import stored
from utvm_deploy.kernels.contract.operation import Operation


@dataclass(frozen=True)
class Moved:
    """``output[i] = input[start + i]`` for ``count`` bytes, of an input of ``size`` bytes.

    ``dtype`` is that of the elements, for the pointers' types in C.
    """

    size: int
    start: int
    count: int
    dtype: str = "int8"

    scratch: ClassVar[tuple[Operand, ...]] = ()
    why: ClassVar[str] = "copy by blocks of 16 bytes"

    @property
    def name(self) -> str:
        of_type = "" if self.dtype == "int8" else f"{self.dtype}_"
        return f"move_{of_type}{self.start}_{self.count}_of_{self.size}"

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        return self._source, self._output

    @property
    def lag(self) -> Lag:
        """The output may begin where the run does, or before."""
        return Lag(-self.start)

    def texts(self, core: str) -> tuple[str, ...]:
        return (shared_text("utvm_move"),)

    def drive(self, c: Driver) -> None:
        if self.dtype == "int8":
            c.call("utvm_move", self._output.at(), self._source.at(self.start), self.count)
            return
        source = f"(const int8_t *)(const void *){self._source.name} + {self.start}"
        c.call("utvm_move", f"(int8_t *)(void *){self._output.name}", source, self.count)

    @property
    def _source(self) -> Operand:
        return Operand("input", (self._elements(self.size),), self.dtype)

    @property
    def _output(self) -> Operand:
        return Operand("output", (self._elements(self.count),), self.dtype)

    def _elements(self, size: int) -> int:
        return 8 * size // element_type(self.dtype).bits


@dataclass(frozen=True)
class Shifted:
    """Each of ``rows`` rows without its first ``added`` elements, and a second input's behind them.

    The output may have the bytes of the first input: each row moves to its own beginning.
    """

    rows: int
    size: int  # elements of a row
    added: int
    dtype: str = "int8"

    scratch: ClassVar[tuple[Operand, ...]] = ()
    why: ClassVar[str] = "copy by blocks of 16 bytes"

    @property
    def name(self) -> str:
        return f"shift_{self.rows}_{self.size}_{self.added}_{self.dtype}"

    @property
    def parameters(self) -> tuple[Operand, Operand, Operand]:
        sizes = {"input": self.size, "added": self.added, "output": self.size}
        source, added, output = (
            Operand(one, (self.rows, size), self.dtype) for one, size in sizes.items()
        )
        return source, added, output

    def texts(self, core: str) -> tuple[str, ...]:
        return (shared_text("utvm_move"),)

    def drive(self, c: Driver) -> None:
        source, added, output = self.parameters
        kept = self.size - self.added
        with c.loop("row", self.rows) as row:
            for to, start, count in (
                (output.at(row), source.at(row, self.added), kept),
                (output.at(row, kept), added.at(row), self.added),
            ):
                size = element_type(self.dtype).size_bytes(count)
                c.call("utvm_move", f"(int8_t *)({to})", f"(const int8_t *)({start})", size)


@dataclass(frozen=True)
class UpdatedSlice:
    """The input with a second one over a part of it, which begins where ``starts`` say.

    Dimensions are merged with those behind them that the part fills. The output may have the bytes
    of the input: then only the part is written.
    """

    # Of each dimension: its extent, that of the part, the elements of one place, and its number
    # among those of the file.
    extents: tuple[int, ...]
    sizes: tuple[int, ...]
    units: tuple[int, ...]
    axes: tuple[int, ...]
    rank: int  # of the file's tensors
    dtype: str
    starts: str  # int32 or int64

    scratch: ClassVar[tuple[Operand, ...]] = ()
    why: ClassVar[str] = "copy of the part alone if the rest stays in place"

    @property
    def name(self) -> str:
        shape = f"{label(self.sizes)}_of_{label(self.extents)}_by_{label(self.units)}"
        return f"update_{shape}_{label(self.axes)}_of_{self.rank}_{self.dtype}_{self.starts}"

    @property
    def parameters(self) -> tuple[Operand, Operand, Operand, Operand]:
        source, part, output = (
            Operand(one, shape, self.dtype)
            for one, shape in (
                ("input", self.extents),
                ("part", self.sizes),
                ("output", self.extents),
            )
        )
        return source, part, Operand("starts", (self.rank,), self.starts), output

    def texts(self, core: str) -> tuple[str, ...]:
        return (shared_text("utvm_move"), shared_text("utvm_update"))

    def drive(self, c: Driver) -> None:
        source, part, _, output = self.parameters
        c.call("utvm_unless_there", _bytes(output.at()), _bytes(source.at()), source.size_bytes)
        to, places = Index(), zip(self.extents, self.sizes, self.units, self.axes, strict=True)
        for i, (extent, size, unit, axis) in enumerate(places):
            start = f"utvm_start(starts[{axis}], {(extent - size) // unit})"
            to = c.number(f"start_{i}", f"{to} + {output.stride(i) * unit} * {start}")
        with ExitStack() as stack:
            counters = []
            for i, size in enumerate(self.sizes[:-1]):
                counters.append(stack.enter_context(c.loop(f"i_{i}", size)))
                to = c.number(f"to_{i}", f"{to + output.stride(i) * counters[-1]}")
            count = element_type(self.dtype).size_bytes(self.sizes[-1])
            there = _bytes(Address(output.name, to))
            c.call("utvm_move", there, _bytes(part.at(*counters)), count)


def _bytes(address: Address) -> str:
    """An address as one of bytes, in C."""
    is_source = address.buffer != "output"
    return f"({'const ' * is_source}int8_t *)({'const ' * is_source}void *)({address})"


def lower_update_slice(op: Operation) -> KernelCall:
    """DYNAMIC_UPDATE_SLICE of any dimensions and type."""
    extents, sizes, units, axes = [1], [1], [1], [0]
    shapes = zip(op.source.shape, op.input(1).shape, strict=True)
    for axis, (extent, size) in enumerate(shapes):
        if extent == size:  # it begins at 0, wherever that is
            extents[-1], sizes[-1], units[-1] = (
                one[-1] * extent for one in (extents, sizes, units)
            )
        else:
            extents.append(extent)
            sizes.append(size)
            units.append(1)
            axes.append(axis)
    starts = op.input(2)
    kernel = UpdatedSlice(
        tuple(extents),
        tuple(sizes),
        tuple(units),
        tuple(axes),
        max(len(op.source.shape), 1),
        stored(op.source.dtype),
        starts.dtype,
    )
    return op.call(kernel, inputs=(0, 1, 2), in_place=[0])


def lower_move(op: Operation) -> KernelCall:
    """MOVE of any type."""
    source, result = op.source, op.result
    start = source.element.size_bytes(op.attributes(Move).start)
    kernel = Moved(source.size_bytes, start, result.size_bytes, source.dtype)
    return op.call(kernel)


def lower_shift(op: Operation) -> KernelCall:
    """SHIFT of any type."""
    axis, result, added = op.attributes(Shift).axis, op.result, op.input(1)
    size, new = (math.prod(one.shape[axis:]) for one in (result, added))
    kernel = Shifted(math.prod(result.shape[:axis]), size, new, stored(result.dtype))
    return op.call(kernel, inputs=(0, 1), in_place=[0])


LOWERINGS = {
    "DYNAMIC_UPDATE_SLICE": lower_update_slice,
    "MOVE": lower_move,
    "SHIFT": lower_shift,
}
