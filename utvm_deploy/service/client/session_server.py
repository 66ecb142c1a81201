"""A server whose boards images start on, by its address."""

from __future__ import annotations

import re
from dataclasses import dataclass

from utvm_deploy.base.errors import BoardError
from utvm_deploy.boards.digest import facts_digest
from utvm_deploy.boards.facts import Board
from utvm_deploy.service.client.session_exchange import Transport
from utvm_deploy.service.client.session_socket import open_session
from utvm_deploy.service.client.settings import (
    DEFAULT_PORT,
    ServerSettings,
    is_loopback,
    missing_packages,
    server_settings,
)

#: How an address of a board elsewhere begins.
SCHEME = "utvm://"
#: How long a session waits for a board that somebody else holds.
WAIT_S = 60.0

_ADDRESS = re.compile(
    re.escape(SCHEME)
    + r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^/:@\[\]?#\s]+)(:(?P<port>\d{1,5}))?/(?P<board>[^/?#\s]+)"
)


@dataclass(frozen=True)
class HttpServer:
    """A server that ``utvm serve`` started, and that offers boards."""

    settings: ServerSettings
    wait_s: float = WAIT_S

    @property
    def url(self) -> str:
        """How errors name it."""
        return self.settings.url

    def check_board(self, board: Board) -> None:
        """ServerError if it gives no session on the board; BoardError if it means another one."""
        try:
            from utvm_deploy.service.client.api import Server
        except ImportError as error:
            raise missing_packages() from error
        with Server(self.settings) as server:
            facts = server.session_facts(board.name, board.template)
        digest = facts.get("digest")
        if digest not in (None, facts_digest(board)):
            raise BoardError(other_facts(board, self.url, str(facts.get("version"))[:40]))

    def open(self, board: Board) -> Transport:
        """A session on the board, once it is free."""
        return open_session(self.settings, board.name, self.wait_s)


def board_address(text: str) -> tuple[str, str]:
    """The server's URL and the board's name of ``utvm://HOST[:PORT]/BOARD``.

    Beyond this computer the URL is one of HTTPS.
    """
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"] or 0) > 65535:
        raise BoardError(f"{text!r} is not an address of a board; give {SCHEME}HOST[:PORT]/BOARD")
    host = found["host"]
    scheme = "http" if is_loopback(host.strip("[]")) else "https"
    return f"{scheme}://{host}:{found['port'] or DEFAULT_PORT}", found["board"]


def check_no_place(board: Board, **given: str | None) -> None:
    """BoardError if a server's board is said to hang somewhere here."""
    named = [name for name, value in given.items() if value is not None]
    if named:
        raise BoardError(
            f"the server knows where its {board.name} is connected; leave out {', '.join(named)}"
        )


def http_server(url: str) -> HttpServer:
    """The server there, with the token and the authority of the environment."""
    return HttpServer(server_settings(url))


def other_facts(board: Board, where: str, version: str) -> str:
    """What is said if both ends have another board of one name."""
    return (
        f"{where} (utvm_deploy {version}) has other facts of the board {board.name} than this "
        "computer; use the same version and the same board file on both"
    )
