"""What a killed process leaves behind, the next one removes; what a living one uses stays."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from utvm_deploy.base import process, temporary
from utvm_deploy.base.errors import VerifyError
from utvm_deploy.base.files import write_text
from utvm_deploy.base.temporary import MARK, TemporaryFolder, sweep, temporary_file
from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.main import reported
from utvm_deploy.cli.output import Output
from utvm_deploy.oracle import reference
from utvm_deploy.project.build import build_image
from utvm_deploy.project.link_module import compile_module
from utvm_deploy.targets.emulator.plugin import build_plugin

MODELS = Path(__file__).resolve().parents[2] / "models"
DEADLINE_S = 60.0

MAKER = """
import sys, time
from pathlib import Path
from utvm_deploy.base.files import write_atomically
from utvm_deploy.device.probe.cycle_model import CycleModelFiles
from utvm_deploy.base.temporary import TemporaryFolder
place = Path(sys.argv[1])
files = CycleModelFiles()
files.snapshots.write_bytes(b"counts")
fresh = TemporaryFolder("new", place)
(fresh.path / "deep").mkdir()
(fresh.path / "deep" / "part").write_bytes(b"part")
def write(file):
    file.write(b"half")
    file.flush()
    print("made", flush=True)
    time.sleep(600)
write_atomically(place / "o.tar", write)
"""

NEXT = """
import sys
from pathlib import Path
from utvm_deploy.base.files import write_text
from utvm_deploy.device.probe.cycle_model import CycleModelFiles
from utvm_deploy.base.temporary import TemporaryFolder
place = Path(sys.argv[1])
files = CycleModelFiles()
files.close()
with TemporaryFolder("new", place):
    pass
write_text(place / "o.tar", "whole")
"""


def child(script: str, place: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, str(place)],
        env={**os.environ, **process.child_environment(), "TMPDIR": str(place)},
        stdout=subprocess.PIPE,
        text=True,
    )


@contextmanager
def maker(place: Path) -> Iterator[subprocess.Popen[str]]:
    """A process amid its work: it has made a file and two folders."""
    with child(MAKER, place) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == "made\n"
            yield running
        finally:
            running.kill()
            running.wait(DEADLINE_S)


def run_next(place: Path) -> None:
    with child(NEXT, place) as running:
        assert running.wait(DEADLINE_S) == 0


def left(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir() if MARK in path.name)


@pytest.mark.slow
def test_the_next_run_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    with maker(tmp_path):
        made = left(tmp_path)
    assert [name.partition(MARK)[0] for name in made] == [".o.tar.", "new.", "utvm-cycles."]
    assert left(tmp_path) == made  # killed, so nobody has removed it yet
    run_next(tmp_path)
    assert left(tmp_path) == []
    assert (tmp_path / "o.tar").read_text() == "whole"


@pytest.mark.slow
def test_what_a_living_process_uses_stays(tmp_path: Path) -> None:
    with maker(tmp_path):
        made = left(tmp_path)
        run_next(tmp_path)
        sweep(tmp_path)
        assert left(tmp_path) == made


def test_only_what_bears_the_mark_is_removed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("precious")
    place = tmp_path / "place"
    place.mkdir()
    (place / "utvm-cycles-old").mkdir()
    (place / "new-old").write_text("x")
    (place / f"link.{MARK}1").symlink_to(outside)
    os.mkfifo(place / f"pipe.{MARK}2")
    (place / f"folder.{MARK}3").mkdir()
    (place / f"file.{MARK}4").write_text("x")
    sweep(place)
    names = {path.name for path in place.iterdir()}
    assert names == {"utvm-cycles-old", "new-old", f"link.{MARK}1", f"pipe.{MARK}2"}
    assert (outside / "file").read_text() == "precious"


def test_what_another_user_left_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"folder.{MARK}1").mkdir()
    uid = os.geteuid()
    monkeypatch.setattr(temporary.os, "geteuid", lambda: uid + 1)  # type: ignore[attr-defined]
    sweep(tmp_path)
    assert len(left(tmp_path)) == 1


def test_a_folder_that_is_swept_before_it_is_held_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moment between making it and locking it."""
    make = temporary.tempfile.mkdtemp  # type: ignore[attr-defined]
    made: list[str] = []

    def swept_at_once(prefix: str, dir: Path) -> str:
        made.append(make(prefix=prefix, dir=dir))
        if len(made) == 1:
            sweep(tmp_path)
        return made[-1]

    monkeypatch.setattr(temporary.tempfile, "mkdtemp", swept_at_once)  # type: ignore[attr-defined]
    with TemporaryFolder("new", tmp_path) as folder:
        assert len(made) == 2 and str(folder) == made[1] and folder.is_dir()
    assert left(tmp_path) == []


def test_an_open_file_and_folder_are_closed_without_a_trace(tmp_path: Path) -> None:
    descriptor, path = temporary_file(tmp_path / "out")
    sweep(tmp_path)
    assert path.exists()
    os.close(descriptor)
    sweep(tmp_path)
    assert not path.exists()
    folder = TemporaryFolder("x", tmp_path)
    folder.close()
    folder.close()
    write_text(tmp_path / ("n" * 230), "a long name")
    assert left(tmp_path) == []


@pytest.mark.tools
def test_a_killed_compiler_leaves_its_files_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the next run removes them: nobody looks for ``/tmp/cc*.o``."""
    monkeypatch.setenv("UTVM_CACHE", str(tmp_path))
    places: dict[str, str] = {}
    run = process.run

    def noting(argv: Sequence[str], **options: Any) -> process.Completed:
        if "--version" not in argv:
            places[" ".join(argv)] = options.get("env", {}).get("TMPDIR", "")
            assert Path(places[" ".join(argv)]).is_dir()
        return run(argv, **options)

    monkeypatch.setattr(process, "run", noting)
    host = load_board("host")
    build_image(None, host)
    compile_module("int one(void) { return 1; }", host)
    build_plugin("7.2.22")
    assert len(places) >= 4, "cmake twice, a module, a plugin"
    for command, place in places.items():
        relative = Path(place).relative_to(tmp_path)
        assert MARK in str(relative), command


@pytest.fixture
def full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of temporary files is on a disk without room."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(temporary.shutil, "disk_usage", lambda _path: SimpleNamespace(free=0))


def write_too_much() -> int:
    with TemporaryFolder("full"):
        # As a write says it: without a name.
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_is_named_by_the_folder_on_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reported(write_too_much, Output()) == 1
    assert capsys.readouterr().err.replace("\n", "") == (
        f"error: the system refused: {tmp_path}: No space left on device; make room there, or set "
        "TMPDIR to another folder"
    )
    assert not list(tmp_path.iterdir())


def test_another_disk_that_is_full_is_not_taken_for_it() -> None:
    with pytest.raises(OSError, match="No space left") as caught:
        write_too_much()
    assert caught.value.filename is None


@pytest.mark.tools
@pytest.mark.usefixtures("full_disk")
def test_a_reference_without_room_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = process.Completed((), 1, "", "OSError: [Errno 28] No space left on device")
    monkeypatch.setattr(
        reference,
        "process",
        SimpleNamespace(
            run=lambda *_argv, **_more: ended, child_environment=process.child_environment
        ),
    )
    sample = np.zeros((1, 8, 8, 1), np.int8)
    with pytest.raises(
        VerifyError, match=r"no room for its results in .*; make room there, or set"
    ):
        reference.run_reference(MODELS / "digits_int8.tflite", [sample])
