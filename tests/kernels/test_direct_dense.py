"""Fully connected layers without scratch: the same bytes as with the input widened once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from kernel_harness import check
from tflite_writer import ModelWriter

from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.main import main
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.contract.call import is_native
from utvm_deploy.kernels.native.dsp import dense
from utvm_deploy.kernels.native.dsp.dense_six_outputs import SixOutputs
from utvm_deploy.records.candidate import Candidate

pytestmark = pytest.mark.tools

# Inputs and outputs of each layer; a last group of outputs has 1 to 5.
SHAPES = ((16, 6), (24, 19), (640, 128), (8, 20), (32, 21), (48, 16), (64, 17), (40, 11))


def written(*, per_channel: bool) -> ModelWriter:
    rng = np.random.default_rng(11)
    m = ModelWriter()
    for inputs, outputs in SHAPES:
        x = m.input((1, inputs), 0.03, int(rng.integers(-128, 128)))
        weights = rng.integers(-128, 128, (outputs, inputs), dtype=np.int8)
        bias = rng.integers(-9000, 9000, outputs, dtype=np.int32)
        scales = rng.uniform(0.005, 0.02, outputs) if per_channel else 0.01
        scale = float(0.002 * np.sqrt(inputs))
        m.output(m.fully_connected(x, weights, bias, weight_scale=scales, scale=scale))
    return m


@dataclass(frozen=True)
class Direct(SixOutputs):
    is_direct: bool = True


@pytest.mark.parametrize("per_channel", [False, True])
def test_the_c_is_byte_exact(
    per_channel: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense, "SixOutputs", Direct)
    assert check(written(per_channel=per_channel), tmp_path, core="cortex-m7") == len(SHAPES)


def test_less_scratch_than_the_widened_input_takes_it(tmp_path: Path) -> None:
    graph = load_model(written(per_channel=False).save(tmp_path / "dense.tflite"))
    for operator, (inputs, _) in zip(graph.operators, SHAPES, strict=True):
        for most, has_scratch in ((2 * inputs, True), (2 * inputs - 1, False)):
            own = Candidate("dsp")
            kernel = lower(graph, operator, "cortex-m7", own, most_scratch=most).kernel
            assert is_native(kernel) and bool(kernel.scratch) == has_scratch


@pytest.mark.parametrize("per_channel", [False, True])
def test_the_assembly_is_byte_exact(
    per_channel: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense, "SixOutputs", Direct)
    model = written(per_channel=per_channel).save(tmp_path / "dense.tflite")
    made = compile_model(model, load_board("mps2_an500"))
    assert sum("no scratch" in layer.why for layer in made.layers) >= 6
    assert main(["verify", str(model), "--board", "mps2_an500", "--samples", "3"]) == 0
