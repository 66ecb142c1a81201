"""The Python lines of docs/guides/python.md run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from utvm_deploy import models

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "python.md").read_text(encoding="utf-8")
#: How long a snippet may take on a loaded machine.
PATIENCE_S = 120.0


@pytest.mark.emulator
def test_the_lines_run(tmp_path: Path) -> None:
    snippets = re.findall(r"^```python\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    deploy, results, estimate, session = snippets
    models.get("digits", tmp_path)
    lines = output_of(deploy, tmp_path)
    assert len(lines) > 1
    assert lines[-1].startswith("SOFTMAX ") and lines[-1].endswith(" (1, 10)")
    cost, *layers, change = output_of(results, tmp_path)
    assert cost.startswith("<ProfileResult ") and change.endswith("cycles (+0.0 %)>")
    assert len(layers) == 8 and all(line.split()[1].isdigit() for line in layers)
    priced, error, _ = output_of(estimate, tmp_path)
    assert priced.split()[0].isdigit() and error.startswith("Errors(median=")
    (line,) = output_of(session, tmp_path)
    assert line.startswith("[0 0 1 1 2 2 3 3] ")


def output_of(code: str, folder: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
