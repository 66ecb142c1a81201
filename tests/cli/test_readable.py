"""What comes from outside is printed so that a terminal does not obey it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from utvm_deploy.base.readable import readable, utf8

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
