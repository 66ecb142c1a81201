"""What a verb warns of stands there once, however often it imports the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from float_writer import FloatWriter

from utvm_deploy.cli.main import main


def test_a_warning_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    m = FloatWriter()
    x = m.input((1, 4))
    addend = m.constant(np.array([[1, np.nan, 0, 2]], np.float32))
    m.output(m.node("ADD", [x, addend], (1, 4), ("AddOptions", {"FusedActivationFunction": 0})))
    path = m.save(tmp_path / "model.tflite")
    assert main(["verify", str(path), "--board", "host", "--dry-run"]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "NaN" in line]
    assert len(told) == 1
    assert told[0].startswith(f"warning: {path}: the constant 'tensor_1' of operator 0 (ADD)")
