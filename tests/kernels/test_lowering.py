"""What lowering promises the compiler: shared kernels, in-place marks, small code and scratch."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kernel_harness import PREAMBLE, Compiled
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import CompileError, UnsupportedOperator
from utvm_deploy.compiler.lowering.lowered_kernel import lower_kernel
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.attribute_values import Padding
from utvm_deploy.graph.model import Graph
from utvm_deploy.kernels.choose.lowering import LOWERINGS, lower
from utvm_deploy.kernels.contract.c_function import CFunction
from utvm_deploy.kernels.contract.call import Kernel, TensorArgument
from utvm_deploy.kernels.contract.extents import merge
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.portable.integers.conv2d import Conv2D, DepthwiseConv2D
from utvm_deploy.kernels.portable.integers.fully_connected import Dense
from utvm_deploy.kernels.portable.integers.pool import Pool2D
from utvm_deploy.kernels.portable.schedules.tiling import (
    MAX_ACCUMULATORS,
    RegisterTile,
    choose_tile,
)

_COMPILE_TIMEOUT_S = 60
_LARGEST_FUNCTION_BYTES = 3072


def window(
    image: tuple[int, int],
    output: tuple[int, int],
    kernel: tuple[int, int],
    stride: int = 1,
    padding: Padding = (0, 0, 0, 0),
) -> Window:
    return Window.of((1, *image, 1), (1, *output, 1), kernel, (stride, stride), (1, 1), padding)


SAME = (1, 1, 1, 1)
KERNELS: list[tuple[Kernel, int]] = [
    # kernel, most bytes of scratch: the rows under one window
    (Conv2D(window((32, 32), (32, 32), (3, 3), 1, SAME), 3, 16), 3 * 34 * 3),
    (Conv2D(window((32, 32), (32, 32), (3, 3), 1, SAME), 16, 16), 3 * 34 * 16),
    (Conv2D(window((96, 96), (48, 48), (3, 3), 2, (0, 1, 0, 1)), 3, 8), 3 * 97 * 3),
    (Conv2D(window((25, 5), (25, 5), (1, 1)), 64, 64), 0),
    (Conv2D(window((24, 24), (24, 24), (1, 1)), 32, 32), 0),
    (DepthwiseConv2D(window((25, 5), (25, 5), (3, 3), 1, SAME), 64, 1), 3 * 7 * 64),
    (DepthwiseConv2D(window((48, 48), (24, 24), (3, 3), 2, (0, 1, 0, 1)), 16, 1), 3 * 49 * 16),
    (DepthwiseConv2D(window((24, 24), (22, 22), (3, 3)), 32, 1), 0),
    (Dense(1, 640, 128, False), 0),
    (Dense(1, 640, 128, True), 0),
    (Pool2D(window((25, 5), (1, 1), (25, 5)), 64, True), 0),
]


def c_function(kernel: Kernel) -> CFunction:
    return lower_kernel(kernel, kernel.name, "cortex-m7").function


@pytest.mark.parametrize(("kernel", "limit"), KERNELS, ids=[k.name for k, _ in KERNELS])
def test_scratch_is_the_rows_under_one_window(kernel: Kernel, limit: int) -> None:
    assert sum(s.size_bytes for s in c_function(kernel).scratch) <= limit


@pytest.mark.tools
@pytest.mark.skipif(
    shutil.which("arm-none-eabi-gcc") is None, reason="arm-none-eabi-gcc is not installed"
)
def test_code_is_small(tmp_path: Path) -> None:
    source = tmp_path / "kernels.c"
    source.write_text("\n".join([PREAMBLE, *(c_function(kernel).text for kernel, _ in KERNELS)]))
    flags = ["-mcpu=cortex-m7", "-mthumb", "-std=c99", "-O3", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(
        ["arm-none-eabi-gcc", *flags, "-c", str(source), "-o", "kernels.o"],
        check=True,
        timeout=_COMPILE_TIMEOUT_S,
    )
    listed = subprocess.run(
        ["arm-none-eabi-nm", "-S", "kernels.o"],
        check=True,
        capture_output=True,
        text=True,
        timeout=_COMPILE_TIMEOUT_S,
    ).stdout
    sizes = {
        name: int(size, 16) for size, name in re.findall(r"^\w+ (\w+) [Tt] (\w+)$", listed, re.M)
    }
    assert {kernel.name for kernel, _ in KERNELS} <= sizes.keys()
    assert {n: s for n, s in sizes.items() if s > _LARGEST_FUNCTION_BYTES} == {}
    # Integer layers call nothing but what fills and copies memory; in particular no float helpers.
    symbols = subprocess.run(
        ["arm-none-eabi-nm", "-u", "kernels.o"], check=True, capture_output=True, text=True
    ).stdout.split()
    assert set(symbols) - {"U", "memset", "memcpy", "memmove"} == set()


@pytest.mark.tools
def test_in_place_calls_may_overwrite_their_input(tmp_path: Path) -> None:
    m = ModelWriter()
    x, y = (m.input((2, 3, 8), 0.05 * (i + 1), 3) for i in range(2))
    row = m.input((8,), 0.1, -1)
    m.output(m.add(x, y, scale=0.2), m.add(x, row), m.relu(x), m.quantize(x, scale=0.07))
    m.output(m.softmax(x), m.reshape(x, (6, 8)))
    graph = load_model(m.save(tmp_path / "model.tflite"))
    calls = [lower(graph, op) for op in graph.operators]
    inputs = [tuple(source for _, source in call.in_place) for call in calls]
    first, second, _ = graph.inputs
    assert inputs == [(first, second), *[(first,)] * 5]
    kernels = Compiled()
    kernels.build([call.kernel for call in calls], tmp_path, "host")
    rng = np.random.default_rng(1)
    values = {
        i: rng.integers(-128, 128, graph.tensors[i].shape, dtype=np.int8) for i in graph.inputs
    }
    for operator, call in zip(graph.operators, calls, strict=True):
        expected = kernels.run(graph, operator, values)
        for output, source in call.in_place:
            assert output == operator.outputs[0]
            actual = kernels.run(graph, operator, values, in_place=source)
            np.testing.assert_array_equal(actual, expected)


def small_model(tmp_path: Path) -> Graph:
    m = ModelWriter()
    x = m.input((1, 4, 4, 2), 0.1, 5)
    for scale in (0.5, 0.7):
        weights = np.full((2, 3, 3, 2), round(scale * 10), np.int8)
        x = m.conv2d(x, weights, np.array([1, 2], np.int32), scale=scale, zero_point=3)
    x = m.reshape(x, (1, 32))
    m.output(m.fully_connected(x, np.ones((3, 32), np.int8), np.zeros(3, np.int32)))
    return load_model(m.save(tmp_path / "model.tflite"))


def test_equal_shapes_share_a_kernel(tmp_path: Path) -> None:
    graph = small_model(tmp_path)
    first, second = (lower(graph, op) for op in graph.operators[:2])
    assert first.kernel == second.kernel
    assert hash(first.kernel) == hash(second.kernel)
    assert first.macs == 4 * 4 * 2 * 9 * 2
    assert isinstance(first.arguments[-1], TensorArgument)
    assert first.arguments[-1].tensor == graph.operators[0].outputs[0]


def test_unknown_kind(tmp_path: Path) -> None:
    graph = small_model(tmp_path)
    operator = replace(graph.operators[0], kind="FFT")
    with pytest.raises(UnsupportedOperator, match="no kernel for operator FFT; there are A"):
        lower(graph, operator)


def test_computed_weights(tmp_path: Path) -> None:
    graph = small_model(tmp_path)
    operator = graph.operators[0]
    x, _, bias = operator.inputs
    with pytest.raises(CompileError, match="only constants are supported there"):
        lower(graph, replace(operator, inputs=(x, x, bias)))


def test_asymmetric_weights(tmp_path: Path) -> None:
    graph = small_model(tmp_path)
    operator = graph.operators[-1]
    weights = operator.inputs[1]
    assert weights is not None
    tensor = graph.tensors[weights]
    assert tensor.quantization is not None
    odd = replace(tensor, quantization=replace(tensor.quantization, zero_points=(4,)))
    tensors = tuple(odd if t is tensor else t for t in graph.tensors)
    with pytest.raises(UnsupportedOperator, match="zero point 4"):
        lower(graph.replaced(tensors=tensors), operator)


def test_table_is_in_order() -> None:
    assert list(LOWERINGS) == sorted(LOWERINGS)


@pytest.mark.parametrize(
    ("pixels", "channels", "tile"),
    [
        (32, 16, RegisterTile(2, 4)),
        (5, 64, RegisterTile(1, 8)),
        (1, 10, RegisterTile(1, 5)),
        (1, 1, RegisterTile(1, 1)),
        (3, 256, RegisterTile(3, 2)),
        (11, 13, RegisterTile(1, 1)),
    ],
)
def test_tile(pixels: int, channels: int, tile: RegisterTile) -> None:
    assert choose_tile(pixels, channels) == tile
    assert tile.pixels * tile.channels <= MAX_ACCUMULATORS


def test_merge() -> None:
    assert merge((1, 4, 5, 3), "aabb") == ([4, 15], ["a", "b"])
    assert merge((2, 1, 3), "aba") == ([6], ["a"])
    assert merge((1, 1), "ab") == ([1], ["a"])
