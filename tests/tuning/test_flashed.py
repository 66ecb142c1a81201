"""Boards that run no code from RAM: candidates come with the image, many in one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tune_cases import SabotagedBuilder, sabotaged, small_works

from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.device import Device, connect
from utvm_deploy.project.image import Image
from utvm_deploy.records.candidate import Candidate
from utvm_deploy.tuning.measuring import place
from utvm_deploy.tuning.measuring.place import fastest_link
from utvm_deploy.tuning.records_file import RecordsFile
from utvm_deploy.tuning.tuner import tune


def rom_only(folder: Path) -> Board:
    """An emulated board whose file says that its RAM executes nothing."""
    text = load_board("mps2_an386").source
    region = 'kind = "ram"\nexecutable = true'
    assert region in text
    path = folder / "rom_only.toml"
    text = text.replace(region, 'kind = "ram"\nexecutable = false')
    path.write_text(text.replace('name = "mps2_an386"', 'name = "rom_only"'))
    return load_board(path)


@pytest.mark.emulator
def test_a_batch_is_flashed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = rom_only(tmp_path)
    assert not board.main_ram.executable
    started: list[Image] = []
    start = Device.start

    def counted(device: Device, image: Image) -> object:
        started.append(image)
        return start(device, image)

    monkeypatch.setattr(place, "Builder", SabotagedBuilder)
    works = small_works(tmp_path, board.cpu.core)
    first = sabotaged(replace(works[0], candidates=works[0].candidates[:6]), "wrong")
    works = (first, *(replace(work, free=None) for work in works[1:]))
    count = sum(len(work.candidates) for work in works)
    with connect(board, link=fastest_link(board)) as device:
        monkeypatch.setattr(Device, "start", counted)
        with RecordsFile(tmp_path / "r.jsonl") as file:
            found = tune(works, device, file, trials=count)
            recorded = list(file.records)
    assert found.trials == len(recorded) == count > 10
    errors = {r.candidate: r.measurement.error for r in recorded if not r.measurement.is_ok}
    assert errors == {Candidate.of(first.default.family, fault="wrong"): "wrong output"}
    assert 1 <= len(started) <= 3, "one for the first candidate, then one for each batch"
    symbols = started[-1].symbols
    assert sum(name.startswith("run_") for name in symbols) > 5
