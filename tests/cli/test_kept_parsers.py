"""Completion takes the arguments of a verb from the cache, and sees the same as without it."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.cli import kept_parsers
from utvm_deploy.cli.kept_parsers import described, kept_parser, parser_of
from utvm_deploy.cli.main import build_parser


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UTVM_CACHE", str(tmp_path))
    return tmp_path / "completion" / "some.json"


def small() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--level", choices=[1, 2])
    return parser


def never() -> argparse.ArgumentParser:
    raise AssertionError("the arguments are in the cache")


def test_a_kept_command_line_says_the_same() -> None:
    told = json.loads(json.dumps(described(build_parser())))
    assert described(parser_of(told)) == told
    (verbs,) = (one["parsers"] for one in told["actions"] if "parsers" in one)
    assert {"verify", "project"} <= set(verbs)
    assert {one["group"] for one in verbs["verify"]["actions"]} >= {-1, 0}


def test_the_second_press_builds_nothing_until_a_source_changes(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = described(kept_parser("some", small))
    assert cache.is_file() and described(kept_parser("some", never)) == first
    monkeypatch.setattr(kept_parsers, "_key", lambda: "another")
    with pytest.raises(AssertionError):
        kept_parser("some", never)


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", "{}", '{"key": "KEY", "parser": {"actions": 1}}']
)
def test_a_damaged_file_is_written_again(damage: str, cache: Path) -> None:
    cache.parent.mkdir()
    cache.write_text(damage.replace("KEY", kept_parsers._key()))
    wanted = described(small())
    assert described(kept_parser("some", small)) == wanted
    assert json.loads(cache.read_text())["parser"] == wanted


def test_without_a_folder_nothing_is_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.parent.write_text("no folder")
    assert described(kept_parser("some", small)) == described(small())

    def no_home() -> Path:
        raise UtvmError("no home")

    monkeypatch.setattr(kept_parsers, "cache_dir", no_home)
    assert described(kept_parser("some", small)) == described(small())


def test_another_source_is_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inner").mkdir()
    source = tmp_path / "inner" / "one.py"
    source.write_text("1")
    monkeypatch.setattr(kept_parsers, "_PACKAGE", tmp_path)
    before = kept_parsers._key()
    assert kept_parsers._key() == before
    source.write_text("12")
    assert kept_parsers._key() != before


def test_completion_loads_neither_the_command_line_nor_numpy() -> None:
    code = """
import sys
import utvm_deploy.cli.completing
heavy = {"numpy", "rich", "tvm", "utvm_deploy.cli.main", "utvm_deploy.boards.board"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
