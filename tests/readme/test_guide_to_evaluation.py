"""The commands and the Python lines of docs/guides/evaluation.md work as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from utvm_deploy.cli.main import main

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "evaluation.md").read_text()
COMMANDS = [shlex.split(line) for line in re.findall(r"^utvm (eval .*)$", GUIDE, re.MULTILINE)]

pytestmark = pytest.mark.tools


def test_the_commands_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "models").symlink_to(ROOT / "models")
    monkeypatch.chdir(tmp_path)
    on_a_board, *on_host = COMMANDS
    place = on_a_board.index("--board")
    # Other tests start an emulated board; here the rest of the command is checked.
    assert main([*on_a_board[:place], *on_a_board[place + 2 :], "--dry-run"]) == 0
    said = []
    for argv in on_host:
        assert main(argv) == 0
        said.append(capsys.readouterr().out)
    assert "gate: accuracy at least 0.95: kept" in said[0]
    assert "<h1>diabetes_int8 on host</h1>" in (tmp_path / "diabetes.html").read_text()


def test_the_python_lines_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    (block,) = re.findall(r"^```python\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    exec(block, {})
    shares, right = capsys.readouterr().out.splitlines()
    assert all(float(share) > 0.95 for share in shares.split())
    assert int(right) > 95
