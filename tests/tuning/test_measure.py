"""Measuring on devices: the time of candidates, and the records of candidates that fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tflite_writer import ModelWriter
from tune_cases import FAULTS, SabotagedBuilder, sabotaged, small_works

from utvm_deploy.base.errors import TuneError
from utvm_deploy.boards.board import load_board
from utvm_deploy.device import Device, connect
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.kernels.contract.call import TensorArgument
from utvm_deploy.records import Measurement, Record, read_records
from utvm_deploy.records.candidate import GENERIC, Candidate
from utvm_deploy.tuning.measuring import inputs, place
from utvm_deploy.tuning.measuring.build import Builder
from utvm_deploy.tuning.measuring.inputs import Job
from utvm_deploy.tuning.measuring.loading import Loader
from utvm_deploy.tuning.measuring.measure import Measurer
from utvm_deploy.tuning.measuring.place import check_tunable, fastest_link
from utvm_deploy.tuning.measuring.workload import workload
from utvm_deploy.tuning.records_file import RecordsFile
from utvm_deploy.tuning.tuner import tune

pytestmark = pytest.mark.tools


@pytest.fixture
def quick(board) -> Device:
    """A device over the link that tuning takes."""
    if not board.main_ram.executable:
        pytest.skip(f"{board.name} runs no code from RAM")
    with connect(board, link=fastest_link(board)) as device:
        yield device


def measured(device: Device, jobs: list[Job]) -> dict[Candidate, Measurement]:
    found = Measurer(device).measure(jobs)
    return {job.built.candidate: one for job, one in zip(jobs, found, strict=True)}


def test_every_candidate_of_a_model_is_right(quick: Device, tmp_path: Path) -> None:
    works = small_works(tmp_path, quick.board.cpu.core)
    assert sorted(work.layers for work in works) == [1, 1, 1, 2]
    with RecordsFile(tmp_path / "r.jsonl") as file:
        found = tune(works, quick, file, trials=14)
        recorded = list(file.records)
    assert found.trials == len(recorded) > len(works)
    assert not [record for record in recorded if not record.measurement.is_ok]
    assert {record.setting for record in recorded} == {found.setting}
    assert found.setting.unit == Measurer(quick).unit
    for state in found.states:
        assert state.best is not None and state.best[1] <= (state.default_ticks or 0)
    assert sum(record.is_default for record in recorded) == len(works)


@pytest.mark.emulator
def test_modelled_ticks_depend_on_the_candidate_alone(tmp_path: Path) -> None:
    """Not on the order, nor on what else is measured: caches are modelled, too."""
    board = load_board("mps2_an500")
    works = small_works(tmp_path, board.cpu.core)
    found = []
    for order in (1, -1):
        with Builder(board, 0, 1) as builder, connect(board, link=fastest_link(board)) as device:
            plain = [(work, Candidate(GENERIC)) for work in works]
            wanted = [(work, c) for work in works for c in work.candidates[:9]][::order]
            jobs = [
                Job(work, builder.start(work.graph, work.operator, candidate).result())
                for work, candidate in plain + wanted
            ]
            ticks = Measurer(device).measure(jobs)
        names = [(job.work.kernel.key, job.built.candidate) for job in jobs]
        found.append(dict(zip(names, ticks, strict=True)))
    assert found[0] == found[1]


@pytest.mark.parametrize("fault", [*FAULTS, "wrong", "overrun", "nonsense", "stumble"])
@pytest.mark.parametrize("name", ["host", pytest.param("mps2_an500", marks=pytest.mark.emulator)])
def test_a_candidate_that_goes_wrong_spoils_no_other(
    name: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "Builder", SabotagedBuilder)
    board = load_board(name)
    first, *_ = small_works(tmp_path, board.cpu.core)
    candidates = (*first.candidates[:2], Candidate(GENERIC))
    first = replace(first, candidates=candidates, free=None)
    works = [sabotaged(first, fault)]
    path = tmp_path / "r.jsonl"
    with connect(board, link=fastest_link(board)) as device, RecordsFile(path) as file:
        found = tune(works, device, file, trials=1000)
        # The device still answers requests.
        assert device.checksum(device.session.memory.address, 4) >= 0
    by_candidate = {r.candidate: r.measurement for r in read_records(path)
                    if r.kernel == first.kernel}  # fmt: skip
    bad = by_candidate.pop(Candidate.of(first.default.family, fault=fault))
    expected = {"hang": "hung", "wrong": "wrong output", "nonsense": "compile error"}
    expected["stumble"] = "compile error"
    assert bad.error == expected.get(fault, "crash"), bad
    if fault == "stumble":
        assert 'KeyError: "a generator\'s own mistake"' in bad.detail
    assert set(by_candidate) == set(first.candidates)
    assert all(one.is_ok for one in by_candidate.values()), by_candidate
    assert found.errors == 1
    assert found.states[0].best is not None
    assert found.states[0].best[0].choice("fault") is None


def test_trials_and_records_are_shared_and_not_repeated(tmp_path: Path) -> None:
    board = load_board("host")
    works = small_works(tmp_path, board.cpu.core)
    path = tmp_path / "r.jsonl"

    def go(trials: int) -> list[Record]:
        with connect(board) as device, RecordsFile(path) as file:
            tune(works, device, file, trials=trials)
        return list(read_records(path))

    some = go(3)
    assert len(some) == 3
    assert go(3) == some
    more = go(8)
    assert more[:3] == some
    assert len(more) == len({(r.kernel.key, r.candidate) for r in more}) == 8


def test_small_outputs_are_compared_for_several_inputs(tmp_path: Path) -> None:
    """One of two elements' order is right by chance half of the time."""
    board = load_board("host")
    *_, softmax = small_works(tmp_path, board.cpu.core)
    with Builder(board, 0, 1) as builder, connect(board) as device:
        built = builder.start(softmax.graph, softmax.operator, Candidate(GENERIC)).result()
        job = Job(softmax, built)
        assert measured(device, [job])[Candidate(GENERIC)].is_ok
    stride, samples = inputs.samples_of(job)
    assert (stride, samples) == (32, inputs.MOST_SAMPLES)
    (argument, *_) = built.call.arguments
    assert isinstance(argument, TensorArgument)
    values = {inputs.data_of(job, argument, sample).tobytes() for sample in range(samples)}
    assert len(values) == samples


