"""AVERAGE_POOL_2D and MAX_POOL_2D; positions outside the image do not count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from utvm_deploy.graph.attributes import Pool
from utvm_deploy.graph.element_type import element_type
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.extents import type_label
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.contract.requantization import clamped, divide_rounded
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.portable.schedules.tiling import (
    RegisterTile,
    choose_tile,
    schedule_accumulation,
)


@dataclass(frozen=True)
class Pool2D:
    """Shape parameters of a pooling layer; its border does not change a sum or a maximum."""

    window: Window
    channels: int
    is_average: bool
    tile: RegisterTile | None = None  # None: the tile with the fewest loads
    dtype: str = "int8"

    @property
    def name(self) -> str:
        kind = "average" if self.is_average else "max"
        return f"{kind}_pool_{self.window.label}_{self.channels}{type_label(self.dtype)}"

    @property
    def tile_extents(self) -> tuple[int, int]:
        """The pixels and the channels that a tile divides."""
        return 1, self.channels

    def prim_func(self) -> Any:
        w = self.window
        image = te.placeholder(w.input_shape(self.channels), self.dtype, "input")
        low, high = te.var("low", "int32"), te.var("high", "int32")
        border = 0 if self.is_average else element_type(self.dtype).limits[0]
        padded = w.pad(image, tirx.const(border, self.dtype))
        ky, kx = w.taps()
        reduce = te.sum if self.is_average else te.max
        output_shape = w.output_shape(self.channels)
        reduced = te.compute(
            output_shape,
            lambda n, y, x, c: reduce(
                padded[n, w.row(y, ky), w.column(x, kx), c].astype("int32"), axis=[ky, kx]
            ),
            name="pool",
        )

        def element(n: Any, y: Any, x: Any, c: Any) -> Any:
            value = reduced[n, y, x, c]
            if self.is_average:
                value = divide_rounded(value, w.covered(y, x))
            return clamped(value, low, high, self.dtype)

        output = te.compute(output_shape, element, name="requantize")
        return te.create_prim_func([image, low, high, output])

    def schedule(self, sch: Any, core: str) -> str:
        tile = self.tile or choose_tile(*self.tile_extents)
        return schedule_pool(sch, self.window, tile.channels, "requantize")


def schedule_pool(sch: Any, window: Window, channels: int, result: str) -> str:
    """Reduce the stage "pool" for some channels at a time; ``result`` is the stage that reads it.

    Returns what was done, for the report.
    """
    _, y, _, c = sch.get_loops(sch.get_sblock(result))
    co, ci = sch.split(c, [None, channels])
    reduced = sch.get_sblock("pool")
    sch.compute_at(reduced, co, preserve_unit_loops=True)
    *_, channel, ky, kx = sch.get_loops(reduced)
    schedule_accumulation(sch, reduced, [ky, kx], [channel])
    sch.unroll(ci)
    if window.is_padded:
        window.schedule_pad(sch, y)
    return f"generic C, {channels} channels in registers"


def lower_pool(op: Operation) -> KernelCall:
    """AVERAGE_POOL_2D and MAX_POOL_2D."""
    attributes = op.attributes(Pool)
    source, result = op.source, op.result
    shapes = source.shape, result.shape, attributes.window, attributes.strides
    window = Window.of(*shapes, (1, 1), attributes.padding)
    is_average = op.kind == "AVERAGE_POOL_2D"
    kernel = Pool2D(window, source.shape[3], is_average, dtype=source.dtype)
    low, high = attributes.clamp
    return op.call(kernel, {"low": low, "high": high})


LOWERINGS = {"AVERAGE_POOL_2D": lower_pool, "MAX_POOL_2D": lower_pool}
