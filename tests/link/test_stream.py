"""Streams: ptys and sockets through pyserial, pipes, and how each ends."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import threading
import time
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.link.fakes import PATIENCE_S
from utvm_deploy.base.errors import LinkClosed, LinkTimeout
from utvm_deploy.device.link.monitor import MonitorLink
from utvm_deploy.device.link.stream import PipeStream, SerialStream


@pytest.fixture
def pty_device(host_program: Path) -> Iterator[str]:
    """A device behind a pty, as behind a USB serial adapter; its name."""
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    name = os.ttyname(theirs)
    process = subprocess.Popen([str(host_program)], stdin=ours, stdout=ours)
    os.close(ours)
    yield name
    process.kill()
    process.wait(10)
    os.close(theirs)


@pytest.fixture
def socket_device(host_program: Path) -> Iterator[str]:
    """A device behind a TCP port, as an emulator's UART; its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    started: list[subprocess.Popen[bytes]] = []

    def accept() -> None:
        connection, _ = listener.accept()
        started.append(subprocess.Popen([str(host_program)], stdin=connection, stdout=connection))
        connection.close()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield f"socket://127.0.0.1:{listener.getsockname()[1]}"
    thread.join(10)
    listener.close()
    for process in started:
        process.kill()
        process.wait(10)


@pytest.mark.tools
@pytest.mark.parametrize("kind", ["pty_device", "socket_device"])
def test_serial_stream(kind: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(kind)
    with MonitorLink(SerialStream(url)) as link:
        base = link.hello().workspace_address
        data = random.Random(1).randbytes(50_000)
        link.write(base, data)
        assert link.read(base, len(data)) == data
        before = link.hello().nonce
        link.reset()
        assert link.hello().nonce != before


def test_serial_streams_are_exclusive(pty_device: str) -> None:
    first = SerialStream(pty_device)
    with pytest.raises(LinkClosed, match="cannot open"):
        SerialStream(pty_device)
    first.close()
    SerialStream(pty_device).close()


@pytest.mark.parametrize("url", ["/dev/no-such-port", "socket://127.0.0.1:1"])
def test_ports_that_cannot_be_opened(url: str) -> None:
    with pytest.raises(LinkClosed, match=r"cannot open .*; check the cable"):
        SerialStream(url)


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> str:
    """A port that pyserial makes up; no user has one."""
    monkeypatch.setattr("utvm_deploy.device.link.stream.PORT_SCHEMES", ["loop"])
    return "loop://"


def test_ports_without_a_file_descriptor(loop: str) -> None:
    """pyserial's own reading and writing, which Windows and rfc2217:// use; here on loop://."""
    stream = SerialStream(loop)
    began_s = time.monotonic()
    assert stream.read(10, 0.05) == b""
    assert 0.04 < time.monotonic() - began_s < PATIENCE_S
    stream.write(b"there and back", 1.0)
    got = b""
    while len(got) < 14:
        got += stream.read(5, 1.0)
        assert len(got) <= 14
    assert got == b"there and back"
    stream.close()
    with pytest.raises(LinkClosed, match="went away"):
        stream.read(1, 0.1)
    with pytest.raises(LinkClosed, match="went away"):
        stream.write(b"x", 0.1)


def test_a_slow_port_without_a_file_descriptor(loop: str) -> None:
    """loop:// keeps to its baud rate when it writes."""
    stream = SerialStream(loop, baud=300)
    with pytest.raises(LinkTimeout, match=r"did not take 100 bytes within 0\.01 s"):
        stream.write(bytes(100), 0.01)
    stream.close()


def test_a_socket_that_closes() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    stream = SerialStream(f"socket://127.0.0.1:{listener.getsockname()[1]}")
    connection, _ = listener.accept()
    connection.sendall(b"bye")
    connection.close()
    listener.close()
    assert stream.read(10, 5.0) == b"bye"
    with pytest.raises(LinkClosed, match="went away"):
        stream.read(10, 5.0)
    stream.close()


def test_pipes() -> None:
    ours_in, theirs_out = os.pipe()
    theirs_in, ours_out = os.pipe()
    stream = PipeStream(ours_in, ours_out, "the test")
    began_s = time.monotonic()
    assert stream.read(10, 0.05) == b""
    assert 0.04 < time.monotonic() - began_s < PATIENCE_S
    os.write(theirs_out, b"hello")
    assert stream.read(3, 1.0) == b"hel"
    assert stream.read(3, 1.0) == b"lo"
    stream.write(b"world", 1.0)
    assert os.read(theirs_in, 10) == b"world"
    # nobody takes it
    with pytest.raises(LinkTimeout, match=r"the test took .* of 1000000 bytes within 0\.05 s"):
        stream.write(bytes(1_000_000), 0.05)
    os.close(theirs_in)
    with pytest.raises(LinkClosed, match="the test went away"):
        stream.write(b"x", 1.0)
    os.close(theirs_out)
    with pytest.raises(LinkClosed, match="the test went away"):
        stream.read(1, 1.0)
    stream.close()
    with pytest.raises(LinkClosed, match="was closed"):
        stream.write(b"x", 1.0)
