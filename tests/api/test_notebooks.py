"""The notebooks of the tutorials run as they stand, and have pictures stored."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
INSTALL = "notebooks need nbclient, nbformat and ipykernel: pip install '.[notebook]'"

#: How long a notebook may take on a loaded machine.
PATIENCE_S = 400.0


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_there_are_two_of_them() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["digits-in-memory", "pytorch-in-memory"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_results_are_stored_with_pictures_and_without_places_of_a_computer(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    cells = code_cells(json.loads(text))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    pages = ["".join(output.get("data", {}).get("text/html", "")) for output in outputs]
    assert sum("data:image/svg+xml" in page for page in pages) >= 2
    assert not any("<script" in page for page in pages)
    assert not any(output["output_type"] == "error" for output in outputs)
    assert not re.search(r"/tmp/|/home/|/root/|/Users/", text)


@pytest.mark.tools
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs(path: Path, tmp_path: Path) -> None:
    for package in ("ipykernel", "nbclient", "nbformat"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(INSTALL)
    if path.stem.startswith("pytorch"):
        pytest.importorskip("torchao", reason="PyTorch is an extra: pip install '.[torch]'")
    script = ROOT / "scripts" / "run_notebooks.py"
    done = subprocess.run(
        [sys.executable, script, path.stem, "--to", tmp_path],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    stored, again = (
        json.loads(one.read_text(encoding="utf-8")) for one in (path, tmp_path / path.name)
    )
    assert len(code_cells(again)) == len(code_cells(stored))
    for before, now in zip(code_cells(stored), code_cells(again), strict=True):
        kinds = [{*output.get("data", ())} for output in before["outputs"] if "data" in output]
        assert kinds == [{*output["data"]} for output in now["outputs"] if "data" in output]
