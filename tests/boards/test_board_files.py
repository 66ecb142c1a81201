"""Board and bench files: every shipped one loads, every kind of mistake is named."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from utvm_deploy.base.errors import BoardError
from utvm_deploy.boards.board import Board, board_names, load_board
from utvm_deploy.boards.desk_file import BenchEntry, load_bench_entry
from utvm_deploy.boards.regions import dead_places

BAD = Path(__file__).parent.parent / "boards_bad"
SHIPPED = Path(__file__).parents[2] / "boards"


@pytest.mark.parametrize("name", board_names())
def test_every_shipped_board_loads(name: str) -> None:
    board = load_board(name)
    assert board.name == name
    assert board.flash_bytes > 0
    assert board.ram_bytes > board.project.stack_bytes
    assert hash(board) == hash(load_board(SHIPPED / f"{name}.toml"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        board.name = "other"  # type: ignore[misc]


def test_the_boards_that_others_rely_on_are_there() -> None:
    wanted = {"host", "mps2_an500", "mps2_an386", "mps2_an385", "mps3_an547"}
    assert {*wanted, "stm32f746g_disco", "nucleo_f746zg"} <= set(board_names())


def test_the_emulated_m7_has_the_real_chips_memory() -> None:
    emulated, real = load_board("mps2_an500"), load_board("stm32f746g_disco")
    assert (emulated.flash_bytes, emulated.ram_bytes) == (1 << 20, 320 << 10)
    assert (real.flash_bytes, real.ram_bytes) == (1 << 20, 320 << 10)
    assert emulated.memory[1:] == real.memory[1:]
    assert emulated.cpu == real.cpu


@pytest.mark.parametrize("path", sorted(BAD.glob("*.toml")), ids=lambda path: path.stem)
def test_a_mistake_is_named_with_file_and_key(path: Path) -> None:
    marker, _, expected = path.read_text().splitlines()[0].partition("# error: ")
    assert marker == "" and expected
    with pytest.raises(BoardError) as caught:
        load_board(path)
    assert str(caught.value).startswith(f"{path}: {expected}")


def test_an_unknown_board_gets_a_suggestion() -> None:
    with pytest.raises(BoardError) as caught:
        load_board("mps2_an50O")
    assert str(caught.value) == (
        "no board 'mps2_an50O'; did you mean 'mps2_an500'? (utvm boards lists all)"
    )
    with pytest.raises(BoardError, match=r"^no board 'esp32'; did you mean 'esp32c3_devkitm'"):
        load_board("esp32")
    for unlike in ("zzz", "_"):
        with pytest.raises(BoardError, match=rf"^no board '{unlike}' \(utvm boards lists all\)$"):
            load_board(unlike)


def test_an_absent_file_is_named() -> None:
    with pytest.raises(BoardError, match=r"no board file 'mine\.toml'"):
        load_board("mine.toml")


def test_users_bring_boards_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (SHIPPED / "mps2_an500.toml").read_text().replace('"mps2_an500"', '"mine"', 1)
    folder = tmp_path / "boards"
    folder.mkdir()
    (folder / "mine.toml").write_text(text)
    assert load_board(folder / "mine.toml").name == "mine"
    assert load_board(os.path.relpath(folder / "mine.toml")).name == "mine"
    assert "mine" not in board_names()
    monkeypatch.setenv("UTVM_BOARDS", str(folder))
    assert "mine" in board_names()
    assert load_board("mine").source == text
    monkeypatch.setenv("UTVM_BOARDS", str(folder / "mine.toml"))
    with pytest.raises(BoardError, match="UTVM_BOARDS names"):
        board_names()


def test_the_bench_file_says_what_hangs_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_bench_entry("nucleo_f746zg") == BenchEntry()
    bench = tmp_path / "bench.toml"
    bench.write_text(
        '[boards.nucleo_f746zg]\nport = "/dev/ttyACM7"\nprobe_serial = "0670FF"\nbaud = 9600\n'
        'probe = "pyocd"\nserver = "[::1]:3333"\n'
    )
    entry = load_bench_entry("nucleo_f746zg")
    assert entry == BenchEntry("/dev/ttyACM7", "pyocd", "0670FF", "[::1]:3333", 9600)
    assert entry.server_address == ("::1", 3333)
    assert load_bench_entry("stm32f746g_disco") == BenchEntry()
    bench.write_text('[boards.nucleo_f746zg]\nports = "/dev/ttyACM7"\n')
    with pytest.raises(BoardError, match=r"bench\.toml: boards\.nucleo_f746zg\.ports: unknown key"):
        load_bench_entry("stm32f746g_disco")
    bench.write_text('[boards.nucleo_f746zg]\nserver = "localhost"\n')
    with pytest.raises(BoardError, match=r"zg\.server: 'localhost' is not HOST:PORT"):
        load_bench_entry("nucleo_f746zg")
    monkeypatch.setenv("UTVM_BENCH", str(tmp_path / "elsewhere.toml"))
    with pytest.raises(BoardError, match=r"UTVM_BENCH names '.*elsewhere\.toml', where no file is"):
        load_bench_entry("nucleo_f746zg")


def test_the_bench_file_may_list_several_boards_of_a_kind(tmp_path: Path) -> None:
    bench = tmp_path / "bench.toml"
    bench.write_text(
        '[[boards.nucleo_f746zg]]\nport = "/dev/ttyACM0"\nprobe_serial = "AA"\n'
        '[[boards.nucleo_f746zg]]\nport = "/dev/ttyACM1"\nprobe_serial = "BB"\n'
    )
    # Probes and their programs differ in how they write it.
    for serial in ("BB", "bb"):
        assert load_bench_entry("nucleo_f746zg", serial).port == "/dev/ttyACM1"
    # A board that the file does not know has none of the others' ports.
    assert load_bench_entry("nucleo_f746zg", "CC") == BenchEntry()
    with pytest.raises(BoardError, match=r"lists 2 boards nucleo_f746zg; .* \(AA, BB\)"):
        load_bench_entry("nucleo_f746zg")
    bench.write_text('[[boards.nucleo_f746zg]]\nport = "A"\n[[boards.nucleo_f746zg]]\nbaud = 0\n')
    with pytest.raises(BoardError, match=r"boards\.nucleo_f746zg\[1\]\.baud: 0 is not between"):
        load_bench_entry("stm32f746g_disco")


QSPI = """
[[memory]]
name = "qspi"
address = 0x9000_0000
size = 0x0400_0000
kind = "flash"
executable = false
"""
SDRAM = """
[[memory]]
name = "sdram"
address = 0xD000_0000
size = 0x0080_0000
kind = "ram"
executable = true
"""


def _with(folder: Path, *, memory: str, project: str = "", name: str = "nucleo_f746zg") -> Board:
    text = (SHIPPED / f"{name}.toml").read_text().replace(f'"{name}"', '"mine"', 1)
    text = text.replace("\n[project]\n", f"{memory}\n[project]\n{project}\n", 1)
    (folder / "mine.toml").write_text(text)
    return load_board(folder / "mine.toml")


def test_external_memory_is_not_what_an_image_starts_from(tmp_path: Path) -> None:
    board = _with(tmp_path, memory=QSPI + SDRAM)
    assert (board.main_flash.name, board.vector_flash.name) == ("flash", "flash")
    assert (board.main_ram.name, board.data_ram.name) == ("ram", "dtcm")
    assert board.region("sdram").needs_init and not board.region("qspi").boot
    assert list(dead_places(board)) == []
    # Weights that the internal flash cannot hold have only one other place.
    assert board.weights_flash(900_000).name == "flash"
    assert board.weights_flash(2_000_000).name == "qspi"
    (warning,) = dead_places(board, 2_000_000)
    assert warning.startswith("mine has the weights in qspi, which the image does not initialize")


def test_a_file_may_choose_other_regions(tmp_path: Path) -> None:
    board = _with(tmp_path, memory=QSPI + SDRAM, project='weights = "qspi"\nworkspace = "sdram"')
    assert board.weights_flash(1).name == "qspi"
    assert (board.main_flash.name, board.main_ram.name) == ("flash", "sdram")
    assert len(list(dead_places(board))) == 2
    # Such as a chip whose ROM maps its flash before it starts what is there.
    board = _with(tmp_path, memory=QSPI + "boot = true\n")
    assert board.main_flash.name == "qspi"
    assert list(dead_places(board)) == []


def test_a_board_that_starts_nowhere_is_warned_of(tmp_path: Path) -> None:
    text = (SHIPPED / "nucleo_f746zg.toml").read_text().replace('"nucleo_f746zg"', '"mine"', 1)
    text = text.replace("0x0800_0000", "0x9000_0000").replace("0x2000_0000", "0xC000_0000")
    path = tmp_path / "mine.toml"
    path.write_text(text)
    code, data = dead_places(load_board(path))
    assert code.startswith("mine has code in flash, which is flash that the core cannot start from")
    assert data.startswith("mine has data and stack in dtcm, which is RAM that nobody initializes")
    assert code.endswith("write boot = true in its [[memory]]")
