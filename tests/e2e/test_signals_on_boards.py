"""Signal operators on boards: what TFLite Micro makes, run after run, also after a reset."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from oracle.signal_vectors import VECTORS
from signal_cases import front_end, signal_cases
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.device import Device
from utvm_deploy.oracle.samples import Samples
from utvm_deploy.oracle.with_custom import run_oracle
from utvm_deploy.results.verifying.on_board import verify

_RUNS = 2  # that all cases have


@pytest.mark.spread(1)
@pytest.mark.parametrize("dtype", ["int16", "int32", "uint32", "float32"])
def test_operators(dtype: str, device: Device, tmp_path: Path) -> None:
    """All that read this type first, side by side."""
    cases = {n: c for n, c in signal_cases().items() if c.inputs[0].dtype.name == dtype}
    m = ModelWriter()
    for case in cases.values():
        case.add_to(m)
    path = m.save(tmp_path / "model.tflite")
    model = device.load(utvm_deploy.compile(path, device.board))
    with np.load(VECTORS) as file:
        vectors = dict(file)
    for run in range(_RUNS):
        made, _ = model.run([one[run] for case in cases.values() for one in case.inputs])
        rest = iter(made)
        for name, case in cases.items():
            outputs = [next(rest) for _ in case.outputs]
            for number in case.counting(vectors, name, run):
                expected = vectors[f"{name}/{number}"][run]
                assert outputs[number].tobytes() == expected.tobytes(), f"{name}, run {run}"


@pytest.mark.spread(1)
@pytest.mark.parametrize("runs", [2])
def test_front_end(runs: int, device: Device, tmp_path: Path) -> None:
    path, sound = front_end(tmp_path / "front.tflite")
    model = device.load(utvm_deploy.compile(path, device.board))
    with np.load(VECTORS) as vectors:
        stacks, valid = vectors["front end/0"], vectors["front end/1"]
    for _ in range(runs):
        for sample, stack, counts in zip(sound, stacks, valid, strict=True):
            (found, is_valid), _ = model.run([sample])
            assert bool(is_valid) == counts
            assert found.tolist() == (stack * counts).tolist()
        model.reset_state()


@pytest.mark.tools
def test_verify_compares_every_layer(tmp_path: Path) -> None:
    path, sound = front_end(tmp_path / "front.tflite")
    inputs = tuple((one,) for one in sound)
    reference = run_oracle(path, inputs)
    with utvm_deploy.connect("host") as device:
        model = device.load(utvm_deploy.compile(path, device.board))
        samples = Samples(inputs=inputs, outputs=None, origin="random")
        found = verify(model, path, samples, reference=reference)
    assert found.ok and found.samples_run == len(sound)
    assert found.reference.endswith("our formulas of TFLite Micro's signal library")
