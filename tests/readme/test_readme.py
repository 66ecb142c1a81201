"""What README.md shows is what works: its commands, its Python and its C, cut out and run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import board_names
from utvm_deploy.cli.main import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DIGITS = data_dir("models") / "digits.tflite"
#: How long a snippet may take on a loaded machine.
PATIENCE_S = 120.0


def snippets(language: str) -> list[str]:
    """The fenced blocks of a language; "" for those that name none."""
    # All fences in order: else the end of one block looks like the beginning of the next.
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    blocks = [text for name, text in fences if name == language]
    assert blocks, f"README.md has no block {language!r}"
    return blocks


def commands(program: str) -> list[list[str]]:
    """The argument vectors that the README shows for a program, without their comments."""
    lines = "".join(snippets("")).splitlines()
    found = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]
    return [argv for argv in found if argv and argv[0] == program]


UTVM = commands("utvm")


def test_the_commands_are_found() -> None:
    assert [argv[1] for argv in UTVM] == [
        "doctor",
        "inspect",
        "verify",
        "profile",
        "memory",
        "tune",
        "bundle",
    ]


@pytest.mark.emulator
@pytest.mark.parametrize("argv", UTVM, ids=lambda argv: argv[1])
def test_a_command_works_as_shown(argv: list[str], tmp_path: Path) -> None:
    # The working directory is tmp_path; see conftest.py.
    shutil.copy(DIGITS, tmp_path / "model.tflite")
    assert main(argv[1:]) == 0


@pytest.mark.parametrize("script", ["scripts/demo", "scripts/test"])
def test_a_script_is_there(script: str) -> None:
    assert commands(script)
    assert os.access(ROOT / script, os.X_OK)
    subprocess.run(["bash", "-n", str(ROOT / script)], check=True, timeout=PATIENCE_S)


@pytest.mark.emulator
def test_the_python_snippets() -> None:
    deploy, session = snippets("python")
    lines = output_of(deploy)
    assert len(lines) > 1
    assert lines[-1].startswith("SOFTMAX ") and lines[-1].endswith(" (1, 10)")
    (line,) = output_of(session)
    assert line.startswith("[0 0 1 1 2 2 3 3] ")


def output_of(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.tools
def test_the_c_snippet(tmp_path: Path) -> None:
    (code,) = snippets("c")
    bundle = ["bundle", str(DIGITS), "--board", "stm32f746g_disco", "--samples", "1", "-o", "out"]
    assert main(bundle) == 0
    # What stands before the first statement is file scope, as in any program.
    declarations, arena, statements = code.partition(
        "__attribute__((aligned(DIGITS_ARENA_ALIGNMENT)));"
    )
    assert arena, "the snippet's arena has changed"
    program = tmp_path / "program.c"
    program.write_text(
        f"{declarations}{arena}\nint main(void)\n{{\n{statements}\n"
        "return input == 0 || output == 0;\n}\n",
        encoding="utf-8",
    )
    sources = sorted(str(path) for path in (tmp_path / "out" / "src").glob("*.c"))
    flags = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-Iout/include"]
    subprocess.run(
        ["gcc", *flags, str(program), *sources, "-lm", "-o", "program"],
        check=True,
        timeout=PATIENCE_S,
    )
    subprocess.run(["./program"], check=True, timeout=PATIENCE_S)


def test_boards_are_listed() -> None:
    for board in board_names():
        assert f"`{board}`" in README, board


def test_links_lead_somewhere() -> None:
    prose = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", prose):
        assert "://" in target or (ROOT / target).exists(), target
