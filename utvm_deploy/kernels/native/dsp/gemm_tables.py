"""The tables that convolutions over patches and over columns multiply by.

Layouts, for depth k = 4 q + 2 l + f (quad, lane, phase):

    weights  int8  [pair of channels][quad][phase][lane][channel], ``SLACK_BYTES`` behind them
    scaling  int32 [pair of channels][bias, multiplier, offset, shift][channel]
    limits   int32 [low, high]
"""

from __future__ import annotations

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.driver import Operand

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


def pack(weights: Array, rows: Array, depth: int, groups: int = 1) -> tuple[Array, Array]:
    """The tables of weights and scaling. Zeros fill up the outputs of each group to pairs.

    ``weights`` are [outputs of all groups, products], filled up to the depth, and ``rows``
    [numbers of a Scaling, outputs].
    """
    outputs, products = weights.shape
    missing = -(outputs // groups) % CHANNELS
    by_group = weights.reshape(groups, -1, products)
    filled = np.pad(by_group, ((0, 0), (0, missing), (0, depth - products)))
    # pair, channel, quad, lane, phase -> pair, quad, phase, lane, channel
    split = filled.reshape(-1, CHANNELS, depth // 4, 2, 2).transpose(0, 2, 4, 3, 1)
    scaling = np.pad(rows.reshape(len(rows), groups, -1), ((0, 0), (0, 0), (0, missing)))
    by_pair = scaling.reshape(len(rows), -1, CHANNELS).swapaxes(0, 1)
    slack = np.zeros(SLACK_BYTES, dtype=np.int8)
    return np.concatenate([split.reshape(-1), slack]), by_pair.reshape(-1)
