"""Level balanced: one rounding of each output where the code hardly grows by it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.arena.plan import Step
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.options import STACK, CompileOptions, Objective
from utvm_deploy.compiler.planning.rounding_choice import (
    MOST_GROWTH_BYTES,
    flash_bytes,
    rounded_where_small,
)
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.device import Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.kernels.choose.lowering import families_for, lower
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.records.candidate import COMPACT_LITTLE, Candidate

BOARD = load_board("mps2_an500")
#: Height, width, inputs, outputs, kernel, activation.
Layer = tuple[int, int, int, int, int, str]
#: Two layers that share a routine, and one with another depth.
POINTWISE, SAME, DEEPER = (
    (9, 9, 24, 12, 1, "RELU"),
    (9, 9, 24, 20, 1, "RELU"),
    (6, 6, 8, 10, 3, "RELU"),
)


def write_layers(path: Path, layers: Sequence[Layer]) -> ModelWriter:
    rng = np.random.default_rng(7)
    m = ModelWriter()
    for height, width, inputs, outputs, kernel, activation in layers:
        x = m.input((1, height, width, inputs), 0.05, 3)
        weights = rng.integers(-128, 128, (outputs, kernel, kernel, inputs), dtype=np.int8)
        bias = rng.integers(-999, 999, outputs, dtype=np.int32)
        m.output(m.conv2d(x, weights, bias, padding="SAME", activation=activation, scale=1.5))
    m.save(path)
    return m


def without_limit(layer: Layer) -> Layer:
    return (*layer[:5], "NONE")


def roundings(layers: Sequence[Layer], folder: Path) -> list[bool]:
    """Whether each layer rounds once; the code must not grow by more than is allowed."""
    write_layers(folder / "model.tflite", layers)
    graph = load_model(folder / "model.tflite")
    core = BOARD.cpu.kernel_core
    steps = [
        Step(one, lower(graph, one, core, Candidate("dsp"), compact=COMPACT_LITTLE), ())
        for one in graph.operators
    ]
    made = rounded_where_small(steps, core)
    found = [one.call for one in made if isinstance(one, Step)]
    grown = flash_bytes(found, core) - flash_bytes([one.call for one in steps], core)
    assert grown <= MOST_GROWTH_BYTES
    return [call.exact is not None for call in found]


def test_layers_that_all_can_round_once_do(tmp_path: Path) -> None:
    assert roundings([POINTWISE, SAME, DEEPER], tmp_path) == [True, True, True]


@pytest.mark.parametrize("first", [0, 1])
def test_layers_that_share_a_routine_with_one_that_cannot_round_twice(
    first: int, tmp_path: Path
) -> None:
    pair = [without_limit(POINTWISE), SAME]
    found = roundings([*(pair if first else pair[::-1]), DEEPER], tmp_path)
    assert found == [False, False, True]


def test_layers_between_which_nothing_can_round_once(tmp_path: Path) -> None:
    layers = [without_limit(one) for one in (POINTWISE, DEEPER)]
    assert roundings(layers, tmp_path) == [False, False]


@pytest.mark.tools
def test_levels_differ(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    write_layers(path, [without_limit(POINTWISE), SAME, DEEPER])

    def compiled_at(level: str) -> CompiledModel:
        return compile_model(path, BOARD, CompileOptions(objective=Objective(level), scratch=STACK))

    counts = [
        "".join(compiled_at(level).sources.values()).count("_once(") > 0
        for level in (Objective.TIME, Objective.BALANCED, Objective.SIZE)
    ]
    assert counts == [True, True, False]


@pytest.mark.spread(2, among=("mps2_an500", "mps2_an386"))
def test_bytes_at_level_balanced(device: Device, tmp_path: Path) -> None:
    if families_for(device.board.cpu.kernel_core)[0] != "dsp":
        pytest.skip(f"{device.board.name} has other kernels")
    path = tmp_path / "model.tflite"
    model = write_layers(path, [POINTWISE, SAME, without_limit(DEEPER), (7, 8, 3, 6, 3, "RELU6")])
    rng = np.random.default_rng(1)
    shapes = [model.tensors[number].shape for number in model.inputs]
    sample = [rng.integers(-128, 128, shape, dtype=np.int8) for shape in shapes]
    expected = run_reference(path, [sample]).outputs[0]
    compiled = utvm_deploy.compile(path, device.board, optimize=Objective.BALANCED)
    assert "_once(" in "".join(compiled.sources.values())
    for one, other in zip(device.load(compiled, into="ram")(*sample), expected, strict=True):
        np.testing.assert_array_equal(one, other)
