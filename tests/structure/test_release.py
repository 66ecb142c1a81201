"""What names a version agrees: the package, CITATION.cff, the changelog; and the workflows run."""

from __future__ import annotations

import re
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import utvm_deploy

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
sys.path.insert(0, str(ROOT / "scripts"))
import release  # noqa: E402

#: Of CFF 1.2.0: what must be there, and what may be here.
REQUIRED = {"cff-version", "message", "title", "authors"}
ALLOWED = REQUIRED | {"abstract", "type", "version", "date-released", "license", "keywords"}
#: The first section whose entries are one line each.
FIRST = (0, 3, 0)


def sections() -> dict[str, list[str]]:
    """Heading of a version in the changelog -> the lines below it."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            name = line[3:]
            assert name not in found, f"CHANGELOG.md has two sections {name}"
            found[name] = []
        elif name:
            found[name].append(line)
    return found


def citation() -> dict[str, Any]:
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def test_the_citation_is_of_this_version_and_names_no_person() -> None:
    found = citation()
    assert set(found) >= REQUIRED and set(found) <= ALLOWED
    assert found["cff-version"] == "1.2.0" and found["type"] == "software"
    assert found["version"] == utvm_deploy.__version__
    assert found["authors"] == [{"name": "The utvm_deploy contributors"}]


def test_the_newest_section_of_the_changelog_is_this_version() -> None:
    unreleased, newest, *_ = sections()
    assert unreleased == "[Unreleased]"
    assert newest == f"[{utvm_deploy.__version__}] - {citation()['date-released']}"


def test_entries_of_a_release_are_one_line_each() -> None:
    # Merges keep both sides of this file, and so bring back lines that a release had shortened.
    for name, lines in sections().items():
        number = re.match(r"\[(\d+)\.(\d+)\.(\d+)\]", name)
        if number is None or tuple(map(int, number.groups())) < FIRST:
            continue
        headings = [line for line in lines if line.startswith("#")]
        entries = [line for line in lines if line and not line.startswith("#")]
        wrong = [line for line in entries if not line.startswith("- ") or entries.count(line) > 1]
        assert not wrong and len(headings) == len(set(headings)), (
            f"CHANGELOG.md, {name}: {wrong[:1]} is no entry of one line. If a merge brought it "
            "back, take the file of the other branch, and put your own entry under Unreleased"
        )


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_scripts_that_are_there(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    scripts = [
        name for step in steps for name in re.findall(r"scripts/[\w.]+", step.get("run", ""))
    ]
    assert scripts
    for name in scripts:
        mode = (ROOT / name).stat().st_mode
        assert name.endswith(".py") or mode & stat.S_IXUSR


def test_the_workflows_test_and_package() -> None:
    texts = " ".join(path.read_text(encoding="utf-8") for path in WORKFLOWS)
    assert "run: scripts/test\n" in texts and "scripts/release.py" in texts


@pytest.mark.tools
def test_pythons_that_are_found(tmp_path: Path) -> None:
    def fake(name: str, prints: str, status: int = 0) -> Path:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\necho {prints}\nexit {status}\n")
        path.chmod(0o755)
        return path

    shim = fake("shim", "not active", 127)
    old, new = fake("old", "3 9 18"), fake("new", "3 12 1")
    other, newest = fake("other", "3 12 4"), fake("newest", "3 13 0")
    assert release.pythons([shim, newest, old, new, other]) == {"3.12.1": new, "3.13.0": newest}


def test_places_of_pythons(tmp_path: Path) -> None:
    python = tmp_path / "versions" / "3.11.7" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    found = release.places({"PATH": str(tmp_path), "PYENV_ROOT": str(tmp_path)})
    assert found == [python, Path(sys.executable)]
