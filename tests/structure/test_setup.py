"""What the set-up does to a checkout that a developer arranged."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.tools
def test_a_linked_environment_of_another_checkout_is_not_emptied(tmp_path: Path) -> None:
    other, scripts = tmp_path / "other", tmp_path / "mine" / "scripts"
    other.mkdir()
    scripts.mkdir(parents=True)
    (other / "kept").write_text("")
    (other / "utvm-home").write_text("another checkout\n")
    (scripts.parent / ".venv").symlink_to(other)
    shutil.copy(ROOT / "scripts" / "setup", scripts)
    made = subprocess.run(
        [scripts / "setup", "demo"], capture_output=True, text=True, timeout=120, check=False
    )
    assert made.returncode == 1 and ".venv is a link to" in made.stderr, made.stderr
    assert sorted(one.name for one in other.iterdir()) == ["kept", "utvm-home"]
