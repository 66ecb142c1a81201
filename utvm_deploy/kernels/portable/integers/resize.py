"""RESIZE_BILINEAR: four neighbours, weighted in 1/1024 along each axis, by tables made here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from utvm_deploy.graph.attributes import SHARES, ResizeBilinear
from utvm_deploy.kernels.contract.c_texts import replaced, shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.extents import label
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.contract.routine_call import CRoutine, parameters_of
from utvm_deploy.kernels.isa.assembler import Assembler
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.dsp import CONDITION
from utvm_deploy.kernels.isa.mnemonics import at, post
from utvm_deploy.kernels.portable.schedules.skeletons import DefaultLoops

_WORD = 4
_ROWS = "const int8_t *upper, const int8_t *lower, int32_t share, int32_t *pixel, int32_t fours"
_COLUMNS = "const int32_t *left, const int32_t *right, int32_t share, int8_t *output, int32_t fours"
_TOTALS, _OTHERS = ("r6", "r7", "r8", "r9"), ("r10", "r11")
_ONE = SHARES


@dataclass(frozen=True)
class Int16Bilinear(DefaultLoops):
    """RESIZE_BILINEAR of int16 in 64 bits; a table has an entry for each output row or column.

    The entry is both neighbours in the input, and the share of the second one.
    """

    image: tuple[int, int, int, int]
    rows: int
    columns: int

    why: ClassVar[str] = "generic C, neighbours and shares from tables, in 64 bits"

    @property
    def name(self) -> str:
        return f"resize_bilinear_{label(self.image)}_{self.rows}x{self.columns}_int16"

    def prim_func(self) -> Any:
        batch, _, _, channels = self.image
        image = te.placeholder(self.image, "int16", "input")
        rows = te.placeholder((self.rows, 3), "int32", "rows")
        columns = te.placeholder((self.columns, 3), "int32", "columns")

        def element(n: Any, y: Any, x: Any, c: Any) -> Any:
            def pixel(row: int, column: int) -> Any:
                share_y = rows[y, 2] if row else _ONE - rows[y, 2]
                share_x = columns[x, 2] if column else _ONE - columns[x, 2]
                value = image[n, rows[y, row], columns[x, column], c].astype("int64")
                return value * (share_y * share_x).astype("int64")

            total = pixel(0, 0) + pixel(1, 0) + pixel(0, 1) + pixel(1, 1)
            place = tirx.Var("place", "int64")
            half = tirx.const(_ONE * _ONE // 2, "int64")
            nearest = tirx.if_then_else(place > 0, place + half, place - half)
            return tirx.Let(place, total, tirx.truncdiv(nearest, _ONE * _ONE)).astype("int16")

        output = te.compute(
            (batch, self.rows, self.columns, channels), element, name="resize_bilinear"
        )
        return te.create_prim_func([image, rows, columns, output])


@code_cache
def weigh_texts(core: str) -> tuple[str, ...]:
    """The C texts that blend rows, then columns, of some fours of channels, ordered for a core."""
    rows = Assembler(core, _ROWS)
    with _fours(rows):
        rows.ldr("r4", post("r0", 4))
        rows.ldr("r5", post("r1", 4))
        for n, total in enumerate(_TOTALS):
            other = _OTHERS[n % 2]
            rows.sxtb(total, "r4", f"ror #{8 * n}") if n else rows.sxtb(total, "r4")
            rows.sxtb(other, "r5", f"ror #{8 * n}") if n else rows.sxtb(other, "r5")
            rows.mul(total, total, "lr")
            rows.mla(total, other, "r2", total)
            rows.str(total, at("r3", 4 * n))
        rows.add("r3", "r3", 16)
    columns = Assembler(core, _COLUMNS)
    with _fours(columns):
        for n, total in enumerate(_TOTALS):
            columns.ldr(total, at("r0", 4 * n))
            columns.ldr(("r4", "r5")[n % 2], at("r1", 4 * n))
            columns.mul(total, total, "lr")
            columns.mla(total, ("r4", "r5")[n % 2], "r2", total)
        for total in _TOTALS:
            columns.add(total, total, total, "asr #31")
            columns.add(total, total, _ONE * _ONE // 2)
            columns.asr(total, total, 20)
        for n, total in enumerate(_TOTALS):
            columns.strb(total, at("r3", n))
        columns.add("r0", "r0", 16)
        columns.add("r1", "r1", 16)
        columns.add("r3", "r3", 4)
    return (
        rows.c_function("utvm_weigh_rows", shared_text("utvm_weigh_rows"), CONDITION),
        columns.c_function("utvm_weigh_columns", shared_text("utvm_weigh_columns"), CONDITION),
    )


@contextmanager
def _fours(a: Assembler) -> Iterator[None]:
    """The loop of such a routine; lr is the first neighbour's share."""
    a.enter()
    a.load(r12=a.stack_argument("fours"))
    a.rsb("lr", "r2", _ONE)
    with a.loop("ne", aligned=True), a.scheduled(is_loop=True):
        yield
        a.subs("r12", "r12", 1)
    a.leave()


def lower_resize_bilinear(op: Operation) -> KernelCall:
    """RESIZE_BILINEAR of int8 or int16."""
    a = op.attributes(ResizeBilinear)
    source, result = op.source, op.result
    batch, height, width, channels = source.shape
    rows, columns = result.shape[1:3]
    entries = {
        "rows": a.rows or a.neighbours(height, rows),
        "columns": a.neighbours(width, columns),
    }
    tables = {name: np.array(table, np.int32) for name, table in entries.items()}
    if source.dtype == "int16":
        image = (batch, height, width, channels)
        return op.call(Int16Bilinear(image, rows, columns), tables)
    name = f"resize_bilinear_{label(source.shape)}_{rows}x{columns}"
    why = "generic C, neighbours and shares from tables"
    function, routine = "utvm_bilinear", shared_text("utvm_bilinear")
    texts = ["utvm_word", "utvm_blend"]
    # All shares are multiples of 1/16, as when sizes are doubled.
    is_coarse = not any((table[:, 2] % (_ONE // 16)).any() for table in tables.values())
    scratch: tuple[Operand, ...] = ()
    assembly = None
    if is_coarse and channels % _WORD == 0 and columns > width:
        name, why = f"{name}_lines", "generic C, two rows to a line, then two of its pixels"
        function, routine = "utvm_bilinear_lines", shared_text("utvm_bilinear_lines")
        texts.remove("utvm_blend")
        scratch = (Operand("line", (width * channels // 2,), "uint32"),)
    elif not is_coarse and channels >= _WORD and columns > width:
        name, why = f"{name}_pixels", "two rows of a pixel, then two such pixels"
        function, routine = "utvm_bilinear_pixels", shared_text("utvm_bilinear_pixels")
        texts, assembly = [], weigh_texts
        scratch = (Operand("held", (2 * channels,), "int32"),)
    elif is_coarse and channels >= _WORD:
        name, why = f"{name}_coarse", f"{why}, two elements at a time"
        function = "utvm_bilinear_coarse"
        texts.append("utvm_blend_lanes")
        names = ("utvm_bilinear", function, 1), ("utvm_blend", "utvm_blend_lanes", 1)
        routine = replaced(routine, *names)
    kernel = CRoutine(
        function,
        parameters_of(op, tables),
        (height, width, channels, rows, columns, batch),
        scratch,
        name=name,
        why=why,
        c_texts=(*map(shared_text, texts), routine),
        assembly=assembly,
    )
    return op.call(kernel, tables)


LOWERINGS = {"RESIZE_BILINEAR": lower_resize_bilinear}
