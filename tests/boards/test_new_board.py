"""utvm boards --new: a board file from another one, with other sizes of memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from utvm_deploy.boards.board import board_names, load_board
from utvm_deploy.cli.main import main

FROM = ["--from", "mps2_an500"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where files are written."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_file_has_the_sizes_and_the_comments(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["boards", "--new", "mine", *FROM, "--flash", "512K", "--ram", "128K"]
    assert main([*argv, "--dry-run"]) == 0
    assert list(folder.iterdir()) == []
    assert main([*argv, "--json"]) == 0
    captured = capsys.readouterr()
    board, base = load_board("mine.toml"), load_board("mps2_an500")
    sizes = {region.name: region.size for region in board.memory}
    assert sizes == {"flash": 512 << 10, "dtcm": 64 << 10, "ram": 128 << 10}
    assert (board.cpu, board.emulator) == (base.cpu, base.emulator)
    assert "512 KiB flash and 192 KiB RAM" in board.description
    assert (
        "# as on the STM32F746, whose DTCM serves data only" in (folder / "mine.toml").read_text()
    )
    found = json.loads(captured.out[captured.out.index("{") :])
    assert (found["file"], found["from"]) == ("mine.toml", "mps2_an500")
    # Never over a file.
    before = (folder / "mine.toml").read_bytes()
    assert main(argv) == 1
    assert "mine.toml exists" in capsys.readouterr().err
    assert (folder / "mine.toml").read_bytes() == before


@pytest.mark.parametrize("name", board_names())
def test_every_board_can_be_a_start(name: str) -> None:
    assert main(["boards", "--new", "mine", "--from", name]) == 0
    base, board = load_board(name, trust=True), load_board("mine.toml", trust=True)
    assert (board.memory, board.project, board.link) == (base.memory, base.project, base.link)


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["--new", "mine"], 2, "--new needs --from B"),
        (["--flash", "1K"], 2, "--flash goes with --new"),
        (["--new", "mine", *FROM, "--connected"], 2, "--new goes without NAME"),
        (["--new", "mine", *FROM, "--ram", "0"], 2, "0 bytes"),
        (["--new", "mine", *FROM, "--ram", "1Q"], 2, "'1Q' is not a size"),
        (["--new", "mine", *FROM, "--flash", "4096M"], 1, "mine.toml: memory[0].size: "),
        (["--new", "../mine", *FROM], 1, "the name '../mine' must be letters"),
        (["--new", "mine", "--from", "mps2_an50"], 1, "did you mean 'mps2_an500'?"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    argv: list[str], code: int, says: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["boards", *argv]) == code
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1
    assert list(folder.iterdir()) == []
