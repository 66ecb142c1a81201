"""Records of version 0.2.0 get the digest of their kernels' C; nothing else changes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tune_cases import small_works, write_model

from utvm_deploy import __version__
from utvm_deploy.base.errors import RecordsError
from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.main import main
from utvm_deploy.compiler.options import CompileOptions
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.records import NEAREST, RECORD, Measurement, Record, Setting, read_records
from utvm_deploy.records.candidate import Candidate
from utvm_deploy.records.emitted_code import CODES_OF_0_2_0
from utvm_deploy.tuning.measuring.current import code_of
from utvm_deploy.tuning.measuring.workload import Work
from utvm_deploy.tuning.records_file import RecordsFile
from utvm_deploy.tuning.upgrade import (
    NO_C,
    NO_MODEL,
    NOT_OF_0_2_0,
    OTHER_CORE,
    UNREADABLE,
    upgrade_records,
)

BOARD = load_board("mps2_an386")
CORE = BOARD.cpu.kernel_core
SETTING = Setting(CORE, "gcc", "-O3", "0.2.0", "instructions")


def old_record(work: Work, candidate: Candidate, ticks: int, **changes: Any) -> Record:
    """As version 0.2.0 wrote it."""
    found = Record(
        work.kernel,
        SETTING,
        candidate,
        Measurement(ticks, float(ticks)),
        BOARD.name,
        candidate == work.default,
        CODES_OF_0_2_0[candidate.family],
        time="2026-01-01T00:00:00+00:00",
    )
    return replace(found, **changes)


@pytest.fixture(name="works")
def _works(tmp_path: Path) -> tuple[Work, ...]:
    return small_works(tmp_path, CORE)


def old_model(works: tuple[Work, ...]) -> dict[str, Any]:
    """A line of a whole model as version 0.2.0 wrote it."""
    families = {work.default.family for work in works}
    return {
        "schema": 2,
        "graph": "0123456789ab",
        "name": "small",
        **SETTING.to_json(),
        "board": BOARD.name,
        "scratch": "arena",
        "candidates": {work.kernel.key: work.default.to_json() for work in works},
        "codes": {family: CODES_OF_0_2_0[family] for family in families},
        "measurement": {"min": 5, "median": 5.0},
        "layers": [1, 2],
    }


def test_the_command_upgrades_a_file_of_0_2_0(
    works: tuple[Work, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work, model = works[0], tmp_path / "small.tflite"
    other = next(one for one in work.candidates if one != work.default)
    path = tmp_path / "r.jsonl"
    records = [old_record(work, work.default, 90), old_record(work, other, 50)]
    lines = [{**json.loads(one.to_line()), "of_later": [1, {"x": "é"}]} for one in records]
    path.write_text("".join(f"{json.dumps(one)}\n" for one in [*lines, old_model(works)]))

    def origin() -> str:
        return (
            compile_model(model, BOARD, CompileOptions(records=read_records(path))).layers[0].origin
        )

    assert origin() == NEAREST
    command = ["tune", str(model), "--board", BOARD.name, "--records", str(path)]
    before = path.read_bytes()
    assert main([*command, "--upgrade-records", "--dry-run"]) == 0
    assert path.read_bytes() == before
    assert "upgraded 3 records of cortex-m4; nothing written" in capsys.readouterr().out
    assert main([*command, "--upgrade-records", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["upgraded"] == 3
    assert origin() == RECORD
    *after, whole = map(json.loads, path.read_text().splitlines())
    for line, known, candidate in zip(after, lines, (work.default, other), strict=True):
        code = code_of(work, CORE, candidate)
        assert line == {**known, "code": code, "utvm": __version__}
    codes = {one.kernel.key: code_of(one, CORE, one.default) for one in works}
    assert whole == {**old_model(works), "codes": codes, "utvm": __version__}
    # Once is enough.
    upgraded = path.read_bytes()
    assert main([*command, "--upgrade-records"]) == 0
    assert f"because {NOT_OF_0_2_0}: 3" in capsys.readouterr().out
    assert path.read_bytes() == upgraded


def test_what_cannot_be_upgraded_stays_as_it_is(works: tuple[Work, ...], tmp_path: Path) -> None:
    work = works[0]
    good = old_record(work, work.default, 90)
    family = work.default.family
    kept = {
        old_record(work, Candidate.of(family, method="later"), 5).to_line(): NO_C,
        replace(good, kernel=replace(work.kernel, name="another")).to_line(): NO_MODEL,
        replace(good, setting=replace(SETTING, core="cortex-m7")).to_line(): OTHER_CORE,
        replace(good, code="").to_line(): NOT_OF_0_2_0,
        replace(good, code="0123456789ab").to_line(): NOT_OF_0_2_0,
        replace(good, candidate=Candidate("cmsis-nn")).to_line(): NOT_OF_0_2_0,
        '{"schema":9,"of":"later"}': UNREADABLE,
        "{" * 3000: UNREADABLE,
        '{"schema":1,"kernel":NaN}': UNREADABLE,
        '{"schema":2,"codes":[]}': UNREADABLE,
        "no JSON \x00 \udcff": UNREADABLE,
        good.to_line()[:70]: UNREADABLE,  # cut
        good.to_line()[:-1] + ',"of_later":1e999}': UNREADABLE,  # cannot be written
    }
    for codes in ({}, {"dsp": "0123456789ab"}, {"dsp": CODES_OF_0_2_0["dsp"], "later": "x"}):
        kept[json.dumps({**old_model(works), "codes": codes})] = NOT_OF_0_2_0
    lines = [line.encode("utf-8", "surrogateescape") for line in kept]
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"\r\n\n" + good.to_line().encode() + b"\n" + b"\n".join(lines))
    found = upgrade_records(path, works, CORE)
    assert found.upgraded == 1
    counts = {why: list(kept.values()).count(why) for why in kept.values()}
    assert dict(found.kept) == counts
    first, second, third, *rest = path.read_bytes().split(b"\n")
    assert (first, second, rest) == (b"\r", b"", lines)
    assert Record.from_line(third).code == code_of(work, CORE, work.default)


def test_a_candidate_without_code_keeps_its_error(works: tuple[Work, ...], tmp_path: Path) -> None:
    work = works[0]
    candidate = Candidate.of(work.default.family, method="later")
    error = Measurement(error="compile error", detail="no code")
    path = tmp_path / "r.jsonl"
    path.write_text(old_record(work, candidate, 0, measurement=error).to_line() + "\n")
    assert upgrade_records(path, works, CORE).upgraded == 1
    (record,) = read_records(path)
    assert record.measurement == error and record.code == code_of(work, CORE, candidate)


def test_a_file_of_something_else_is_refused(works: tuple[Work, ...], tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("bread\nmilk\n")
    with pytest.raises(RecordsError, match="is not a records file"):
        upgrade_records(path, works, CORE)
    assert path.read_text() == "bread\nmilk\n"
    with pytest.raises(RecordsError, match=r"cannot upgrade .*: No such file"):
        upgrade_records(tmp_path / "absent.jsonl", works, CORE)
    with pytest.raises(RecordsError, match="cannot upgrade"):
        upgrade_records(tmp_path, works, CORE)
    circle = tmp_path / "circle.jsonl"
    circle.symlink_to(circle)
    with pytest.raises(RecordsError, match="cannot upgrade"):
        upgrade_records(circle, works, CORE)


def test_what_stops_an_upgrade_leaves_the_file(works: tuple[Work, ...], tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(old_record(works[0], works[0].default, 9).to_line() + "\n")
    before, names = path.read_bytes(), sorted(tmp_path.iterdir())

    def stop(what: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        upgrade_records(path, works, CORE, progress=stop)
    assert path.read_bytes() == before and sorted(tmp_path.iterdir()) == names


def test_a_private_file_stays_private(works: tuple[Work, ...], tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(old_record(works[0], works[0].default, 9).to_line() + "\n")
    path.chmod(0o600)
    assert upgrade_records(path, works, CORE).upgraded == 1
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_running_tuning_goes_on_in_the_upgraded_file(
    works: tuple[Work, ...], tmp_path: Path
) -> None:
    work = works[0]
    path, link = tmp_path / "r.jsonl", tmp_path / "link.jsonl"
    path.write_text(old_record(work, work.default, 9).to_line() + "\n")
    link.symlink_to(path)
    with RecordsFile(path) as file:
        assert upgrade_records(link, works, CORE).upgraded == 1
        file.append(old_record(work, work.default, 7, code="0123456789ab"))
    assert link.is_symlink()
    codes = [record.code for record in read_records(path)]
    assert codes == [code_of(work, CORE, work.default), "0123456789ab"]


def test_records_are_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_model(tmp_path / "small.tflite")
    assert main(["tune", str(model), "--board", BOARD.name, "--upgrade-records"]) != 0
    assert "there are no records to upgrade; give --records" in capsys.readouterr().err


def test_a_compile_says_how_to_upgrade(
    works: tuple[Work, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(old_record(works[0], works[0].default, 9).to_line() + "\n")
    compile_model(tmp_path / "small.tflite", BOARD, CompileOptions(records=read_records(path)))
    assert "records of version 0.2.0: 1; they count as stale until" in caplog.text
    assert f"--board {BOARD.name} --records FILE --upgrade-records" in caplog.text
