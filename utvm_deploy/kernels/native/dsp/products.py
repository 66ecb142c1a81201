"""What convolutions over patches and over columns share: tables, a tile's meaning, arguments.

Both multiply pixels that scratch holds by the weights that ``gemm.py`` packs, and differ in where
a pixel's values lie there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall, ScalarArgument
from utvm_deploy.kernels.native.dsp import gemm
from utvm_deploy.kernels.native.scaling import Scaling
from utvm_deploy.kernels.portable.tensor_ir import Buffers, Operand, block, pure, script

_SCALING_WORDS = gemm.SCALING_ROWS * gemm.CHANNELS


def tables(
    outputs: int, depth: int, groups: int = 1, slack: int = gemm.SLACK_BYTES
) -> tuple[Operand, Operand, Operand]:
    """Weights, scaling and limits of groups of so many outputs of a padded depth."""
    pairs = groups * -(-outputs // gemm.CHANNELS)
    return (
        Operand("weights", (pairs * depth * gemm.CHANNELS + slack,), "int8"),
        Operand("scaling", (pairs * _SCALING_WORDS,), "int32"),
        Operand("limits", (2,), "int32"),
    )


@dataclass(frozen=True)
class Tile:
    """One tile's blocks in TensorIR: sums begin at the bias, products are added, and requantized.

    ``pixels`` are the axes of its pixels, name and extent. ``value`` tells which element of the
    buffer ``source`` is multiplied, from a pixel's place, quad, phase and lane.
    """

    number: int
    pixels: Sequence[tuple[str, int]]
    outputs: int
    depth: int
    source: str
    value: Callable[..., Any]
    group: Any = 0  # of the outputs, whose weights follow those of the groups before

    def blocks(
        self, buffers: Buffers, output_place: Callable[..., Sequence[Any]], channel: Any = 0
    ) -> None:
        """``output_place`` tells where a pixel of the tile lies in the output, from ``channel``."""
        source, sums = buffers[f"{self.source}_{self.number}"], buffers[f"sums_{self.number}"]
        weights, scaling, limits = (buffers[n] for n in ("weights", "scaling", "limits"))
        axes = [*((name, extent, "S") for name, extent in self.pixels), ("o", self.outputs, "S")]
        first = self.group * -(-self.outputs // gemm.CHANNELS)  # pair of outputs
        inner = [("q", self.depth // 4, "R"), ("f", 2, "R"), ("l", 2, "R")]

        def scale(row: int, o: Any) -> Any:
            return scaling[(first + o // 2) * _SCALING_WORDS + 2 * row + o % 2]

        def bias(*place: Any) -> None:
            script.buffer_store(sums, scale(0, place[-1]), list(place))

        def product(*axes: Any) -> None:
            *pixel, o, q, f, lane = axes
            x = source[self.value(*pixel, q, f, lane)]
            w = weights[(first + o // 2) * (2 * self.depth) + q * 8 + f * 4 + lane * 2 + o % 2]
            place = (*pixel, o)
            total = sums[place] + x.astype("int32") * w.astype("int32")
            script.buffer_store(sums, total, list(place))

        def requantize(*place: Any) -> None:
            *pixel, o = place
            scaled = pure("utvm_scale", sums[place], *(scale(row, o) for row in (1, 2, 3)))
            clamped = pure("utvm_clamp", scaled, limits[0], limits[1])
            there = [*output_place(*pixel), channel + o]
            script.buffer_store(buffers["output"], clamped.astype("int8"), there)

        block(f"bias_{self.number}", axes, bias)
        block(f"product_{self.number}", [*axes, *inner], product)
        block(f"requantize_{self.number}", axes, requantize)


def product_call(
    call: KernelCall,
    kernel: Any,
    weights: Array,
    scaling: Scaling,
    border: int,
    limits: tuple[int, int],
    groups: int = 1,
) -> KernelCall:
    """The call of ``kernel`` instead of the generic one; ``weights`` are [outputs, depth]."""
    rows = Scaling(*(_in_pairs(row, groups) for row in scaling))
    arguments = (
        call.arguments[0],
        ConstantArgument("geometry", kernel.geometry),
        ConstantArgument("weights", gemm.pack_weights(_in_pairs(weights, groups), kernel.depth)),
        ConstantArgument("scaling", gemm.pack_scaling(rows)),
        ConstantArgument("limits", np.array(limits, dtype=np.int32)),
        ScalarArgument("border", border),
        call.arguments[-1],
    )
    return replace(call, kernel=kernel, arguments=arguments)


def _in_pairs(table: Array, groups: int) -> Array:
    """A table by outputs, where those of each group are filled up to pairs."""
    by_group = table.reshape(groups, -1, *table.shape[1:])
    missing = -by_group.shape[1] % gemm.CHANNELS
    filled = np.pad(by_group, ((0, 0), (0, missing), *((0, 0),) * (table.ndim - 1)))
    return filled.reshape(-1, *table.shape[1:])
