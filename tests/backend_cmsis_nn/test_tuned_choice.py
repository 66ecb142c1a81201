"""CMSIS-NN's call as a candidate of tuning, and what a compile makes of its records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from utvm_deploy.backends.choice import code_of_backend
from utvm_deploy.backends.cmsis_nn.lower import cmsis_nn_backend
from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.main import main
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.options import CompileOptions, Objective
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.project import find_cmsis_nn
from utvm_deploy.records import Measurement, Record, Records, read_records
from utvm_deploy.records.candidate import Candidate

HOST = load_board("host")
THEIRS = Candidate("cmsis-nn")


def engines(model: CompiledModel) -> list[str]:
    return ["theirs" if layer.is_external else "ours" for layer in model.layers]


def test_its_call_is_measured_compared_and_chosen(
    small_model: Path, fake_library: Callable[..., Path], tmp_path: Path
) -> None:
    folder = fake_library("FAKE_ERROR=1")  # convolutions are wrong in a bit
    library = find_cmsis_nn(folder, HOST)
    file = tmp_path / "r.jsonl"
    argv = ["tune", str(small_model), "--board", "host", "--trials", "24", "--records", str(file)]
    assert main([*argv, "--kernels", "cmsis-nn", "--cmsis-nn", str(folder)]) == 0
    found = list(read_records(file))
    theirs = [record for record in found if record.candidate == THEIRS]
    errors = {record.kernel.operator: record.measurement.error for record in theirs}
    assert errors == {"CONV_2D": "wrong output", "FULLY_CONNECTED": ""}
    assert {record.code for record in theirs} == {code_of_backend(cmsis_nn_backend(library))}

    def compiled(
        records: list[Record] | None, objective: Objective = Objective.TIME
    ) -> CompiledModel:
        given = None if records is None else Records(records)
        options = CompileOptions(objective, kernels="cmsis-nn", cmsis_nn=library, records=given)
        return compile_model(small_model, HOST, options)

    def with_ticks(ours: int, theirs: int) -> list[Record]:
        return [
            replace(record, measurement=Measurement(ticks, ticks))
            for record in found
            if record.measurement.is_ok
            for ticks in [theirs if record.candidate == THEIRS else ours]
        ]

    # What was not measured is the library's, what was wrong never is.
    assert engines(compiled(None)) == ["theirs", "theirs", "ours", "theirs"]
    measured = compiled(found)
    assert engines(measured)[:3] == ["ours", "ours", "ours"]
    assert "of CMSIS-NN met 'wrong output' when it was tuned" in measured.layers[0].why
    slower = compiled(with_ticks(ours=70, theirs=90))
    assert engines(slower) == ["theirs", "theirs", "ours", "ours"]
    assert (
        "arm_fully_connected_s8 of CMSIS-NN took 90 nanoseconds, ours 70," in slower.layers[3].why
    )
    faster = compiled(with_ticks(ours=70, theirs=60))
    assert engines(faster) == ["theirs", "theirs", "ours", "theirs"]
    assert faster.layers[3].origin == "record"
    # Records of another level, or of another library, say nothing.
    assert engines(compiled(found, Objective.SIZE)) == ["theirs", "theirs", "ours", "theirs"]
    library = replace(library, digest="f" * 64)
    assert engines(compiled(found)) == ["theirs", "theirs", "ours", "theirs"]
    # Nor do they say anything where no library is asked for.
    assert (
        engines(compile_model(small_model, HOST, CompileOptions(records=Records(found))))
        == ["ours"] * 4
    )


def test_tuning_with_it_needs_it(
    small_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["tune", str(small_model), "--board", "host", "--trials", "1"]
    argv += ["--records", str(tmp_path / "r.jsonl")]
    assert main([*argv, "--kernels", "cmsis-nn"]) == 2
    assert "needs your own copy of CMSIS-NN" in capsys.readouterr().err
    assert main([*argv, "--cmsis-nn", "anywhere"]) == 2
    assert "--cmsis-nn works only with --kernels cmsis-nn" in capsys.readouterr().err
