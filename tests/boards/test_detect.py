"""Detection: from what USB says of its serial ports to boards, and where connect() looks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from serial.tools import list_ports
from serial.tools.list_ports_common import ListPortInfo

from utvm_deploy.base.errors import NoDevice
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.cli.main import main
from utvm_deploy.device.probe import connected_boards
from utvm_deploy.device.probe.detect import locate

DISCO, NUCLEO = "stm32f746g_disco", "nucleo_f746zg"
ST_LINK = (0x0483, 0x374B, "STM32 STLink")


class Desk:
    """What pyserial finds; ``plug`` puts something in."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ports = [ListPortInfo("/dev/ttyS0")]  # a port of the computer's own says nothing
        monkeypatch.setattr(list_ports, "comports", lambda: self.ports)

    def plug(
        self, path: str, serial: str | None, usb: tuple[int, int, str | None] = ST_LINK
    ) -> None:
        port = ListPortInfo(path)
        port.vid, port.pid, port.product = usb
        port.serial_number = serial
        self.ports.append(port)


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(monkeypatch)


@pytest.fixture
def disco() -> Board:
    return load_board(DISCO)


def bench(text: str) -> None:
    Path("bench.toml").write_text(text)


def test_a_board_alone_is_found_by_its_usb_id(desk: Desk, disco: Board) -> None:
    assert connected_boards([disco]) == []
    desk.plug("/dev/ttyACM0", "066AFF")
    desk.plug("/dev/ttyACM1", "x", (0x1234, 0x5678, None))
    (found,) = connected_boards([disco])
    assert (found.port, found.usb, found.serial) == ("/dev/ttyACM0", "0483:374b", "066AFF")
    assert found.boards == (DISCO,) and not found.note and not found.is_known
    place = locate(disco)
    assert (place.port, place.serial) == ("/dev/ttyACM0", None)


def test_a_name_and_a_serial_number_may_be_asked_for(
    desk: Desk, disco: Board, tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        disco.source.replace(f'"{DISCO}"', '"mine"').replace(
            'id = "0483:374b"',
            'id = "1366:1015"\nproduct_name = "j-link"\nserial_prefix = "0006"',
        )
    )
    mine = load_board(path)
    j_link = (0x1366, 0x1015, "SEGGER J-Link")
    desk.plug("/dev/ttyACM0", "000683000001", j_link)
    desk.plug("/dev/ttyACM1", "000683000001", j_link)  # its second port
    desk.plug("/dev/ttyACM2", "000783000001", j_link)
    desk.plug("/dev/ttyACM3", "000683000002", (0x1366, 0x1015, "another thing"))
    assert [one.port for one in connected_boards([mine])] == ["/dev/ttyACM0"]


def test_boards_that_look_alike_are_told_apart_by_the_bench_file(desk: Desk, disco: Board) -> None:
    nucleo = load_board(NUCLEO)
    desk.plug("/dev/ttyACM0", "066AFF")
    desk.plug("/dev/ttyACM1", "066BFF")
    both = connected_boards([disco, nucleo])
    assert [one.boards for one in both] == [(DISCO, NUCLEO)] * 2
    assert both[0].note == (
        f"/dev/ttyACM0 may be {DISCO} or {NUCLEO}, which look the same on USB; to say which, "
        f'write [boards.{DISCO}] probe_serial = "066AFF" into bench.toml'
    )
    # Who names the board means one of them; which one, nothing tells.
    with pytest.raises(NoDevice, match=r"2 boards that may be .* \(066AFF at .*ACM0, 066BFF at"):
        locate(disco)
    assert locate(disco, serial="066bff").port == "/dev/ttyACM1"
    bench(f'[boards.{NUCLEO}]\nprobe_serial = "066BFF"\n')
    assert [one.boards for one in connected_boards([disco, nucleo])] == [
        (DISCO, NUCLEO),
        (NUCLEO,),
    ]
    # Programs that are given no serial number would take either probe.
    for board, port, serial in (
        (disco, "/dev/ttyACM0", "066AFF"),
        (nucleo, "/dev/ttyACM1", "066BFF"),
    ):
        for place in (locate(board), locate(board, port=port), locate(board, needs_port=False)):
            assert (place.port, place.serial) == (port, serial)


def test_several_boards_of_a_kind_by_serial_number(desk: Desk) -> None:
    nucleo = load_board(NUCLEO)
    for path, serial in [("/dev/ttyACM5", "AA"), ("/dev/ttyACM6", "BB")]:
        desk.plug(path, serial)
    assert locate(nucleo, serial="AA").port == "/dev/ttyACM5"
    assert locate(nucleo, serial="BB").port == "/dev/ttyACM6"
    with pytest.raises(NoDevice, match=r"no USB device 0483:374b or .* with serial number CC has"):
        locate(nucleo, serial="CC")
    bench(
        f'[[boards.{NUCLEO}]]\nprobe_serial = "AA"\nport = "/dev/left"\nserver = "h:1"\n'
        f'[[boards.{NUCLEO}]]\nprobe_serial = "BB"\nbaud = 9600\n'
    )
    left, right = locate(nucleo, serial="AA"), locate(nucleo, serial="BB")
    assert (left.port, left.entry.server_address) == ("/dev/left", ("h", 1))
    assert (right.port, right.entry.baud) == ("/dev/ttyACM6", 9600)


def test_what_the_user_says_comes_first(desk: Desk, disco: Board) -> None:
    desk.plug("/dev/ttyACM0", "AA")
    bench(f'[boards.{DISCO}]\nport = "/dev/ttyACM7"\n')
    assert locate(disco, port="socket://lab:1").port == "socket://lab:1"
    assert locate(disco).port == "/dev/ttyACM7"
    assert connected_boards([disco])[0].boards == (DISCO,)
    place = locate(load_board(NUCLEO), serial="BB", needs_port=False)
    assert (place.port, place.serial) == (None, "BB")


def test_the_command_line_lists_what_is_connected(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["boards", "--connected"]) == 0
    assert "no serial port of a board that is known here" in capsys.readouterr().out
    assert main(["boards", NUCLEO, "--connected"]) == 0
    assert f"no serial port of {NUCLEO} is connected" in capsys.readouterr().out
    bench(f'[boards.{NUCLEO[:-1]}]\nport = "/dev/ttyACM0"\n')
    assert main(["boards", "--connected"]) == 0
    hint = f"names {NUCLEO[:-1]!r}, which no board file describes; did you mean {NUCLEO!r}?"
    assert hint in " ".join(capsys.readouterr().out.split())
    desk.plug("/dev/ttyACM0", "066AFF")
    bench(f'[boards.{NUCLEO}]\nprobe_serial = "066AFF"\n')
    assert main(["boards", "--connected"]) == 0
    row = capsys.readouterr().out.splitlines()[1].split()
    assert row[:4] == ["/dev/ttyACM0", NUCLEO, "0483:374b", "066AFF"]
    desk.plug("/dev/ttyACM1", None)
    assert main(["boards", "--connected", "--json"]) == 0
    captured = capsys.readouterr()
    first, second = json.loads(captured.out)["connected"]
    assert first["boards"] == [NUCLEO] and first["is_known"] and not first["note"]
    assert set(second["boards"]) >= {DISCO, NUCLEO}
    assert second["note"] in captured.err.replace("\n", " ")
    assert 'port = "/dev/ttyACM1"' in second["note"]
    assert main(["boards", DISCO, "--connected", "--json"]) == 0
    (only,) = json.loads(capsys.readouterr().out)["connected"]
    assert only["port"] == "/dev/ttyACM1"
