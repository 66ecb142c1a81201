"""Each command of utvm that a page shows is one that utvm understands.

Pages of docs/tutorials are run (`tests/tutorials`). Commands of the other pages may need hardware,
a server or hours, so only their arguments are read.
"""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from utvm_deploy.cli.main import build_parser
from utvm_deploy.cli.verbs import VERBS

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "PROTOCOL.md")),
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "tutorials"),
]
#: What stands for any value, or for more arguments, in a command that a page shows.
_ANY = {"...": (), "…": ()}


def blocks(text: str) -> list[str]:
    """The fenced blocks, without their fences; those of other languages hold no commands."""
    fences = re.findall(r"^ *```([^\n]*)\n(.*?)^ *```$", text, flags=re.MULTILINE | re.DOTALL)
    return [block for language, block in fences if language in ("", "sh", "bash", "console")]


def commands(page: Path) -> list[list[str]]:
    """The arguments after each `utvm` that begins a command of a block."""
    found = []
    for block in blocks(page.read_text(encoding="utf-8")):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            start = re.match(r"\s*(?:\$ )?(?:[A-Z_]+=\S+ )*(?:sudo )?(?:\S*/bin/)?utvm (.+)", line)
            if start is None:
                continue
            words = shlex.split(start[1], comments=True)
            end = [i for i, word in enumerate(words) if word in ("|", "&&", "||", ";", ">", "2>")]
            argv = [word.rstrip(";") for word in words[: min(end, default=len(words))]]
            found.append([word for word in argv if word not in _ANY])
    return found


ALL = [(page.relative_to(ROOT), argv) for page in PAGES for argv in commands(page)]


def test_the_commands_are_found() -> None:
    assert len(ALL) >= 70
    assert {argv[0] for _, argv in ALL} >= {"verify", "bundle", "tune", "bench", "report", "serve"}


@pytest.mark.parametrize(
    ("page", "argv"), ALL, ids=[f"{page.stem}: {' '.join(argv)}" for page, argv in ALL]
)
def test_a_command_is_understood(page: Path, argv: list[str]) -> None:
    assert argv[0] in VERBS or argv[0].startswith("-"), page
    if argv[0] in VERBS and not {"--help", "-h"} & set(argv):
        assert build_parser(argv[0]).parse_args(argv)


def named_options(page: Path) -> list[tuple[str, str]]:
    """A verb and an option of each `utvm VERB ... --option` in a sentence or a block."""
    text = re.sub(r"\\\n\s*", " ", page.read_text(encoding="utf-8"))
    told = re.findall(r"`utvm ([a-z]+)([^`]*)`", text)
    return [(verb, option) for verb, rest in told for option in re.findall(r" (--[a-z-]+)", rest)]


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    """All options of a verb and of the verbs below it."""
    found: set[str] = set()
    for action in parser._actions:
        found |= set(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            found |= set().union(*map(options_of, action.choices.values()))
    return found


def test_options_in_sentences_are_options() -> None:
    (action,) = (one for one in build_parser()._actions if one.dest == "verb")
    assert isinstance(action, argparse._SubParsersAction)
    known = {verb: options_of(parser) for verb, parser in action.choices.items()}
    told = [(page.name, *one) for page in PAGES for one in named_options(page)]
    assert len(told) >= 20
    assert [one for one in told if one[2] not in known.get(one[1], ())] == []
