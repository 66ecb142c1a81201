"""The CI jobs of docs/guides/zephyr.md are whole YAML of the service's shape, and use our verbs."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.main import build_parser

yaml = pytest.importorskip("yaml", reason="PyYAML, which Zephyr's scripts need too, is missing")

TEXT = (Path(__file__).parents[2] / "docs" / "guides" / "zephyr.md").read_text(encoding="utf-8")
GITHUB, GITLAB = (
    yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", TEXT, re.M | re.S)
)


def scripts(job: dict[str, Any]) -> list[str]:
    """What a job runs in a shell, of either service."""
    return [*job.get("script", ()), *(s["run"] for s in job.get("steps", ()) if "run" in s)]


def test_github_actions() -> None:
    # YAML 1.1 takes the key "on" for a boolean.
    assert set(GITHUB) == {"name", True, "jobs"} and GITHUB[True]
    (job,) = GITHUB["jobs"].values()
    assert set(job) == {"runs-on", "steps"}
    for step in job["steps"]:
        assert len({"uses", "run"} & set(step)) == 1
        assert set(step) <= {"uses", "run", "with", "name"}
        if "uses" in step:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+@v\d+", step["uses"])
        else:
            assert "with" not in step
    caches = [step["with"] for step in job["steps"] if "/cache@" in step.get("uses", "")]
    assert len(caches) == 2
    for cache in caches:
        assert set(cache) <= {"path", "key", "restore-keys"} and {"path", "key"} <= set(cache)
        # Each expression is closed.
        assert cache["key"].count("${{") == cache["key"].count("}}")


def test_gitlab() -> None:
    (job,) = GITLAB.values()
    assert set(job) == {"image", "variables", "cache", "script"}
    assert all(isinstance(line, str) for line in job["script"])
    assert all(isinstance(value, str) for value in job["variables"].values())
    for cache in job["cache"]:
        assert set(cache) == {"key", "paths"} and all(isinstance(p, str) for p in cache["paths"])


@pytest.mark.parametrize("jobs", [GITHUB["jobs"], GITLAB], ids=["github", "gitlab"])
def test_the_shell_lines_parse_and_our_verbs_take_their_arguments(jobs: dict[str, Any]) -> None:
    (job,) = jobs.values()
    verbs = set()
    for script in scripts(job):
        done = subprocess.run(["sh", "-n", "-c", script], capture_output=True, check=False)
        assert done.returncode == 0, (script, done.stderr)
        for line in script.splitlines():
            if line.startswith("utvm "):
                args = build_parser().parse_args(shlex.split(line)[1:])
                assert load_board(args.board).project.zephyr is not None
                verbs.add(args.verb)
    assert verbs == {"tune", "verify"}
