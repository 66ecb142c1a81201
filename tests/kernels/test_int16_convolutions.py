"""Convolutions of int16 by int8 weights of the DSP family, against the reference.

Their sums fit 32 bits, or need more because of the weights, the depth or the bias.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from fence import Fence
from kernel_harness import call_of, check
from odd_shapes import compare_on, random_inputs
from test_bounds import compare_behind_fence
from test_overlap import calls_of, compiled, overlapped
from tflite_writer import ModelWriter

from utvm_deploy import connect
from utvm_deploy.boards.board import load_board
from utvm_deploy.device import INSTRUCTIONS, Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Graph
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.choose.space import space
from utvm_deploy.records.candidate import COMPACT_LITTLE, COMPACT_MOST

# batch, rows, columns, channels, outputs, groups, window, strides, dilation, padding (0: SAME),
# weights (0: drawn, otherwise all the same), bits of biases
SHAPES = [
    (1, 5, 7, 3, 5, 1, (3, 3), (1, 1), 1, 0, 0, 20),
    (2, 4, 5, 6, 4, 1, (1, 1), (1, 1), 1, 0, 0, 20),
    (1, 9, 4, 1, 1, 1, (7, 2), (2, 1), 1, 0, 0, 20),
    (1, 6, 6, 13, 7, 1, (2, 2), (2, 2), 1, 1, 0, 20),
    (1, 8, 7, 4, 3, 1, (3, 2), (1, 1), 2, 0, 0, 20),
    (1, 5, 8, 6, 9, 3, (3, 3), (1, 1), 1, 0, 0, 20),
    (1, 7, 6, 4, 6, 2, (2, 3), (1, 1), 2, 0, 0, 20),
    (1, 14, 1, 5, 2, 1, (4, 1), (1, 1), 3, 0, 0, 20),
    (1, 3, 3, 40, 5, 1, (3, 3), (2, 2), 1, 0, 0, 20),
    (1, 5, 5, 2, 3, 1, (5, 5), (1, 1), 1, 0, 127, 20),
    # Sums of more than 32 bits: by their number, their weights, their biases.
    (1, 5, 4, 63, 3, 1, (4, 5), (1, 1), 1, 0, 0, 20),
    (1, 4, 4, 65, 2, 1, (3, 3), (1, 1), 1, 1, -128, 20),
    (2, 4, 8, 47, 5, 1, (4, 5), (2, 2), 1, 0, 127, 30),
    (1, 4, 4, 3, 3, 1, (3, 3), (1, 1), 1, 0, 0, 38),
    (1, 3, 4, 8, 4, 2, (1, 2), (1, 1), 1, 0, 0, 34),
]


def add_convolution(m: ModelWriter, rng: np.random.Generator, row: tuple) -> None:
    """An operator with an input and an output of its own."""
    batch, height, width, channels, outputs, groups, window, strides, dilation, *others = row
    padding, constant, bits = others
    reaches = [(size - 1) * dilation + 1 for size in window]
    sizes = zip((height, width), strides, reaches, strict=True)
    image = [(n - k) // s + 1 if padding else -(-n // s) for n, s, k in sizes]
    shape = (outputs, *window, channels // groups)
    weights = rng.integers(-128, 128, shape).astype(np.int8)
    if constant:
        weights[...] = constant
    number = m.tensor((batch, height, width, channels), "int16", 0.0004, 0)
    m.inputs.append(number)
    scales = rng.uniform(0.003, 0.02, outputs).tolist()
    bias = rng.integers(-(2**bits), 2**bits, outputs).astype(np.int64)
    given = [number, m.constant(weights, scales, axis=0)]
    given.append(m.constant(bias, [0.0004 * scale for scale in scales]))
    fields = {"Padding": padding, "StrideH": strides[0], "StrideW": strides[1]}
    fields |= {"DilationHFactor": dilation, "DilationWFactor": dilation}
    fields |= {"FusedActivationFunction": int(rng.integers(0, 4))}
    # Some outputs are at their limits, but most are not.
    reach = 64 * 19_000 * weights[0].size ** (1 if constant else 0.5)
    scale = 0.0004 * 0.02 * max(reach, 2.0**bits) / 20_000
    made = (batch, *image, outputs)
    m.output(m.node("CONV_2D", given, made, ("Conv2DOptions", fields), scale=scale))


def write_convolutions(path: Path) -> ModelWriter:
    rng = np.random.default_rng(75)
    m = ModelWriter()
    for row in SHAPES:
        add_convolution(m, rng, row)
    m.save(path)
    return m


def draw(rng: np.random.Generator) -> tuple:
    """A shape, as a row of the table."""
    window = (int(rng.integers(1, 8)), int(rng.integers(1, 8)))
    dilation = int(rng.choice((1, 1, 1, 2, 3)))
    strides = (1, 1) if dilation > 1 else tuple(map(int, rng.choice((1, 1, 2, 3), 2)))
    padding = int(rng.integers(0, 2))
    height, width = (
        int(rng.integers(1, 10)) + ((size - 1) * dilation if padding else 0) for size in window
    )
    groups = int(rng.choice((1, 1, 1, 2, 3)))
    channels, outputs = (groups * int(rng.integers(1, most)) for most in (70 // groups, 12))
    constant, bits = int(rng.choice((0, 0, 0, 127, -127, -128))), int(rng.choice((16, 24, 33, 39)))
    batch = int(rng.choice((1, 1, 2)))
    sizes = height, width, channels, outputs, groups
    return (batch, *sizes, window, strides, dilation, padding, constant, bits)


def write_drawn(path: Path, seed: int, count: int) -> ModelWriter:
    rng = np.random.default_rng(seed)
    m = ModelWriter()
    while len(m.operators) < count:
        add_convolution(m, rng, draw(rng))
    m.save(path)
    return m


def kernels_of(graph: Graph, core: str) -> list[str]:
    return [lower(graph, operator, core).kernel.name for operator in graph.operators]


@pytest.mark.parametrize(
    "core", ["cortex-m7", "cortex-m55", "rv32imc", "rv32imc_zve32x", "generic"]
)
def test_in_plain_c(core: str, tmp_path: Path) -> None:
    model = write_convolutions(tmp_path / "model.tflite")
    assert check(model, tmp_path, core=core) == len(SHAPES)


@pytest.mark.parametrize("level", [COMPACT_LITTLE, COMPACT_MOST])
def test_few_bytes_in_plain_c(level: int, tmp_path: Path) -> None:
    model = write_convolutions(tmp_path / "model.tflite")
    assert check(model, tmp_path, core="cortex-m7", family=f"dsp compact={level}") == len(SHAPES)


def test_drawn_in_plain_c(tmp_path: Path) -> None:
    model = write_drawn(tmp_path / "model.tflite", 76, 12)
    assert check(model, tmp_path, core="cortex-m7") == 12


def test_all_are_dsp_kernels_and_long_sums_are_told_apart(tmp_path: Path) -> None:
    write_convolutions(tmp_path / "model.tflite")
    names = kernels_of(load_model(tmp_path / "model.tflite"), "cortex-m7")
    assert [name.split("dsp")[1] for name in names] == ["_16x8"] * 10 + ["_16x8_long"] * 5


def test_little_scratch_takes_the_routine_in_c(tmp_path: Path) -> None:
    write_convolutions(tmp_path / "model.tflite")
    graph = load_model(tmp_path / "model.tflite")
    for operator in graph.operators:
        call = lower(graph, operator, "cortex-m7", most_scratch=16)
        assert "bytes of scratch" in call.why_not
        wide = call_of(graph, operator, "cortex-m7")
        needed = sum(one.size_bytes for one in wide.kernel.scratch)
        assert lower(graph, operator, "cortex-m7", most_scratch=needed).family == "dsp"


@pytest.mark.tools
def test_outputs_lie_on_what_was_read(tmp_path: Path) -> None:
    model = write_drawn(tmp_path / "model.tflite", 79, 8)
    graph, images = load_model(tmp_path / "model.tflite"), random_inputs(model, 4)
    found = list(calls_of(graph, "cortex-m7", np.random.default_rng(80)))
    functions, library = compiled([call for _, call in found], "cortex-m7", tmp_path)
    assert sum(
        overlapped(graph, position, call, function, library, images[position])
        for (position, call), function in zip(found, functions, strict=True)
    )


# The fence below is around the Cortex-M7's kernels.
@pytest.mark.spread(3, among=("mps2_an386", "qemu_rv32imcv", "qemu_rv32imc"))
def test_on_cores(device: Device, tmp_path: Path) -> None:
    compare_on(device, tmp_path, write_convolutions, "")


@pytest.mark.spread(1, among=("mps2_an500",))
def test_drawn_on_cores(device: Device, tmp_path: Path) -> None:
    compare_on(device, tmp_path, partial(write_drawn, seed=77, count=8), "")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_many_drawn_on_cores(device: Device, seed: int, tmp_path: Path) -> None:
    compare_on(device, tmp_path, partial(write_drawn, seed=1000 + seed, count=16), "")


@pytest.mark.emulator
def test_behind_a_fence(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    model = write_convolutions(path)
    graph = load_model(path)
    rng = np.random.default_rng(78)
    jobs = []
    for operator in graph.operators:
        others = list(space(graph, operator, "cortex-m7"))[1:]
        jobs += [(operator, None), (operator, others[rng.integers(len(others))])]
    with (
        Fence(load_board("mps2_an500")) as fence,
        connect(fence.board, timing=INSTRUCTIONS) as device,
    ):
        assert compare_behind_fence((fence, device), path, model, jobs, graph) >= len(SHAPES)
