"""A real runtime behind what USB serial adapters do to a line, and to the name of its port.

The runtime runs on an emulated board; a pseudo terminal stands for the adapter, a symbolic link for
the name that udev gives it.
"""

from __future__ import annotations

import functools
import os
import select
import subprocess
import sys
import threading
import time
import tty
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import utvm_deploy
from utvm_deploy.base.errors import LinkClosed, LinkError, LinkTimeout, NoDevice
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.boards.desk_file import load_bench_entry
from utvm_deploy.device.link import monitor
from utvm_deploy.device.link import stream as streams
from utvm_deploy.device.link.stream import SerialStream, Stream
from utvm_deploy.device.probe import ready, running, start
from utvm_deploy.device.probe.detect import Place
from utvm_deploy.project import Image, build_image

pytestmark = pytest.mark.emulator

EMULATED = "mps2_an386"
PATIENCE_S = 30.0
BANNER = b"\r\nBIOS 1.0\r\n" + bytes(range(256)) * 8 + b"\0boot\0\0"

#: Opens a port without asking anybody, as terminals do, and stays.
TERMINAL = """
import os, sys
port = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY)
print("open", flush=True)
sys.stdin.read()
"""


class Adapter:
    """Between a pseudo terminal, found by ``path``, and a board's own line."""

    def __init__(self, path: Path, board: Stream) -> None:
        self.path = path
        self.delay_s = 0.0
        #: What the host sends is lost for so long after it began to speak, as to a bootloader.
        self.deaf_s = 0.0
        self.greeting = b""
        self._board = board
        self._first_s: float | None = None
        self._is_plugged = False
        self.plug()

    def plug(self) -> None:
        """The device is there, under a new number and the old name."""
        self._master, self._slave = os.openpty()
        tty.setraw(self._slave)
        self._is_plugged = True
        self._thread = threading.Thread(target=self._forward, daemon=True)
        self._thread.start()
        self.path.symlink_to(os.ttyname(self._slave))

    def unplug(self) -> None:
        """It is gone, under whoever has it open."""
        if self._is_plugged:
            self._is_plugged = False
            self.path.unlink()
            self._thread.join(PATIENCE_S)
            os.close(self._master)
            os.close(self._slave)

    def _forward(self) -> None:
        while self._is_plugged:
            if select.select([self._master], [], [], 0.002)[0]:
                self._take(os.read(self._master, 65536))
            answer = self._board.read(65536, 0)
            if answer:
                time.sleep(self.delay_s)
                os.write(self._master, answer)

    def _take(self, data: bytes) -> None:
        now = time.monotonic()
        if self._first_s is None:
            self._first_s = now
            os.write(self._master, self.greeting)
        if now >= self._first_s + self.deaf_s:
            self._board.write(data, PATIENCE_S)


@pytest.fixture
def flash_script(tmp_path: Path) -> Path:
    """The flashing program, which does what a test writes into it."""
    script = tmp_path / "flash.sh"
    script.write_text("true\n")
    return script


@pytest.fixture
def desk(tmp_path: Path, flash_script: Path) -> Board:
    """The emulated board's twin that hangs at a port."""
    text = load_board(EMULATED).source
    text = text[: text.index("[emulator]")].replace(f'"{EMULATED}"', '"desk"')
    text = text.replace(
        'kinds = ["qemu"]',
        'kinds = ["mine"]\n[probe.commands.mine]\nprogram = "sh"\nimage_format = "elf"\n'
        f'select = []\nflash = ["{flash_script}"]\nreset = ["{flash_script}"]\n',
    )
    text = text.replace('kinds = ["monitor", "debug"]', 'kinds = ["monitor"]')
    path = tmp_path / "desk.toml"
    path.write_text(text)
    return load_board(path, trust=True)


@pytest.fixture
def adapter(desk: Board, tmp_path: Path) -> Iterator[Adapter]:
    emulated = load_board(EMULATED)
    with start(emulated, Image(build_image(None, desk).elf, emulated)) as board:
        made = Adapter(tmp_path / "ttyUSB0", board.stream)
        try:
            yield made
        finally:
            made.unplug()


@pytest.fixture
def terminal() -> Iterator[Callable[[Path], int]]:
    """Starts a program that has a port open; its process id."""
    children: list[subprocess.Popen[str]] = []

    def open_there(port: Path) -> int:
        argv = [sys.executable, "-c", TERMINAL, str(port)]
        pipe = subprocess.PIPE
        child = subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True)
        children.append(child)
        assert child.stdout is not None and child.stdout.readline() == "open\n"
        return child.pid

    yield open_there
    for child in children:
        child.communicate(timeout=PATIENCE_S)


def works(device: utvm_deploy.Device) -> bool:
    """Bytes of every value there and back, in more than one frame."""
    values = np.arange(3000).astype(np.uint8)
    return bool(np.array_equal(device.tensor(values).numpy(), values))


