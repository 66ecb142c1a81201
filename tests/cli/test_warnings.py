"""What a verb warns of stands there once, however often it imports the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tflite_writer import ModelWriter

from utvm_deploy.cli.main import main


def test_a_warning_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    m = ModelWriter()
    x = m.input((1, 4), 0.05, -128)
    axes = m.constant(np.array([1], np.int32))
    options = ("ReducerOptions", {"KeepDims": True})
    m.output(m.node("SUM", [x, axes], (1, 1), options, scale=0.2))
    path = m.save(tmp_path / "model.tflite")
    assert main(["verify", str(path), "--board", "host", "--dry-run"]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "SUM" in line]
    assert len(told) == 1
    assert told[0].startswith(f"warning: {path}: LiteRT's reference kernel of SUM")
