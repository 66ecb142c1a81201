"""CONV_3D of float32.

The order of additions is that of LiteRT's reference kernel: one sum that begins with 0, by depths,
rows, columns and channels of the window, then the bias. The reference skips positions outside of
the volume. There, the kernel adds 0, which changes no sum that begins with 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from utvm_deploy.graph.attribute_values import Limits
from utvm_deploy.graph.attributes import Convolution3D
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.extents import label
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.operation import Lowering, Operation
from utvm_deploy.kernels.portable.schedules.float_values import float_bias, limited, limits_label
from utvm_deploy.kernels.portable.schedules.tiling import choose_tile, schedule_accumulation


@dataclass(frozen=True)
class FloatConv3D:
    """Shape parameters; weights are [depth, row, column, input channel, output channel]."""

    volume: tuple[int, ...]  # [batch, depths, rows, columns, channels], as the output
    output: tuple[int, ...]
    kernel: tuple[int, int, int]
    strides: tuple[int, int, int]
    dilations: tuple[int, int, int]
    before: tuple[int, int, int]  # padding in front, on top and on the left
    limits: Limits

    @property
    def name(self) -> str:
        window = f"{label(self.kernel)}_s{label(self.strides)}_d{label(self.dilations)}"
        shapes = f"p{label(self.before)}_{label(self.volume)}_{label(self.output)}"
        return f"conv3d_float_{window}_{shapes}{limits_label(self.limits)}"

    @property
    def block(self) -> int:
        """The output channels that are computed together."""
        return choose_tile(1, self.output[4]).channels

    def prim_func(self) -> Any:
        volume = te.placeholder(self.volume, "float32", "input")
        shape = (*self.kernel, self.volume[4], self.output[4])
        weights = te.placeholder(shape, "float32", "weights")
        bias = te.placeholder((self.output[4],), "float32", "bias")
        taps = [
            te.reduce_axis((0, extent), name)
            for extent, name in zip(self.kernel, ("kz", "ky", "kx"), strict=True)
        ]
        ci = te.reduce_axis((0, self.volume[4]), "ci")

        def product(n: Any, z: Any, y: Any, x: Any, o: Any) -> Any:
            at = [self._source(place, taps[axis], axis) for axis, place in enumerate((z, y, x))]
            value = volume[n, at[0], at[1], at[2], ci] * weights[taps[0], taps[1], taps[2], ci, o]
            checks = [
                check
                for axis, place in enumerate(at)
                if self._leaves(axis)
                for check in (place >= 0, place < self.volume[1 + axis])
            ]
            if checks:
                value = tirx.if_then_else(tirx.all(*checks), value, tirx.const(0.0, "float32"))
            return te.sum(value, axis=[*taps, ci])

        sums = te.compute(self.output, product, name="sums")
        output = te.compute(
            self.output,
            lambda n, z, y, x, o: limited(sums[n, z, y, x, o] + bias[o], self.limits),
            name="output",
        )
        return te.create_prim_func([volume, weights, bias, output])

    def _source(self, place: Any, tap: Any, axis: int) -> Any:
        """Where a tap of the window at an output's place is."""
        return place * self.strides[axis] + tap * self.dilations[axis] - self.before[axis]

    def _leaves(self, axis: int) -> bool:
        """Whether a window lies partly outside of the volume."""
        last = self._source(self.output[1 + axis] - 1, self.kernel[axis] - 1, axis)
        return self.before[axis] > 0 or bool(last >= self.volume[1 + axis])

    def schedule(self, sch: Any, core: str) -> str:
        *_, o = sch.get_loops(sch.get_sblock("output"))
        oo, oi = sch.split(o, [None, self.block])
        sums = sch.get_sblock("sums")
        sch.compute_at(sums, oo, preserve_unit_loops=True)
        *_, channel, kz, ky, kx, ci = sch.get_loops(sums)
        schedule_accumulation(sch, sums, [kz, ky, kx, ci], [channel])
        sch.unroll(oi)
        return f"generic C, {self.block} channels in registers"


def lower_conv3d(op: Operation) -> KernelCall:
    """CONV_3D."""
    a, weights = op.attributes(Convolution3D), op.constant(1)
    depths, rows, columns, inputs, outputs = weights.shape
    before = (a.padding[0][0], a.padding[1][0], a.padding[2][0])
    kernel = FloatConv3D(
        op.source.shape,
        op.result.shape,
        (depths, rows, columns),
        a.strides,
        a.dilations,
        before,
        a.limits,
    )
    parameters = {"weights": weights, "bias": float_bias(op, outputs)}
    macs = math.prod(op.result.shape) * depths * rows * columns * inputs
    return op.call(kernel, parameters, macs=macs)


FLOAT_LOWERINGS: Mapping[str, Lowering] = {"CONV_3D": lower_conv3d}
