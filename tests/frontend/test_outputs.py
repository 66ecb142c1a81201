"""Outputs that no operator makes for them alone: inputs, constants, and the same output again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_models import sample_inputs
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import ModelError
from utvm_deploy.device import Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.oracle.reference import run_reference


def written(folder: Path) -> tuple[ModelWriter, Path]:
    m = ModelWriter()
    x, y = m.input((1, 8), 0.1, 3), m.input((2, 3), 0.2)
    table = m.constant(np.arange(8, dtype=np.int8), 0.1)
    positive = m.relu(x, scale=0.1, zero_point=3)
    m.output(positive, x, table, positive, y, x)
    return m, m.save(folder / "model.tflite")


@pytest.mark.spread(1)
def test_an_output_may_be_an_input_a_constant_or_twice_there(
    device: Device, tmp_path: Path
) -> None:
    m, path = written(tmp_path)
    sample = sample_inputs(m)
    (expected,) = run_reference(path, [sample]).outputs
    outputs = device.load(utvm_deploy.compile(path, device.board), into="ram")(*sample)
    assert [np.asarray(one).tobytes() for one in outputs] == [one.tobytes() for one in expected]


def test_copies_survive_the_passes(tmp_path: Path) -> None:
    graph = simplify(load_model(written(tmp_path)[1]))
    assert len(set(graph.outputs)) == len(graph.outputs) == 6
    assert not set(graph.inputs) & set(graph.outputs)


def test_an_output_that_nothing_makes_is_refused(tmp_path: Path) -> None:
    m = ModelWriter()
    m.output(m.relu(m.input((1, 8))), m.tensor((2,), "int8", 0.1))
    with pytest.raises(ModelError, match="output 'tensor_2' is not made by any operator"):
        load_model(m.save(tmp_path / "model.tflite"))
