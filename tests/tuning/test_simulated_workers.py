"""Tuning at many workers that answer like boards on serial lines: all work, nothing is doubled."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tune_cases import small_works

from utvm_deploy.cluster import measuring
from utvm_deploy.records import read_records

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "cluster"))
import serial_double  # noqa: E402
from simulated import simulate  # noqa: E402


@pytest.mark.parametrize(
    ("workers", "faster", "trials"),
    [(5, 20, 100), pytest.param(50, 1, 2000, marks=pytest.mark.soak)],
)
def test_all_workers_measure(
    workers: int, faster: int, trials: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UTVM_SIMULATED_FASTER", str(faster))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "benchmarks" / "cluster"))
    monkeypatch.setattr(measuring, "open_session", serial_double.open_session)
    monkeypatch.setattr(measuring, "measure_batch", serial_double.measure_batch)
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
