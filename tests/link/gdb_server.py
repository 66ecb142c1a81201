"""A GDB server that says what a file says: one line of a dialogue after the other.

    > body      the client must send this packet; "> ^C" is the interrupt
    < body      the server sends this packet; bytes as in Python's literals
    # ...       a comment

The server acknowledges packets until the client has been granted QStartNoAckMode.
"""

from __future__ import annotations

import codecs
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from utvm_deploy.device.link.gdb.packets import (
    ACK,
    INTERRUPT,
    DamagedPacket,
    Packet,
    PacketDecoder,
    encode_packet,
)
from utvm_deploy.device.link.stream import PipeStream

DIALOGUES = Path(__file__).parent / "dialogues"
# A client that does not send what it should must not hang a test.
PATIENCE_S = 5.0
INTERRUPTED = b"^C"


@dataclass(frozen=True)
class Line:
    """One thing that is said."""

    is_clients: bool
    body: bytes


def load_dialogue(name: str) -> list[Line]:
    """A dialogue by its file's name."""
    lines = []
    for text in (DIALOGUES / f"{name}.txt").read_text(encoding="ascii").splitlines():
        if text.startswith(("> ", "< ")) or text in (">", "<"):
            body = codecs.decode(text[2:], "unicode_escape").encode("latin-1")
            lines.append(Line(text[0] == ">", body))
        else:
            assert not text or text.startswith("#"), f"{name}: {text}"
    return lines


class ScriptedServer(threading.Thread):
    """Plays ``lines`` on a socket. ``problem`` says where the client strayed.

    ``stays`` at the end until the client goes; otherwise it goes first.
    """

    def __init__(self, sock: socket.socket, lines: Sequence[Line], stays: bool) -> None:
        super().__init__(daemon=True)
        self._stays = stays
        self.is_through = threading.Event()
        self._socket = sock
        self._lines = lines
        self._decoder = PacketDecoder()
        self._packets: list[bytes] = []
        self._acknowledges = True
        self.played = 0
        self.problem = ""

    def run(self) -> None:
        self._socket.settimeout(PATIENCE_S)
        last = b""
        with self._socket:
            try:
                for line in self._lines:
                    if line.is_clients:
                        last = self._next_packet()
                        if last != line.body:
                            self.problem = f"expected {line.body!r}, got {last!r}"
                            return
                    else:
                        self._socket.sendall(encode_packet(line.body))
                        if last == b"QStartNoAckMode" and line.body == b"OK":
                            self._acknowledges = False
                    self.played += 1
                self.is_through.set()
                while self._stays and self._socket.recv(65536):
                    pass
            except OSError as error:
                self.problem = f"after {self.played} lines: {error}"

    def _next_packet(self) -> bytes:
        while not self._packets:
            data = self._socket.recv(65536)
            if not data:
                raise OSError("the client went away")
            # Within a packet the interrupt's byte is one like others.
            head = data.removesuffix(INTERRUPT)
            is_interrupt = head != data and (not head.strip(ACK) or head[-3:-2] == b"#")
            for item in self._decoder.feed(head if is_interrupt else data):
                if isinstance(item, DamagedPacket):
                    raise OSError(f"got {item}")
                if isinstance(item, Packet):
                    self._packets.append(item.body)
                    if self._acknowledges:
                        self._socket.sendall(ACK)
            if is_interrupt:
                self._packets.append(INTERRUPTED)
        return self._packets.pop(0)


@contextmanager
def serve(lines: Sequence[Line], stays: bool = True) -> Iterator[tuple[PipeStream, ScriptedServer]]:
    """A stream to a server that plays ``lines``."""
    ours, theirs = socket.socketpair()
    server = ScriptedServer(theirs, lines, stays)
    server.start()
    fd = ours.detach()
    stream = PipeStream(fd, fd, "the scripted server")
    try:
        yield stream, server
    finally:
        stream.close()
        server.join(PATIENCE_S)
        assert not server.is_alive()
