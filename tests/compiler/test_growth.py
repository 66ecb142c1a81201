"""The work of each stage grows no faster than the layers: counted in bytecodes, which repeat."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.compiler.arena.needs import least_needs, planned_needs
from utvm_deploy.compiler.arena.plan import Step, plan_arena
from utvm_deploy.compiler.arena.views import with_views
from utvm_deploy.compiler.lowering import scheduling
from utvm_deploy.compiler.lowering.lowered_kernel import LoweredKernel, lower_kernel
from utvm_deploy.compiler.options import CompileOptions
from utvm_deploy.compiler.planning.scratch_limit import Spare, within_memory
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.check import check_graph
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.contract.call import OwnKernel
from utvm_deploy.kernels.isa.list_scheduler import ordered
from utvm_deploy.kernels.isa.mnemonics import instruction
from utvm_deploy.targets.arm_m.timings import timing_of

PACKAGE = str(Path(utvm_deploy.__file__).parent)
FEW, MANY = 24, 192
#: Of the work for each layer: searches end earlier in one chain than in another.
TOLERANCE = 1.15
CORE = "cortex-m7"


def chain_file(folder: Path, layers: int) -> Path:
    """Layers of three shapes in turn, each made of the one before; the model's input joins in."""
    m = ModelWriter()
    rng = np.random.default_rng(5)
    start = end = m.input((1, 6, 6, 8), 0.05, -3)
    weights = rng.integers(-127, 128, (8, 1, 1, 8), dtype=np.int8)
    windows = rng.integers(-127, 128, (1, 3, 3, 8), dtype=np.int8)
    for index in range(layers):
        if index % 3 == 0:
            end = m.conv2d(end, weights, rng.integers(-99, 99, 8), scale=0.05, activation="RELU6")
        elif index % 3 == 1:
            end = m.depthwise_conv2d(end, windows, rng.integers(-99, 99, 8), scale=0.05)
        else:
            end = m.add(start, end, scale=0.05)
    m.output(end)
    return m.save(folder / f"chain_{layers}.tflite")


def bytecodes(work: Callable[[], object]) -> int:
    """How many instructions of this project's Python code ``work`` takes."""
    count = 0

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "opcode"
        return local

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return local

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def planned(graph: Graph) -> Callable[[], object]:
    """Views, kernels with less scratch where memory is short, and the plan."""
    steps = {o.outputs: Step(o, lower(graph, o, CORE), ()) for o in graph.operators}

    def scratch_of(step: Step) -> tuple[int, ...]:
        return (4096,) if step.operator.kind == "CONV_2D" and step.call.family != "dsp" else (512,)

    def work() -> None:
        sequence = with_views(graph, lambda o: steps[o.outputs])
        fitting = within_memory(
            graph, sequence, lambda step, most: lower(graph, step.operator), scratch_of, Spare(0)
        )
        plan = plan_arena(graph, fitting)
        planned_needs("chain", graph, fitting, plan)

    return work


def compiled(path: Path) -> Callable[[], object]:
    """All of them, the search for a plan included."""
    board = utvm_deploy.load_board("mps2_an500")
    return lambda: compile_model(path, board)


STAGES: dict[str, Callable[[Path], Callable[[], object]]] = {
    "import": lambda path: lambda: load_model(path),
    "check": lambda path: (lambda graph: lambda: check_graph(graph))(load_model(path)),
    "simplify": lambda path: (lambda graph: lambda: simplify(graph))(load_model(path)),
    "needs": lambda path: (lambda graph: lambda: least_needs("n", graph))(load_model(path)),
    "plan": lambda path: planned(simplify(load_model(path))),
    "all": compiled,
}


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_the_work_of_a_stage_grows_no_faster_than_the_layers(stage: str, tmp_path: Path) -> None:
    STAGES[stage](chain_file(tmp_path, 6))()  # loads modules and fills caches
    few, many = (bytecodes(STAGES[stage](chain_file(tmp_path, layers))) for layers in (FEW, MANY))
    assert few > FEW
    assert many <= few * (MANY / FEW) * TOLERANCE


def test_the_work_of_ordering_a_chain_of_instructions_grows_no_faster_than_the_chain() -> None:
    def order(count: int) -> Callable[[], object]:
        code = [
            instruction("smlad", f"made{index + 1}", "left", "right", f"made{index}")
            for index in range(count)
        ]
        return lambda: ordered(code, timing_of(CORE))

    order(5)()
    few, many = bytecodes(order(FEW)), bytecodes(order(MANY))
    assert few > FEW
    assert many <= few * (MANY / FEW) * TOLERANCE


def test_a_kernel_is_lowered_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For its scratch, which planning asks for, and for the model."""
    lowered: list[tuple[object, ...]] = []

    def counted(kernel: OwnKernel, name: str, core: str, **options: Any) -> LoweredKernel:
        lowered.append((kernel, name, *sorted(options.items())))
        return lower_kernel(kernel, name, core, **options)

    monkeypatch.setattr(scheduling, "lower_kernel", counted)
    compile_model(
        chain_file(tmp_path, 12),
        utvm_deploy.load_board("mps2_an500"),
        CompileOptions(kernels="generic"),
    )
    assert lowered
    assert len(lowered) == len(set(lowered))
