"""One rounding of each output instead of two: its tables, and the kernels of the DSP family."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from kernel_harness import call_of, check
from odd_shapes import SHAPES, compare_candidates, write_convolutions, write_few

import utvm_deploy
from utvm_deploy.base.paths import data_dir
from utvm_deploy.device import Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.choose.lowering import families_for
from utvm_deploy.kernels.contract.call import with_one_rounding
from utvm_deploy.kernels.contract.requantization import requantized
from utvm_deploy.kernels.native.dsp.winograd import DspWinograd
from utvm_deploy.kernels.native.scaling import (
    LARGEST_SHIFT,
    SMALLEST_SHIFT,
    Scaling,
    extremes,
    short_scaling,
)
from utvm_deploy.kernels.native.single_rounding import first_sums, single_scaling

write_cut = partial(write_convolutions, is_cut=True)


def scaling_of(weights: Array, bias: Array, multiplier: Array, right: Array, zero: int) -> Scaling:
    found = short_scaling(bias, weights, multiplier, -right, zero)
    assert not isinstance(found, str)
    return found


def reference(sums: Array, multiplier: int, right: int, zero: int) -> Array:
    """``requantized`` of many sums, before the limits."""
    product = (sums * multiplier + (1 << 30)) >> 31
    result: Array = ((product + (1 << (right - 1)) - (product < 0)) >> right) + zero
    return result


@pytest.mark.parametrize("right", range(SMALLEST_SHIFT, LARGEST_SHIFT + 1))
@pytest.mark.parametrize("multiplier", [1 << 30, (1 << 30) + 1, 0x5A827999, (1 << 31) - 1])
def test_outputs_begin_at_these_sums(multiplier: int, right: int) -> None:
    outputs = np.arange(-255, 256, dtype=np.int64)
    scale = np.array([[multiplier]]), np.array([[right]])
    for output, first in zip(
        outputs.tolist(), first_sums(*scale, outputs)[0].tolist(), strict=True
    ):
        if abs(first) < 1 << 30:
            assert requantized(first, multiplier, -right) >= output
            assert requantized(first - 1, multiplier, -right) < output


@pytest.mark.parametrize("factor_bits", [0, 2, 6])
@pytest.mark.parametrize("zero", [-128, -77, 0, 126])
def test_every_sum_has_the_references_output(zero: int, factor_bits: int) -> None:
    """All sums that the weights of a channel can give, for all shifts and at both ends."""
    right = np.repeat(np.arange(1, 12), 2)
    rng = np.random.default_rng(zero + 128 + factor_bits)
    weights = rng.integers(-127, 128, (right.size, 9), dtype=np.int8)
    bias = rng.integers(-3000, 3000, right.size).astype(np.int32)
    multiplier = rng.integers(1 << 30, 1 << 31, right.size).astype(np.int32)
    multiplier[:4] = 1 << 30, (1 << 31) - 1, 1 << 30, (1 << 30) + 1
    scaling = scaling_of(weights, bias, multiplier, right, zero)
    limits = zero, 127
    found = single_scaling(scaling, weights, zero, limits, factor_bits=factor_bits)
    assert found is not None
    lowest, highest = extremes(scaling.bias, weights)
    for channel in range(right.size):
        sums = np.arange(lowest[channel], highest[channel] + 1, dtype=np.int64)
        factor, shift = int(scaling.multiplier[channel]), int(scaling.shift[channel])
        wanted = np.clip(reference(sums, factor, shift, zero), *limits)
        added = int(found.bias[channel]) - (int(scaling.bias[channel]) << factor_bits)
        product = ((sums << factor_bits) + added) * int(found.multiplier[channel])
        value = (product >> 32) + int(found.offset[channel])
        assert np.abs(value).max() < 1 << 31
        got = np.clip(value >> int(found.shift[channel]), -128, 127)
        np.testing.assert_array_equal(np.clip(got, *limits), wanted)


def test_channels_of_one_output_keep_it() -> None:
    weights, bias = np.zeros((2, 4), np.int8), np.array([1000, -1000], np.int32)
    multiplier, right = np.full(2, 1 << 30, np.int32), np.array([3, 9])
    scaling = scaling_of(weights, bias, multiplier, right, -5)
    for factor_bits in (0, 2):
        found = single_scaling(scaling, weights, -5, (-128, 127), factor_bits=factor_bits)
        assert found is not None
        assert not found.multiplier.any()
        assert (found.offset >> found.shift).tolist() == [58, -6]


def test_outputs_on_both_sides_of_the_zero_point_need_two_roundings() -> None:
    weights, bias = np.full((1, 64), 100, np.int8), np.zeros(1, np.int32)
    multiplier, right = np.array([0x5A827999], np.int32), np.array([7])
    scaling = scaling_of(weights, bias, multiplier, right, 0)
    assert single_scaling(scaling, weights, 0, (-128, 127)) is None
    assert single_scaling(scaling, weights, 0, (0, 127)) is not None


def test_sums_beyond_32_bits_need_two_roundings() -> None:
    weights, bias = np.full((1, 4), 1, np.int8), np.array([(1 << 30) - 600], np.int32)
    multiplier, right = np.array([0x40000001], np.int32), np.array([20])
    scaling = Scaling(bias, multiplier, np.array([1 << 19], np.int32), right.astype(np.int32))
    assert single_scaling(scaling, weights, 0, (0, 127), factor_bits=2) is None


@pytest.mark.parametrize("zero", [-128, 100, 126])
def test_shifts_whose_offsets_do_not_fit_need_two_roundings(zero: int) -> None:
    """64 times a sum, and a shift by 20: the zero point times 2**25 is not an int32."""
    weights, bias = np.full((1, 144), 100, np.int8), np.zeros(1, np.int32)
    multiplier = np.array([(1 << 31) - 1], np.int32)
    for right, wanted in ((18, True), (20, False)):
        scaling = scaling_of(weights, bias, multiplier, np.array([right]), zero)
        limits = zero, min(zero + 2, 127)
        found = single_scaling(scaling, weights, zero, limits, factor_bits=6)
        assert (found is not None) == wanted


@pytest.mark.tools
@pytest.mark.parametrize("method", ["", "method=pixels", "method=winograd", "compact=1"])
def test_odd_shapes_in_plain_c(method: str, tmp_path: Path) -> None:
    model = write_cut(tmp_path / "model.tflite")
    family = f"dsp {method} once=1"
    assert check(model, tmp_path, core="cortex-m7", family=family) == len(model.outputs)


def test_most_layers_with_a_relu_round_once(tmp_path: Path) -> None:
    model = write_cut(tmp_path / "model.tflite")
    graph = load_model(tmp_path / "model.tflite")
    calls = [call_of(graph, one, "cortex-m7", "dsp once=1") for one in graph.operators]
    # Scales of one half and more are left to plain C.
    assert sum(call.exact is not None for call in calls) == len(SHAPES) < len(model.outputs)


@pytest.mark.spread(1, among=("mps2_an500",))
def test_odd_shapes_on_cores(device: Device, tmp_path: Path) -> None:
    core = device.board.cpu.kernel_core
    if families_for(core)[0] != "dsp":
        pytest.skip(f"{device.board.name} has other kernels")
    made = compare_candidates(
        device, tmp_path, "dsp", core, write=write_cut, rounded=with_one_rounding, only_default=True
    )
    assert made >= len(SHAPES)


@pytest.mark.spread(1, among=("mps2_an386",))
def test_candidates_on_cores(device: Device, tmp_path: Path) -> None:
    core = device.board.cpu.kernel_core
    if families_for(core)[0] != "dsp":
        pytest.skip(f"{device.board.name} has other kernels")
    assert compare_candidates(
        device, tmp_path, "dsp", core, write=write_few, rounded=with_one_rounding
    )


@pytest.mark.tools
def test_models_take_the_form_and_follow_records_of_the_other() -> None:
    model = data_dir("models") / "cifar10_cnn.tflite"
    compiled = utvm_deploy.compile(model, "mps2_an500")
    assert all("by a record" in layer.why for layer in compiled.layers[:1])
    assert "utvm_scale_once" in "".join(compiled.sources.values())
    assert not any("stale" in layer.why for layer in compiled.layers)


def test_strips_keep_their_tensors(tmp_path: Path) -> None:
    write_cut(tmp_path / "model.tflite")
    graph = load_model(tmp_path / "model.tflite")
    call = call_of(graph, graph.operators[2], "cortex-m7", "dsp")
    moved = replace(call, arguments=(replace(call.arguments[0], tensor=77), *call.arguments[1:]))
    made = with_one_rounding(moved)
    assert made.kernel != call.kernel
    assert made.exact == call.kernel
    assert made.arguments[0] == moved.arguments[0]
    assert not isinstance(made.kernel, DspWinograd)
