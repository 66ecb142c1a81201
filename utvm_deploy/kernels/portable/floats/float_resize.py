"""RESIZE_BILINEAR of float32: neighbours and their shares from tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from utvm_deploy.graph.attributes import ResizeBilinear
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.extents import label
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.operation import Lowering, Operation
from utvm_deploy.kernels.portable.schedules.skeletons import DefaultLoops


@dataclass(frozen=True)
class FloatBilinear(DefaultLoops):
    """RESIZE_BILINEAR; tables have both neighbours and both shares of each row and column."""

    image: tuple[int, int, int, int]
    rows: int
    columns: int

    why: ClassVar[str] = "generic C, neighbours and shares from tables"

    @property
    def name(self) -> str:
        return f"resize_bilinear_float_{label(self.image)}_{self.rows}x{self.columns}"

    def prim_func(self) -> Any:
        batch, _, _, channels = self.image
        image = te.placeholder(self.image, "float32", "input")
        rows = te.placeholder((self.rows, 2), "int32", "rows")
        row_shares = te.placeholder((self.rows, 2), "float32", "row_shares")
        columns = te.placeholder((self.columns, 2), "int32", "columns")
        column_shares = te.placeholder((self.columns, 2), "float32", "column_shares")

        def element(n: Any, y: Any, x: Any, c: Any) -> Any:
            def pixel(row: int, column: int) -> Any:
                value = image[n, rows[y, row], columns[x, column], c]
                return value * row_shares[y, row] * column_shares[x, column]

            total = pixel(0, 0) + pixel(1, 0) + pixel(0, 1) + pixel(1, 1)
            # LiteRT adds 0.0, which makes 0.0 of -0.0; TVM would fold such a sum.
            zero = tirx.const(0.0, "float32")
            return tirx.Select(total == zero, zero, total)

        shape = (batch, self.rows, self.columns, channels)
        output = te.compute(shape, element, name="resize_bilinear")
        return te.create_prim_func([image, rows, row_shares, columns, column_shares, output])


def lower_resize_bilinear(op: Operation) -> KernelCall:
    """RESIZE_BILINEAR."""
    a = op.attributes(ResizeBilinear)
    batch, height, width, channels = op.source.shape
    rows, columns = op.result.shape[1:3]
    row_table, row_shares = float_neighbours(height, rows, a)
    column_table, column_shares = float_neighbours(width, columns, a)
    tables = {
        "rows": row_table,
        "row_shares": row_shares,
        "columns": column_table,
        "column_shares": column_shares,
    }
    kernel = FloatBilinear((batch, height, width, channels), rows, columns)
    return op.call(kernel, tables)


def float_neighbours(size: int, count: int, a: ResizeBilinear) -> tuple[Array, Array]:
    """For each output position both neighbours, and both shares; all in float32, as LiteRT does."""
    one, half = np.float32(1), np.float32(0.5)
    scale = np.float32(size) / np.float32(count)
    if a.align_corners and count > 1:
        scale = np.float32(size - 1) / np.float32(count - 1)
    place = np.arange(count, dtype=np.float32) * scale
    if a.half_pixel_centers:
        place = (np.arange(count, dtype=np.float32) + half) * scale - half
    lower = np.maximum(np.floor(place).astype(np.int32), 0)
    upper = np.minimum(np.ceil(place).astype(np.int32), size - 1)
    share = place - lower.astype(np.float32)
    return np.stack([lower, upper], axis=1), np.stack([one - share, share], axis=1)


FLOAT_LOWERINGS: Mapping[str, Lowering] = {"RESIZE_BILINEAR": lower_resize_bilinear}
