"""The Python lines of docs/guides/relax.md run as they stand, on the host board."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "relax.md"


@pytest.mark.tools
def test_the_lines_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks:
        exec(block.replace("mps2_an500", "host"), names)
    assert capsys.readouterr().out.startswith("[[")
    assert (tmp_path / "model.relax").stat().st_size > 1000
