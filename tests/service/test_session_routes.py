"""The server's end of sessions: who gets a board, what ends a session, and what is said then."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from socket import create_connection as socket_of
from typing import Any

import httpx
import pytest
from app_server import App
from fastapi import FastAPI
from server_process import PATIENCE_S
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import CloseCode
from websockets.sync.client import ClientConnection, connect

from utvm_deploy.base.errors import BoardError, ClusterError, ServerError
from utvm_deploy.boards.board import load_board
from utvm_deploy.service.client import session_socket
from utvm_deploy.service.client.session_messages import ALIVE, MESSAGE_BYTES, decode, encode
from utvm_deploy.service.client.session_server import http_server as http_server_of
from utvm_deploy.service.cluster import session_line
from utvm_deploy.service.cluster.certificates import Certificates, make_certificates
from utvm_deploy.service.cluster.offers import EMULATOR, HOST
from utvm_deploy.service.server.api.session_routes import Limits, session_router
from utvm_deploy.service.server.security import protocol as security_protocol
from utvm_deploy.service.server.security.guard import Guard, Judge
from utvm_deploy.service.server.security.tokens import access_of
from utvm_deploy.service.server.server import http_server, listening
from utvm_deploy.service.server.store.holders import Holders
from utvm_deploy.service.server.store.settings import Settings, Tls

PATH = "/api/v1/boards/mps2_an500/session"


class EchoLine:
    """A board that answers each message with itself."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.has_died = False
        self._replies: asyncio.Queue[bytes] = asyncio.Queue()

    async def send(self, data: bytes) -> None:
        self.sent.append(data)
        if data == b"die":
            self.has_died = True
            self._replies.put_nowait(b"")
        elif data == b"flood":
            for _ in range(200):
                self._replies.put_nowait(bytes(1 << 20))
        elif data not in (ALIVE, b"silence"):
            self._replies.put_nowait(data)

    async def receive(self) -> bytes:
        data = await self._replies.get()
        if self.has_died:
            raise ClusterError("the worker that had the board was lost")
        return data


class Desk:
    """Boards that the routes find in the cluster."""

    def __init__(self) -> None:
        self.kinds = {"mps2_an500": EMULATOR, "host": HOST}
        self.lines: list[EchoLine] = []
        self.is_free = True
        self.refusal = ""
        self.given_back = 0
        self.waiting: list[str] = []

    @contextlib.contextmanager
    def leaving_room(self, board: str) -> Iterator[None]:
        self.waiting.append(board)
        yield
        self.waiting.remove(board)

    async def offered_kinds(self, _client: Any, board: str) -> frozenset[str]:
        return frozenset({self.kinds[board]} if board in self.kinds else ())

    @contextlib.asynccontextmanager
    async def board_line(self, _client: Any, _board: str, _who: str) -> AsyncIterator[EchoLine]:
        try:
            if self.refusal:
                raise ClusterError(self.refusal)
            while not self.is_free:
                await asyncio.sleep(0.01)
            self.lines.append(EchoLine())
            yield self.lines[-1]
        finally:
            self.given_back += 1


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    made = Desk()
    monkeypatch.setattr(session_line, "offered_kinds", made.offered_kinds)
    monkeypatch.setattr(session_line, "board_line", made.board_line)
    return made


