"""Which boards are connected to this computer's USB, and at which serial port.

USB gives vendor, product, a product name and a serial number, which board files match. Boards with
the same debug probe look the same there. bench.toml distinguishes them by the serial number.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from utvm_deploy.base.errors import BoardError, NoDevice
from utvm_deploy.boards.desk_file import BenchEntry, bench_path, load_bench, load_bench_entry
from utvm_deploy.boards.facts import Board, UsbId
from utvm_deploy.boards.twin import machine_for
from utvm_deploy.device.link.stream import RIGHTS_ADVICE, SerialPort, check_port, serial_ports


@dataclass(frozen=True)
class Connected:
    """One USB device with a serial port, and the boards that it may be."""

    port: str
    usb: str  # vendor and product, as lsusb prints them
    product_name: str
    serial: str
    boards: tuple[str, ...]
    # Whether bench.toml says so, rather than USB.
    is_known: bool = False

    @property
    def note(self) -> str:
        """What the user should do about it; empty if it is one board."""
        if len(self.boards) == 1:
            return ""
        how = f'probe_serial = "{self.serial}"' if self.serial else f'port = "{self.port}"'
        return (
            f"{self.port} may be {' or '.join(self.boards)}, which look the same on USB; to say "
            f"which, write [boards.{self.boards[0]}] {how} into {bench_path()}"
        )


@dataclass(frozen=True)
class Place:
    """Where a board hangs."""

    port: str | None
    # The serial number of its probe, where more than the board's name is needed to choose it.
    serial: str | None
    entry: BenchEntry


def connected_boards(boards: Iterable[Board]) -> list[Connected]:
    """Every USB serial port that is one of these boards, sorted by port."""
    known = {
        (entry.port, entry.probe_serial): name
        for name, entries in load_bench().items()
        for entry in entries
    }
    boards = list(boards)
    found: dict[tuple[int, int, str], Connected] = {}
    for port in sorted(serial_ports(), key=lambda port: port.path):
        named = _named(port, known)
        names = [board.name for board in boards if any(_fits(usb, port) for usb in board.probe.usb)]
        if not names and not named:
            continue
        # A probe with two ports is one board; the first is the one that it wires to the chip.
        key = (port.vendor, port.product, port.serial or port.path)
        if key not in found:
            found[key] = Connected(
                port=port.path,
                usb=f"{port.vendor:04x}:{port.product:04x}",
                product_name=port.product_name,
                serial=port.serial,
                boards=(named,) if named else tuple(names),
                is_known=named is not None,
            )
    return list(found.values())


def check_place(board: Board, **given: str | None) -> None:
    """BoardError if a board that runs on this computer is said to hang somewhere."""
    named = [name for name, value in given.items() if value is not None]
    if board.runs_here and named:
        raise BoardError(
            f"{board.name} runs on this computer, where no {' and no '.join(named)} leads to it; "
            f"leave {'it' if len(named) == 1 else 'them'} out, or name a real board"
        )


def check_port_there(board: Board, port: str) -> None:
    """Raise NoDevice if the serial port is missing, or the user may not open it."""
    if "://" in port or port.upper().startswith("COM"):
        return
    if not Path(port).exists():
        raise NoDevice(f"{board.name}'s serial port {port} is not there; is the board plugged in?")
    if not Path(port).is_char_device():
        raise NoDevice(f"{port} is not a serial port; give a device's name, such as /dev/ttyACM0")
    if not os.access(port, os.R_OK | os.W_OK):
        raise NoDevice(f"{board.name}'s serial port {port} cannot be opened; {RIGHTS_ADVICE}")


def locate(
    board: Board, *, port: str | None = None, serial: str | None = None, needs_port: bool = True
) -> Place:
    """Where the board is connected: as the caller says, else as bench.toml says, else as USB shows.

    If other boards have such a probe, too, the place names this board's probe, so that its program
    takes no other. NoDevice if nothing says where it is, or if several boards fit.
    """
    entry = load_bench_entry(board.name, serial)
    serial = serial or entry.probe_serial
    port = port or entry.port
    if port is not None:
        check_port(port)
    alike = connected_boards([board])
    if port is not None:
        found = [one for one in alike if one.port == port]
    else:
        found = [one for one in alike if one.boards == (board.name,)]
        if serial is not None:
            found = [one for one in found if one.serial.lower() == serial.lower()]
    if len(alike) > 1 and len(found) == 1:
        serial = serial or found[0].serial or None
    if port is not None:
        return Place(port, serial, entry)
    if len(found) == 1:
        return Place(found[0].port, serial, entry)
    if found:
        listed = ", ".join(f"{one.serial or '(none)'} at {one.port}" for one in found)
        raise NoDevice(
            f"{len(found)} boards that may be {board.name} are connected; choose one by its serial "
            f"number ({listed}) with --serial or UTVM_SERIAL, or by --port"
        )
    if not needs_port:
        return Place(None, serial, entry)
    raise NoDevice(
        f"no serial port is known for {board.name}{_looked_for(board, serial)}; plug it in, give "
        f'port=... (--port), or write [boards.{board.name}] port = "/dev/ttyACM0" into '
        f"{bench_path()}{_emulated_instead(board)}"
    )


def _emulated_instead(board: Board) -> str:
    """How to continue without the board, as the end of a sentence; empty if nothing emulates it."""
    machine = machine_for(board)
    if machine is None:
        return ""
    return f"; verbs such as verify and profile take its twin on {machine.name} by --emulate"


def _looked_for(board: Board, serial: str | None) -> str:
    ids = " or ".join(f"{usb.vendor:04x}:{usb.product:04x}" for usb in board.probe.usb)
    if not ids:
        return ""
    with_serial = f" with serial number {serial}" if serial else ""
    return f", and no USB device {ids}{with_serial} has one"


def _named(port: SerialPort, known: dict[tuple[str | None, str | None], str]) -> str | None:
    """The board that bench.toml says is at that port, or has that serial number."""
    for (path, serial), name in known.items():
        if serial is not None and port.serial and serial.lower() == port.serial.lower():
            return name
        if serial is None and path == port.path:
            return name
    return None


def _fits(usb: UsbId, port: SerialPort) -> bool:
    return (
        (usb.vendor, usb.product) == (port.vendor, port.product)
        and usb.product_name.lower() in port.product_name.lower()
        and port.serial.lower().startswith(usb.serial_prefix.lower())
    )
