"""What comes from outside is printed so that a terminal does not obey it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from utvm_deploy.base import process
from utvm_deploy.base.errors import ModelError
from utvm_deploy.base.readable import readable, utf8
from utvm_deploy.cli.main import main
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.results.pages.render import _environment

DIGITS = Path(__file__).resolve().parents[2] / "models" / "digits.tflite"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, ä, 語", "plain, ä, 語"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\u202eb", "a\\u202eb"),
        (os.fsdecode(b"\xff.tflite"), "\\xff.tflite"),
        ("two\nlines", "two\nlines"),
        ("\u0085", "\\u0085"),
    ],
)
def test_what_cannot_be_read_is_escaped(text: str, shown: str) -> None:
    assert readable(text) == shown
    assert utf8(text).decode()  # a file takes it


@pytest.mark.tools
@pytest.mark.parametrize("name", [b"\x1b[31mred.tflite", b"\xff.tflite"])
@pytest.mark.parametrize("is_there", [True, False])
def test_names_of_files_do_not_reach_the_terminal(
    name: bytes, is_there: bool, tmp_path: Path
) -> None:
    path = os.fsencode(tmp_path) + b"/" + name
    if is_there:
        shutil.copy(DIGITS, path)
    argv = [os.fsencode(sys.executable), b"-m", b"utvm_deploy", b"inspect", path]
    done = subprocess.run(argv, capture_output=True, timeout=120)
    assert (done.returncode == 0) == is_there, done.stderr
    printed = (done.stdout + done.stderr).decode("utf-8")
    assert readable(os.fsdecode(name)).removesuffix(".tflite") in printed
    assert all(c.isprintable() or c in "\n\t" for c in printed)


def test_what_is_written_down_may_have_such_a_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    picture, model = Path("\x1b.svg"), Path(os.fsdecode(b"\x1b\xff.tflite"))
    shutil.copy(DIGITS, model)
    assert main(["inspect", str(model), "--svg", str(picture)]) == 0
    title = ElementTree.fromstring(picture.read_bytes())[0]  # XML has no such characters
    assert title.text == r"\x1b\xff"
    page = _environment().from_string("{{ name }}").render(name=model.name)
    assert page == r"\x1b\xff.tflite"
    log = Path("log")
    process.run(["true", str(model)], timeout_s=60, log_path=log)
    assert b"\\xff" in log.read_bytes()
    capsys.readouterr()
    assert main(["init", str(model)]) == 1  # TOML is UTF-8
    assert r"\xff.tflite is not; rename" in capsys.readouterr().err


@pytest.mark.tools
def test_a_model_of_another_format_may_have_such_a_name(tmp_path: Path) -> None:
    damaged = tmp_path / os.fsdecode(b"\xff.onnx")
    damaged.write_bytes(b"no model")
    with pytest.raises(ModelError, match=r"\\xff.onnx"):
        load_model(damaged)
