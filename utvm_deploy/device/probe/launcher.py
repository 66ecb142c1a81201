"""Where boards start: the interface, and its implementation for boards of this computer.

A launcher puts an image on a board and opens the link to it. ``client.remote_board`` has the
launcher for boards that a server offers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from utvm_deploy.base.errors import ProbeError
from utvm_deploy.boards.facts import Board
from utvm_deploy.device.link.base import Link
from utvm_deploy.device.link.in_process import InProcessLink
from utvm_deploy.device.probe.cycle_model import CycleModelFiles
from utvm_deploy.device.probe.links import needs_debugger, needs_line, open_link
from utvm_deploy.device.probe.ready import check_ready
from utvm_deploy.device.probe.running import RunningBoard, start
from utvm_deploy.project import Image
from utvm_deploy.targets.contract.machine import MachineKind
from utvm_deploy.targets.emulator.counters import Counters, between, read_report, read_snapshots

#: QEMU's words for a machine, a core or a property of a core that it does not have.
_REFUSAL = re.compile(r"Property '\S+' not found|nsupported machine|find CPU model")
#: Names the code at an address, for errors.
PlaceOf = Callable[[int], str]


class StartedBoard(Protocol):
    """A board that runs an image, and the link to it."""

    @property
    def link(self) -> Link:
        """Stays the same object over a reset."""

    def notes(self) -> str:
        """What the board said last and who else listens to it, for errors; may be empty."""

    def reset(self) -> None:
        """Restart from power-up, even if the runtime hangs; greet it again afterwards."""

    def counted(self, ticks: Sequence[int]) -> list[Counters]:
        """What the cycle model counted in the latest calls, which took these ticks."""

    def report(self) -> Mapping[str, Any]:
        """The cycle model's report on all that ran; writing it ends the emulator."""

    def close(self) -> None:
        """Let go of the board. May be called again."""


class Launcher(Protocol):
    """Starts images on one board."""

    @property
    def with_cycle_model(self) -> bool:
        """Whether an emulated board that has a cycle model counts with it."""

    def check_ready(self) -> None:
        """Raise an error, before an image is built, if the board could not be started."""

    def start(self, image: Image, place_of: PlaceOf) -> StartedBoard:
        """Put ``image`` on the board and let it run."""


@dataclass(frozen=True)
class LocalLauncher:
    """A ``Launcher`` for what runs on this computer or is connected to it.

    ``link`` is what ``choose_link`` gives; the other fields are those of ``start``.
    """

    board: Board
    link: str
    port: str | None = None
    probe: str | None = None
    serial: str | None = None
    with_cycle_model: bool = False

    def check_ready(self) -> None:
        """NoDevice, MissingTool or BoardError if the board could not be started here."""
        check_ready(self.board, self.link, port=self.port, probe=self.probe, serial=self.serial)

    def start(self, image: Image, place_of: PlaceOf) -> StartedBoard:
        """Flash a real board, or start a process or a machine within this one."""
        machine = self.board.cpu.target.machine
        if machine is not None:
            return _InProcessBoard(self.board, image, machine, place_of)
        with ExitStack() as undo:
            running = undo.enter_context(
                start(
                    self.board,
                    image,
                    port=self.port,
                    probe=self.probe,
                    serial=self.serial,
                    has_line=needs_line(self.link),
                    has_debug_stream=needs_debugger(self.link),
                    with_cycle_model=self.with_cycle_model,
                )
            )
            started = _LocalBoard(running, open_link(running, self.link, place_of))
            undo.pop_all()
        return started


class _InProcessBoard:
    """A ``StartedBoard`` that a machine runs within this process."""

    def __init__(self, board: Board, image: Image, machine: MachineKind, place_of: PlaceOf) -> None:
        self.link = InProcessLink(
            lambda: machine.open(image.elf),
            image.symbols,
            board.cpu.clock_hz,
            board.cpu.target.faults,
            place_of,
        )

    def notes(self) -> str:
        return ""

    def reset(self) -> None:
        self.link.reset()

    def counted(self, ticks: Sequence[int]) -> list[Counters]:
        raise ProbeError("no cycle model counts here")

    def report(self) -> Mapping[str, Any]:
        raise ProbeError("no cycle model counts here")

    def close(self) -> None:
        self.link.close()


class _LocalBoard:
    """A ``StartedBoard`` on this computer."""

    def __init__(self, running: RunningBoard, link: Link) -> None:
        self._running = running
        self.link = link

    def notes(self) -> str:
        words = self._running.last_words()
        notes = [f"the board's last words: {words}" if words else ""]
        if _REFUSAL.search(words):
            notes.append(
                "this emulator is older than the board's file: install a newer one, or change "
                "[emulator] in the file"
            )
        notes.append(self._running.other_listeners())
        return "; ".join(note for note in notes if note)

    def reset(self) -> None:
        self._running.reset()

    def counted(self, ticks: Sequence[int]) -> list[Counters]:
        return between(read_snapshots(self._model_files.snapshots), ticks)

    def report(self) -> Mapping[str, Any]:
        files = self._model_files
        self._running.stop()
        return read_report(files.report)

    def close(self) -> None:
        self.link.close()
        self._running.close()

    @property
    def _model_files(self) -> CycleModelFiles:
        files = self._running.cycle_model
        if files is None:
            raise ProbeError(f"{self._running.board.name} runs without a cycle model")
        return files
