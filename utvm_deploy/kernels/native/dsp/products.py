"""What convolutions over patches and over columns share: their tables and their arguments.

Both multiply pixels that scratch holds by the weights that ``gemm.py`` packs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall, ScalarArgument
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.native.dsp import gemm
from utvm_deploy.kernels.native.scaling import Scaling

_SCALING_WORDS = gemm.SCALING_ROWS * gemm.CHANNELS


def tables(outputs: int, depth: int, groups: int = 1) -> tuple[Operand, Operand, Operand]:
    """Weights, scaling and limits of groups of ``outputs`` channels, each of a padded depth."""
    pairs = groups * -(-outputs // gemm.CHANNELS)
    return (
        Operand("weights", (pairs * depth * gemm.CHANNELS + gemm.SLACK_BYTES,), "int8"),
        Operand("scaling", (pairs * _SCALING_WORDS,), "int32"),
        Operand("limits", (2,), "int32"),
    )


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
