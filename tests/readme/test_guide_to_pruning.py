"""The lines of docs/guides/pruning.md work, and its example is what its script makes."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from utvm_deploy.cli.main import main
from utvm_deploy.frontend.tflite import load_model

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "pruning.md").read_text()

sys.path += [str(ROOT / "examples"), str(ROOT / "tests" / "tutorials")]
import sparse_dense  # noqa: E402
from page_runner import first_difference  # noqa: E402


@pytest.mark.emulator
@pytest.mark.slow
def test_from_pytorch_to_an_emulated_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="PyTorch is an extra: pip install '.[torch]'")
    (tmp_path / "models").symlink_to(ROOT / "models")
    monkeypatch.chdir(tmp_path)
    train, compile_it = re.findall(r"^```python\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    (shown,) = re.findall(r"^weights of .*\n", GUIDE, re.MULTILINE)
    names: dict[str, object] = {}
    exec(train, names)
    capsys.readouterr()
    assert main(["inspect", "pruned.tflite"]) == 0
    assert first_difference(f"...\n{shown}...\n", capsys.readouterr().out) is None
    exec(compile_it, names)
    layers, *_ = said = capsys.readouterr().out.splitlines()
    assert layers.count("'sparse'") == 2
    accuracies = [float(one) for one in re.findall(r"0\.\d+", " ".join(said[1:]))]
    assert max(accuracies) > 0.8


def test_the_example_is_what_its_script_makes() -> None:
    assert sparse_dense.FILE.read_bytes() == sparse_dense.model().to_bytes()
    graph = load_model(sparse_dense.FILE)
    weights = graph.tensors[graph.operators[0].inputs[1] or 0].data
    assert weights is not None and weights.shape == (128, 512)
    assert np.mean(weights == 0) == pytest.approx(0.9, abs=1e-3)
