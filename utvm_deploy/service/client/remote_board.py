"""Boards of a server: images start there as ``probe.LocalLauncher`` starts them here."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from utvm_deploy.base.errors import BoardError, LinkError, UtvmError
from utvm_deploy.boards.digest import facts_digest
from utvm_deploy.boards.facts import Board
from utvm_deploy.device.link.base import Link
from utvm_deploy.device.link.deadlines import flash_s, speeds_of
from utvm_deploy.device.probe import PlaceOf
from utvm_deploy.project import Image
from utvm_deploy.service.client import session_messages
from utvm_deploy.service.client.session_errors import shown
from utvm_deploy.service.client.session_exchange import Exchange, closing_on_error
from utvm_deploy.service.client.session_link import BOOT_S, WAY_S, RemoteLink
from utvm_deploy.service.client.session_server import HttpServer
from utvm_deploy.targets.emulator.counters import NAMES, Counters

#: Flashing has up to this long on top of what its bytes take, and a debug server to start.
START_S = 180.0
#: Words for an error that is on its way must not delay it much.
NOTES_S = 10.0


@dataclass(frozen=True)
class RemoteLauncher:
    """A ``probe.Launcher`` for a board of a server; ``link`` is what ``choose_link`` gives."""

    board: Board
    server: HttpServer
    link: str
    with_cycle_model: bool = False

    def check_ready(self) -> None:
        """ServerError or BoardError if the server gives no session on the board."""
        self.server.check_board(self.board)

    def start(self, image: Image, place_of: PlaceOf) -> RemoteBoard:
        """Wait for the board, send the image there and let it run."""
        return RemoteBoard(self, image, place_of)


class RemoteBoard:
    """A ``probe.StartedBoard``. If its session is lost, a reset begins another one."""

    def __init__(self, launcher: RemoteLauncher, image: Image, place_of: PlaceOf) -> None:
        self._launcher = launcher
        self._image = image
        board = launcher.board
        #: Counts the round trips.
        self.exchange = Exchange(f"{board.name} at {launcher.server.url}", place_of)
        self._link = RemoteLink(self.exchange, speeds_of(board))
        self._start()

    @property
    def link(self) -> Link:
        return self._link

    def notes(self) -> str:
        if not self.exchange.is_open:
            return ""
        with contextlib.suppress(UtvmError):
            words = self.exchange.ask("notes", NOTES_S).fields.get("notes")
            return shown(words[:10_000]) if isinstance(words, str) else ""
        return ""

    def reset(self) -> None:
        if self.exchange.is_open:
            self.exchange.ask("restart", START_S + WAY_S)
        else:
            self._start()

    def counted(self, ticks: Sequence[int]) -> list[Counters]:
        reply = self.exchange.ask("counted", BOOT_S, session_messages.pack_words(ticks))
        words = session_messages.unpack_words(reply.body)
        if len(words) != len(ticks) * len(NAMES):
            raise LinkError("the server's counts are not those of this cycle model; same version?")
        return [Counters(words[at : at + len(NAMES)]) for at in range(0, len(words), len(NAMES))]

    def report(self) -> Mapping[str, Any]:
        reply = self.exchange.ask("report", BOOT_S)
        try:
            report = json.loads(reply.body)
        except (ValueError, RecursionError) as error:
            raise LinkError(f"the cycle model's report is not JSON ({error})") from error
        if not isinstance(report, dict):
            raise LinkError("the cycle model's report makes no sense")
        return report

    def close(self) -> None:
        self.exchange.close()

    def _start(self) -> None:
        launcher, ask = self._launcher, self.exchange.ask
        try:
            image = self._image.elf.read_bytes()
        except OSError as error:
            raise UtvmError(f"cannot read {self._image.elf}: {error.strerror}") from error
        if len(image) > session_messages.IMAGE_BYTES:
            raise BoardError(
                f"{self._image.elf} has {len(image):,} bytes, and a server takes "
                f"{session_messages.IMAGE_BYTES:,}"
            )
        self.exchange.open(launcher.server.open(launcher.board))
        with closing_on_error(self.exchange):
            ask(
                "open",
                WAY_S,
                version=session_messages.SESSION_VERSION,
                digest=facts_digest(launcher.board),
                template=launcher.board.template,
                link=launcher.link,
                cycle_model=launcher.with_cycle_model,
                image_bytes=len(image),
            )
            for at in range(0, len(image), session_messages.PART_BYTES):
                ask("image", WAY_S, image[at : at + session_messages.PART_BYTES])
            ask("start", flash_s(len(image), START_S) + WAY_S)
