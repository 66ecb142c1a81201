"""The worker's end of a session: what it carries, and what ends it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from distributed.comm import CommClosedError

from utvm_deploy.base.process import Child
from utvm_deploy.service.client.session_messages import ALIVE, MESSAGE_BYTES, decode
from utvm_deploy.service.cluster import session_host
from utvm_deploy.service.cluster.session_host import _LENGTH, _serve, _Session


class FakeComm:
    """A connection of Dask's: what the server sends, and what it gets."""

    def __init__(self, *sent: object, is_silent: bool = False) -> None:
        self.got: list[bytes] = []
        self.replies = asyncio.Event()
        self.is_aborted = False
        self._sent = list(sent)
        self._is_silent = is_silent

    async def read(self) -> object:
        if self._sent:
            return self._sent.pop(0)
        if self._is_silent:
            await asyncio.Event().wait()
        # Replies arrive before the server leaves.
        await asyncio.wait_for(self.replies.wait(), 10)
        raise CommClosedError("closed")

    async def write(self, data: bytes) -> None:
        self.got.append(data)
        self.replies.set()

    def abort(self) -> None:
        self.is_aborted = True


class FakeChild(Child):
    """Only its last words."""

    def __init__(self) -> None:
        pass

    def last_words(self) -> str:
        return "qemu: no such machine"


Made = tuple[_Session, socket.socket]


@pytest.fixture
def made() -> Iterator[Made]:
    """A session, and the end of its socket that the board's process has."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        session = _Session(ours, FakeChild())
        session_host._sessions["key"] = session
        yield session, theirs
        del session_host._sessions["key"]


def echo(theirs: socket.socket, answer: Callable[[bytes], bytes]) -> threading.Thread:
    def run() -> None:
        with theirs.makefile("rwb") as stream:
            while head := stream.read(_LENGTH.size):
                stream.write(answer(stream.read(_LENGTH.unpack(head)[0])))
                stream.flush()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def carried(comm: Any, key: str = "key") -> str:
    """The reason that the server got last, if the session has ended by itself."""
    asyncio.run(asyncio.wait_for(_serve(comm, key), 30))
    assert comm.is_aborted
    return str(decode(comm.got[-1]).fields.get("reason"))


def test_messages_pass_and_signs_of_life_do_not(made: Made) -> None:
    session, theirs = made
    echo(theirs, lambda data: _LENGTH.pack(len(data)) + data)
    comm = FakeComm(ALIVE, b"a request", ALIVE)
    assert carried(comm) == "the server closed the session"
    assert comm.got[0] == b"a request" and len(comm.got) == 2
    assert session.wait() == "the server closed the session"


def test_a_server_that_vanished_ends_the_session(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_host, "SILENCE_S", 0.1)
    assert carried(FakeComm(is_silent=True)) == "the server said nothing for 0.1 s"


@pytest.mark.parametrize("message", ["text", {"op": 1}, bytes(MESSAGE_BYTES + 1)])
def test_what_is_no_message_ends_the_session(made: Made, message: object) -> None:
    assert carried(FakeComm(message)) == "the server sent something that is not a message"


def test_the_last_words_of_a_dead_process_are_told(made: Made) -> None:
    _, theirs = made
    theirs.close()
    said = carried(FakeComm(is_silent=True))
    assert said == "the process that owns the board ended; it said: qemu: no such machine"


def test_a_process_that_says_too_much_ends_the_session(made: Made) -> None:
    _, theirs = made
    theirs.sendall(_LENGTH.pack(MESSAGE_BYTES + 1))
    assert "sent 2097153 bytes at once" in carried(FakeComm(is_silent=True))


def test_a_session_has_one_server(made: Made) -> None:
    session, _ = made
    session.is_attached.set()
    for key in ("key", "another"):
        assert "was given to somebody else" in carried(FakeComm(), key)


def test_a_board_for_which_nobody_comes_is_free_again(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, _ = made
    monkeypatch.setattr(session_host, "ATTACH_S", 0.05)
    assert session.wait() == "no server came for the board within 0.05 s"
    session.is_attached.set()
    monkeypatch.setattr(session_host, "SESSION_S", 0.05)
    assert "took longer than" in session.wait()
