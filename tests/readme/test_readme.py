"""What README.md shows is what works: its commands, and its picture."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from utvm_deploy.boards.board import board_names
from utvm_deploy.cli.main import main

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
from readme_picture import MODELS, PAGE, PICTURE, panels, picture  # noqa: E402

README = (ROOT / "README.md").read_text(encoding="utf-8")
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


@pytest.mark.emulator
def test_the_commands_work_in_the_order_in_which_they_are_shown(tmp_path: Path) -> None:
    # The working directory is tmp_path; see conftest.py.
    assert [argv[1] for argv in UTVM] == ["doctor", "models", "verify", "bundle"]
    for argv in UTVM:
        assert main(argv[1:]) == 0
    assert (tmp_path / "firmware" / "include" / "digits.h").is_file()


def test_it_is_one_screen() -> None:
    assert len(README.splitlines()) <= 70


def test_the_picture_shows_the_figures_of_the_benchmarks() -> None:
    drawn = picture(panels(PAGE.read_text(encoding="utf-8")))
    assert f"]({PICTURE.relative_to(ROOT)})" in README
    assert PICTURE.read_text(encoding="utf-8") == drawn, "run benchmarks/readme_picture.py"
    assert drawn.count('class="ours"') == drawn.count('class="other"') == 1 + 3 * len(MODELS)


@pytest.mark.parametrize("script", ["scripts/demo", "scripts/test"])
def test_a_script_is_there(script: str) -> None:
    assert commands(script)
    assert os.access(ROOT / script, os.X_OK)
    subprocess.run(["bash", "-n", str(ROOT / script)], check=True, timeout=PATIENCE_S)


def test_boards_are_listed() -> None:
    table = (ROOT / "docs" / "guides" / "boards.md").read_text(encoding="utf-8")
    for board in board_names():
        assert f"`{board}`" in table, board


def test_links_lead_somewhere() -> None:
    prose = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", prose):
        assert "://" in target or (ROOT / target).exists(), target
