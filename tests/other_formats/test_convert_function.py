"""``utvm_deploy.convert`` gives and writes what the verb writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from onnx_writer import OnnxWriter

import utvm_deploy
from utvm_deploy.base.errors import UsageError, UtvmError
from utvm_deploy.cli.main import main


@pytest.mark.tools
def test_convert_says_what_the_verb_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = OnnxWriter((1, 2, 5, 5))
    model = writer.quantized(tmp_path, writer.conv("x", 2, 3, 3, 3))
    output = tmp_path / "made.tflite"
    found = utvm_deploy.convert(model, output)
    assert output.read_bytes() == found.data
    assert main(["convert", str(model), "-o", str(output), "--json"]) == 0
    assert found.to_dict() == json.loads(capsys.readouterr().out)
    assert "CONV_2D" in {row["operator"] for row in found.table}
    assert repr(found).startswith(f"<ConvertResult {output}: ") and found.svg is not None
    unwritten = utvm_deploy.convert(model)
    assert unwritten.output is None and "quantized.tflite" in repr(unwritten)
    unwritten.save(tmp_path / "later.tflite")
    assert (tmp_path / "later.tflite").read_bytes() == found.data


def test_convert_refuses_other_endings_and_objects(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"writes a .tflite file"):
        utvm_deploy.convert(tmp_path / "m.onnx", tmp_path / "m.bin")
    with pytest.raises(UsageError, match="type int is not a model"):
        utvm_deploy.convert(1)  # type: ignore[arg-type]
    with pytest.raises(UtvmError, match=r"nosuch\.onnx"):
        utvm_deploy.convert(tmp_path / "nosuch.onnx")
