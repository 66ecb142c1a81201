"""Odd shapes of TRANSPOSE_CONV by blocks, of BATCH_MATMUL, SVDF and products of int16 by rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fence import Fence
from kernel_harness import check
from odd_shapes import compare_on
from small_models import svdf
from test_bounds import compare_behind_fence
from test_convolutions import spread_scale, weights_and_bias
from tflite_writer import ModelWriter

from utvm_deploy import connect
from utvm_deploy.boards.board import load_board
from utvm_deploy.device import INSTRUCTIONS, Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.contract.call import is_native
from utvm_deploy.kernels.native.dsp.patches import DspTransposeConv
from utvm_deploy.kernels.native.mve.transpose_conv import MveTransposeConv

# batch, height, width, inputs, outputs, window, strides, padding (0: SAME)
TRANSPOSED = [
    (1, 4, 3, 2, 3, (3, 3), (2, 2), 0),
    (2, 5, 4, 7, 5, (3, 3), (2, 2), 1),
    (1, 5, 4, 8, 5, (4, 4), (2, 2), 0),
    (2, 3, 6, 5, 2, (2, 2), (2, 2), 0),
    (1, 3, 6, 5, 9, (1, 1), (2, 2), 0),
    (1, 3, 6, 4, 9, (1, 1), (1, 1), 0),
    (1, 4, 5, 3, 4, (5, 3), (3, 2), 0),
    (1, 4, 5, 16, 1, (3, 3), (1, 1), 0),
    (1, 4, 5, 16, 7, (2, 5), (3, 1), 0),
    (1, 6, 5, 16, 7, (2, 2), (3, 4), 1),
    (1, 2, 9, 70, 33, (4, 4), (2, 2), 0),
]
# batches of either side, rows, depth, columns, whether either side is turned
MATRICES = [
    ((2,), (2,), 3, 4, 5, False, False),
    ((2,), (2,), 3, 7, 5, False, True),
    ((), (), 1, 33, 9, True, False),
    ((3, 1), (1, 2), 4, 18, 6, True, True),
    ((2,), (), 5, 3, 1, False, False),
    ((), (4,), 5, 1, 3, False, True),
    ((1,), (1,), 17, 40, 13, False, True),
]


def write_transposed(path: Path) -> ModelWriter:
    rng = np.random.default_rng(60)
    m = ModelWriter()
    for batch, height, width, inputs, outputs, window, strides, padding in TRANSPOSED:
        sizes = zip((height, width), strides, window, strict=True)
        image = [(n - 1) * s + k if padding else n * s for n, s, k in sizes]
        shape = (batch, *image, outputs)
        weights, bias = weights_and_bias(rng, (outputs, *window, inputs), outputs)
        taps = inputs * max(window[0] * window[1] // (strides[0] * strides[1]), 1)
        x = m.input((batch, height, width, inputs), 0.05, int(rng.integers(-128, 128)))
        made = m.tensor(shape, "int8", spread_scale(taps, 0.05, 0.01), int(rng.integers(-128, 128)))
        operands = [
            m.constant(np.array(shape, np.int32)),
            m.constant(weights, rng.uniform(0.003, 0.02, outputs).tolist()),
            x,
            m.constant(bias, [5e-4] * outputs),
        ]
        fields = {
            "Padding": padding,
            "StrideH": strides[0],
            "StrideW": strides[1],
            "FusedActivationFunction": int(rng.integers(0, 2)),
        }
        m.operator("TRANSPOSE_CONV", operands, [made], ("TransposeConvOptions", fields))
        m.output(made)
    m.save(path)
    return m


def write_matrices(path: Path) -> ModelWriter:
    m = ModelWriter()
    for left, right, rows, depth, columns, left_turned, right_turned in MATRICES:
        a = m.input((*left, *((depth, rows) if left_turned else (rows, depth))), 0.05, -128)
        b = m.input((*right, *((columns, depth) if right_turned else (depth, columns))), 0.03, 127)
        shape = (*np.broadcast_shapes(left, right), rows, columns)
        options = ("BatchMatMulOptions", {"AdjX": left_turned, "AdjY": right_turned})
        scale = 0.01 * depth**0.5
        m.output(m.node("BATCH_MATMUL", [a, b], shape, options, scale=scale, zero_point=1))
    m.save(path)
    return m


# inputs, units, memory, rank
FEATURES = [(11, 6, 5, 1), (17, 3, 1, 2), (33, 5, 9, 1), (3, 2, 12, 3), (40, 8, 2, 2)]


def write_features(path: Path) -> ModelWriter:
    m = ModelWriter()
    for inputs, units, memory, rank in FEATURES:
        m.output(svdf(m, m.input((1, inputs), 0.05, 3), units=units, memory=memory, rank=rank))
    m.save(path)
    return m


# rows, columns, inputs, outputs, window, strides, dilation, padding (0: SAME), bits of biases
INT16X8 = [
    (5, 4, 3, 5, (3, 3), (1, 1), 1, 0, 20),
    (5, 4, 4, 6, (1, 1), (1, 1), 1, 0, 20),
    (5, 4, 8, 6, (1, 1), (2, 1), 1, 1, 20),
    (6, 7, 70, 9, (3, 3), (2, 2), 1, 0, 20),
    (6, 7, 5, 3, (2, 3), (1, 1), 2, 0, 20),
    (4, 4, 4, 2, (1, 1), (1, 1), 1, 0, 36),
    (3, 3, 130, 7, (3, 2), (1, 1), 1, 1, 20),
]
INT16X8_DENSE = [(1, 7, 5), (3, 64, 4), (2, 1021, 3), (1, 4, 1)]


def write_int16x8(path: Path) -> ModelWriter:
    """Windows and vectors of int16 with weights of int8; sums of more than 32 bits, too."""
    rng = np.random.default_rng(61)
    m = ModelWriter()

    def operands(weights: tuple[int, ...], outputs: int, bits: int) -> list[int]:
        drawn = rng.integers(-127, 128, weights).astype(np.int8)
        scales = rng.uniform(0.003, 0.02, outputs).tolist() if len(weights) == 4 else 0.01
        bias = rng.integers(-(2**bits), 2**bits, outputs).astype(np.int64)
        return [m.constant(drawn, scales), m.constant(bias, 4e-6)]

    def wide(*shape: int) -> int:
        number = m.tensor(shape, "int16", 0.0004, 0)
        m.inputs.append(number)
        return number

    for height, width, inputs, outputs, window, strides, dilation, padding, bits in INT16X8:
        reaches = [(size - 1) * dilation + 1 for size in window]
        sizes = zip((height, width), strides, reaches, strict=True)
        image = [(n - k) // s + 1 if padding else -(-n // s) for n, s, k in sizes]
        fields = {
            "Padding": padding,
            "StrideH": strides[0],
            "StrideW": strides[1],
            "DilationHFactor": dilation,
            "DilationWFactor": dilation,
            "FusedActivationFunction": padding,
        }
        given = [
            wide(2, height, width, inputs),
            *operands((outputs, *window, inputs), outputs, bits),
        ]
        scale = 0.0001 * (inputs * window[0] * window[1]) ** 0.5
        shape = (2, *image, outputs)
        m.output(m.node("CONV_2D", given, shape, ("Conv2DOptions", fields), scale=scale))
    for rows, inputs, outputs in INT16X8_DENSE:
        given = [wide(rows, inputs), *operands((outputs, inputs), outputs, 20)]
        options = ("FullyConnectedOptions", {"FusedActivationFunction": 0})
        m.output(m.node("FULLY_CONNECTED", given, (rows, outputs), options, scale=0.002))
    m.save(path)
    return m


CORES = ("cortex-m7", "cortex-m55")


@pytest.mark.parametrize(
    ("write", "core"),
    [
        (write_matrices, "cortex-m7"),  # the C of both
        *((one, core) for one in (write_transposed, write_int16x8) for core in CORES),
    ],
)
def test_products_in_plain_c(write, core: str, tmp_path: Path) -> None:
    model = write(tmp_path / "model.tflite")
    assert check(model, tmp_path, core=core) == len(model.operators)
    graph = load_model(tmp_path / "model.tflite")
    # No schedule of TVM's changes them.
    assert all(is_native(lower(graph, one, core).kernel) for one in graph.operators)


def test_every_transposed_convolution_has_blocks(tmp_path: Path) -> None:
    write_transposed(tmp_path / "model.tflite")
    graph = load_model(tmp_path / "model.tflite")
    for operator in graph.operators:
        assert isinstance(lower(graph, operator, "cortex-m4").kernel, DspTransposeConv)
        assert isinstance(lower(graph, operator, "cortex-m55").kernel, MveTransposeConv)


# The fence below is around the other cores' kernels; a Cortex-M3 has the host's C.
@pytest.mark.spread(1, among=("mps2_an386",))
def test_transposed_convolutions_on_cores(device: Device, tmp_path: Path) -> None:
    cpu = device.board.cpu
    phrase = "Helium assembly" if cpu.mve else "DSP assembly" if cpu.dsp else ""
    compare_on(device, tmp_path, write_transposed, phrase)


@pytest.mark.spread(1, among=("mps2_an386",))
def test_products_of_int16_on_cores(device: Device, tmp_path: Path) -> None:
    compare_on(device, tmp_path, write_int16x8, "Helium assembly" if device.board.cpu.mve else "")


@pytest.mark.emulator
@pytest.mark.parametrize("write", [write_transposed, write_matrices, write_features, write_int16x8])
@pytest.mark.parametrize("name", ["mps2_an500", "mps3_an547"])
def test_products_behind_a_fence(write, name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    model = write(path)
    graph = load_model(path)
    jobs = [(operator, None) for operator in graph.operators]
    with (
        Fence(load_board(name)) as fence,
        connect(fence.board, timing=INSTRUCTIONS) as device,
    ):
        compare_behind_fence((fence, device), path, model, jobs, graph)
