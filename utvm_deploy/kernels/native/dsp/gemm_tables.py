"""The tables that convolutions over patches and over columns multiply by.

Layouts, for depth k = 4 q + 2 l + f (quad, lane, phase):

    weights  int8  [pair of channels][quad][phase][lane][channel], ``SLACK_BYTES`` behind them
    scaling  int32 [pair of channels][bias, multiplier, offset, shift][channel]
    limits   int32 [low, high]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall, ScalarArgument
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.native.scaling import Scaling

#: Channels that are computed together.
CHANNELS = 2
#: Read behind the weights, and behind the pixels, but never used.
SLACK_BYTES = 16
_SCALING_WORDS = 4 * CHANNELS
SCALING_BYTES = 4 * _SCALING_WORDS


def tables(outputs: int, depth: int, groups: int = 1) -> tuple[Operand, Operand, Operand]:
    """Weights, scaling and limits of groups of ``outputs`` channels, each of a padded depth."""
    pairs = groups * -(-outputs // CHANNELS)
    return (
        Operand("weights", (pairs * depth * CHANNELS + SLACK_BYTES,), "int8"),
        Operand("scaling", (pairs * _SCALING_WORDS,), "int32"),
        Operand("limits", (2,), "int32"),
    )


def table_arguments(
    weights: Array, scaling: Scaling, limits: tuple[int, int], depth: int, groups: int = 1
) -> tuple[ConstantArgument, ConstantArgument, ConstantArgument]:
    """The arguments for ``tables``; ``weights`` are [outputs of all groups, depth or less]."""
    return (
        ConstantArgument("weights", _pack_weights(_in_pairs(weights, groups), depth)),
        ConstantArgument("scaling", _pack_scaling(scaling, groups)),
        ConstantArgument("limits", np.array(limits, dtype=np.int32)),
    )


def _pack_weights(weights: Array, depth: int) -> Array:
    """[pair, channel, depth or less] -> the layout above."""
    filled = np.pad(weights, ((0, 0), (0, 0), (0, depth - weights.shape[2])))
    # pair, channel, quad, lane, phase -> pair, quad, phase, lane, channel
    split = filled.reshape(len(weights), CHANNELS, depth // 4, 2, 2).transpose(0, 2, 4, 3, 1)
    return np.concatenate([split.reshape(-1), np.zeros(SLACK_BYTES, dtype=np.int8)])


def _pack_scaling(scaling: Scaling, groups: int) -> Array:
    return np.stack([_in_pairs(row, groups) for row in scaling], axis=1).reshape(-1)


def _in_pairs(table: Array, groups: int) -> Array:
    """[outputs, ...] -> [pair, channel, ...]; zeros fill up each group of outputs to pairs."""
    by_group = table.reshape(groups, -1, *table.shape[1:])
    missing = -by_group.shape[1] % CHANNELS
    filled = np.pad(by_group, ((0, 0), (0, missing), *((0, 0),) * (table.ndim - 1)))
    return filled.reshape(-1, CHANNELS, *table.shape[1:])


def product_call(
    call: KernelCall, kernel: Any, tables: Sequence[ConstantArgument], border: int
) -> KernelCall:
    """The call of a convolution with these tables instead of the generic one."""
    geometry = ConstantArgument("geometry", kernel.geometry)
    image, output = call.arguments[0], call.arguments[-1]
    arguments = image, geometry, *tables, ScalarArgument("border", border), output
    return replace(call, kernel=kernel, arguments=arguments)
