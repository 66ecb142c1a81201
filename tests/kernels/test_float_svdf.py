"""SVDF of float32, run after run, within its bound of the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from float_writer import FloatWriter
from tflite_writer import _ACTIVATIONS

import utvm_deploy
from utvm_deploy.base.errors import ModelError
from utvm_deploy.device import Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.float_bounds import FLOAT_BOUNDS, outside
from utvm_deploy.oracle.reference import run_reference

RUNS = 6


def svdf(
    m: FloatWriter,
    x: int,
    units: int,
    memory: int,
    rank: int,
    *,
    activation: str = "NONE",
    has_bias: bool = True,
) -> int:
    rng = np.random.default_rng(units)
    batch, inputs = m.tensors[x].shape
    filters = units * rank

    def constant(*shape: int) -> int:
        return m.constant(rng.normal(size=shape).astype(np.float32))

    state = m.tensor((batch, filters * memory), "float32")
    m.tensors[state].is_variable = True
    weights = [constant(filters, inputs), constant(filters, memory)]
    operands = [x, *weights, constant(units) if has_bias else -1, state]
    options = ("SVDFOptions", {"Rank": rank, "FusedActivationFunction": _ACTIVATIONS[activation]})
    return m.node("SVDF", operands, (batch, units), options)


@pytest.mark.spread(1)
def test_runs_continue_each_other(device: Device, tmp_path: Path) -> None:
    """Several rows and ranks, the smallest memory, every activation, no bias."""
    m = FloatWriter()
    m.output(svdf(m, m.input((3, 5)), 4, 6, 2))
    m.output(svdf(m, m.input((1, 1)), 1, 1, 1, has_bias=False))
    for number, activation in enumerate(("RELU", "RELU6", "RELU_N1_TO_1")):
        m.output(svdf(m, m.input((2, 7)), 5 + number, 4, 3, activation=activation))
    path = m.save(tmp_path / "model.tflite")
    rng = np.random.default_rng(15)
    shapes = [m.tensors[number].shape for number in m.inputs]
    samples = [[rng.normal(size=s).astype(np.float32) for s in shapes] for _ in range(RUNS)]
    expected = run_reference(path, samples).outputs
    assert len({outputs[0].tobytes() for outputs in expected}) == RUNS
    model = device.load(utvm_deploy.compile(path, device.board), into="ram")
    assert model.compiled.states
    for _ in range(2):
        for sample, outputs in zip(samples, expected, strict=True):
            got, _ = model.run(sample)
            for ours, theirs in zip(got, outputs, strict=True):
                assert not outside(FLOAT_BOUNDS["SVDF"], np.asarray(ours), theirs).any()
        model.reset_state()


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    m = FloatWriter()
    y = svdf(m, m.input((2, 5)), 4, 6, 2)
    m.tensors[y].shape = (2, 3)
    m.output(y)
    with pytest.raises(ModelError, match="do not make"):
        load_model(m.save(tmp_path / "model.tflite"))
