"""The way of a real board: esptool writes the image, and the runtime answers at its serial port.

A stand-in for esptool starts the image as a process, which a thread connects to a pseudo terminal.
"""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
import threading
import tty
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import utvm_deploy
from utvm_deploy.base.errors import LinkTimeout
from utvm_deploy.boards.board import Board
from utvm_deploy.boards.facts import Probe
from utvm_deploy.boards.probe_programs import PROBE_PROGRAMS
from utvm_deploy.device.link.base import Task

SPIN = "void spin(void) { for (volatile int i = 1; i;) { } }"


class Chip:
    """What is at the other end of the serial port: the image that esptool started last."""

    def __init__(self, folder: Path) -> None:
        self._orders = folder / "orders"
        self._orders.touch()
        tool = folder / "esptool"
        tool.write_text(f"#!/bin/sh\necho \"$@\" >> '{self._orders}'\n")
        tool.chmod(0o755)
        self._ours, theirs = pty.openpty()
        tty.setraw(theirs)
        self._theirs = theirs
        self.port = os.ttyname(theirs)
        self._child: subprocess.Popen[bytes] | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def orders(self) -> list[list[str]]:
        """The arguments of each start of esptool."""
        return [line.split() for line in self._orders.read_text().splitlines()]

    def close(self) -> None:
        self._done.set()
        self._thread.join()
        self._stop()
        os.close(self._ours)
        os.close(self._theirs)

    def _stop(self) -> None:
        if self._child is not None:
            assert self._child.stdin is not None and self._child.stdout is not None
            self._child.kill()
            self._child.wait()
            self._child.stdin.close()
            self._child.stdout.close()

    def _run(self) -> None:
        seen, image = 0, ""
        while not self._done.is_set():
            orders = self.orders
            if len(orders) > seen:
                seen = len(orders)
                image = next(
                    word.replace(".bin", ".elf")
                    for order in reversed(orders)
                    for word in order
                    if word.endswith("image.bin")
                )
                self._stop()
                self._child = subprocess.Popen(
                    [image], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
                )
            self._move()

    def _move(self) -> None:
        sources = [self._ours]
        if self._child is not None:
            assert self._child.stdout is not None and self._child.stdin is not None
            sources.append(self._child.stdout.fileno())
        for source in select.select(sources, [], [], 0.02)[0]:
            with contextlib.suppress(OSError):
                data = os.read(source, 4096)
                if source != self._ours:
                    os.write(self._ours, data)
                elif self._child is not None and self._child.stdin is not None:
                    self._child.stdin.write(data)


@pytest.fixture
def chip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Chip]:
    made = Chip(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    yield made
    made.close()


@pytest.mark.tools
def test_flashed_reset_and_used_again(double: Board, chip: Chip) -> None:
    commands = PROBE_PROGRAMS["esptool"].for_board({"chip": "double1"})
    board = replace(double, probe=Probe(kinds=("esptool",), commands=(commands,)))
    x = np.arange(5, dtype=np.uint8)
    fixed = ["--chip", "double1", "--port", chip.port, "--baud", "460800"]
    with utvm_deploy.connect(board, port=chip.port) as device:
        assert device.tensor(x).numpy().tobytes() == x.tobytes()
        assert [order[:7] for order in chip.orders] == [[*fixed, "write_flash"]]
        # The runtime is kept from answering: the host gives it up, and resets the chip.
        spin = device.load_module(SPIN)["spin"]
        with pytest.raises(LinkTimeout):
            device.session.execute([Task(spin.address, deadline_s=4000.0)], 0.5)
        assert device.tensor(x).numpy().tobytes() == x.tobytes()
    assert [order[6:] for order in chip.orders[1:]] == [["run"]]
