"""Odd shapes of int16: depthwise convolutions, pools, sums and products of any family."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fence import Fence
from kernel_harness import check
from odd_shapes import compare_on
from test_bounds import compare_behind_fence
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy import connect
from utvm_deploy.boards.board import load_board
from utvm_deploy.device import INSTRUCTIONS, Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.oracle.reference import run_reference

# batch, rows, columns, channels, window, strides, dilation, padding (0: SAME), bits of biases, and
# outputs of a channel if there are several
DEPTHWISE = [
    (1, 5, 4, 4, (3, 3), (1, 1), 1, 0, 20),
    (2, 6, 7, 13, (3, 3), (2, 2), 1, 0, 20),
    (1, 9, 5, 8, (5, 2), (1, 2), 1, 1, 20),
    (1, 7, 8, 18, (3, 3), (1, 1), 2, 0, 20),
    (1, 2, 2, 9, (7, 7), (1, 1), 1, 0, 20),
    (1, 11, 1, 5, (4, 1), (1, 1), 3, 0, 20),
    (1, 4, 4, 3, (3, 3), (1, 1), 1, 0, 20),
    (1, 4, 4, 8, (3, 3), (1, 1), 1, 0, 36),
    (2, 5, 6, 1, (3, 2), (1, 2), 1, 0, 20, 7),
    (1, 4, 4, 1, (3, 3), (1, 1), 1, 1, 36, 3),
]
# left, right
PAIRS = [
    ((5,), (5,)),
    ((1, 3, 7, 9), (1, 3, 7, 9)),
    ((1, 4, 3, 5), (5,)),
    ((70,), (2, 3, 70)),
    ((1, 1, 1, 6), (1, 4, 4, 6)),
    ((1, 4, 4, 6), (1, 4, 4, 1)),
    ((2, 3, 4, 5), (2, 1, 1, 5)),
    ((3, 1), (1, 4)),
]
# rows, columns, channels, window, stride, padding
POOLS = [
    (5, 7, 4, (3, 3), 2, "SAME"),
    (4, 4, 37, (2, 2), 2, "VALID"),
    (1, 1, 9, (1, 1), 1, "SAME"),
    (6, 3, 25, (5, 2), (1, 2), "SAME"),
    (17, 15, 3, (17, 15), 1, "VALID"),
    (16, 16, 3, (16, 16), 1, "VALID"),
]


def _source(m: ModelWriter, shape: tuple[int, ...], scale: float = 0.0004) -> int:
    number = m.tensor(shape, "int16", scale, 0)
    m.inputs.append(number)
    return number


def write_depthwise(path: Path) -> ModelWriter:
    rng = np.random.default_rng(70)
    m = ModelWriter()
    for (
        batch,
        height,
        width,
        channels,
        window,
        strides,
        dilation,
        padding,
        bits,
        *more,
    ) in DEPTHWISE:
        outputs = channels * (more[0] if more else 1)
        reaches = [(size - 1) * dilation + 1 for size in window]
        sizes = zip((height, width), strides, reaches, strict=True)
        image = [(n - k) // s + 1 if padding else -(-n // s) for n, s, k in sizes]
        weights = rng.integers(-127, 128, (1, *window, outputs)).astype(np.int8)
        scales = rng.uniform(0.003, 0.02, outputs).tolist()
        bias = rng.integers(-(2**bits), 2**bits, outputs).astype(np.int64)
        given = [_source(m, (batch, height, width, channels)), m.constant(weights, scales, axis=3)]
        given.append(m.constant(bias, [0.0004 * scale for scale in scales]))
        fields = {"Padding": padding, "StrideH": strides[0], "StrideW": strides[1]}
        fields |= {"DilationHFactor": dilation, "DilationWFactor": dilation}
        fields |= {"FusedActivationFunction": padding, "DepthMultiplier": outputs // channels}
        options = ("DepthwiseConv2DOptions", fields)
        made = (batch, *image, outputs)
        m.output(m.node("DEPTHWISE_CONV_2D", given, made, options, scale=0.002))
    m.save(path)
    return m


def write_pairs(path: Path) -> ModelWriter:
    rng = np.random.default_rng(71)
    m = ModelWriter()
    tables = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions"}
    for index, (left, right) in enumerate(PAIRS):
        for kind, table in tables.items():
            scales = [float(s) for s in rng.uniform(0.0001, 0.001, 2)]
            # Products of the largest values are beyond the output's limits, or far within.
            step = sum(scales) if kind != "MUL" else scales[0] * scales[1] * (3e4, 1e5)[index % 2]
            sides = [_source(m, left, scales[0]), _source(m, right, scales[1])]
            fields = {"FusedActivationFunction": (0, 1, 3)[index % 3]}
            if kind != "MUL":
                fields["PotScaleInt16"] = False
            made = np.broadcast_shapes(left, right)
            m.output(m.node(kind, sides, made, (table, fields), scale=step))
    m.save(path)
    return m


def write_pools(path: Path) -> ModelWriter:
    m = ModelWriter()
    for height, width, channels, window, stride, padding in POOLS:
        for pool, activation in ((m.average_pool, "NONE"), (m.max_pool, "RELU")):
            x = _source(m, (2, height, width, channels))
            y = pool(x, window, stride=stride, padding=padding, activation=activation)
            m.tensors[y].dtype = "int16"
            m.output(y)
    m.save(path)
    return m


WRITERS = (write_depthwise, write_pairs, write_pools)


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("core", ["cortex-m7", "cortex-m55", "rv32imc", "rv32imc_zve32x"])
def test_int16_in_plain_c(write, core: str, tmp_path: Path) -> None:
    model = write(tmp_path / "model.tflite")
    assert check(model, tmp_path, core=core) == len(model.operators)


# The fence below is around the other cores' kernels.
@pytest.mark.spread(1, among=("qemu_rv32imcv", "qemu_rv32imc", "mps2_an386", "mps2_an385"))
@pytest.mark.parametrize("write", WRITERS)
def test_int16_on_cores(device: Device, write, tmp_path: Path) -> None:
    compare_on(device, tmp_path, write, "")


@pytest.mark.spread(2, among=("mps2_an500", "mps3_an547"))
def test_products_of_the_largest_values(device: Device, tmp_path: Path) -> None:
    """Whose doubles need 33 bits."""
    m = ModelWriter()
    ends = np.array([-32768, 32767, -32768, 32767, 0, -1, 1, -32768], np.int16)
    factors = (32768.0, 65536.0, 1000.0, 40000.3, 123456.7)
    for factor in factors:
        sides = [_source(m, ends.shape), _source(m, ends.shape)]
        options = ("MulOptions", {"FusedActivationFunction": 0})
        m.output(m.node("MUL", sides, ends.shape, options, scale=0.0004**2 * factor))
    path = m.save(tmp_path / "model.tflite")
    samples = [[ends, ends] * len(factors), [ends, ends[::-1].copy()] * len(factors)]
    loaded = device.load(utvm_deploy.compile(path, device.board), into="ram")
    for sample, wanted in zip(samples, run_reference(path, samples).outputs, strict=True):
        for one, other in zip(loaded(*sample), wanted, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("core", "family"),
    [("cortex-m55", "mve"), ("rv32imc", "scalar"), ("rv32imc_zve32x", "rvv")],
)
def test_families_have_what_fits_32_bits(core: str, family: str, tmp_path: Path) -> None:
    write_depthwise(tmp_path / "model.tflite")
    graph = load_model(tmp_path / "model.tflite")
    families = [lower(graph, operator, core).family for operator in graph.operators]
    # Not those of few channels, nor of sums that need more.
    of_one = "generic" if family == "mve" else family
    assert families == [family] * 6 + ["generic"] * 2 + [of_one, "generic"]


@pytest.mark.emulator
@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("name", ["mps2_an500", "mps3_an547", "qemu_rv32imc"])
def test_int16_behind_a_fence(write, name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    model = write(path)
    graph = load_model(path)
    jobs = [(operator, None) for operator in graph.operators]
    with (
        Fence(load_board(name)) as fence,
        connect(fence.board, timing=INSTRUCTIONS) as device,
    ):
        compare_behind_fence((fence, device), path, model, jobs, graph)
