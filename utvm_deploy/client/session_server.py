"""A server whose boards images start on, by its address."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from utvm_deploy.base.errors import BoardError, ServerError
from utvm_deploy.boards.digest import facts_digest
from utvm_deploy.boards.facts import Board
from utvm_deploy.client.session_exchange import Transport
from utvm_deploy.client.session_socket import OPEN_S, open_session, untrusted
from utvm_deploy.client.settings import (
    DEFAULT_PORT,
    ServerSettings,
    is_loopback,
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
    """A ``client.remote_board.Server`` that ``utvm serve`` started."""

    settings: ServerSettings
    wait_s: float = WAIT_S

    @property
    def url(self) -> str:
        """How errors name it."""
        return self.settings.url

    def check_board(self, board: Board) -> None:
        """ServerError if it gives no session on the board; BoardError if it means another one."""
        facts = _get(self.settings, board)
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
        raise BoardError(f"{text!r} is no address of a board; give {SCHEME}HOST[:PORT]/BOARD")
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


def _get(settings: ServerSettings, board: Board) -> dict[str, Any]:
    try:
        import httpx
    except ImportError as error:
        raise ServerError(
            "sessions with boards elsewhere need packages that are not installed; "
            "run pip install 'utvm-deploy[client]'"
        ) from error
    url = f"{settings.url}/api/v1/boards/{quote(board.name, safe='')}/session"
    context = settings.tls_context()
    # Nothing on this computer is behind a proxy.
    is_here = is_loopback(httpx.URL(url).host)
    try:
        with httpx.Client(
            headers=settings.headers,
            timeout=OPEN_S,
            verify=True if context is None else context,
            trust_env=not is_here,
        ) as client:
            response = client.get(url, params={"template": board.template})
    except httpx.HTTPError as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, ssl.SSLCertVerificationError):
                raise ServerError(untrusted(settings, cause)) from error
            cause = cause.__cause__ or cause.__context__
        raise ServerError(
            f"no server answers at {settings.url} ({error}); is `utvm serve` running there?"
        ) from error
    try:
        facts = response.json()
    except ValueError:
        facts = None
    if not isinstance(facts, dict):
        facts = {}
    if response.status_code in (401, 403) and "error" not in facts:
        raise ServerError(
            f"{settings.url} gives no session without its token; put the token into UTVM_TOKEN or "
            "the file that UTVM_TOKEN_FILE names"
        )
    if response.status_code != 200:
        said = str(facts.get("error") or facts.get("detail") or "")[:2000]
        reason = said if said.isprintable() and said else f"HTTP status {response.status_code}"
        raise ServerError(f"{settings.url} refuses a session on {board.name}: {reason}")
    return facts
