"""FULLY_CONNECTED: several outputs at once, so that an input is loaded once for all of them.

The reference multiplies the accumulator by a double here, unlike in convolutions. The kernel
computes the same product exactly in integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.graph.attributes import FullyConnected
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.lazy_tvm import te
from utvm_deploy.kernels.contract.operands import element_count, quantization_of
from utvm_deploy.kernels.contract.operation import Operation, Parameters
from utvm_deploy.kernels.contract.packed_weights import (
    weights_label,
    weights_of_kernel,
    weights_table,
)
from utvm_deploy.kernels.contract.requantization import (
    ExactMultiplier,
    add_wrapping,
    clamped,
    exact_multiplier,
    fold_input_offset,
    requantize_exact,
)
from utvm_deploy.kernels.portable.schedules.skeletons import int32s, tables_of
from utvm_deploy.kernels.portable.schedules.tiling import (
    RegisterTile,
    choose_tile,
    schedule_accumulation,
)

_MULTIPLIER = tuple(f"multiplier_{field}" for field in ExactMultiplier._fields)


@dataclass(frozen=True)
class Dense:
    """Shape parameters of a fully connected layer; weights are [outputs, inputs]."""

    batch: int
    inputs: int
    outputs: int
    per_channel: bool  # multipliers are tables with an entry for each output
    tile: RegisterTile | None = None  # None: the tile with the fewest loads
    weights: str = "int8"  # their element type

    @property
    def name(self) -> str:
        batch = f"_n{self.batch}" if self.batch != 1 else ""
        channel = "_per_channel" if self.per_channel else ""
        channel += weights_label(self.weights)
        return f"fully_connected{batch}_{self.inputs}x{self.outputs}{channel}"

    @property
    def tile_extents(self) -> tuple[int, int]:
        """The pixels and the channels that a tile divides."""
        return self.batch, self.outputs

    def prim_func(self) -> Any:
        vector = te.placeholder((self.batch, self.inputs), "int8", "input")
        weights, weight = weights_of_kernel((self.outputs, self.inputs), self.weights)
        (bias,) = tables_of(self.outputs, "bias")
        multipliers = (
            tables_of(self.outputs, *_MULTIPLIER)
            if self.per_channel
            else list(int32s(_MULTIPLIER).values())
        )
        scalars = list(int32s(("output_zero_point", "low", "high")).values())
        output_zero_point, low, high = scalars
        k = te.reduce_axis((0, self.inputs), "k")
        accumulated = te.compute(
            (self.batch, self.outputs),
            lambda n, o: te.sum(vector[n, k].astype("int32") * weight(o, k), k),
            name="fully_connected",
        )

        def element(n: Any, o: Any) -> Any:
            fields = [m[o] if self.per_channel else m for m in multipliers]
            total = add_wrapping(accumulated[n, o], bias[o])
            scaled = requantize_exact(total, ExactMultiplier(*fields))
            return clamped(scaled + output_zero_point, low, high)

        output = te.compute((self.batch, self.outputs), element, name="requantize")
        return te.create_prim_func([vector, weights, bias, *multipliers, *scalars, output])

    def schedule(self, sch: Any, core: str) -> str:
        tile = self.tile or choose_tile(*self.tile_extents)
        n, o = sch.get_loops(sch.get_sblock("requantize"))
        no, ni = sch.split(n, [None, tile.pixels])
        oo, oi = sch.split(o, [None, tile.channels])
        # With the outputs outermost, each weight is loaded once.
        sch.reorder(oo, no, ni, oi)
        accumulated = sch.get_sblock("fully_connected")
        sch.compute_at(accumulated, no, preserve_unit_loops=True)
        *_, row, column, k = sch.get_loops(accumulated)
        schedule_accumulation(sch, accumulated, [k], [row, column])
        sch.unroll(oi)
        sch.unroll(ni)
        return f"generic C, {tile.pixels} rows x {tile.channels} outputs in registers"


def lower_fully_connected(op: Operation) -> KernelCall:
    """FULLY_CONNECTED; leading dimensions of the output are the batch."""
    attributes = op.attributes(FullyConnected)
    source, weights = op.source, op.constant(1)
    result = op.result
    outputs, inputs = weights.shape
    quantization = quantization_of(op.input(1))
    if any(quantization.zero_points):
        raise UnsupportedOperator(
            f"FULLY_CONNECTED {result.name} has weights with zero point "
            f"{quantization.zero_points[0]}; only symmetric int8 weights (zero point 0) work"
        )
    per_channel = len(quantization.scales) > 1
    dtype, batch = op.input(1).dtype, element_count(result) // outputs
    kernel = Dense(batch, inputs, outputs, per_channel, weights=dtype)
    zero_point = quantization_of(source).zero_point
    bias = fold_input_offset(op.bias(outputs), weights, zero_point)
    parameters: Parameters = {
        "weights": weights_table(weights, dtype),
        "bias": bias,
        **_multipliers(op.scales(outputs), per_channel),
        **op.output_parameters(attributes.clamp),
    }
    macs = kernel.batch * inputs * outputs
    return op.call(kernel, parameters, macs=macs)


def _multipliers(scales: list[float], per_channel: bool) -> Parameters:
    """The fields of the multipliers: integers, or tables by output."""
    if not per_channel:
        return dict(zip(_MULTIPLIER, exact_multiplier(scales[0]), strict=True))
    columns = zip(*map(exact_multiplier, scales), strict=True)
    tables = (np.array(column, dtype=np.int32) for column in columns)
    return dict(zip(_MULTIPLIER, tables, strict=True))


LOWERINGS = {"FULLY_CONNECTED": lower_fully_connected}
