"""AVERAGE_POOL_2D and MAX_POOL_2D; positions outside the image do not count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from utvm_deploy.graph.attributes import Pool
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.contract.call import KernelCall, ScalarArgument, TensorArgument
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.operands import input_of, output_of
from utvm_deploy.kernels.contract.requantization import clamped, divide_rounded
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.portable.tiling import RegisterTile, choose_tile, schedule_accumulation


@dataclass(frozen=True)
class Pool2D:
    """Shape parameters of a pooling layer; its border adds nothing to a sum or a maximum."""

    window: Window
    channels: int
    is_average: bool
    tile: RegisterTile | None = None  # None: what promises the fewest loads
    dtype: str = "int8"

    @property
    def name(self) -> str:
        kind = "average" if self.is_average else "max"
        dtype = "" if self.dtype == "int8" else f"_{self.dtype}"
        return f"{kind}_pool_{self.window.label}_{self.channels}{dtype}"

    def prim_func(self) -> Any:
        w = self.window
        image = te.placeholder((w.batch, w.height, w.width, self.channels), self.dtype, "input")
        low, high = te.var("low", "int32"), te.var("high", "int32")
        border = tirx.const(0 if self.is_average else int(np.iinfo(self.dtype).min), self.dtype)
        padded = w.pad(image, border)
        ky = te.reduce_axis((0, w.kernel[0]), "ky")
        kx = te.reduce_axis((0, w.kernel[1]), "kx")
        reduce = te.sum if self.is_average else te.max
        output_shape = (w.batch, w.output_height, w.output_width, self.channels)
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
        tile = self.tile or choose_tile(1, self.channels)
        _, y, _, c = sch.get_loops(sch.get_sblock("requantize"))
        co, ci = sch.split(c, [None, tile.channels])
        reduced = sch.get_sblock("pool")
        sch.compute_at(reduced, co, preserve_unit_loops=True)
        *_, channel, ky, kx = sch.get_loops(reduced)
        schedule_accumulation(sch, reduced, [ky, kx], [channel])
        sch.unroll(ci)
        if self.window.is_padded:
            self.window.schedule_pad(sch, y)
        return f"generic C, {tile.channels} channels in registers"


def lower_pool(graph: Graph, operator: Operator) -> KernelCall:
    """AVERAGE_POOL_2D and MAX_POOL_2D."""
    attributes = operator.attributes
    assert isinstance(attributes, Pool)
    image, source = input_of(graph, operator, 0)
    output, result = output_of(graph, operator)
    window = Window.of(
        source.shape,
        result.shape,
        attributes.window,
        attributes.strides,
        (1, 1),
        attributes.padding,
    )
    return KernelCall(
        Pool2D(window, source.shape[3], operator.kind == "AVERAGE_POOL_2D", dtype=source.dtype),
        (
            TensorArgument(image),
            ScalarArgument("low", attributes.clamp[0]),
            ScalarArgument("high", attributes.clamp[1]),
            TensorArgument(output),
        ),
    )
