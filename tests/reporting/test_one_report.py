"""One report on a model and a board: its page, and making it again."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.cli.main import main
from utvm_deploy.results.pages.report_digest import DIGEST, content_digest, is_as_written
from utvm_deploy.results.profiling.page import profile_values
from utvm_deploy.results.reporting.differences import compared
from utvm_deploy.results.reporting.page import report_html
from utvm_deploy.results.reporting.stored import read_report

#: Parts of a report that are made again.
PARTS = ("inspect", "profile", "memory", "verify", "evaluation")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the digits, and the page of a report on this computer."""
    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        assert main(["models", "get", "digits"]) == 0
        arguments = ["--data", "digits_test.npz", "--samples", "10", "-o", "digits.html"]
        assert main(["report", "digits.tflite", "--board", "host", *arguments]) == 0
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, as the current folder."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.tools
def test_the_page_holds_all_parts_and_loads_nothing(folder: Path) -> None:
    page = (folder / "digits.html").read_text()
    for part in ("layers", "memory", "graph", "accuracy", "environment"):
        assert f'<section id="{part}">' in page
    assert "src=" not in page.replace('src="data:image/svg+xml;base64,', "")
    assert "<link" not in page


@pytest.mark.tools
def test_a_report_is_reproduced(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "digits.html", "-o", "again.html"]) == 0
    assert "0 differ" in capsys.readouterr().out
    assert read_report(folder / "again.html")["verify"]["ok"]


@pytest.mark.tools
def test_what_differs_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = read_report(folder / "digits.html")
    report["profile"]["layers"][0]["macs"] += 1
    (folder / "other.json").write_text(json.dumps(report))
    assert main(["reproduce", "other.json"]) == 1
    told, noted = capsys.readouterr()
    assert "other.json was edited after it was made" in noted
    assert re.search(r"profile: layers, 0 \w+, macs", told)
    assert "1 differ" in told


@pytest.mark.tools
def test_a_twins_report_is_made_on_the_twin_unless_another_board_is_given(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = read_report(folder / "digits.html")
    report["board"] |= {"given": "nucleo_f746zg", "is_twin": True}
    (folder / "other.json").write_text(json.dumps(report))
    for more, made_on in (([], "nucleo_f746zg.twin"), (["--board", "mps2_an500"], "mps2_an500")):
        assert main(["reproduce", "other.json", "--dry-run", *more]) == 0
        assert f"and {made_on} again" in capsys.readouterr().out


@pytest.mark.tools
def test_a_report_without_a_digest(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = read_report(folder / "digits.html")
    del report[DIGEST]
    (folder / "other.json").write_text(json.dumps(report))
    assert main(["reproduce", "other.json", "--dry-run"]) == 0
    assert "has no digest: an older version made it, or it was edited" in capsys.readouterr().err


@pytest.mark.tools
def test_every_number_of_a_report_is_compared(folder: Path) -> None:
    report = read_report(folder / "digits.html")
    # As on a board that counts cycles, on which no figure varies.
    report["profile"]["is_modelled"] = True
    edited, numbers = report, 0
    for path in _leaves(report):
        # A speed is that of this computer.
        if path[0] in PARTS and path[-1] != "samples_per_second" and _is_number(report, path):
            edited, numbers = _edited(edited, path), numbers + 1
    assert numbers > 500
    assert sum(not one.is_same for one in compared(report, edited)) == numbers


@pytest.mark.tools
def test_the_digest_is_that_of_every_leaf(folder: Path) -> None:
    report = read_report(folder / "digits.html")
    report["graph"] = ""  # large
    report[DIGEST] = content_digest(report)
    assert is_as_written(report)
    for path in list(_leaves(report))[::7]:
        assert not is_as_written(_edited(report, path)), path


def _is_number(report: dict[str, Any], path: tuple[Any, ...]) -> bool:
    return type(_at(report, path)) in (int, float)


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in pairs:
            if path or key not in (DIGEST, "output"):
                yield from _leaves(one, (*path, key))
    else:
        yield path


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _edited(report: dict[str, Any], path: tuple[Any, ...]) -> dict[str, Any]:
    """A copy that differs in one leaf; what the leaf is not in is shared."""
    key, *rest = path
    copy: Any = list(report) if isinstance(report, list) else dict(report)
    if rest:
        copy[key] = _edited(report[key], tuple(rest))
    else:
        copy[key] = report[key] + 1 if type(report[key]) in (int, float) else "other"
    return copy


@pytest.mark.tools
def test_an_edited_report_is_not_compared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = read_report(folder / "digits.html")
    report["profile"]["ticks"] += 1
    (folder / "other.json").write_text(json.dumps(report))
    assert main(["compare", "other.json", "digits.html"]) == 1
    assert "other.json was edited after it was made" in capsys.readouterr().err


@pytest.mark.tools
@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("model.sha256", "0" * 64, "is not the model of the report"),
        ("model.file", "gone.tflite", "is not there; give its place with --model"),
        ("options.plugin", "evil.py", "a report cannot set the option 'plugin'"),
        ("options.optimize", "fastest", "no level 'fastest'"),
        ("options.pools", {"dtcm": "much"}, "options.pools is missing or of another kind"),
        ("board.given", "nosuch", "no board 'nosuch'"),
        ("board.given", "utvm://elsewhere/host", "only you can name a server; give --board"),
        ("profile", {}, "the report is damaged"),
        ("files.data", {"file": 5}, "files.data is missing or of another kind"),
        ("plugin", True, "give --plugin"),
        ("ethos_u", "ethos-u55-99", "does not know 'ethos-u55-99'"),
        ("ethos_u", 55, "ethos_u is missing or of another kind"),
        ("cmsis_nn", True, "give its folder (--cmsis-nn DIR)"),
        ("schema", "utvm.profile/1", "holds no report (its schema is 'utvm.profile/1')"),
    ],
)
def test_a_damaged_report_is_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], path: str, value: Any, told: str
) -> None:
    report = read_report(folder / "digits.html")
    *parents, name = path.split(".")
    place = report
    for one in parents:
        place = place[one]
    place[name] = value
    (folder / "damaged.json").write_text(json.dumps(report))
    assert main(["reproduce", "damaged.json", "-o", "new.html"]) in (1, 2)
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ")
    assert told in error
    assert not (folder / "new.html").exists()


