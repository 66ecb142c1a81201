"""The records that come with the package: readable, of candidates that exist, and used."""

from __future__ import annotations

from pathlib import Path

import pytest

import utvm_deploy
from utvm_deploy.base.paths import data_dir, records_file
from utvm_deploy.boards.board import board_names, load_board
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.kernels.choose.lowering import families_for, lower
from utvm_deploy.records import NEAREST, RECORD, Record
from utvm_deploy.targets.table import CORES
from utvm_deploy.tuning.measuring.workload import workload
from utvm_deploy.tuning.shipping import worth_shipping

CORES_WITH_RECORDS = sorted(core for core in CORES if records_file(core).is_file())
#: Models of this repository; their kernels are in the records of every core that has any.
MODELS = ("cifar10_cnn.tflite", "digits.tflite")


def test_the_shared_cores_have_records() -> None:
    assert {"cortex-m7", "cortex-m4"} <= set(CORES_WITH_RECORDS)


@pytest.mark.parametrize("core", CORES_WITH_RECORDS)
def test_every_line_is_a_measured_candidate_of_the_core(core: str) -> None:
    path = records_file(core)
    records = [Record.from_line(line) for line in path.read_text().splitlines()]
    assert {record.setting.core for record in records} == {core}
    assert {record.candidate.family for record in records} <= set(families_for(core))
    assert all(record.measurement.is_ok for record in records)
    # No more than what compiling needs.
    assert list(worth_shipping(records)) == records


@pytest.mark.parametrize("core", CORES_WITH_RECORDS)
@pytest.mark.parametrize("model", MODELS)
def test_shipped_candidates_have_kernels(core: str, model: str) -> None:
    known = {
        (record.kernel.key, record.candidate)
        for record in map(Record.from_line, records_file(core).read_text().splitlines())
    }
    works = workload([simplify(load_model(data_dir("models") / model))], core)
    keys = {key for key, _ in known}
    assert all(work.kernel.key in keys for work in works)
    for work in works:
        candidates = {candidate for key, candidate in known if key == work.kernel.key}
        for candidate in candidates:
            assert lower(work.graph, work.operator, core, candidate).family == candidate.family


def test_an_untuned_compile_uses_them() -> None:
    board = next(board for board in map(load_board, board_names()) if board.cpu.core == "cortex-m7")
    # In the arena those that want more scratch than the default are not followed.
    compiled = utvm_deploy.compile(Path(data_dir("models") / MODELS[0]), board, scratch="stack")
    # Of kernels that were rewritten since, they are hints.
    assert {layer.origin for layer in compiled.layers} <= {RECORD, NEAREST}
