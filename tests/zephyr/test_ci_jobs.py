"""The CI job of docs/guides/zephyr.md is whole YAML of the service's shape, and uses our verbs."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import yaml

from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.main import build_parser

TEXT = (Path(__file__).parents[2] / "docs" / "guides" / "zephyr.md").read_text(encoding="utf-8")
(GITLAB,) = (
    yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", TEXT, re.M | re.S)
)


def test_gitlab() -> None:
    (job,) = GITLAB.values()
    assert set(job) == {"image", "variables", "cache", "script"}
    assert all(isinstance(line, str) for line in job["script"])
    assert all(isinstance(value, str) for value in job["variables"].values())
    for cache in job["cache"]:
        assert set(cache) == {"key", "paths"} and all(isinstance(p, str) for p in cache["paths"])


def test_the_shell_lines_parse_and_our_verbs_take_their_arguments() -> None:
    (job,) = GITLAB.values()
    verbs = set()
    for script in job["script"]:
        done = subprocess.run(["sh", "-n", "-c", script], capture_output=True, check=False)
        assert done.returncode == 0, (script, done.stderr)
        for line in script.splitlines():
            if line.startswith("utvm "):
                args = build_parser().parse_args(shlex.split(line)[1:])
                assert load_board(args.board).project.zephyr is not None
                verbs.add(args.verb)
    assert verbs == {"tune", "verify"}
