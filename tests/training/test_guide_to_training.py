"""The Python and C lines of docs/guides/training.md."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import utvm_deploy

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "training.md"
BLOCK = r"^```{}\n(.*?)^```"


@pytest.mark.tools
def test_the_lines_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = GUIDE.read_text()
    (block,) = re.findall(BLOCK.format("python"), text, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    exec(block.replace("mps2_an500", "host"), names)
    names["digits"].close()
    assert capsys.readouterr().out.count("\n") >= 2 and len(names["weights"]) > 1000
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler: sudo apt install gcc")
    (block,) = re.findall(BLOCK.format("c"), text, re.DOTALL | re.MULTILINE)
    compiled = utvm_deploy.compile(names["learner"], "host", name="net")
    for name, source in {**compiled.sources, "block.c": block}.items():
        (tmp_path / name).write_text(source)
    flags = ["-std=gnu99", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{tmp_path}"]
    subprocess.run([compiler, *flags, str(tmp_path / "block.c")], check=True, timeout=60)