class Door:
    """The routes on a port of this process."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._place = f"127.0.0.1:{port}"

    def open(
        self, path: str = PATH, headers: dict[str, str] | None = None
    ) -> contextlib.AbstractContextManager[ClientConnection]:
        return connect(
            f"ws://{self._place}{path}",
            additional_headers=headers,
            proxy=None,
            close_timeout=1,
            open_timeout=PATIENCE_S,
        )

    def held_by(self) -> list[str]:
        answer = httpx.get(f"http://{self._place}{PATH}", trust_env=False)
        found: list[str] = answer.json()["held_by"]
        return found


Start = Callable[..., Door]


@pytest.fixture
def start(desk: Desk) -> Iterator[Start]:
    with contextlib.ExitStack() as stack:

        def started(
            *, allow_code: bool = False, keys: Certificates | None = None, **limits: float
        ) -> Door:
            app = FastAPI()
            app.include_router(
                session_router(
                    None,
                    Holders(),
                    lambda _board: ["the job 17 (tune)"],
                    desk.leaving_room,
                    allow_code=allow_code,
                    limits=Limits(**limits),
                )
            )
            listener = stack.enter_context(listening(Settings(Path())))
            server = http_server(app, threading.Event())
            if keys:
                access = access_of(keys.token, "localhost", is_encrypted=True)
                guarded = Guard(app, access, Judge(access))
                server = http_server(guarded, threading.Event(), Tls(keys.certificate, keys.key))
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
            thread.start()
            stack.callback(thread.join, PATIENCE_S)
            stack.callback(setattr, server, "should_exit", True)
            # Clients' deadlines are for answers, not for the start of a server on a busy machine.
            until(lambda: server.started, "the server does not start")
            return Door(listener.getsockname()[1])

        yield started


def until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def state(socket: ClientConnection) -> str:
    return str(decode(socket.recv(PATIENCE_S)).fields["session"])


def reason(socket: ClientConnection) -> str:
    """Why the session ends, which is the last that is said."""
    while True:
        fields = decode(socket.recv(PATIENCE_S)).fields
        if fields.get("session") == "ended":
            return str(fields["reason"])


def test_messages_pass_both_ways_and_the_board_is_given_back(start: Start, desk: Desk) -> None:
    with start().open() as socket:
        assert state(socket) == "ready"
        for message in (encode({"op": "hello"}), bytes(1 << 20)):
            socket.send(message)
            assert socket.recv() == message
        socket.send(ALIVE)
        assert desk.given_back == 0
    until(lambda: desk.given_back == 1, "the board stays with a client that left")


@pytest.mark.parametrize(
    ("send", "says"),
    [
        (lambda socket: socket.send("{}"), "the client sent text"),
        (lambda socket: socket.send(b"die"), "the worker that had the board was lost"),
        (lambda socket: None, r"nothing was heard of the client for 0\.3 s"),
    ],
    ids=["text", "dead worker", "silence"],
)
def test_what_ends_a_session(
    start: Start, desk: Desk, send: Callable[[ClientConnection], None], says: str
) -> None:
    with start(silence_s=0.3).open() as socket:
        assert state(socket) == "ready"
        send(socket)
        with pytest.raises(AssertionError, match=says):
            raise AssertionError(reason(socket))
    until(lambda: desk.given_back == 1, "the board is not given back")


def frame(message: bytes) -> bytes:
    """A short message of a WebSocket's client, with a mask of zeros."""
    return bytes([0x82, 0x80 | len(message), 0, 0, 0, 0]) + message