def test_time_ends_it(tmp_path: Path) -> None:
    board = load_board("host")
    works = small_works(tmp_path, board.cpu.core)
    with connect(board) as device, RecordsFile(tmp_path / "r.jsonl") as file:
        found = tune(works, device, file, trials=10**6, minutes=1e-9)
    assert found.trials < sum(len(work.candidates) for work in works)


@pytest.mark.emulator
@pytest.mark.parametrize("has_flash", [True, False])
def test_a_kernel_that_does_not_fit_spoils_no_other(
    has_flash: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_flash:
        monkeypatch.setattr(Loader, "store_tables", lambda *_: False)
    board = load_board("mps2_an500")
    m = ModelWriter()
    x = m.input((1, 4000), 0.1, 5)
    for outputs, depth in ((16, 4000), (96, 16), (4000, 96), (8, 4000)):
        weights = np.full((outputs, depth), 3, np.int8)
        x = m.fully_connected(x, weights, np.ones(outputs, np.int32), scale=9.0)
    m.output(x)
    graph = simplify(load_model(m.save(tmp_path / "wide.tflite")))
    works = workload([graph], board.cpu.core)
    path = tmp_path / "r.jsonl"
    with connect(board, link=fastest_link(board)) as device, RecordsFile(path) as file:
        tune(works, device, file, trials=100)
    errors: dict[str, set[str]] = {}
    for record in read_records(path):
        errors.setdefault(record.kernel.name, set()).add(record.measurement.error)
    # With flash, its tables are in the image's flash.
    assert errors.pop("fully_connected_96x4000") == ({""} if has_flash else {"no room"})
    assert errors and set.union(*errors.values()) == {""}


def test_boards_that_run_nothing_from_ram() -> None:
    board = load_board("host")
    check_tunable(board)
    rom_only = replace(
        board, memory=tuple(replace(region, executable=False) for region in board.memory)
    )
    with pytest.raises(TuneError, match=r"host runs no code from its RAM .*Tune on a board"):
        check_tunable(rom_only)
