"""utvm completion: what the shells are told, and that bash, zsh and fish do it."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
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


#: The same for fish. What follows a tabulator describes the completion.
FISH_TAB = """
utvm completion fish | source
for line in $argv
    complete -C $line | string replace -r '\\t.*' '' | string join ' '
end
"""

#: zsh completes only where it edits a line: Ctrl-O writes what the line has become into a file.
ZSH = """
PS1="ready> "
autoload -Uz compinit; compinit -D -u
eval "$(utvm completion zsh)"
edited() { print -r -- "$BUFFER" >> lines; BUFFER=; zle reset-prompt; }
zle -N edited; bindkey '^O' edited; bindkey '^I' complete-word
"""

#: What is typed, and what may follow as bash and fish list it.
LINES = {
    "utvm ver": "verify",
    "utvm verify --boa": "--board",
    "utvm verify x.tflite --board mps2_an5": "mps2_an500 mps2_an521",
    "utvm models get digits_": "digits_float",
    "utvm project b": "build",
}

#: What is typed, and the line that zsh makes of it.
ZSH_LINES = {
    "utvm ver": "utvm verify",
    "utvm verify --boa": "utvm verify --board",
    "utvm verify x.tflite --board mps2_an50": "utvm verify x.tflite --board mps2_an500",
    "utvm models get digits_": "utvm models get digits_float",
}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Where ``utvm`` is this package, and the home folder is empty."""
    command = tmp_path / "utvm"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m utvm_deploy "$@"\n')
    command.chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not here")


@pytest.mark.tools
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["bash", "-c", TAB, "bash"], marks=needs("bash"), id="bash"),
        pytest.param(["fish", "--no-config", "-c", FISH_TAB], marks=needs("fish"), id="fish"),
    ],
)
def test_a_shell_completes_verbs_options_boards_and_models(
    command: list[str], environment: dict[str, str]
) -> None:
    done = subprocess.run(
        [*command, *LINES], env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert [line.strip() for line in done.stdout.splitlines()] == list(LINES.values()), done.stderr


@pytest.mark.tools
@needs("zsh")
def test_zsh_completes_verbs_options_boards_and_models(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / ".zshrc").write_text(ZSH)
    ours, theirs = pty.openpty()
    shell = subprocess.Popen(
        ["zsh", "-i"],
        env={**environment, "ZDOTDIR": str(tmp_path), "TERM": "dumb"},
        cwd=tmp_path,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    written = tmp_path / "lines"
    said, deadline = b"", time.monotonic() + PATIENCE_S

    def wait_for(done: Callable[[], bool]) -> None:
        nonlocal said
        while not done():
            assert time.monotonic() < deadline, said.decode()
            if select.select([ours], [], [], 0.05)[0]:
                said += os.read(ours, 4096)

    try:
        # Before its prompt the terminal would take the keys for its own.
        wait_for(lambda: b"ready> " in said)
        for count, line in enumerate(ZSH_LINES, 1):
            os.write(ours, f"{line}\t\x0f".encode())
            wait_for(lambda count=count: len(lines_of(written)) == count)
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)
    assert [line.rstrip() for line in lines_of(written)] == list(ZSH_LINES.values()), said.decode()


def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


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
