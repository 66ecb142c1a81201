"""The commands of docs/tutorials/first-model.md work in the order in which they are shown."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from utvm_deploy.base.paths import data_dir
from utvm_deploy.cli.main import main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorials" / "first-model.md"


@pytest.mark.emulator
@pytest.mark.slow
def test_the_commands_of_the_tutorial(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (tmp_path / "models").mkdir()
    shutil.copy(data_dir("models") / "digits.tflite", tmp_path / "models")
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    shell = "".join(block for language, block in fences if not language)
    commands = [shlex.split(line) for line in shell.splitlines()]
    shown = [argv[1:] for argv in commands if argv[0] == "utvm"]
    assert [argv[0] for argv in shown] == [
        "doctor",
        "inspect",
        "verify",
        "profile",
        "tune",
        "bundle",
    ]
    for argv in shown:
        assert main(argv) == 0, argv
    assert "SOFTMAX" in capsys.readouterr().out
    assert (tmp_path / "out" / "README.md").is_file()
