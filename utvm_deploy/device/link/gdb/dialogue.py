"""The dialogue with a GDB server: questions and answers in packets, each within its deadline.

A damaged packet is sent or requested again. A refusal of the server is a DeviceError, and any
problem of the dialogue is a LinkError. client.py knows the questions.
"""

from __future__ import annotations

import binascii
import contextlib
import logging
import math
import re
import time
from collections.abc import Callable, Iterator

from utvm_deploy.base.errors import DeviceError, LinkError, LinkTimeout
from utvm_deploy.device.link.gdb.packets import (
    ACK,
    INTERRUPT,
    NACK,
    Acknowledgement,
    DamagedPacket,
    Packet,
    PacketDecoder,
    Stop,
    encode_packet,
)
from utvm_deploy.device.link.stream import Stream

log = logging.getLogger("utvm_deploy.device.link")

_READ_BYTES = 64 * 1024
# How often a damaged packet is sent or requested again.
_MAX_REPEATS = 3
_STOP = re.compile(rb"[TSWX][0-9a-fA-F]{2}")
_ERROR = re.compile(rb"E(?:[0-9a-fA-F]{2}$|\.)")


def is_error(answer: bytes) -> bool:
    """Whether the server answered with the number, or the text, of an error."""
    return bool(_ERROR.match(answer))


