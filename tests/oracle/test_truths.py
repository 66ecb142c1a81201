"""Operators of the table of truth among those that the reference kernels compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from float_writer import FloatWriter
from tflite_writer import ModelWriter

from utvm_deploy.cli.main import main
from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.frontend.files.prepared import GREATEST_VERSION
from utvm_deploy.oracle import reference, truths
from utvm_deploy.oracle.interpreter import interpret
from utvm_deploy.oracle.program import Program
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
    alone = run_reference(path, given, outputs_only=True, apart=1)
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
    alone = run_reference(path, samples, outputs_only=True, apart=1)
    assert [int(outputs[0][0, 0]) for outputs in alone.outputs] == [3, 3, 3, 3]


def _with_version(m: ModelWriter, kind: str, version: int, path: Path) -> Path:
    model = schema.read_model(m.to_bytes())
    for code in model.operatorCodes:
        if schema.name_of_code(code) == kind:
            code.version = version
    path.write_bytes(schema.model_bytes(model))
    return path


def test_version_that_only_the_default_kernels_have(tmp_path: Path) -> None:
    """As UpSampling2D of Keras is written: TILE of version 3."""
    m = ModelWriter()
    x = m.input((1, 2, 1), 0.1, 0)
    m.output(m.node("TILE", [x, m.constant(np.array([1, 1, 3], np.int32))], (1, 2, 3)))
    path = _with_version(m, "TILE", 3, tmp_path / "model.tflite")
    run = run_reference(path, [np.array([[[5], [-7]]], np.int8)])
    assert run.reference == REFERENCE
    np.testing.assert_array_equal(run.outputs[0][0][0], [[5, 5, 5], [-7, -7, -7]])


def test_operator_without_a_reference_kernel(tmp_path: Path) -> None:
    m = FloatWriter()
    x = m.input((1, 3))
    m.output(m.relu(m.node("ELU", [m.relu6(x)], (1, 3))))
    path = m.save(tmp_path / "model.tflite")
    run = run_reference(path, [np.array([[-1, 0.5, 9]], np.float32)])
    assert run.reference == f"{REFERENCE}, and its default kernels for ELU"
    np.testing.assert_array_equal(run.outputs[0][0], [[0, 0.5, 6]])


def test_verify_and_compile_of_a_file_that_litert_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The import refuses such a version, too; it stands for what only LiteRT refuses.
    monkeypatch.setitem(GREATEST_VERSION, "FLOOR", 9)  # type: ignore[arg-type]
    m = FloatWriter()
    x = m.input((1, 3))
    m.output(m.node("FLOOR", [x], (1, 3)))
    path = _with_version(m, "FLOOR", 9, tmp_path / "model.tflite")
    told = "LiteRT 2.3.0 refuses model.tflite at FLOOR of version 9, so there is nothing to be "
    assert main(["verify", str(path), "--board", "host"]) == 1
    assert f"error: {told}" in capsys.readouterr().err
    made = tmp_path / "model.tar"
    assert main(["compile", str(path), "--board", "host", "-o", str(made)]) == 0
    assert f"warning: {told}" in capsys.readouterr().err
    assert made.exists()


def test_compile_ends_where_the_reference_cannot_be_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a refusal of the file is a warning."""
    monkeypatch.setattr(reference, "_VERSION", "0.0.1")
    m = FloatWriter()
    m.output(m.relu(m.input((1, 3))))
    path, made = m.save(tmp_path / "model.tflite"), tmp_path / "model.tar"
    assert main(["compile", str(path), "--board", "host", "-o", str(made)]) == 1
    assert "outputs are compared with version 0.0.1" in capsys.readouterr().err
    assert not made.exists()


def test_rounds_share_the_interpreters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One each for the model, the rest, and the sums; a chain of three takes four rounds."""
    m = ModelWriter()
    x = first = m.input((2, 3, 4), 0.1, -20)
    for _ in range(3):
        x = _sum(m, x, 0.3, 2)
    m.output(x)
    path = m.save(tmp_path / "model.tflite")
    started: list[Program] = []
    start = Program._built

    def counted(program: Program) -> Any:
        started.append(program)
        return start(program)

    monkeypatch.setattr(Program, "_built", counted)
    found = interpret(path, [[np.full((2, 3, 4), 7, np.int8)]] * 2)
    assert len(started) == 2 + 3
    assert first in found.tensors[1] and found.outputs == [x]


def test_float_sums_need_no_other_truth() -> None:
    def truth(dtype: str) -> truths.Truth | None:
        return truths.truth_of(truths.Node(0, "SUM", (0, 1), (2,), (dtype, "int32"), (1, 0)))

    assert truth("float32") is None
    assert truth("int8") in truths.TRUTHS
    assert truths.named(REFERENCE, []) == REFERENCE