@pytest.mark.tools
def test_data_that_moved_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = (folder / "digits_test.npz").rename(folder / "moved.npz")
    assert main(["reproduce", "digits.html"]) == 1
    assert "digits_test.npz, is not there; give its place with --data" in capsys.readouterr().err
    assert main(["reproduce", "digits.html", "--data", str(data)]) == 0
    assert "0 differ" in capsys.readouterr().out


@pytest.mark.tools
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--data", "digits.tflite"), "digits.tflite is not the data of the report: its SHA-256 "),
        (("--data", "gone.npz"), "the report's data, gone.npz, is not there; give its place with"),
        (("--data", "."), ". is a folder, and the data of the report is a file"),
        (("--labels", "l.npy"), "the report was made without --labels; leave it out"),
    ],
)
def test_other_data_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, str], told: str
) -> None:
    assert main(["reproduce", "digits.html", *options]) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {told}")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "<html></html>", '{"schema": 2}'])
def test_other_files_are_no_reports(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.html").write_text(text)
    with pytest.raises(UtvmError, match="holds no report"):
        read_report(tmp_path / "r.html")


@pytest.mark.tools
def test_names_cannot_leave_the_page_s_json(folder: Path) -> None:
    report = read_report(folder / "digits.html")
    report["model"]["file"] = "</script><script>alert(1)</script>"
    page = report_html(report)
    (folder / "evil.html").write_text(page)
    assert "<script>alert" not in page
    assert read_report(folder / "evil.html") == report


@pytest.mark.tools
def test_figures_of_one_report_are_the_same(folder: Path) -> None:
    report = read_report(folder / "digits.html")
    assert all(one.is_same for one in compared(report, report))


def test_columns_that_repeat_others_are_left_out() -> None:
    def layer(index: int, ticks: int, instructions: int) -> dict[str, Any]:
        figures = {"core": ticks, "pessimistic": ticks + 1, "rich": ticks + 1}
        more = {"instructions": instructions, "dcache_misses_flash": 0}
        return {
            "index": index,
            "operator": "ADD",
            "kernel": "m_add",
            "why": "",
            "ticks": ticks,
            "macs": 0,
            "ticks_per_mac": None,
            "bound": None,
            "figures": figures | more,
        }

    layers = [layer(0, 10, 7), layer(1, 30, 9)]
    values = profile_values(
        {
            "model": "m",
            "tick_unit": "cycles",
            "is_modelled": True,
            "ticks": 40,
            "macs": 0,
            "figures": dict(layers[0]["figures"]),
            "layers": layers,
        }
    )
    table = values["table"]
    shown = [head.removeprefix(">") for head in table.heads]
    assert "pessimistic" in shown and "instructions" in shown
    assert not {"core", "rich", "misses, flash", "bound", "CMSIS-NN"} & set(shown)
    assert len(table.foot) == len(shown)
    assert all(len(column.cells) == len(table.lines) for column in table.columns)
