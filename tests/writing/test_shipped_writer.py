"""The writer of models/: every board writes the text that its page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import utvm_deploy
from utvm_deploy.base.paths import data_dir
from utvm_deploy.cli.main import main

FOLDER = data_dir("models") / "writer"
PAGE = (FOLDER.parents[1] / "docs" / "tutorials" / "writer.md").read_text(encoding="utf-8")
EXAMPLE = FOLDER.parents[1] / "examples" / "writer"
FORMS = ("int8", "int4")
(SHOWN,) = re.findall(r"^lantern: .*$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("place", ["host", "mps2_an500"])
def test_the_text_is_that_of_the_page(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(FOLDER / "writer_int8.tflite")
    assert main(["run", model, "--prompt", "lantern:", "--seed", "1", "--board", place]) == 0
    assert capsys.readouterr().out.splitlines()[0] == SHOWN


def test_firmware_writes_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import firmware

    model, sampling = FOLDER / "writer_int8.tflite", firmware.sampling_header(seed=1)
    image = firmware.make(model, "mps2_an500", tmp_path, sampling)
    (answer,) = firmware.play(image, "mps2_an500", ["lantern:"])
    assert answer.splitlines()[0] == SHOWN


@pytest.mark.parametrize("form", FORMS)
def test_each_byte_is_the_references(form: str) -> None:
    result = utvm_deploy.verify(FOLDER / f"writer_{form}.tflite", "host", samples=8)
    assert result.ok


@pytest.mark.parametrize("form", FORMS)
def test_files_are_small(form: str) -> None:
    assert (FOLDER / f"writer_{form}.tflite").stat().st_size < 500_000