@pytest.mark.parametrize(
    "manners",
    [
        {"delay_s": 0.016},  # the latency timer of FTDI's chips
        {"greeting": BANNER},
        {"greeting": BANNER, "deaf_s": 1.5},  # opening the port raised DTR, which is its reset
    ],
    ids=["slow", "banner", "bootloader"],
)
def test_a_session_begins_all_the_same(
    manners: dict[str, float | bytes], desk: Board, adapter: Adapter
) -> None:
    for name, value in manners.items():
        setattr(adapter, name, value)
    with utvm_deploy.connect(desk, port=str(adapter.path)) as device:
        assert works(device)


def test_a_port_that_goes_while_flashing_is_waited_for(
    desk: Board, adapter: Adapter, flash_script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = adapter.path
    back = f"(sleep 0.5; ln -s {port.readlink()} {port}) >/dev/null 2>&1 &\n"
    flash_script.write_text(f"rm {port}\n{back}")
    with utvm_deploy.connect(desk, port=str(port)) as device:
        assert works(device)
    # And not for ever.
    monkeypatch.setattr(running, "PORT_TIMEOUT_S", 0.3)
    target = port.readlink()
    flash_script.write_text(f"rm {port}\n")
    with (
        utvm_deploy.connect(desk, port=str(port)) as device,
        pytest.raises(NoDevice, match=r"^desk was flashed, but cannot open .*; check the cable"),
    ):
        _ = device.hello
    port.symlink_to(target)


def test_a_board_that_was_found_on_usb_may_come_back_by_another_name(
    desk: Board, adapter: Adapter, flash_script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = adapter.path.with_name("ttyUSB1")
    flash_script.write_text(f"mv {adapter.path} {other}\n")

    def found_on_usb(board: Board, **_options: object) -> Place:
        path = next(one for one in (adapter.path, other) if one.exists())
        return Place(str(path), None, load_bench_entry(board.name))

    for module in (ready, running):
        monkeypatch.setattr(module, "locate", found_on_usb)
    with utvm_deploy.connect(desk) as device:
        assert works(device)
    adapter.path = other


def test_a_cable_that_was_out_ends_the_session_and_not_the_device(
    desk: Board, adapter: Adapter
) -> None:
    with utvm_deploy.connect(desk, port=str(adapter.path)) as device:
        assert works(device)
        adapter.unplug()
        with pytest.raises(LinkClosed, match=r"went away .*; check the cable"):
            device.read(device.hello.workspace_address, 4)
        adapter.plug()
        assert works(device)


def test_who_holds_the_port_is_named(
    desk: Board,
    adapter: Adapter,
    terminal: Callable[[Path], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that locks it keeps us out; one that does not may take our answers."""
    mine = SerialStream(str(adapter.path))
    process = terminal(adapter.path)
    name = rf"\S+ \(process {process}\)"
    try:
        with (
            utvm_deploy.connect(desk, port=str(adapter.path)) as device,
            pytest.raises(NoDevice, match=rf"cannot open .*: {name} uses it; end that"),
        ):
            _ = device.hello
    finally:
        mine.close()
    adapter.deaf_s = PATIENCE_S
    monkeypatch.setattr(monitor, "Timeouts", functools.partial(monitor.Timeouts, boot_s=1.0))
    with (
        utvm_deploy.connect(desk, port=str(adapter.path)) as device,
        pytest.raises(LinkTimeout, match=rf"; {name} has its port open too and takes what"),
    ):
        _ = device.hello


def test_a_port_without_rights_is_told_before_anything_is_flashed(
    desk: Board, adapter: Adapter, flash_script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flash_script.write_text("exit 1\n")
    port, may = str(adapter.path), os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != port and may(path, mode))
    with (
        utvm_deploy.connect(desk, port=port) as device,
        pytest.raises(NoDevice, match="cannot be opened; sudo usermod -aG dialout"),
    ):
        _ = device.hello


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (13, "you may not; sudo usermod -aG dialout"),
        (16, "another program uses it; end that"),
        (5, "check the cable and the name"),
    ],
)
def test_each_refusal_says_what_to_do(
    number: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import serial

    def refuse(*_arguments: object, **_options: object) -> None:
        raise serial.SerialException(number, os.strerror(number))

    monkeypatch.setattr(serial, "serial_for_url", refuse)
    with pytest.raises(LinkError, match=says) as caught:
        SerialStream("/dev/no-such-port")
    assert "\n" not in str(caught.value)
    assert streams.may_come(caught.value) == (number != 16)


def test_adapters_are_told_not_to_wait_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel then sets FTDI's latency timer to 1 ms; what has none refuses, and is used."""
    import serial

    asked: list[bool] = []

    class Port:
        def set_low_latency_mode(self, value: bool) -> None:
            asked.append(value)
            raise ValueError("no such thing")

        def fileno(self) -> int:
            raise OSError

        def close(self) -> None:
            pass

    monkeypatch.setattr(serial, "serial_for_url", lambda *_a, **_o: Port())
    SerialStream("/dev/somewhere").close()
    assert asked == [True]
