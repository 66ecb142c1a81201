"""Sessions over real sockets, with servers that do what no server should."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from websockets.sync.server import ServerConnection, serve

from utvm_deploy.base.errors import BoardError, LinkError, ServerError, UtvmError
from utvm_deploy.service.client import session_messages, session_socket
from utvm_deploy.service.client.session_exchange import Exchange
from utvm_deploy.service.client.session_messages import ALIVE, MESSAGE_BYTES, encode
from utvm_deploy.service.client.session_server import board_address
from utvm_deploy.service.client.session_socket import open_session
from utvm_deploy.service.client.settings import ServerSettings

READY = encode({"session": "ready"})
Handler = Callable[[ServerConnection], None]


@contextlib.contextmanager
def server(handle: Handler) -> Iterator[ServerSettings]:
    with serve(handle, "127.0.0.1", 0) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            yield ServerSettings(f"http://127.0.0.1:{running.socket.getsockname()[1]}", "secret")
        finally:
            running.shutdown()
            thread.join()


def ask(settings: ServerSettings, wait_s: float = 5.0) -> bytes:
    exchange = Exchange("board at double", str)
    exchange.open(open_session(settings, "mps2_an500", 1.0))
    with contextlib.closing(exchange):
        return exchange.ask("read", wait_s, address=0, size=4).body


def ready_then(act: Handler) -> Handler:
    def handle(connection: ServerConnection) -> None:
        connection.send(READY)
        connection.recv()
        act(connection)

    return handle


def test_the_request_has_token_and_name_and_its_answer_arrives() -> None:
    seen: list[str] = []

    def handle(connection: ServerConnection) -> None:
        assert connection.request is not None
        seen.append(connection.request.headers["Authorization"])
        seen.append(connection.request.path)
        ready_then(lambda one: one.send(encode({"id": 1}, b"data")))(connection)

    with server(handle) as settings:
        assert ask(settings) == b"data"
    assert seen[0] == "Bearer secret"
    assert seen[1].startswith("/api/v1/boards/mps2_an500/session?wait_s=1&name=")


WRONG: dict[str, tuple[Handler, str]] = {
    "text": (lambda one: one.send("hello"), "sent text"),
    "noise": (lambda one: one.send(b"\xff\xff\xff\xff"), "cannot have a header"),
    "too long": (lambda one: one.send(bytes(MESSAGE_BYTES + 1)), "was lost"),
    "closed": (lambda one: one.close(), "was lost"),
    "dead": (lambda one: one.socket.close(), "was lost"),
    "ended": (
        lambda one: one.send(encode({"session": "ended", "reason": "it is late"})),
        "ended: it is late",
    ),
    "ended oddly": (lambda one: one.send(encode({"session": "ended"})), "did not say why"),
    "silent": (lambda one: time.sleep(1.0), "did not answer within 0 s"),
}


@pytest.mark.parametrize(("act", "says"), WRONG.values(), ids=WRONG.keys())
def test_a_server_that_fails_while_it_is_asked(act: Handler, says: str) -> None:
    with server(ready_then(act)) as settings, pytest.raises(LinkError, match=says):
        ask(settings, 0.3)


def test_the_reason_is_told_also_if_the_next_request_finds_the_session_closed() -> None:
    closed = threading.Event()

    def handle(connection: ServerConnection) -> None:
        connection.send(READY)
        connection.send(encode({"session": "ended", "reason": "nothing was heard"}))
        connection.close()
        closed.set()

    with server(handle) as settings:
        transport = open_session(settings, "mps2_an500", 1.0)
        with contextlib.closing(transport):
            assert closed.wait(10)
            with pytest.raises(LinkError, match="ended the session: nothing was heard"):
                while True:
                    transport.send(b"request")


def test_a_client_that_asks_nothing_says_that_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_messages, "HEARTBEAT_S", 0.05)
    came: list[object] = []

    def handle(connection: ServerConnection) -> None:
        connection.send(READY)
        came.extend(connection.recv() for _ in range(3))

    with server(handle) as settings:
        transport = open_session(settings, "mps2_an500", 1.0)
        with contextlib.closing(transport), pytest.raises(LinkError):
            transport.receive(30.0)  # until the server has heard enough
    assert came == [ALIVE] * 3


def test_a_board_that_is_not_free(caplog: pytest.LogCaptureFixture) -> None:
    def handle(connection: ServerConnection) -> None:
        connection.send(encode({"session": "waiting", "holder": "a session of ann@desk"}))
        connection.send(encode({"session": "ended", "reason": "ann@desk has it"}))

    with server(handle) as settings, pytest.raises(ServerError, match="ann@desk has it"):
        ask(settings)
    assert "waiting for mps2_an500" in caplog.text and "a session of ann@desk" in caplog.text


def test_nobody_and_somebody_else_at_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_socket, "OPEN_S", 0.5)
    with server(lambda _connection: None) as settings:
        pass
    with pytest.raises(ServerError, match=r"no server answers at .* is `utvm serve` running"):
        ask(settings)
    # One that takes connections and says nothing, and one that is just being killed.
    with socket.create_server(("127.0.0.1", 0)) as dumb:
        where = ServerSettings(f"http://127.0.0.1:{dumb.getsockname()[1]}")
        with pytest.raises(UtvmError, match="no server answers at"):
            ask(where)
    with socket.create_server(("127.0.0.1", 0)) as dying:
        where = ServerSettings(f"http://127.0.0.1:{dying.getsockname()[1]}")
        closing = threading.Thread(target=lambda: dying.accept()[0].close())
        closing.start()
        with pytest.raises(ServerError, match="no server answers at"):
            ask(where)
        closing.join()


@pytest.mark.parametrize(
    ("address", "url", "name"),
    [
        ("utvm://127.0.0.1/host", "http://127.0.0.1:8086", "host"),
        ("utvm://localhost:90/mps2_an500", "http://localhost:90", "mps2_an500"),
        ("utvm://[::1]:90/b", "http://[::1]:90", "b"),
        ("utvm://bench.example.org/b", "https://bench.example.org:8086", "b"),
        ("utvm://10.0.0.7:443/b", "https://10.0.0.7:443", "b"),
    ],
)
def test_addresses_of_boards(address: str, url: str, name: str) -> None:
    assert board_address(address) == (url, name)


@pytest.mark.parametrize(
    "address",
    [
        *("utvm://", "utvm://host", "utvm:///b", "utvm://h:x/b", "utvm://h:99999/b"),
        *("utvm://me@h/b", "utvm://h/b/c", "utvm://h/", "utvm://h/b?x=1"),
    ],
)
def test_what_is_no_address_of_a_board(address: str) -> None:
    with pytest.raises(BoardError, match=r"give utvm://HOST\[:PORT\]/BOARD"):
        board_address(address)
