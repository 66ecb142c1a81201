"""The commands in the guide to clusters are commands of utvm."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from utvm_deploy.cli.main import build_parser

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "cluster.md"


def commands() -> list[list[str]]:
    """The page's commands: in code blocks, in sentences, and in the unit of systemd."""
    found = re.findall(r"^(?:ExecStart=\S*/)?utvm (.*)$", PAGE.read_text(), flags=re.MULTILINE)
    found += re.findall(r"`utvm ([^`]+ [^`]+)`", PAGE.read_text())
    return [shlex.split(line, comments=True) for line in found]


def test_the_commands_are_found() -> None:
    verbs = [argv[0] for argv in commands()]
    assert verbs.count("worker") >= 5
    assert verbs.count("serve") >= 3


@pytest.mark.parametrize("argv", commands(), ids=" ".join)
def test_a_command_is_understood(argv: list[str]) -> None:
    if argv == ["tune", "--cluster"]:  # the option's name, in a sentence
        argv = ["tune", "model.tflite", "--board", "host", "--cluster", "tcp://127.0.0.1:8786"]
    assert build_parser(argv[0]).parse_args([part.replace("\n", " ") for part in argv])
