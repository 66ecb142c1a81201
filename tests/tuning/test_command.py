"""utvm tune and utvm report as commands: spaces, tables, errors, and a process that is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tune_cases import write_model

from utvm_deploy.cli.main import main
from utvm_deploy.records import read_records

#: Runs the command line, and fails if PyTorch was loaded.
WITHOUT_TORCH = """
import sys
from utvm_deploy.cli.main import main
sys.exit(main(sys.argv[1:]) or int("torch" in sys.modules))
"""


def tune_command(folder: Path, *more: str) -> list[str]:
    model = write_model(folder / "small.tflite")
    return ["tune", str(model), "--board", "host", "--records", str(folder / "r.jsonl"), *more]


@pytest.mark.tools
def test_tune_and_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(tune_command(tmp_path, "--trials", "6", "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "utvm.tune/2" and found["unit"] == "nanoseconds"
    assert found["trials"] == 6 and found["trials_before"] == 0
    assert [kernel["layers"] for kernel in found["kernels"]] == [2, 1, 1, 1]
    assert found["ticks_best"] <= found["ticks_before"]
    # Again: nothing is left to do.
    assert main(tune_command(tmp_path, "--trials", "6")) == 0
    text = capsys.readouterr().out
    assert "0 trials in" in text and "conv2d_3x3" in text
    page = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "r.jsonl"), "-o", str(page), "--json"]) == 0
    (setting,) = json.loads(capsys.readouterr().out)["settings"]
    assert len(setting["kernels"]) == 4
    html = page.read_text()
    assert "<svg" in html and "conv2d_3x3" in html.replace("<wbr>", "")
    assert not re.search(r"(src|href)=|https?://", html), "the page needs something outside"


@pytest.mark.tools
def test_models_share_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(tune_command(tmp_path, "--trials", "6")) == 0
    other = write_model(tmp_path / "other.tflite")
    records = str(tmp_path / "r.jsonl")
    command = ["tune", str(other), "--board", "host", "--records", records, "--trials", "8"]
    capsys.readouterr()
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["trials_before"], found["trials"]) == (6, 8)


def test_show_space(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(write_model(tmp_path / "small.tflite"))
    assert main(["tune", model, "--board", "mps2_an500", "--show-space"]) == 0
    text = capsys.readouterr().out
    assert "conv2d_3x3_s1x1_p1x1_6x6_6x6_4x4:int8" in text
    assert text.count("(default)") == 4 and "generic" in text
    assert main(["tune", model, "--board", "host", "--show-space", "--json"]) == 0
    kernels = json.loads(capsys.readouterr().out)["kernels"]
    assert kernels[0]["candidates"][0] == {"family": "generic", "choices": {}}
    assert not (tmp_path / "r.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--records", "no/r.jsonl", "--trials", "3"], "there is no folder no; make it first"),
        (["--records", ".", "--trials", "3"], "cannot write records to .: Is a directory"),
    ],
)
def test_nonsense(
    arguments: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(write_model(tmp_path / "small.tflite"))
    assert main(["tune", model, "--board", "host", *arguments]) == 1
    assert complaint in capsys.readouterr().err


def test_no_trials_is_a_wrong_command_line(tmp_path: Path) -> None:
    assert main(tune_command(tmp_path, "--trials", "0")) == 2


def test_reports_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path / "absent.jsonl")]) == 1
    assert "there is no records file" in capsys.readouterr().err
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    assert main(["report", str(empty)]) == 1
    assert "is empty; `utvm tune` fills it" in capsys.readouterr().err


@pytest.mark.tools
def test_a_killed_tuning_goes_on_where_it_was(tmp_path: Path) -> None:
    trials = 12
    command = [
        sys.executable,
        "-m",
        "utvm_deploy",
        *tune_command(tmp_path, "--trials", str(trials)),
    ]
    path = tmp_path / "r.jsonl"
    said = tmp_path / "said.txt"
    with said.open("w") as file:
        first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file)
    deadline = time.monotonic() + 120
    while not (path.exists() and path.read_bytes().count(b"\n") >= 3):
        assert first.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    kept = list(read_records(path))
    # What it had told is on the disk.
    told = re.findall(r"tuning: (\d+) of", said.read_text())
    assert told and int(told[-1]) <= len(kept)
    # A line that was cut, as by a loss of power.
    with path.open("ab") as torn:
        torn.write(b'{"schema":1,"kernel":"conv')
    # TVM imports PyTorch where it is installed, which takes as long as all else until a trial.
    again = [sys.executable, "-c", WITHOUT_TORCH, *command[3:]]
    subprocess.run(again, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    found = list(read_records(path))
    assert found[: len(kept)] == kept
    assert len(kept) >= 3 and len(found) == max(trials, len(kept))
    assert len({(record.kernel.key, record.candidate) for record in found}) == len(found)


@pytest.mark.tools
def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "utvm_deploy", *tune_command(tmp_path, "--trials", "1000")]
    path = tmp_path / "r.jsonl"
    tuning = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (path.exists() and path.read_bytes().count(b"\n") >= 5):
        assert tuning.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    tuning.send_signal(signal.SIGINT)
    _, said = tuning.communicate(timeout=60)
    assert tuning.returncode == 130, said
    assert path.read_bytes().endswith(b"}\n")
    kept = len(read_records(path))
    assert kept >= 5
    # The first candidate is told by itself.
    assert "tuning: 1 of 1000 trials" in said
    (last,) = said.rstrip().splitlines()[-1:]
    assert last == (
        f"interrupted; {kept} trials are recorded in {path}; the same command continues from there"
    )
