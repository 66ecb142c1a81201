"""Tuning at many workers that answer like boards on serial lines: all work, nothing is doubled."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tune_cases import small_works

from utvm_deploy.base.errors import TuneError
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.options import Objective
from utvm_deploy.records import read_records
from utvm_deploy.service.cluster.connection import open_cluster
from utvm_deploy.service.cluster.measuring import places as measuring
from utvm_deploy.service.cluster.measuring.members import Patience
from utvm_deploy.tuning.records_file import RecordsFile
from utvm_deploy.tuning.tuner import Tuning, tune_on

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "cluster"))
import serial_double  # noqa: E402
from simulated import BOARD, simulate, simulated_cluster  # noqa: E402


@pytest.fixture
def doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that sleep instead of measuring."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "benchmarks" / "cluster"))
    monkeypatch.setattr(measuring, "open_session", serial_double.open_session)
    monkeypatch.setattr(measuring, "measure_batch", serial_double.measure_batch)


@pytest.mark.tools
@pytest.mark.parametrize(
    ("workers", "faster", "trials"),
    [(5, 20, 100), pytest.param(50, 1, 2000, marks=pytest.mark.soak)],
)
def test_all_workers_measure(
    workers: int,
    faster: int,
    trials: int,
    doubles: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UTVM_SIMULATED_FASTER", str(faster))
    works = [
        replace(work, free=None, kernel=replace(work.kernel, name=f"{work.kernel.name}_{copy}"))
        for work in small_works(tmp_path, "cortex-m7")
        for copy in range(trials // 30 + 1)
    ]
    path = tmp_path / "r.jsonl"
    found = simulate(works, workers, None, trials, path)
    records = list(read_records(path))
    assert found.candidates == len(records) == trials
    assert len({(one.kernel.key, one.candidate) for one in records}) == trials
    # The double's ``code`` is the worker's address.
    assert len(Counter(one.code for one in records)) == workers


@pytest.mark.tools
def test_a_killed_scheduler_ends_the_tuning_and_keeps_the_records(
    doubles: None, tmp_path: Path
) -> None:
    works = [replace(work, free=None) for work in small_works(tmp_path, "cortex-m7")]
    path = tmp_path / "r.jsonl"
    killed: list[int] = []
    with (
        simulated_cluster(2, tmp_path) as (address, scheduler),
        open_cluster(address) as client,
        RecordsFile(path) as file,
        measuring.cluster_places(
            client,
            load_board(BOARD),
            works,
            Objective.TIME,
            tell=str,
            patience=Patience(lost_s=2.0),
        ) as places,
    ):

        def kill(tuning: Tuning) -> None:
            if tuning.trials and not killed:
                killed.append(scheduler)
                os.kill(scheduler, signal.SIGKILL)

        with pytest.raises(TuneError, match="no worker measured on nucleo_f746zg for 2 s"):
            tune_on(works, places, file, trials=1000, watch=kill)
    assert killed and list(read_records(path))
