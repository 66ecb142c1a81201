"""Elementwise operators of two inputs, broadcast in every way, of odd sizes, and by constants."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fence import Fence
from kernel_harness import check
from odd_shapes import compare_on
from test_bounds import compare_behind_fence
from tflite_writer import ModelWriter

from utvm_deploy import connect
from utvm_deploy.boards.board import load_board
from utvm_deploy.device import INSTRUCTIONS, Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.contract.driver import Driver
from utvm_deploy.kernels.native.dsp.elementwise import DspElementwise
from utvm_deploy.kernels.native.elementwise import ElementwiseKernel, Run

ARITHMETIC = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions"}
# The other side of each shape: repeated by image, by channel, by row, along the inner dimension.
SHAPES = [
    ((2, 5, 7, 13), (2, 5, 7, 13)),
    ((2, 5, 7, 13), (13,)),
    ((2, 5, 7, 13), (2, 1, 1, 13)),
    ((1, 9, 5, 70), (70,)),
    ((1, 40, 3, 3), (3,)),
    ((2, 5, 3, 30), (5, 3, 1)),
    ((3, 4, 9), (3, 1, 9)),
    ((1, 4, 1, 6), (1, 1, 7, 6)),
    ((5,), (5,)),
]


def write_two_inputs(path: Path) -> ModelWriter:
    rng = np.random.default_rng(50)
    m = ModelWriter()
    for index, shapes in enumerate(SHAPES):
        made = np.broadcast_shapes(*shapes)
        sides = [
            m.input(s, 0.04 + 0.03 * n, int(rng.integers(-128, 128))) for n, s in enumerate(shapes)
        ]
        if index % 2:
            sides.reverse()
        zero_point = int(rng.integers(-128, 128))
        for kind, table in ARITHMETIC.items():
            activation = {"FusedActivationFunction": (index + len(kind)) % 2}
            scale = 0.1 if kind != "MUL" else 0.3
            m.output(
                m.node(kind, sides, made, (table, activation), scale=scale, zero_point=zero_point)
            )
        equal = [m.input(s, 0.04, 5) for s in shapes]
        for kind in ("ADD", "SUB"):  # both sides are only shifted
            m.output(m.node(kind, equal, made, (ARITHMETIC[kind], {}), scale=0.1))
        for kind in ("MAXIMUM", "MINIMUM"):
            m.output(m.node(kind, equal, made, ("MaximumMinimumOptions", {})))
        if made == shapes[0]:
            sides = [m.input(shapes[0], 0.04, -9), m.input(shapes[1], 0.01, 7)]
            m.output(m.node("PRELU", sides, made, scale=0.05, zero_point=zero_point))
    m.save(path)
    return m


def write_one_sided(path: Path) -> ModelWriter:
    """One side is a number, or the same everywhere, or both sides are one tensor."""
    rng = np.random.default_rng(51)
    m = ModelWriter()
    for value, shape in ((-128, (1,)), (127, (1, 1)), (19, (7,)), (-3, (2, 3, 7))):
        x = m.input((2, 3, 7), 0.05, int(rng.integers(-128, 128)))
        same = m.constant(np.full(shape, value, np.int8), 0.03, int(rng.integers(-128, 128)))
        like = m.tensors[x]
        equal = m.constant(np.full(shape, value, np.int8), 0.05, like.zero_points[0])
        for kind, table in ARITHMETIC.items():
            for sides in ([x, same], [same, x], [x, x]):
                options = (table, {"FusedActivationFunction": len(sides) % 2})
                m.output(m.node(kind, sides, (2, 3, 7), options, scale=0.07, zero_point=-4))
        for kind in ("MAXIMUM", "MINIMUM"):
            m.output(m.node(kind, [x, equal], (2, 3, 7), ("MaximumMinimumOptions", {})))
        m.output(m.node("PRELU", [x, same], (2, 3, 7), scale=0.04, zero_point=9))
    m.save(path)
    return m


@pytest.mark.parametrize(
    ("extents", "left", "right", "run"),
    [
        ((91,), "1", "1", Run(0, 91, ())),
        ((5, 13), "11", "01", Run(0, 65, (0, 13))),
        ((5, 13), "10", "11", Run(1, 13, (1, 0))),
        ((2, 5, 13), "101", "111", Run(1, 65, (13, 0))),
        ((2, 5, 13), "010", "101", Run(2, 13, (1, 0))),
    ],
)
def test_one_side_repeats_in_a_run(
    extents: tuple[int, ...], left: str, right: str, run: Run
) -> None:
    sides = (tuple(flag == "1" for flag in follows) for follows in (left, right))
    assert DspElementwise("add", extents, *sides).run == run


@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m55"])
def test_the_loop_is_called_itself_without_broadcasting(core: str, tmp_path: Path) -> None:
    write_two_inputs(tmp_path / "two_inputs.tflite")
    graph = load_model(tmp_path / "two_inputs.tflite")
    found = set()
    for operator in graph.operators:
        kernel = lower(graph, operator, core).kernel
        if isinstance(kernel, ElementwiseKernel):
            driver = Driver()
            kernel.drive(driver)
            found.add((kernel.is_broadcast, "_runs(" in "".join(driver.lines)))
    assert found == {(False, False), (True, True)}


def test_two_inputs_in_plain_c(tmp_path: Path) -> None:
    model = write_two_inputs(tmp_path / "two_inputs.tflite")
    count = len(model.operators)
    assert check(model, tmp_path, core="cortex-m7") == count
    graph = load_model(tmp_path / "two_inputs.tflite")
    kernels = [lower(graph, operator, "cortex-m7").kernel for operator in graph.operators]
    assert all(isinstance(kernel, DspElementwise) for kernel in kernels)


# The fence below is around the Cortex-M7's kernels; a Cortex-M3 has the host's C.
@pytest.mark.spread(2, among=("mps2_an386", "mps3_an547"))
def test_two_inputs_on_cores(device: Device, tmp_path: Path) -> None:
    has_dsp = device.board.cpu.dsp and not device.board.cpu.mve
    compare_on(device, tmp_path, write_two_inputs, "DSP assembly" if has_dsp else "")


@pytest.mark.emulator
def test_two_inputs_behind_a_fence(tmp_path: Path) -> None:
    path = tmp_path / "two_inputs.tflite"
    model = write_two_inputs(path)
    graph = load_model(path)
    jobs = [(operator, None) for operator in graph.operators]
    with (
        Fence(load_board("mps2_an500")) as fence,
        connect(fence.board, timing=INSTRUCTIONS) as device,
    ):
        assert compare_behind_fence((fence, device), path, model, jobs, graph) == len(jobs)


def test_one_side_makes_a_table(tmp_path: Path) -> None:
    model = write_one_sided(tmp_path / "one_sided.tflite")
    assert check(model, tmp_path) == len(model.operators)
    graph = load_model(tmp_path / "one_sided.tflite")
    for operator in graph.operators:
        for core in ("generic", "cortex-m7"):
            assert lower(graph, operator, core).kernel.name.startswith("lookup_")