def test_a_client_that_takes_nothing_loses_the_board(start: Start, desk: Desk) -> None:
    door = start(silence_s=1.0)
    with socket_of(("127.0.0.1", door.port)) as line:
        line.sendall(
            f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        assert b" 101 " in line.recv(100)
        line.sendall(frame(b"flood"))

        def is_given_back() -> bool:
            with contextlib.suppress(OSError):
                line.sendall(frame(ALIVE))
            return desk.given_back == 1

        until(is_given_back, "the board stays with a client that takes nothing")


def test_a_session_outlives_the_deadline_of_its_request(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security_protocol, "HEADER_TIMEOUT_S", 0.2)
    with start().open() as socket:
        assert state(socket) == "ready"
        with pytest.raises(TimeoutError):
            socket.recv(0.6)
        socket.send(b"still here")
        assert socket.recv(PATIENCE_S) == b"still here"


def test_a_message_that_is_too_long_ends_the_session(start: Start, desk: Desk) -> None:
    with start().open() as socket:
        assert state(socket) == "ready"
        socket.send(bytes(MESSAGE_BYTES + 1))
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv()
        assert closed.value.rcvd is not None and closed.value.rcvd.code == CloseCode.MESSAGE_TOO_BIG
    until(lambda: desk.given_back == 1, "the board is not given back")
    assert not desk.lines[0].sent


def test_an_idle_client_loses_the_board_and_a_waiting_one_does_not(
    start: Start, desk: Desk
) -> None:
    with start(idle_s=0.0).open() as socket:
        assert state(socket) == "ready"
        # While a request runs, signs of life are enough.
        socket.send(b"silence")
        for _ in range(3):
            socket.send(ALIVE)
        socket.send(b"an answer")
        assert socket.recv() == b"an answer"
        socket.send(ALIVE)
        assert "asked for nothing for 0 s" in reason(socket)
    assert desk.lines[0].sent.count(ALIVE) >= 3


def test_a_client_that_waits_is_told_who_has_the_board(start: Start, desk: Desk) -> None:
    door = start()
    with door.open(f"{PATH}?name=ann%40desk") as first:
        assert state(first) == "ready"
        desk.is_free = False
        assert not desk.waiting
        with door.open(f"{PATH}?wait_s=0.2") as second:
            until(lambda: desk.waiting == ["mps2_an500"], "jobs leave no room for the session")
            said = reason(second)
        assert said.startswith("mps2_an500 was not free within 0.2 s: a session of ann@desk for ")
        assert said.endswith("and the job 17 (tune)")
        held = door.held_by()
        assert len(held) == 2 and held[0].startswith("a session of ann@desk")


def test_a_client_that_leaves_while_it_waits_is_forgotten(start: Start, desk: Desk) -> None:
    desk.is_free = False
    door = start()
    with door.open():
        pass
    until(lambda: desk.given_back == 1, "the wait continues without a client")
    assert not desk.lines and door.held_by() == ["the job 17 (tune)"]


def test_a_refusal_of_the_worker_is_told(start: Start, desk: Desk) -> None:
    desk.refusal = "nucleo is in use by process 7; wait"
    with start().open() as socket:
        assert reason(socket) == desk.refusal


@pytest.mark.parametrize(
    ("name", "headers", "says"),
    [
        ("mps2_an500", {"origin": "http://evil.example"}, "sessions are for programs"),
        ("nowhere", {}, "no worker of this server offers a board 'nowhere' now"),
        ("host", {}, "is a program that would run on the server"),
    ],
)
def test_who_gets_no_session(
    start: Start, desk: Desk, name: str, headers: dict[str, str], says: str
) -> None:
    path = PATH.replace("mps2_an500", name)
    with (
        pytest.raises(InvalidStatus) as refused,
        start().open(path, headers),
    ):
        pass
    response = refused.value.response
    assert response.status_code == 403 and says in json.loads(response.body)["error"]
    assert not desk.lines


def test_programs_run_where_code_is_allowed(start: Start, desk: Desk) -> None:
    path = PATH.replace("mps2_an500", "host")
    with start(allow_code=True).open(path) as socket:
        assert state(socket) == "ready"


def test_over_tls_with_the_token_of_the_server(
    start: Start, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_socket, "OPEN_S", PATIENCE_S)
    keys = make_certificates(tmp_path / "keys", ["localhost"])
    url = f"https://localhost:{start(keys=keys).port}"
    board = load_board("mps2_an500")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    with pytest.raises(ServerError, match=r"certificate .* set UTVM_CERTIFICATES to the folder"):
        http_server_of(url).open(board)
    with pytest.raises(ServerError, match=r"certificate .* set UTVM_CERTIFICATES to the folder"):
        http_server_of(url).check_board(board)
    monkeypatch.setenv("UTVM_CERTIFICATES", str(tmp_path / "keys"))
    for token, says in (("", "wants a token; set UTVM_TOKEN"), ("wrong", "the token is wrong")):
        monkeypatch.setenv("UTVM_TOKEN", token)
        with pytest.raises(ServerError, match=says):
            http_server_of(url).open(board)
        with pytest.raises(ServerError, match=says):
            http_server_of(url).check_board(board)
    assert not desk.lines
    monkeypatch.setenv("UTVM_TOKEN", keys.token)
    server = http_server_of(url)
    server.check_board(board)
    with contextlib.closing(server.open(board)) as session:
        session.send(b"a request")
        assert session.receive(PATIENCE_S) == b"a request"


def test_another_board_of_the_same_name_is_refused_before_anything_is_built(
    start: Start, desk: Desk, tmp_path: Path
) -> None:
    server = http_server_of(f"http://127.0.0.1:{start().port}")
    source = load_board("mps2_an500").source
    (tmp_path / "mps2_an500.toml").write_text(
        source.replace("stack_bytes", "# ours\nstack_bytes", 1)
    )
    server.check_board(load_board(tmp_path / "mps2_an500.toml"))
    (tmp_path / "mps2_an500.toml").write_text(source.replace("clock_hz = ", "clock_hz = 1", 1))
    with pytest.raises(BoardError, match="has other facts of the board mps2_an500"):
        server.check_board(load_board(tmp_path / "mps2_an500.toml"))


def test_jobs_leave_room_for_a_session_that_waits(app: App) -> None:
    core = {"core": 1.0, "board:mps2_an500": 1.0, "board:mps3_an547": 1.0}
    app.cluster.workers = {"fake": (core, {}, frozenset())}
    digest = app.upload()
    with app.parts.dispatcher.leaving_room("mps2_an500"):
        body = {"verb": "verify", "models": [digest], "boards": ["mps2_an500", "mps3_an547"]}
        jobs = app.http.post("/api/v1/jobs", json=body).json()
        # The only core is the session's, too. Verbs without a board are another queue.
        until(lambda: turns(app) > 1, "the dispatcher does not look at its queue")
        assert not app.cluster.started
    assert [app.wait(job["key"])["state"] for job in jobs] == ["done", "done"]


def turns(app: App) -> int:
    """How often the dispatcher looked since the first call."""
    cluster: Any = app.cluster
    if not hasattr(cluster, "turns"):
        cluster.turns, look = 0, cluster.run_on_scheduler

        def counted(function: Any) -> Any:
            cluster.turns += 1
            return look(function)

        cluster.run_on_scheduler = counted
        app.parts.dispatcher.wake()
    return int(cluster.turns)
