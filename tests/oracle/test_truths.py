"""Operators of the table of truth among those that the reference kernels compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tflite_writer import ModelWriter

from utvm_deploy.oracle import truths
from utvm_deploy.oracle.reference import REFERENCE, run_reference

_NAME = f"{REFERENCE}, and its default kernels for SUM"


def _sum(m: ModelWriter, x: int, scale: float, zero: int) -> int:
    shape = (*m.tensors[x].shape[:-1], 1)
    operands = [x, m.constant(np.array([-1], np.int32))]
    options = ("ReducerOptions", {"KeepDims": True})
    return m.node("SUM", operands, shape, options, scale=scale, zero_point=zero)


def _real(m: ModelWriter, number: int, array: np.ndarray) -> np.ndarray:
    spec = m.tensors[number]
    return (array.astype(float) - spec.zero_points[0]) * spec.scales[0]


def test_sums_of_sums(tmp_path: Path) -> None:
    """What other kernels make goes back to the reference, and from there to the next of them."""
    m = ModelWriter()
    other = m.input((1, 2), 0.1, 0)
    x = m.input((2, 3, 4), 0.1, -20)
    first = _sum(m, x, 0.2, 9)
    turned = m.reshape(first, (1, 2, 3))
    second = _sum(m, turned, 0.3, -5)
    m.output(second, first, m.relu(other))
    rng = np.random.default_rng(3)
    samples = [rng.integers(-60, 60, (2, 3, 4), np.int8) for _ in range(3)]
    given = [[np.zeros((1, 2), np.int8), sample] for sample in samples]
    path = m.save(tmp_path / "model.tflite")
    run = run_reference(path, given)
    assert run.reference == _NAME
    for sample, tensors, outputs in zip(samples, run.tensors, run.outputs, strict=True):
        assert {x, first, turned, second} < set(tensors)
        real = _real(m, x, sample).sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(_real(m, first, tensors[first]), real, atol=0.11)
        np.testing.assert_array_equal(tensors[turned].ravel(), tensors[first].ravel())
        again = _real(m, turned, tensors[turned]).sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(_real(m, second, outputs[0]), again, atol=0.16)
        np.testing.assert_array_equal(outputs[1], tensors[first])
    alone = run_reference(path, given, outputs_only=True)
    assert alone.reference == _NAME
    for one, other in zip(alone.outputs, run.outputs, strict=True):
        assert all(map(np.array_equal, one, other))


def test_sum_that_a_state_keeps(tmp_path: Path) -> None:
    """A sum goes into the next run, whose other sum then adds it up again."""
    m = ModelWriter()
    x = m.input((1, 4), 0.1, 0)
    kept = m.variable("kept", np.full((1, 1), 3, np.int8), 0.2, 3)
    before = _sum(m, m.read(kept, (1, 1), 0.2, 3), 0.2, 3)
    m.assign(kept, _sum(m, x, 0.2, 3))
    m.output(before)
    samples = [np.full((1, 4), value, np.int8) for value in (10, -7, 30, 0)]
    path = m.save(tmp_path / "model.tflite")
    found = [int(outputs[0][0, 0]) for outputs in run_reference(path, samples).outputs]
    assert found == [3, 20 + 3, -14 + 3, 60 + 3]
    alone = run_reference(path, samples, outputs_only=True)
    assert [int(outputs[0][0, 0]) for outputs in alone.outputs] == [3, 3, 3, 3]


def test_float_sums_need_no_other_truth() -> None:
    assert truths.truth_of("SUM", "float32") is None
    assert truths.truth_of("SUM", "int8") is truths.TRUTHS[0]
    assert truths.named(REFERENCE, []) == REFERENCE
