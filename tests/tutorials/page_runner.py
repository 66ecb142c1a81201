"""Runs a tutorial as a reader would: saves its files, types its commands, looks at what they print.

The fences of a page say what a block is:

- ``sh``: commands. Installations are left out, and ``utvm`` runs in this process.
- ``text`` after it: what the commands print. A line ``...`` stands for any lines, ``...`` at the
  end of a line for its rest, and a number may differ by a tenth, because compilers do.
- any language with ``title="NAME"``: the file NAME, and with ``title="NAME, continued"`` its
  next part.

A command with the comment ``exits with 1`` must do that, and its errors count as printed.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from utvm_deploy.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
#: How long a command may take on a loaded machine.
PATIENCE_S = 300.0
#: By how much a number may differ from the page's.
TOLERANCE = 0.1
#: Commands that set something up outside of the reader's folder.
SET_UP = ("pip ", "sudo ", "python3 -m venv", "west ", "git ", ". .venv", "export ", "cd ")
_BLOCK = re.compile(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```$', flags=re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_SHELL_SIGNS = re.compile(r"[|&;<>*$`]")


@dataclass(frozen=True)
class Block:
    language: str
    title: str
    text: str


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = (TUTORIALS / page).read_text(encoding="utf-8")
    found = [Block(*match.groups(default="")) for match in _BLOCK.finditer(text)]
    assert len(re.findall("^```", text, re.MULTILINE)) == 2 * len(found)
    return found


def commands(block: Block) -> list[str]:
    """The lines of a block of commands, continued lines as one, without set-up."""
    lines = re.sub(r"\\\n\s*", "", block.text).splitlines()
    return [line for line in lines if line and not line.startswith((*SET_UP, "#"))]


def run_page(
    page: str,
    capfd: pytest.CaptureFixture[str],
    *,
    leave_out: Sequence[str] = (),
    **variables: str,
) -> None:
    """Follow the page in the current folder; ``variables`` are the environment of its commands.

    Commands that have a text of ``leave_out`` do not run, and what they print is not compared.
    """
    printed = ""
    for block in blocks(page):
        if block.title:
            name, continued, _ = block.title.partition(", continued")
            file = Path(name)
            file.parent.mkdir(parents=True, exist_ok=True)
            before = file.read_text("utf-8") if continued else ""
            file.write_text(before + block.text, encoding="utf-8")
        elif block.language == "sh":
            lines = commands(block)
            kept = [line for line in lines if not any(text in line for text in leave_out)]
            printed = "".join([run(line, capfd, variables) for line in kept])
            printed = printed if kept == lines else ""
        elif block.language == "text" and printed:
            difference = first_difference(block.text, printed)
            assert difference is None, f"{page}: {difference}\nprinted:\n{printed}"


def run(line: str, capfd: pytest.CaptureFixture[str], variables: dict[str, str]) -> str:
    """What a command prints on stdout; it must end as the page says."""
    wanted = 1 if "# exits with 1" in line else 0
    argv = shlex.split(line, comments=True)
    if argv[0] == "utvm" and not _SHELL_SIGNS.search(line.partition("#")[0]):
        capfd.readouterr()
        code = main(argv[1:])
        out, err = capfd.readouterr()
    else:
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", line],
            env={
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT),
                **variables,
            },
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        code, out, err = done.returncode, done.stdout, done.stderr
    assert code == wanted, f"{line}\n{out}\n{err}"
    return out + err if wanted else out


def first_difference(shown: str, printed: str) -> str | None:
    """The first line of a page that the output lacks at its place, or None."""
    rest = [words(line) for line in printed.splitlines() if line.strip()]
    skips = False
    for line in (line for line in shown.splitlines() if line.strip()):
        if line.strip() == "...":
            skips = True
            continue
        wanted = words(line)
        places = [place for place, one in enumerate(rest) if alike(wanted, one)]
        if not places or (places[0] and not skips):
            return f"{line!r} is not printed here"
        rest = rest[places[0] + 1 :]
        skips = False
    return None


def words(line: str) -> list[str]:
    return line.split()


def alike(wanted: Sequence[str], found: Sequence[str]) -> bool:
    """Whether two lines have the same words, but for small differences of numbers."""
    if wanted[-1:] == ["..."]:  # the rest of a line
        wanted, found = wanted[:-1], found[: len(wanted) - 1]
    if len(wanted) != len(found):
        return False
    return all(_alike_words(*pair) for pair in zip(wanted, found, strict=True))


def _alike_words(wanted: str, found: str) -> bool:
    if _NUMBER.sub("0", wanted) != _NUMBER.sub("0", found):
        return False
    return all(
        abs(a - b) <= TOLERANCE * max(abs(a), abs(b))
        for a, b in zip(_numbers(wanted), _numbers(found), strict=True)
    )


def _numbers(word: str) -> Iterator[float]:
    for number in _NUMBER.findall(word):
        yield float(number.replace(",", ""))
