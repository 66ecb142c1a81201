"""Convolutions of level size: one driver for all layers, and how their tables are packed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import utvm_deploy
from utvm_deploy.base.paths import data_dir
from utvm_deploy.compiler.options import STACK, Objective
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.dsp.shared_layers import (
    SHIFT_BITS,
    packed_scaling,
    shares_driver,
    without_constants,
)
from utvm_deploy.kernels.native.layer_tables import ConvolutionTables
from utvm_deploy.kernels.native.scaling import Scaling, short_scaling

WINDOW = Window(1, 8, 8, 8, 8, (3, 3), (1, 1), (1, 1), 1, 1)


def scaled(value: int, scaling: Scaling, channel: int) -> int:
    """What ``utvm_scale`` computes."""
    bias, multiplier, offset, shift = (int(row[channel]) for row in scaling)
    value += bias
    high = (2 * value * multiplier + (1 << 31)) >> 32
    return min(max((high + offset + (-1 if value < 0 else 0)) >> shift, -128), 127)


@pytest.mark.parametrize("zero_point", [-128, -3, 0, 127])
def test_constant_channels_keep_their_output(zero_point: int) -> None:
    # Biases so large that the output is a limit, whatever the input is.
    bias = np.array([-(1 << 24), 1 << 24, 50], dtype=np.int32)
    weights = np.full((3, 9), 3, dtype=np.int8)
    multiplier, shift = np.full(3, 1 << 30, dtype=np.int32), np.full(3, -9, dtype=np.int32)
    scaling = short_scaling(bias, weights, multiplier, shift, zero_point)
    assert not isinstance(scaling, str)
    kept, same = without_constants(weights, scaling, zero_point)
    assert (scaling.multiplier == 0).tolist() == [True, True, False]
    assert kept.any(axis=1).tolist() == [False, False, True]
    for channel, expected in enumerate((-128, 127)):
        assert scaled(0, scaling, channel) == scaled(0, same, channel) == expected
    assert same.offset.tolist() == ((2 * zero_point + 1) << (same.shift - 1)).tolist()
    assert [int(row[2]) for row in same] == [int(row[2]) for row in scaling]


def test_a_word_holds_bias_and_shift() -> None:
    limit = (1 << (31 - SHIFT_BITS)) - 1
    numbers = np.array([limit, -limit, -1], dtype=np.int32)
    scaling = Scaling(numbers, np.arange(3), np.zeros(3), np.array([1, 22, 7]))
    words = packed_scaling(scaling, 4).view("<i4").reshape(-1, 2)
    assert (words[:3, 0] >> SHIFT_BITS).tolist() == numbers.tolist()
    assert (words[:, 0] & 31).tolist() == [1, 22, 7, 1]
    assert words[:, 1].tolist() == [0, 1, 2, 0]


def test_what_does_not_fit_the_tables_is_not_shared() -> None:
    one = np.ones(1, dtype=np.int32)
    weights = np.ones((1, 3, 3, 1), dtype=np.int8)
    tables = ConvolutionTables(WINDOW, 1, weights, one, one, one, 0, 0, (-128, 127))
    assert shares_driver(tables, 1, Scaling(one, one, one, one))
    assert not shares_driver(tables, 1, Scaling(one << 26, one, one, one))
    wide = replace(tables, window=replace(WINDOW, width=40_000, output_width=40_000))
    assert not shares_driver(wide, 1, Scaling(one, one, one, one))


@pytest.mark.tools
def test_convolutions_share_a_driver_and_have_smaller_tables() -> None:
    model = data_dir("models") / "cifar10_cnn.tflite"
    small, larger = (
        utvm_deploy.compile(model, "mps2_an500", optimize=level, scratch=STACK)
        for level in (Objective.SIZE, Objective.BALANCED)
    )
    text = small.sources["cifar10_cnn_kernels.c"]
    assert text.count("void utvm_convolution_layer(") == 1
    assert text.count("  utvm_convolution_layer(image, table, output, scratch);") == 3
    assert small.weights_bytes < larger.weights_bytes
