"""utvm completion: what the shells are told, and that bash does it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from utvm_deploy.cli.main import main

#: One line of a shell takes a second; machines that run tests may be loaded.
PATIENCE_S = 120.0

#: What bash does when somebody presses the tabulator at the end of the line "$1".
TAB = """
eval "$(utvm completion bash)"
for line in "$@"; do
    COMP_LINE="$line" COMP_POINT=${#line} COMP_TYPE=9 COMPREPLY=()
    _python_argcomplete utvm
    echo "${COMPREPLY[*]}"
done
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not here")
def test_bash_completes_verbs_options_boards_and_models(tmp_path: Path) -> None:
    lines = {
        "utvm ver": "verify",
        "utvm verify --boa": "--board",
        "utvm verify x.tflite --board mps2_an5": "mps2_an500 mps2_an521",
        "utvm models get digits_": "digits_float",
        "utvm project b": "build",
    }
    command = tmp_path / "utvm"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m utvm_deploy "$@"\n')
    command.chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", TAB, "bash", *lines],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert [line.strip() for line in done.stdout.splitlines()] == list(lines.values()), done.stderr


@pytest.mark.parametrize(
    ("shell", "says"), [("bash", "complete -o"), ("zsh", "compdef"), ("fish", "complete --command")]
)
def test_each_shell_has_its_script(
    shell: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    assert says in capsys.readouterr().out


def test_an_unknown_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "fsh"]) == 2
    assert "did you mean 'fish'?" in capsys.readouterr().err