class Dialogue:
    """Packets to and from one server. ``reply_s`` is how long it may take over one."""

    def __init__(self, stream: Stream, reply_s: float) -> None:
        self._stream = stream
        self._reply_s = reply_s
        #: What the server is called in errors.
        self.server = ""
        #: Whether the other end confirms each packet.
        self.acknowledges = True
        #: Whether the core runs, as far as we started it: then the server says nothing.
        self.is_running = False
        # The end of the call that asks: no deadline is later.
        self._end_s = math.inf
        self._forget()

    def _forget(self) -> None:
        self._decoder = PacketDecoder()
        self._items: list[Packet | Acknowledgement | DamagedPacket] = []
        self.acknowledges = True

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """All that the block asks ends by this time, however many answers there are."""
        before = self._end_s
        self._end_s = min(before, time.monotonic() + seconds)
        try:
            yield
        finally:
            self._end_s = before

    def begin(self) -> None:
        """Forget everything that was said before, and stop a core that runs."""
        self._forget()
        # Answers to an older dialogue, such as one that Ctrl-C cut off.
        drained_s = time.monotonic() + self._reply_s
        while self._stream.read(_READ_BYTES, 0) and time.monotonic() < drained_s:
            pass
        # A server that listens ignores it.
        self._stream.write(ACK + (INTERRUPT if self.is_running else b""), self._reply_s)
        self.is_running = False

    def interrupt(self) -> None:
        """Halt the core; a stop follows."""
        self._stream.write(INTERRUPT, self._reply_s)

    def close(self) -> None:
        """Let go of the stream. May be called again."""
        self._stream.close()

    def ask(
        self,
        body: bytes,
        what: str,
        *,
        may_fail: bool = False,
        keep: Callable[[bytes], bool] | None = None,
        timeout_s: float | None = None,
    ) -> bytes:
        """One exchange. ``keep`` distinguishes the answer from packets that were under way before
        it."""
        self.send(body)
        deadline = time.monotonic() + (timeout_s or self._reply_s)
        while True:
            answer = self.next_answer(what, deadline)
            if keep is None or keep(answer):
                break
        if not may_fail:
            self.refuse(answer, what, is_optional=body[:1] in b"qQv")
        return answer

    def ask_ok(self, body: bytes, what: str) -> None:
        """One exchange that is answered by OK; anything else is a DeviceError."""
        answer = self.ask(body, what)
        if answer != b"OK":
            raise DeviceError(
                f"asked {what}, {self.server} answered {_shown(answer)} instead of OK; "
                "reset the board"
            )

    def send(self, body: bytes) -> None:
        """A packet whose answer is taken by ``next_answer`` or ``next_stop``."""
        log.debug("-> %s", _Shown(body))
        self._last_sent = encode_packet(body)
        self._repeats = 0
        self._stream.write(self._last_sent, self._reply_s)

    def next_answer(self, what: str, deadline_s: float) -> bytes:
        """The next packet that is not a stop: unrequested stops, as QEMU's first, are skipped."""
        while True:
            body = self._next_packet(what, deadline_s)
            if not _STOP.match(body):
                return body

    def next_stop(self, what: str, timeout_s: float) -> Stop:
        """Why the core stopped, once it does; what the server prints meanwhile is logged."""
        deadline = time.monotonic() + timeout_s
        while True:
            body = self._next_packet(what, deadline)
            if _STOP.match(body):
                self.is_running = False
                return Stop(int(body[1:3], 16), body.decode("ascii", "replace"))
            if body[:1] == b"O" and body != b"OK":
                log.debug("debug server: %s", self.from_hex(body[1:], what))
            elif _ERROR.match(body) or not body:
                self.is_running = False
                self.refuse(body, what)
            else:
                raise LinkError(
                    f"waiting {what}, {self.server} sent {_shown(body)}: the dialogue is "
                    "out of step; connect again"
                )

    def refuse(self, answer: bytes, what: str, *, is_optional: bool = False) -> None:
        """An error's number or an empty answer as a sentence."""
        if _ERROR.match(answer):
            code = answer[1:].decode("ascii", "replace").lstrip(".")
            raise DeviceError(
                f"asked {what}, {self.server} refused with error {code}; is there memory, "
                "and is the core halted and powered?"
            )
        if not answer and not is_optional:
            raise DeviceError(f"asked {what}, {self.server} said that it cannot do that")

    def from_hex(self, text: bytes, what: str) -> bytes:
        """The bytes of an answer in hexadecimal; LinkError if it is none."""
        try:
            # Not bytes.fromhex, which passes over blanks.
            return binascii.unhexlify(text)
        except ValueError:
            raise LinkError(
                f"asked {what}, {self.server} answered {_shown(text)}, which is not "
                "hexadecimal: does a GDB server listen there?"
            ) from None

    def _next_packet(self, what: str, deadline_s: float) -> bytes:
        deadline_s = min(deadline_s, self._end_s)
        while True:
            left_s = deadline_s - time.monotonic()
            # Bytes that have arrived are read after the deadline, too, but no server talks forever.
            if left_s < (-self._reply_s if self._items else 0):
                raise LinkTimeout(
                    f"asked {what}, {self.server} did not answer in time; is it still "
                    "connected to the core?"
                )
            if not self._items:
                arrived = self._stream.read(_READ_BYTES, left_s)
                self._items += self._decoder.feed(arrived)
                continue
            item = self._items.pop(0)
            if isinstance(item, Packet):
                log.debug("<- %s", _Shown(item.body))
                if self.acknowledges:
                    self._stream.write(ACK, self._reply_s)
                return item.body
            if isinstance(item, DamagedPacket):
                self._repeat(NACK if self.acknowledges else b"", f"a packet {item.why}")
            elif not item.is_good:
                self._repeat(self._last_sent, "it got ours damaged")

    def _repeat(self, data: bytes, why: str) -> None:
        self._repeats += 1
        if not data or self._repeats > _MAX_REPEATS:
            raise LinkError(
                f"the dialogue with {self.server} is damaged ({why}); does a GDB server "
                "listen there? Connect again"
            )
        self._stream.write(data, self._reply_s)


def _shown(body: bytes) -> str:
    return str(_Shown(body))


class _Shown:
    """A body for a log line or an error, formatted only if it is written."""

    LONGEST = 60

    def __init__(self, body: bytes) -> None:
        self._body = body

    def __str__(self) -> str:
        more = "..." if len(self._body) > self.LONGEST else ""
        return repr(self._body[: self.LONGEST])[1:] + more
