"""Kernels of random shapes, and every candidate, on emulated cores: no access out of bounds.

Each buffer of a call, constants and scratch too, is a tensor of its own on the device; the fence
finds whatever a call reads or writes beside them. Many kernels go into one module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from fence import Fence
from fenced import fenced_device, placed, source_of, stretch, watched
from odd_shapes import ACTIVATIONS, random_inputs
from test_convolutions import spread_scale, weights_and_bias
from test_paired_columns import write_few_channels
from test_winograd import write_convolutions as write_winograd
from tflite_writer import ModelWriter

from utvm_deploy.compiler.lowering.lowered_kernel import lower_kernel
from utvm_deploy.device import Device
from utvm_deploy.device.link.messages import MAX_ARGUMENTS
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.choose.space import space
from utvm_deploy.kernels.contract.call import LibraryKernel
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.records.candidate import Candidate
from utvm_deploy.tuning.measuring.build import kernel_text

#: Board -> its family of kernels. The two with the DSP extension take half of the candidates each.
BOARDS = {
    "mps2_an500": "dsp",
    "mps2_an386": "dsp",
    "mps2_an385": "thumb",
    "mps3_an547": "mve",
    "qemu_rv32imc": "scalar",
}
HALF = ("mps2_an500", "mps2_an386")
_IN_ONE_MODULE = 10
# What kernels ask of a tensor's address, and no more: the rest is for the allocator to choose.
_FLAGS = ("-O1",)


def dsp_candidates(graph: Graph, operator: Operator, core: str) -> list[Candidate]:
    """The candidates of the DSP family, its default first."""
    return [one for one in space(graph, operator, core) if one.family == "dsp"]


def random_operator(m: ModelWriter, rng: np.random.Generator, kind: str) -> None:
    """One operator of a random odd shape, with random and sometimes extreme numbers."""
    zero_points = [-128, 127, int(rng.integers(-128, 128))]
    channels = int(rng.integers(1, 71))
    height, width = (int(n) for n in rng.integers(1, 15, 2))
    kernel = tuple(int(n) for n in rng.integers(1, 6, 2))
    stride = tuple(int(n) for n in rng.integers(1, 4, 2))
    padding = (
        "SAME" if height < kernel[0] or width < kernel[1] else str(rng.choice(["SAME", "VALID"]))
    )
    result = {
        "activation": str(rng.choice(ACTIVATIONS)),
        "zero_point": zero_points[int(rng.integers(3))],
    }
    # From hardly anything but limits to hardly anything but zeros.
    factor = float(2.0 ** rng.uniform(-4, 4))
    if kind == "dense":
        inputs, outputs, rows = (int(n) for n in rng.integers(1, [200, 40, 4]))
        weights, bias = weights_and_bias(rng, (outputs, inputs), outputs)
        x = m.input((rows, inputs), 0.05, zero_points[int(rng.integers(3))])
        scale = rng.uniform(0.003, 0.02, outputs) if rng.integers(2) else 0.01
        result["scale"] = factor * spread_scale(inputs, 0.05, 0.01)
        m.output(m.fully_connected(x, weights, bias, weight_scale=scale, **result))
        return
    x = m.input((1, height, width, channels), 0.05, zero_points[int(rng.integers(3))])
    if kind == "pool":
        pool = m.average_pool if rng.integers(2) else m.max_pool
        m.output(pool(x, kernel, stride=stride, padding=padding, activation=result["activation"]))
        return
    if kind == "add":
        y = m.input((1, height, width, channels), 0.04, zero_points[int(rng.integers(3))])
        m.output(m.add(x, y, scale=0.1 * factor, **result))
        return
    outputs = int(rng.integers(1, 40)) if kind == "conv" else channels * int(rng.integers(1, 4))
    shape = (outputs, *kernel, channels) if kind == "conv" else (1, *kernel, outputs)
    taps = kernel[0] * kernel[1] * (channels if kind == "conv" else 1)
    weights, bias = weights_and_bias(rng, shape, outputs)
    layer = m.conv2d if kind == "conv" else m.depthwise_conv2d
    dilation = 2 if stride == (1, 1) and rng.integers(3) == 0 and padding == "SAME" else 1
    y = layer(
        x,
        weights,
        bias,
        weight_scale=rng.uniform(0.003, 0.02, outputs),
        stride=stride,
        dilation=dilation,
        padding=padding,
        scale=factor * spread_scale(taps, 0.05, 0.01),
        **result,
    )
    m.output(y)


@pytest.fixture(params=BOARDS)
def rig(request: pytest.FixtureRequest) -> Iterator[tuple[Fence, Device]]:
    with fenced_device(request.param) as found:
        yield found


def compare_behind_fence(
    rig: tuple[Fence, Device],
    path: Path,
    model: ModelWriter,
    jobs: Sequence[tuple[Operator, Candidate | None]],
    graph: Graph,
    *,
    core: str = "",
    flags: tuple[str, ...] = _FLAGS,
) -> int:
    """Run each job on the reference's inputs; how many were kernels of the board's family.

    ``core`` has the kernels, with the compiler's ``flags``, if it is not the board's.
    """
    fence, device = rig
    reference = run_reference(path, [random_inputs(model, 5)]).tensors[0]
    core, count = core or device.board.cpu.kernel_core, 0
    for first in range(0, len(jobs), _IN_ONE_MODULE):
        some = jobs[first : first + _IN_ONE_MODULE]
        calls = [lower(graph, operator, core, candidate) for operator, candidate in some]
        functions = []
        for number, call in enumerate(calls):
            assert not isinstance(call.kernel, LibraryKernel)
            name = f"kernel_{number}"
            functions.append(lower_kernel(call.kernel, name, core, may_alias=True).function)
        with device.load_module(kernel_text(functions), flags=flags) as module:
            for (operator, candidate), call, function in zip(some, calls, functions, strict=True):
                if len(call.arguments) + len(function.scratch) > MAX_ARGUMENTS:
                    continue  # a task cannot; random models call it by way of its layer
                count += call.family == BOARDS[device.board.name]
                made, arguments = placed(device, graph, operator, call, function, reference)
                expected = reference[source_of(graph, operator)]
                says = f"{call.kernel.name} {candidate.label if candidate else ''}"
                own = [stretch(tensor.block) for tensor in made]
                entry = module[function.name].address
                with watched(fence, device, entry, [*own, stretch(module.block)]) as crossings:
                    module[function.name](*arguments)
                assert crossings == [], says
                np.testing.assert_array_equal(made[0].numpy(), expected, err_msg=says)
                for tensor in made:
                    tensor.free()
    return count


@pytest.mark.emulator
def test_random_shapes(rig: tuple[Fence, Device], tmp_path: Path) -> None:
    rng = np.random.default_rng(40)
    model = ModelWriter()
    kinds = ["conv", "depthwise", "dense", "depthwise", "conv"] * 6
    if BOARDS[rig[1].board.name] == "dsp":
        kinds += ["pool", "add"] * 6
    for kind in kinds:
        random_operator(model, rng, kind)
    path = model.save(tmp_path / "model.tflite")
    graph = load_model(path)
    jobs = [(operator, None) for operator in graph.operators]
    compared = compare_behind_fence(rig, path, model, jobs, graph)
    # Few fall back to plain C.
    assert compared > 0.6 * len(kinds)


@pytest.mark.emulator
@pytest.mark.parametrize("rig", ["mps2_an385"], indirect=True)
def test_random_shapes_without_thumb2(rig: tuple[Fence, Device], tmp_path: Path) -> None:
    """A Cortex-M3 runs the code of a Cortex-M0, whose emulated board has little memory."""
    rng = np.random.default_rng(43)
    model = ModelWriter()
    for kind in ["depthwise", "conv", "depthwise", "dense", "depthwise"] * 4:
        random_operator(model, rng, kind)
    path = model.save(tmp_path / "model.tflite")
    graph = load_model(path)
    jobs = [(operator, None) for operator in graph.operators]
    flags = (*_FLAGS, "-mcpu=cortex-m0")
    compared = compare_behind_fence(rig, path, model, jobs, graph, core="cortex-m0", flags=flags)
    assert compared > 0.6 * len(jobs)


@pytest.mark.emulator
@pytest.mark.parametrize("rig", ["mps2_an500"], indirect=True)
def test_what_records_of_other_shapes_choose(rig: tuple[Fence, Device], tmp_path: Path) -> None:
    """Larger rings, blocks and tiles than a small image can fill."""
    rng, model = np.random.default_rng(42), ModelWriter()
    for shape, kernel in (((1, 5, 7, 35), 4), ((1, 3, 6, 5), 3), ((1, 4, 4, 2), 3)):
        weights, bias = weights_and_bias(rng, (1, kernel, kernel, shape[3]), shape[3])
        x = model.input(shape, 0.05, 3)
        scale = spread_scale(kernel * kernel, 0.05, 0.01)
        model.output(model.depthwise_conv2d(x, weights, bias, padding="VALID", scale=scale))
    path = model.save(tmp_path / "model.tflite")
    graph = load_model(path)
    jobs = [
        (operator, Candidate.of("dsp", method="planes", channels=block, outputs=2, period=4))
        for operator in graph.operators
        for block in (4, 32)
    ]
    assert compare_behind_fence(rig, path, model, jobs, graph) == len(jobs)


@pytest.mark.emulator
@pytest.mark.parametrize("rig", ["mps2_an500"], indirect=True)
def test_long_windows(rig: tuple[Fence, Device], tmp_path: Path) -> None:
    """Depthwise along one axis: rows in parts, columns as rows, taps that lie apart.

    And along both axes apart, with several outputs of each channel.
    """
    rng, model = np.random.default_rng(44), ModelWriter()
    for shape, outputs, kernel, stride, dilation in (
        ((1, 1, 27, 7), 7, (1, 11), (1, 1), (1, 1)),
        ((1, 31, 1, 4), 4, (9, 1), (2, 1), (1, 1)),
        ((1, 26, 1, 5), 5, (9, 1), (1, 1), (2, 1)),
        ((1, 2, 16, 3), 6, (1, 3), (1, 1), (1, 4)),
        ((1, 13, 1, 5), 5, (3, 1), (1, 1), (2, 1)),
        ((1, 5, 7, 3), 6, (3, 3), (1, 1), (2, 2)),
        ((1, 4, 9, 2), 10, (2, 3), (1, 1), (1, 3)),
    ):
        weights, bias = weights_and_bias(rng, (1, *kernel, outputs), outputs)
        options = {"stride": stride, "dilation": dilation}
        scale = spread_scale(kernel[0] * kernel[1], 0.05, 0.01)
        x = model.input(shape, 0.05, 3)
        model.output(model.depthwise_conv2d(x, weights, bias, scale=scale, **options))
    path = model.save(tmp_path / "model.tflite")
    graph = load_model(path)
    core = rig[1].board.cpu.kernel_core
    jobs: list[tuple[Operator, Candidate | None]] = []
    for operator in graph.operators:
        found = dsp_candidates(graph, operator, core)
        jobs += [(operator, candidate) for candidate in (*found[:1], *found[1::5])]
    names = {lower(graph, operator, core, candidate).kernel.name for operator, candidate in jobs}
    # As a row of more channels; and pixel by pixel, channels copied.
    assert "depthwise_1x9_s1x1_p0x4_1x13_1x13_10_dsp" in names
    assert any(name.endswith("_6_x2_dsp") for name in names)
    assert {dict(candidate.choices).get("part") for _, candidate in jobs if candidate} >= {2, 4, 6}
    assert compare_behind_fence(rig, path, model, jobs, graph) == len(jobs)


#: How many candidates apart the compared ones are; ``-m soak`` compares every one.
steps = pytest.mark.parametrize("step", [2, pytest.param(1, marks=pytest.mark.soak)])


def compare_method(
    rig: tuple[Fence, Device], path: Path, model: ModelWriter, method: str, step: int
) -> None:
    """Compare the candidates with this method, others of each operator; each must have one."""
    graph = load_model(path)
    core = rig[1].board.cpu.kernel_core
    jobs = []
    for index, operator in enumerate(graph.operators):
        every = dsp_candidates(graph, operator, core)
        found = [one for one in every if one.choice("method") == method]
        jobs += [(operator, one) for one in found[index % min(step, len(found)) :: step]]
    found = {graph.operators.index(operator) for operator, _ in jobs}
    assert found == set(range(len(graph.operators)))
    assert compare_behind_fence(rig, path, model, jobs, graph) == len(jobs)


@pytest.mark.emulator
@steps
@pytest.mark.parametrize("rig", ["mps2_an500"], indirect=True)
def test_columns(rig: tuple[Fence, Device], step: int, tmp_path: Path) -> None:
    """Dilated: phases of two widths, packed channels, an even kernel, a turned one.

    One channel: the words of several last pixels would reach behind the image. Channels in groups.
    """
    rng, model = np.random.default_rng(45), ModelWriter()
    for shape, outputs, kernel, dilation, padding, groups in (
        ((1, 7, 11, 6), 5, (3, 3), (2, 2), "SAME", 1),
        ((1, 5, 10, 2), 7, (3, 2), (3, 3), "SAME", 1),
        ((1, 8, 13, 5), 4, (2, 3), (1, 4), "VALID", 1),
        ((1, 19, 1, 7), 3, (3, 1), (4, 1), "SAME", 1),
        ((1, 1, 50, 1), 4, (1, 5), (1, 1), "SAME", 1),
        ((1, 9, 7, 1), 3, (1, 1), (1, 1), "VALID", 1),
        ((1, 6, 7, 15), 9, (3, 3), (1, 1), "SAME", 3),
        ((1, 5, 7, 10), 6, (1, 1), (1, 1), "VALID", 2),
        ((2, 6, 9, 6), 4, (2, 3), (1, 2), "SAME", 2),
    ):
        inputs = shape[3] // groups
        weights, bias = weights_and_bias(rng, (outputs, *kernel, inputs), outputs)
        scale = spread_scale(kernel[0] * kernel[1] * inputs, 0.05, 0.01)
        x = model.input(shape, 0.05, 3)
        options = {"dilation": dilation, "padding": padding, "activation": "RELU6"}
        model.output(model.conv2d(x, weights, bias, scale=scale, **options))
    path = model.save(tmp_path / "model.tflite")
    compare_method(rig, path, model, "columns", step)


@pytest.mark.emulator
@steps
@pytest.mark.parametrize("rig", ["mps2_an500"], indirect=True)
def test_columns_of_few_channels(rig: tuple[Fence, Device], step: int, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    model = write_few_channels(path)
    compare_method(rig, path, model, "columns", step)


@pytest.mark.emulator
@steps
@pytest.mark.parametrize("rig", ["mps2_an500"], indirect=True)
def test_winograd(rig: tuple[Fence, Device], step: int, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    model = write_winograd(path)
    compare_method(rig, path, model, "winograd", step)


@pytest.mark.emulator
def test_every_candidate(rig: tuple[Fence, Device], tmp_path: Path) -> None:
    rng = np.random.default_rng(41)
    model = ModelWriter()
    for shape, outputs, kernel, stride in (
        ((1, 5, 6, 7), 5, (3, 3), 1),
        ((1, 4, 5, 32), 3, (1, 1), 1),
        ((1, 6, 11, 9), 0, (3, 3), 1),
        ((1, 5, 7, 6), 0, (3, 3), 2),
        ((1, 3, 8, 5), 0, (5, 5), 1),
    ):
        made = outputs or shape[3]
        sizes = (outputs, *kernel, shape[3]) if outputs else (1, *kernel, made)
        weights, bias = weights_and_bias(rng, sizes, made)
        layer = model.conv2d if outputs else model.depthwise_conv2d
        x = model.input(shape, 0.05, 3)
        taps = kernel[0] * kernel[1] * (shape[3] if outputs else 1)
        scale = spread_scale(taps, 0.05, 0.01)
        model.output(layer(x, weights, bias, stride=stride, scale=scale, activation="RELU6"))
    weights, bias = weights_and_bias(rng, (9, 37), 9)
    scale = spread_scale(37, 0.05, 0.01)
    model.output(model.fully_connected(model.input((2, 37), 0.05, 3), weights, bias, scale=scale))
    path = model.save(tmp_path / "model.tflite")
    graph = load_model(path)
    board = rig[1].board
    family = BOARDS[board.name]
    jobs = []
    for operator in graph.operators:
        candidates = [
            c for c in space(graph, operator, board.cpu.kernel_core) if c.family == family
        ]
        assert candidates and (family != "dsp" or len(candidates) > 3)
        first, step = (HALF.index(board.name), len(HALF)) if board.name in HALF else (0, 1)
        jobs += [(operator, c) for c in candidates[first::step]]
    assert compare_behind_fence(rig, path, model, jobs, graph) == len(jobs)
