"""What fits a small part is judged without our runtime, and what cannot fit is refused early."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from tflite_writer import ModelWriter
from tiny_model import tiny_model

from utvm_deploy.base.errors import CompileError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.bundling import check_bundle
from utvm_deploy.cli.main import main
from utvm_deploy.project import check_fits, check_fits_alone
from utvm_deploy.project.fit import RUNTIME_FLASH_BYTES

#: As any part with 32 KiB of flash and 8 KiB of RAM, in a machine that QEMU has.
FLASH_BYTES, RAM_BYTES = 32 * 1024, 8 * 1024


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The board file of a part that is too small for the runtime."""
    text = (data_dir("boards") / "netduinoplus2.toml").read_text()
    for old, new in (
        ('name = "netduinoplus2"', 'name = "small"'),
        ("size = 0x0010_0000", f"size = {FLASH_BYTES}"),
        ("size = 0x0002_0000", f"size = {RAM_BYTES}"),
    ):
        assert old in text
        text = text.replace(old, new, 1)
    path = tmp_path / "small.toml"
    path.write_text(text)
    return path


def model_of(folder: Path, elements: int, weights: int = 0) -> Path:
    """A model that works in place on so many bytes, and has so many bytes of weights."""
    rng = np.random.default_rng(1)
    m = ModelWriter()
    x = m.relu(m.input((1, elements), 0.1, 3), scale=0.2, zero_point=5)
    if weights:
        matrix = rng.integers(1, 128, (weights // elements, elements), dtype=np.int8)
        x = m.fully_connected(x, matrix, np.zeros(len(matrix), np.int32))
    m.output(x)
    return m.save(folder / "net.tflite")


def said(capsys: pytest.CaptureFixture[str]) -> str:
    text = capsys.readouterr().err.splitlines()[-1]
    assert text.startswith("error: ")
    # No size below zero; "--scratch" and "Cortex-M" are words.
    assert not re.search(r"(?<![\w-])-[\d,]+ ", text), text
    return text


@pytest.mark.tools
def test_a_bundle_needs_no_room_for_the_runtime(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, target = model_of(tmp_path, RAM_BYTES), tmp_path / "out"
    assert main(["bundle", str(model), "--board", str(small), "-o", str(target)]) == 0
    check_bundle(target)
    assert "no latency report: model 'net' needs 8,192 bytes of RAM" in capsys.readouterr().out


@pytest.mark.tools
def test_an_archive_needs_no_room_for_the_runtime(small: Path, tmp_path: Path) -> None:
    model, target = model_of(tmp_path, 100, 30_000), tmp_path / "x.tar"
    assert main(["compile", str(model), "--board", str(small), "-o", str(target)]) == 0
    assert target.is_file()


@pytest.mark.parametrize("verb", ["compile", "bundle"])
def test_more_than_the_part_has_is_refused(
    verb: str, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [verb, "", "--board", str(small), "-o", str(tmp_path / "x.tar")]
    argv[1] = str(model_of(tmp_path, RAM_BYTES + 1))
    assert main(argv) == 1
    text = said(capsys)
    assert "needs at least 8,193 bytes of RAM" in text and "has 8,192 bytes for it" in text
    argv[1] = str(model_of(tmp_path, 100, FLASH_BYTES + 100))
    assert main(argv) == 1
    text = said(capsys)
    assert "needs at least 32,800 bytes of flash" in text and "has 32,768 bytes for them" in text
    assert "runtime" not in text


@pytest.mark.parametrize("verb", ["run", "verify", "profile", "project"])
def test_an_image_needs_room_for_the_runtime(
    verb: str,
    small: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def schedule(*_args: object) -> None:
        raise AssertionError("a kernel is made")

    # Nothing is compiled for it.
    monkeypatch.setattr("utvm_deploy.compiler.lowering.scheduling.lower_kernel", schedule)
    argv = ["project", "create"] if verb == "project" else [verb]
    argv += [str(model_of(tmp_path, 100)), "--board", str(small)]
    assert main([*argv, str(tmp_path / "tree")] if verb == "project" else argv) == 1
    text = said(capsys)
    assert "needs at least 100 bytes of RAM for its activations, and small has none for it" in text
    assert "the region of arenas is ram with 8,192, of which runtime and stack take 10,496" in text


def with_sizes(board: Board, path: Path, ram: int, flash: int) -> Board:
    text = path.read_text().replace(f"size = {RAM_BYTES}", f"size = {ram}")
    path.write_text(text.replace(f"size = {FLASH_BYTES}", f"size = {flash}"))
    return load_board(path)


def test_no_message_shows_a_size_below_zero(small: Path) -> None:
    board = with_sizes(load_board(small), small, 64 * 1024, 8 * 1024)
    model = tiny_model(board)
    check_fits_alone(model, board)
    with pytest.raises(CompileError, match=r"has none for them \(8,192 bytes of flash, of which"):
        check_fits(model, board)


@pytest.mark.tools
@pytest.mark.skipif(not shutil.which("arm-none-eabi-gcc"), reason="GCC for Arm is not installed")
def test_the_bundle_of_a_board_too_small_for_code_and_runtime(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By estimate an image fits; with the code of the kernels it does not."""
    m = ModelWriter()
    x = m.input((1, 6, 6, 2), 0.1)
    x = m.conv2d(x, np.ones((4, 3, 3, 2), np.int8), np.zeros(4, np.int32))
    m.output(m.softmax(m.max_pool(m.relu6(x, scale=0.3), 2, stride=2)))
    model, target = m.save(tmp_path / "net.tflite"), tmp_path / "out"
    with_sizes(load_board(small), small, 64 * 1024, RUNTIME_FLASH_BYTES + 2048)
    assert main(["bundle", str(model), "--board", str(small), "-o", str(target)]) == 0
    assert "no latency report: the image needs" in capsys.readouterr().out
