"""RESIZE_BILINEAR of int16: a weighted sum of four neighbours in 64 bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from utvm_deploy.kernels.contract.extents import label
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.portable.skeletons import DefaultLoops

#: The shares of two neighbours add up to this.
ONE = 1 << 10


@dataclass(frozen=True)
class Int16Bilinear(DefaultLoops):
    """Shapes; a table has an entry for each output row or column.

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
                share_y = rows[y, 2] if row else ONE - rows[y, 2]
                share_x = columns[x, 2] if column else ONE - columns[x, 2]
                value = image[n, rows[y, row], columns[x, column], c].astype("int64")
                return value * (share_y * share_x).astype("int64")

            total = pixel(0, 0) + pixel(1, 0) + pixel(0, 1) + pixel(1, 1)
            place = tirx.Var("place", "int64")
            half = tirx.const(ONE * ONE // 2, "int64")
            nearest = tirx.if_then_else(place > 0, place + half, place - half)
            return tirx.Let(place, total, tirx.truncdiv(nearest, ONE * ONE)).astype("int16")

        output = te.compute(
            (batch, self.rows, self.columns, channels), element, name="resize_bilinear"
        )
        return te.create_prim_func([image, rows, columns, output])
