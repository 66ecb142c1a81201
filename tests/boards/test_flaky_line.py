"""A real board's serial line that misbehaves: each way gives one sentence, in time.

The line is a pseudo terminal whose other end is ours; no board is at it, or one that lets go.
"""

from __future__ import annotations

import functools
import os
import select
import threading
import time
import tty
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import utvm_deploy
from utvm_deploy.base.errors import LinkClosed, LinkError, LinkTimeout, NoDevice, UtvmError
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.cli.main import main
from utvm_deploy.device.link import monitor
from utvm_deploy.device.link.stream import SerialStream

pytestmark = pytest.mark.tools

DIGITS = Path(__file__).parents[2] / "models" / "digits.tflite"
# Longer than any answer may take; nothing below waits for it.
PATIENCE_S = 30.0


class Line:
    """A pseudo terminal. ``behave(master, data)`` is called with what the host sends."""

    def __init__(self, behave: Callable[[Line, bytes], None]) -> None:
        self.master, slave = os.openpty()
        tty.setraw(slave)
        self.path = os.ttyname(slave)
        self._slave: int | None = slave
        self._behave = behave
        self.is_there = True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def say(self, data: bytes) -> None:
        """From the board to the host."""
        os.write(self.master, data)

    def unplug(self) -> None:
        """The device node goes away under whoever has it open."""
        self.is_there = False

    def _run(self) -> None:
        while self.is_there:
            if select.select([self.master], [], [], 0.02)[0]:
                try:
                    data = os.read(self.master, 65536)
                except OSError:  # the host has closed it
                    break
                if self._slave is not None:  # held until the host has opened it
                    os.close(self._slave)
                    self._slave = None
                self._behave(self, data)
        if self._slave is not None:
            os.close(self._slave)
        os.close(self.master)

    def close(self) -> None:
        self.is_there = False
        self._thread.join(PATIENCE_S)


@pytest.fixture
def desk(tmp_path: Path) -> Board:
    """A board whose flashing program is content with everything."""
    text = load_board("mps2_an386").source
    text = text[: text.index("[emulator]")].replace('"mps2_an386"', '"desk"')
    commands = (
        'kinds = ["mine"]\n[probe.commands.mine]\nprogram = "true"\nimage_format = "elf"\n'
        'select = []\nflash = ["{image}"]\nreset = []\n'
    )
    text = text.replace('kinds = ["qemu"]', commands)
    text = text.replace('kinds = ["monitor", "debug"]', 'kinds = ["monitor"]')
    path = tmp_path / "desk.toml"
    path.write_text(text)
    return load_board(path, trust=True)


@pytest.fixture
def lines() -> Iterator[Callable[[Callable[[Line, bytes], None]], Line]]:
    made: list[Line] = []

    def make(behave: Callable[[Line, bytes], None]) -> Line:
        made.append(Line(behave))
        return made[-1]

    yield make
    for line in made:
        line.close()


def silent(_line: Line, _data: bytes) -> None:
    """Nobody answers."""


def unplugged(line: Line, _data: bytes) -> None:
    """The cable goes when the host first speaks."""
    line.unplug()


def echo(line: Line, data: bytes) -> None:
    """A port of something else: what is sent comes back."""
    line.say(data)


def chatter(line: Line, _data: bytes) -> None:
    """Firmware of somebody else's that prints."""
    line.say(b"Hello world!\r\n" * 50 + bytes(range(256)))


WRONG_ANSWER = (
    "what came is nothing that the runtime says, so check the baud rate, and whether other "
    "firmware runs, such as a bootloader, then reset the board"
)
NO_ANSWER = "check cable, baud rate and that the image runs, then reset the board"


@pytest.mark.parametrize(
    ("behave", "kind", "advice"),
    [
        (silent, LinkTimeout, NO_ANSWER),
        (unplugged, LinkClosed, "check the cable, then connect again"),
        (echo, LinkError, WRONG_ANSWER),
        (chatter, LinkError, WRONG_ANSWER),
    ],
)
def test_a_line_that_misbehaves_gives_a_sentence(
    desk: Board,
    lines: Callable[..., Line],
    behave: Callable[[Line, bytes], None],
    kind: type[UtvmError],
    advice: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(monitor, "Timeouts", functools.partial(monitor.Timeouts, boot_s=1.0))
    line = lines(behave)
    began = time.monotonic()
    with utvm_deploy.connect(desk, port=line.path) as device, pytest.raises(kind) as caught:
        _ = device.hello
    assert time.monotonic() - began < PATIENCE_S
    sentence = str(caught.value)
    assert "\n" not in sentence and sentence.endswith(advice)


def test_the_command_line_says_it_in_one_line(
    desk: Board, lines: Callable[..., Line], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = lines(unplugged)
    board = str(tmp_path / "desk.toml")
    arguments = ["run", str(DIGITS), "--board", board, "--port", line.path, "--trust-board"]
    assert main(arguments) == 1
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith(f"error: {line.path} went away")
    # And after that the port is not there any more.
    line.close()
    with utvm_deploy.connect(desk, port=line.path) as device, pytest.raises(NoDevice) as caught:
        _ = device.hello
    assert str(caught.value) == (
        f"desk's serial port {line.path} is not there; is the board plugged in?"
    )


def test_two_hosts_at_one_port(desk: Board, lines: Callable[..., Line]) -> None:
    line = lines(silent)
    first = SerialStream(line.path)
    try:
        sentence = r"desk was flashed, but cannot open .*: another program uses it; end that"
        with (
            utvm_deploy.connect(desk, port=line.path) as device,
            pytest.raises(NoDevice, match=sentence),
        ):
            _ = device.hello
    finally:
        first.close()
