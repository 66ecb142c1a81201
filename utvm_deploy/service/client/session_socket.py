"""A session's messages over a WebSocket, and its sign of life."""

from __future__ import annotations

import contextlib
import getpass
import json
import logging
import socket
import ssl
import struct
import threading
import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from utvm_deploy.base.errors import LinkClosed, LinkTimeout, ServerError, UtvmError
from utvm_deploy.service.client import session_messages
from utvm_deploy.service.client.session_exchange import reason_of
from utvm_deploy.service.client.settings import (
    ServerSettings,
    is_loopback,
    missing_packages,
    untrusted,
)

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

log = logging.getLogger("utvm_deploy.service.client")

#: How long the server may take to answer at all, and to take leave.
OPEN_S = 15.0
CLOSE_S = 2.0


class SocketTransport:
    """A ``Transport``. A thread sends the server a sign of life every few seconds."""

    def __init__(self, connecting: AbstractContextManager[ClientConnection], url: str) -> None:
        self._resources = contextlib.ExitStack()
        self._connection = connection = self._resources.enter_context(connecting)
        self._url = url
        self._is_closed = threading.Event()
        # A server that reads nothing must not block the client forever.
        limit = struct.pack("ll", int(session_messages.SILENCE_S), 0)
        # It may have closed the connection already; the next message says so.
        with contextlib.suppress(OSError):
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()

    def send(self, data: bytes) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            self._connection.send(data)
        except (ConnectionClosed, OSError) as error:
            # It may have said why before it closed.
            raise self._farewell(error) from error

    def receive(self, timeout_s: float) -> bytes:
        from websockets.exceptions import ConnectionClosed

        end_s = time.monotonic() + timeout_s
        while True:
            try:
                data = self._connection.recv(max(end_s - time.monotonic(), 0))
            except TimeoutError:
                raise LinkTimeout(f"{self._url} said nothing for {timeout_s:.0f} s") from None
            except (ConnectionClosed, OSError) as error:
                raise self._lost(error) from error
            if isinstance(data, str):
                raise LinkClosed(f"{self._url} sent text, which no session has")
            if data != session_messages.ALIVE:
                return data

    def close(self) -> None:
        self._is_closed.set()
        with contextlib.suppress(OSError):
            self._resources.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_S)

    def _farewell(self, error: Exception) -> LinkClosed:
        with contextlib.suppress(UtvmError):
            while True:
                message = session_messages.decode(self.receive(0))
                if message.fields.get("session") == "ended":
                    return LinkClosed(f"{self._url} ended the session: {reason_of(message)}")
        return self._lost(error)

    def _lost(self, error: Exception) -> LinkClosed:
        return LinkClosed(
            f"the connection to {self._url} was lost ({error}); what was on the board is lost, too"
        )

    def _beat(self) -> None:
        from websockets.exceptions import ConnectionClosed

        while not self._is_closed.wait(session_messages.HEARTBEAT_S):
            try:
                self._connection.send(session_messages.ALIVE)
            except (ConnectionClosed, OSError):
                return


def open_session(settings: ServerSettings, board: str, wait_s: float) -> SocketTransport:
    """A session on ``board``, once the server holds it for us.

    ServerError if the server refuses, or if the board is not free within ``wait_s``.
    """
    transport = _connect(settings, board, wait_s)
    try:
        _wait_for_board(transport, settings, board, wait_s)
    except BaseException:
        transport.close()
        raise
    return transport


def _wait_for_board(
    transport: SocketTransport, settings: ServerSettings, board: str, wait_s: float
) -> None:
    # The server's own deadline comes first, and it says who holds the board.
    end_s = time.monotonic() + wait_s + OPEN_S
    holder = ""
    while True:
        message = session_messages.decode(transport.receive(max(end_s - time.monotonic(), 0)))
        state = message.fields.get("session")
        if state == "ready":
            return
        if state == "ended":
            raise ServerError(f"no session on {board} at {settings.url}: {reason_of(message)}")
        if state == "waiting":
            now = str(message.fields.get("holder", ""))[:500]
            if now != holder and now.isprintable():
                log.warning("waiting for %s at %s: %s", board, settings.url, now)
            holder = now


def _connect(settings: ServerSettings, board: str, wait_s: float) -> SocketTransport:
    try:
        from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
        from websockets.sync.client import connect
    except ImportError as error:
        raise missing_packages() from error
    url = urlsplit(settings.url)
    assert url.hostname is not None
    query = urlencode({"wait_s": f"{wait_s:g}", "name": client_name()})
    path = f"{url.path}/api/v1/boards/{quote(board, safe='')}/session?{query}"
    options: dict[str, Any] = {} if not is_loopback(url.hostname) else {"proxy": None}
    try:
        connecting = connect(
            f"{'wss' if url.scheme == 'https' else 'ws'}://{url.netloc}{path}",
            ssl=settings.tls_context(),
            additional_headers=settings.headers,
            compression=None,
            open_timeout=OPEN_S,
            close_timeout=CLOSE_S,
            ping_interval=session_messages.HEARTBEAT_S,
            ping_timeout=session_messages.SILENCE_S,
            max_size=session_messages.MESSAGE_BYTES,
            **options,
        )
        return SocketTransport(connecting, settings.url)
    except InvalidStatus as error:
        raise _refused(settings, board, error) from error
    except ssl.SSLCertVerificationError as error:
        raise untrusted(error) from error
    except (WebSocketException, EOFError) as error:
        is_cut = isinstance(error, ConnectionClosed | EOFError)
        if is_cut or isinstance(error.__cause__, EOFError | OSError):
            raise _absent(settings, "it closed the connection") from error
        raise ServerError(f"{settings.url} is not a server of utvm_deploy ({error})") from error
    except OSError as error:  # TimeoutError included
        raise _absent(settings, str(error) or "no answer") from error


def _absent(settings: ServerSettings, why: str) -> ServerError:
    return ServerError(
        f"no server answers at {settings.url} ({why}); is `utvm serve` running there?"
    )


def _refused(settings: ServerSettings, board: str, error: Any) -> ServerError:
    """The sentence in the response; else one for its status."""
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        said = json.loads(error.response.body or b"").get("error")
        if isinstance(said, str) and said.isprintable():
            return ServerError(f"{settings.url} refuses a session on {board}: {said[:2000]}")
    status = error.response.status_code
    if status in (401, 403):
        return ServerError(
            f"{settings.url} takes no session without its token; put the token into UTVM_TOKEN or "
            "the file that UTVM_TOKEN_FILE names"
        )
    return ServerError(f"{settings.url} refuses a session on {board} (HTTP status {status})")


def client_name() -> str:
    """Who we are, for those who wait for the board."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "somebody"
    return f"{user}@{socket.gethostname()}"
