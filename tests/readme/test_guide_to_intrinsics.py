"""The Python lines of docs/guides/tensor-intrinsics.md run as they stand, on the host board."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "tensor-intrinsics.md"


@pytest.mark.tools
def test_the_lines_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    exec(block.replace('"mps2_an500", link="debug"', '"host"'), {})
    assert 0 < float(capsys.readouterr().out.splitlines()[-1]) < 1
