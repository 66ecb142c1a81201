"""Each tutorial works as it stands: its files, its commands, and what they print."""

from __future__ import annotations

from pathlib import Path

import page_runner
import pytest
from page_runner import TUTORIALS, Block, blocks, commands, first_difference, run_page

from utvm_deploy.cli.main import build_parser

PAGES = sorted(path.name for path in TUTORIALS.glob("*.md"))


@pytest.mark.parametrize(
    ("shown", "printed", "is_right"),
    [
        ("a 100 b\n", "a  105 b\n", True),
        ("a 100 b\n", "a 150 b\n", False),
        ("a\n...\nc 1,000\n", "a\nb\nb\nc 1,001\nd\n", True),
        ("a\nc\n", "a\nb\nc\n", False),
        ("a b ...\n", "a b c d\n", True),
        ("...\nnothing like it\n", "a\n", False),
    ],
)
def test_what_is_shown_is_what_is_printed(shown: str, printed: str, is_right: bool) -> None:
    assert (first_difference(shown, printed) is None) == is_right


def test_commands_of_a_block() -> None:
    block = Block("sh", "", "pip install x\nutvm a \\\n    --b c\n\n# no command\nls\n")
    assert commands(block) == ["utvm a --b c", "ls"]


@pytest.mark.parametrize("page", PAGES)
def test_each_command_of_utvm_takes_its_arguments(page: str) -> None:
    found = [line for block in blocks(page) if block.language == "sh" for line in commands(block)]
    assert found
    for line in found:
        verb, *_ = words = line.split("|")[0].split("&&")[0].split()
        if verb == "utvm" and words[1] not in ("serve", "submit"):
            end = words.index("#") if "#" in words else len(words)
            arguments = [word for word in words[1:end] if not word.startswith((">", "2>"))]
            assert build_parser(arguments[0]).parse_args(arguments)


@pytest.mark.emulator
@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    ["first-model.md", "from-data.md", "small-ram.md", "own-board.md", "own-operator.md"],
)
def test_a_tutorial(
    page: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], image_cache: Path
) -> None:
    if page == "from-data.md":
        pytest.importorskip("torch")
    assert Path.cwd() == tmp_path
    run_page(page, capfd, UTVM_CACHE=str(image_cache))


def test_the_runner_finds_all_blocks() -> None:
    assert all(page_runner.blocks(page) for page in PAGES)
