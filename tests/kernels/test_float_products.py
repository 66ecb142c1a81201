"""Convolutions, pools and products of float32: equal bits with the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from float_writer import FloatWriter
from kernel_harness import check, check_model

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.macs import macs
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.portable.floats.float_convolution import FloatConv2D

RNG = np.random.default_rng(15)
#: Infinities, numbers that are none, zeros of both signs, the least and the largest numbers.
ODD = np.array(
    [np.inf, -np.inf, np.nan, -0.0, 0.0, 1e-45, -1e-39, 3.4e38, -3.4e38, 1.0, -7.5], np.float32
)


def drawn(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def odd(*shape: int) -> np.ndarray:
    """Ordinary numbers, and at every fourth place an odd one."""
    array = drawn(*shape).reshape(-1)
    array[::4] = RNG.choice(ODD, array[::4].shape)
    return array.reshape(shape)


def add_convolutions(m: FloatWriter, x: int) -> None:
    """For an image of 4 channels."""
    m.output(
        m.conv2d(x, drawn(8, 3, 3, 4), drawn(8), activation="RELU6"),
        m.conv2d(x, drawn(6, 3, 2, 4), drawn(6), stride=2, padding="VALID"),
        m.conv2d(x, drawn(6, 3, 3, 2), drawn(6), dilation=(2, 1), activation="RELU"),
        m.conv2d(x, drawn(5, 1, 1, 4), drawn(5), activation="RELU_N1_TO_1"),
        m.depthwise_conv2d(x, drawn(1, 3, 3, 4), drawn(4), activation="RELU"),
        m.depthwise_conv2d(x, drawn(1, 5, 4, 12), drawn(12), stride=2),
        m.depthwise_conv2d(x, drawn(1, 2, 3, 4), padding="VALID", dilation=2),
        m.transpose_conv(x, drawn(5, 3, 3, 4), drawn(5), stride=2, activation="RELU"),
        m.transpose_conv(x, drawn(4, 2, 4, 4), stride=(3, 2), padding="VALID", extra=(1, 0)),
    )


def add_windows(m: FloatWriter, x: int) -> None:
    for pool in (m.average_pool, m.max_pool, m.l2_pool):
        m.output(pool(x, 3, stride=2, padding="SAME", activation="RELU6"))
        m.output(pool(x, (2, 3), stride=(1, 2)))
    for option in ({}, {"align_corners": True}, {"half_pixel_centers": True}):
        for size in ((13, 5), (4, 17)):
            m.output(m.resize(x, size, **option))
        m.output(m.resize(x, (13, 5), "RESIZE_NEAREST_NEIGHBOR", **option))


def add_products(m: FloatWriter, x: int) -> None:
    """For a tensor of 288 elements."""
    rows = m.reshape(x, (4, 72))
    m.output(m.fully_connected(rows, drawn(16, 72), drawn(16), activation="RELU"))
    m.output(m.fully_connected(m.reshape(x, (2, 2, 72)), drawn(7, 72), keep_num_dims=True))
    one, other = m.reshape(x, (2, 6, 24)), m.reshape(x, (2, 1, 24, 6))
    m.output(m.batch_matmul(one, m.constant(drawn(24, 5))))
    m.output(m.batch_matmul(one, one, adj_y=True))
    m.output(m.batch_matmul(one, one, adj_x=True))
    m.output(m.batch_matmul(one, other))
    weights = m.input((9, 72))
    options = ("FullyConnectedOptions", {"FusedActivationFunction": 0, "WeightsFormat": 0})
    m.output(m.node("FULLY_CONNECTED", [rows, weights, -1], (4, 9), options))


def every_product() -> FloatWriter:
    m = FloatWriter()
    x = m.input((1, 9, 8, 4))
    add_convolutions(m, x)
    add_windows(m, x)
    add_products(m, x)
    return m


def volumes() -> FloatWriter:
    """Three-dimensional convolutions with borders, strides, dilations and activations."""
    m = FloatWriter()
    x = m.input((2, 4, 5, 6, 3))
    m.output(
        m.conv3d(x, drawn(3, 3, 3, 3, 8), drawn(8), activation="RELU"),
        m.conv3d(x, drawn(2, 3, 2, 3, 5), strides=(2, 1, 3), activation="RELU6"),
        m.conv3d(x, drawn(2, 3, 2, 3, 4), drawn(4), padding="VALID", strides=(1, 2, 1)),
        m.conv3d(x, drawn(2, 2, 3, 3, 4), drawn(4), dilations=(2, 3, 2)),
        m.conv3d(x, drawn(1, 1, 1, 3, 7), drawn(7), padding="VALID"),
    )
    return m


@pytest.mark.tools
def test_bits_of_conv_3d_are_those_of_the_reference(tmp_path: Path) -> None:
    m = volumes()
    path = m.save(tmp_path / "model.tflite")
    samples = [[fill(*m.tensors[i].shape) for i in m.inputs] for fill in (drawn, odd)]
    assert check_model(path, samples, tmp_path) == 5
    graph = load_model(path)
    assert macs(graph, graph.operators[0]) == 2 * 4 * 5 * 6 * 8 * 27 * 3


@pytest.mark.tools
def test_bits_are_those_of_the_reference(tmp_path: Path) -> None:
    """One operator by one; the inputs have infinities, numbers that are none, and denormal ones."""
    m = every_product()
    path = m.save(tmp_path / "model.tflite")
    samples = [[fill(*m.tensors[i].shape) for i in m.inputs] for fill in (drawn, odd, odd)]
    assert check_model(path, samples, tmp_path) > 30


@pytest.mark.tools
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_odd_weights_do_not_meet_the_border(value: float, tmp_path: Path) -> None:
    """The reference skips positions outside: 0 times infinity must not get into a sum there."""
    m = FloatWriter()
    x = m.input((1, 4, 4, 2))
    weights = drawn(3, 3, 3, 2)
    weights[:, 0, 0] = value
    m.output(m.conv2d(x, weights, drawn(3)))
    m.output(m.conv2d(x, weights, drawn(3), dilation=2))
    m.output(m.depthwise_conv2d(x, weights[:1].repeat(2, axis=3), drawn(4)))
    assert check(m, tmp_path) == 3


@pytest.mark.tools
def test_default_schedules_and_plain_loops_agree(tmp_path: Path) -> None:
    assert check(every_product(), tmp_path, samples=1, scheduled=False) > 30


@pytest.mark.tools
def test_passes_change_no_bit(tmp_path: Path) -> None:
    """PAD, RELU and the blocks of a dilated convolution become parts of the convolution."""
    m = FloatWriter()
    x = m.input((1, 6, 6, 2))
    padded = m.pad(x, [[0, 0], [1, 2], [0, 1], [0, 0]])
    m.output(m.relu6(m.conv2d(padded, drawn(4, 3, 3, 2), drawn(4), padding="VALID")))
    m.output(m.relu(m.depthwise_conv2d(x, drawn(1, 3, 3, 2), drawn(2), activation="RELU6")))
    block = m.constant(np.array([2, 2], np.int32))
    margins = m.constant(np.array([[2, 2], [2, 2]], np.int32))
    none = m.constant(np.zeros((2, 2), np.int32))
    cut = m.node(
        "SPACE_TO_BATCH_ND", [x, block, margins], (4, 5, 5, 2), ("SpaceToBatchNDOptions", {})
    )
    convolved = m.conv2d(cut, drawn(3, 3, 3, 2), drawn(3), padding="VALID", activation="RELU")
    m.output(
        m.node(
            "BATCH_TO_SPACE_ND",
            [convolved, block, none],
            (1, 6, 6, 3),
            ("BatchToSpaceNDOptions", {}),
        )
    )
    assert check(m, tmp_path, simplified=True) == 3  # one operator for each output


def test_a_tile_reads_its_weights_in_one_sequence(tmp_path: Path) -> None:
    m = FloatWriter()
    weights = drawn(8, 3, 3, 4)
    m.output(m.conv2d(m.input((1, 8, 8, 4)), weights, drawn(8)))
    graph = load_model(m.save(tmp_path / "model.tflite"))
    call = lower(graph, graph.operators[0])
    assert isinstance(call.kernel, FloatConv2D)
    block = call.kernel.tile.channels
    stored = call.kernel.stored(weights)
    assert stored.shape == (8 // block, 3, 3, 4, block)
    assert stored[1, 2, 1, 3, 2] == weights[block + 2, 2, 1, 3]


def test_integer_weights_of_float_activations_are_refused(tmp_path: Path) -> None:
    """Models with dynamic range quantization."""
    m = FloatWriter()
    x = m.input((1, 8))
    weights = m.constant(np.ones((4, 8), np.int8), 0.1)
    options = ("FullyConnectedOptions", {"FusedActivationFunction": 0, "WeightsFormat": 0})
    m.output(m.node("FULLY_CONNECTED", [x, weights], (1, 4), options))
    with pytest.raises(UnsupportedOperator, match="start from the float model"):
        load_model(m.save(tmp_path / "model.tflite"))
