"""What runs on a board and how it is reached: started on first use, and again after it was lost.

A launcher knows how an image gets there. ``session`` owns what is lost at a reset.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from utvm_deploy.base.errors import DeviceReset, LinkError, ProbeError, UtvmError
from utvm_deploy.base.results import Tabled
from utvm_deploy.boards.board import Board
from utvm_deploy.boards.facts import CYCLES
from utvm_deploy.device.counts import Figures, named_figures
from utvm_deploy.device.fault_record import take_fault_words
from utvm_deploy.device.link.base import Hello, Link
from utvm_deploy.device.link.fault import FAULT_SYMBOL, nearest_symbol
from utvm_deploy.device.link.trace import trace_if_asked
from utvm_deploy.device.probe import Launcher, StartedBoard
from utvm_deploy.device.session import Session
from utvm_deploy.project import Image, build_image
from utvm_deploy.targets.table import target_of

log = logging.getLogger("utvm_deploy.device")


class Connection(Tabled):
    """A board, the image on it and the session with that."""

    def __init__(self, board: Board, launcher: Launcher, *, strict: bool = False) -> None:
        self.board = board
        self._launcher = launcher
        self._is_strict = strict
        self._started: StartedBoard | None = None
        self._image: Image | None = None
        self._session: Session | None = None
        self._is_closed = False

    @property
    def headline(self) -> str:
        """The board, and what runs there; nothing is started for it."""
        runs = "closed" if self._is_closed else "not started"
        if self._image is not None:
            runs = f"runs {self._image.elf.name}"
        return f"{self.board.name} ({self.board.cpu.core}): {runs}"

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each region of memory, by the board file; nothing is started for it."""
        return [
            {
                "region": one.name,
                "kind": one.kind,
                "address": f"{one.address:#x}",
                "bytes": one.size,
            }
            for one in self.board.memory
        ]

    def close(self) -> None:
        """Let go of the board. May be called again."""
        self._is_closed = True
        if self._session is not None:
            self._session.end("the device was closed")
        started, self._started = self._started, None
        self._session = self._image = None
        if started is not None:
            started.close()

    def check_ready(self) -> None:
        """Raise an error, before an image is built, if the board could not be started."""
        if self._started is None:
            self._launcher.check_ready()

    def start(self, image: Image) -> Hello:
        """Put ``image`` on the board and greet it; the program that ran there before is lost."""
        try:
            self.sync()
        finally:
            if self._session is not None:
                self._session.end(f"{image.elf.name} was started on {self.board.name}")
            self.close()
        trace_if_asked()
        # Already now: a core that hangs in start-up must be found there.
        self._image = image
        self._is_closed = False
        started = self._launcher.start(image, self._place_of)
        try:
            session = self._greet(started, image)
        except BaseException:
            started.close()
            raise
        self._started = started
        self._begin(session)
        return session.hello

    @property
    def session(self) -> Session:
        """The session, which is valid until the device restarts; then the next one begins."""
        if self._started is None:
            self.check_ready()
            self.start(build_image(None, self.board))
        assert self._started is not None and self._image is not None
        if self._session is None or self._session.ended:
            if self._session is not None and self._session.is_silent:
                log.info("%s; restarting it", self._session.ended)
                self._started.reset()
            self._begin(self._greet(self._started, self._image))
        assert self._session is not None
        return self._session

    def _begin(self, session: Session) -> None:
        session.queue.is_strict = self._is_strict
        self._session = session
        log.info("%s runs %s: %s", self.board.name, session.image.elf.name, session.hello)

    def _greet(self, started: StartedBoard, image: Image) -> Session:
        """A session with what runs on the board; if that has died, the error says why."""
        link = started.link

        def explain(error: UtvmError) -> str:
            if isinstance(error, DeviceReset):
                return take_fault_words(link, image.symbols.get(FAULT_SYMBOL), self._place_of)
            return started.notes()

        try:
            hello = link.hello()
        except LinkError as error:
            words = explain(error)
            if not words:
                raise
            raise type(error)(f"{error}; {words}") from error
        self._check_unit(hello)
        return Session(link, image, hello, explain)

    def _check_unit(self, hello: Hello) -> None:
        """ProbeError for a board that should count modelled cycles, and counts something else."""
        is_asked = self._launcher.with_cycle_model and self.board.has_cycle_model
        if is_asked and hello.tick_unit != CYCLES:
            raise ProbeError(
                f"{self.board.name} counts modelled cycles, and what runs there counts "
                f"{hello.tick_unit}: the image does not find the cycle model; build it again with "
                "this version, or give --timing instructions"
            )

    def _place_of(self, address: int) -> str:
        symbols = self._image.symbols if self._image else {}
        symbols = self._session.symbols() if self._session else symbols
        place = nearest_symbol(address, symbols, target_of(self.board.cpu.core).code_bit)
        line = self._image.line_of(address) if self._image else None
        return f"{place}, {line}" if line else place

    @property
    def strict(self) -> bool:
        """Whether each call runs at once, so that an error comes from where it was made."""
        return self._is_strict

    @strict.setter
    def strict(self, value: bool) -> None:
        self._is_strict = value
        if self._session is not None and not self._session.ended:
            self._session.queue.is_strict = value
            if value:
                self._session.queue.flush()

    @property
    def link(self) -> Link:
        """The link to what runs on the board; what goes over it does not wait for the queue."""
        return self.session.link

    @property
    def image(self) -> Image:
        """The image that runs on the board."""
        return self.session.image

    @property
    def hello(self) -> Hello:
        """The device's facts about itself: workspace, tick rate and unit, largest payload."""
        return self.session.hello

    @property
    def is_modelled(self) -> bool:
        """Whether its cycles are those of a model, never measured on silicon."""
        return self.board.emulator is not None and self.hello.tick_unit == CYCLES

    def figures(self, ticks: Sequence[int]) -> list[Figures]:
        """The figures of the latest calls that took these ticks, one after the other.

        A cycle model has many figures, ``cycles`` first. Other timers have only their ticks, by
        their unit.
        """
        self.sync()
        unit = self.hello.tick_unit
        if not self.is_modelled:
            return [{unit: count} for count in ticks]
        assert self._started is not None
        return [named_figures(counted, unit) for counted in self._started.counted(ticks)]

    def cycle_report(self) -> Mapping[str, Any] | None:
        """The cycle model's report on all that ran since the start; None where no model counts.

        The emulator writes it when it ends: what was on the device is lost.
        """
        if not self.is_modelled:
            return None
        self.sync()
        assert self._started is not None
        report = self._started.report()
        self.close()
        return report

    def reset(self) -> None:
        """Restart the image, after every call that is queued; everything in RAM is lost."""
        session = self.session
        try:
            session.queue.flush()
        finally:
            if not session.ended:
                with session.watch():
                    session.link.reset()
                session.end(f"{self.board.name} was reset")

    def sync(self) -> None:
        """Run every call that is queued; raises what the first failing one met."""
        if self._session is not None and not self._session.ended:
            self._session.queue.flush()
