"""The check of plain English finds what it is for, and lets everything else pass."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "plain_english"))
from check import BASELINE, PHRASES, files, findings, grown, parsed, phrases, written  # noqa: E402

LONG = " ".join(["an"] * 31)
LIMIT = " ".join(["an"] * 30)
STUMBLED = phrases("so many => the number\n(is|are) gone => is removed\n")


def found(tmp_path: Path, name: str, text: str) -> list[str]:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return [finding.text for finding in findings(path, STUMBLED)]


@pytest.mark.parametrize(
    "page",
    [
        f"{LONG}.\n",
        f"Short.\n{LONG.capitalize()}.\nShort.\n",
        f"- {LONG}.\n",
        "There are so\nmany of them.\n",
        "# So many\n",
        "| a | it is gone |\n",
        "x" * 101 + "\n",
    ],
)
def test_a_page_with_a_fault(page: str, tmp_path: Path) -> None:
    assert len(found(tmp_path, "page.md", page)) == 1


@pytest.mark.parametrize(
    "page",
    [
        f"{LIMIT}.\n",
        f"{LIMIT}.\n{LIMIT.capitalize()}.\n",
        f"- {LIMIT}\n- {LIMIT}\n",
        f"| {LONG} | {'x' * 101} |\n",
        f"```\n{LONG} so many {'x' * 101}\n```\n",
        "`so many` is what it prints.\n",
        "    so many\n",
        f"[A link]({'x' * 60}) that is short.\n",
    ],
)
def test_a_page_without_one(page: str, tmp_path: Path) -> None:
    assert found(tmp_path, "page.md", page) == []


@pytest.mark.parametrize(
    "code",
    [
        f'"""{LONG}."""\n',
        'def f() -> None:\n    """So many\n    of them."""\n',
        "# There are so\n# many of them.\n",
        "x = 1  #: so many\n",
        'raise E(f"there are so many {x} that none fits")\n',
        'f(help="how " "so many of them are gone")\n',
    ],
)
def test_code_with_a_fault(code: str, tmp_path: Path) -> None:
    assert found(tmp_path, "code.py", code)


@pytest.mark.parametrize(
    "code",
    [
        '"""Short."""\nsome = "so many"\n',
        f'"""Short.\n\nrun   {LIMIT}\nread   {LIMIT}\nsend    {LIMIT}\n"""\n',
        'emit("int so many = 1, x = gone[so many];\\n")\n',
        "# noqa: so many\n",
        "so_many = 1\n",
        f"# {LIMIT}.\nx = 1\n# {LIMIT}.\n",
        f"x = 1  # {LIMIT}\ny = 2  # {LIMIT}\n",
    ],
)
def test_code_without_one(code: str, tmp_path: Path) -> None:
    assert found(tmp_path, "code.py", code) == []


def test_the_baseline_only_shrinks() -> None:
    baseline = parsed(written({"a.md": 2, "b.md": 0}))
    assert baseline == {"a.md": 2}
    assert grown({"a.md": 2, "b.md": 0}, baseline) == []
    assert grown({"a.md": 3, "b.md": 1, "c.md": 0}, baseline) == ["a.md", "b.md"]


def test_the_files_that_are_checked() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in files(ROOT)}
    assert {"README.md", "PROTOCOL.md", "ARCHITECTURE.md", "utvm_deploy/__init__.py"} <= names
    assert phrases(PHRASES.read_text(encoding="utf-8"))
    assert parsed(BASELINE.read_text(encoding="utf-8")) is not None
