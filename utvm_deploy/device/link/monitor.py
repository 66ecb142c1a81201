"""The link to the runtime's command loop: requests, retries, deadlines, resets noticed.

PROTOCOL.md has the rules. In short: every request has its number, and the device never does the
same number twice, so a request whose reply does not come is simply sent again.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from utvm_deploy.base.errors import DeviceReset, LinkTimeout
from utvm_deploy.device.link.base import Hello, Region, Task
from utvm_deploy.device.link.deadlines import Speeds
from utvm_deploy.device.link.frame import Damage, Frame, FrameDecoder, encode_frame
from utvm_deploy.device.link.line_quality import LineQuality
from utvm_deploy.device.link.messages import (
    BY_NAME,
    OUTCOME,
    REGION,
    REPLY_BIT,
    Message,
    Status,
    opcode_name,
)
from utvm_deploy.device.link.replies import (
    check_region_count,
    check_size,
    check_version,
    contents,
    outcome_of,
    read_hello,
    read_regions,
)
from utvm_deploy.device.link.stream import Stream
from utvm_deploy.device.link.task_lists import run_task_lists
from utvm_deploy.device.link.trace import Trace, log
from utvm_deploy.device.link.waits import Timeouts, Waits

# Bytes that one CHECKSUM asks for: 20 ms at 50 MHz, so well within RESEND_S.
CHECKSUM_CHUNK_BYTES = 64 * 1024

# The bytes of an exchange besides the payloads: two headers with CRC, an outcome, COBS's bytes.
_FRAMING_BYTES = 64

# Bytes taken from the stream at once.
_READ_BYTES = 64 * 1024

# Requests that a device answers at once: how long they take says how fast the line is.
_QUICK = frozenset({"HELLO", "OPEN", "READ", "WRITE", "REGIONS"})


class _Abandoned(Exception):
    """A request did not get through, and a shorter one should be tried until ``end_s``."""

    def __init__(self, end_s: float) -> None:
        super().__init__()
        self.end_s = end_s


class MonitorLink:
    """A ``link.base.Link`` over a stream. ``close`` closes the stream too.

    ``place_of`` names the code at an address, for errors.
    """

    def __init__(
        self,
        stream: Stream,
        timeouts: Timeouts | None = None,
        place_of: Callable[[int], str] = "{:#010x}".format,
        speeds: Speeds | None = None,
    ) -> None:
        self._stream = stream
        self._timeouts = timeouts or Timeouts()
        self._line = LineQuality(self._timeouts)
        self._speeds = speeds or Speeds()
        self._place_of = place_of
        self._decoder = FrameDecoder()
        # Of the session, and of its latest request.
        self._session = self._sequence = 0
        self._hello: Hello | None = None
        # Whether the runtime ever spoke here.
        self._heard_frame = False
        self._trace = Trace()

    def __enter__(self) -> MonitorLink:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # The primitives.

    def hello(self) -> Hello:
        """Begin a session: ask the device for all facts again."""
        return self._open(time.monotonic() + self._timeouts.boot_s)

    def _open(self, end_s: float) -> Hello:
        """Ask for a session's id, then begin that session; both until then."""
        self._hello = None
        began_s, refused = time.monotonic(), 0
        while True:
            # HELLO's number is random: no reply to an older one fits, and it gives a new id.
            self._sequence = secrets.randbelow(0xFFFFFFFE)
            self._session = 0
            try:
                left_s = max(end_s - time.monotonic(), 0)
                what = "to say hello"
                self._session = self._exchange(BY_NAME["HELLO"], b"", left_s, what).session
                left_s = max(end_s - time.monotonic(), 0)
                frame = self._exchange(BY_NAME["OPEN"], b"", left_s, "to begin a session")
            except DeviceReset:
                # Between the two the device may have restarted, or another host was quicker.
                refused += 1
            except LinkTimeout:
                if not refused:
                    raise
            else:
                self._hello = read_hello(frame.payload, frame.version)
                hello = self._hello
                self._line.largest_bytes = max(hello.request_bytes, hello.reply_bytes)
                return hello
            if time.monotonic() >= end_s:
                raise LinkTimeout(
                    f"the device refused {refused} times with NO_SESSION within "
                    f"{time.monotonic() - began_s:.1f} s: it restarts, or another program uses its "
                    "line; end that program, then reset the board"
                )
            # The first refusal is met at once; a device that refuses again is not kept busy.
            if refused > 1:
                time.sleep(self._timeouts.resend_s / 8)

    def regions(self) -> tuple[Region, ...]:
        """What the device lets be read, written and executed."""
        hello = self._greeted()
        count = hello.region_count
        check_region_count(count)
        found: list[Region] = []
        chunk = hello.reply_bytes - OUTCOME.size_bytes
        end_s = self._end_s(count * REGION.size_bytes, chunk)
        while len(found) < count:
            what = "to list its regions"
            records = self._request("REGIONS", what, len(found), end_s=end_s)
            found += read_regions(records, count - len(found), what)
        return tuple(found)

    def read(self, address: int, size: int) -> bytes:
        """Copy ``size`` bytes of the device's memory, in as many exchanges as it takes."""
        data = bytearray()

        def move(at: int, part: int, end_s: float) -> None:
            what = f"to read {part} bytes at {address + at:#010x}"
            values = (address + at, part)
            got = self._request("READ", what, *values, line_bytes=part, end_s=end_s, part=part)
            check_size(got, part, what)
            data.extend(got)

        self._in_parts(size, self._greeted().reply_bytes - OUTCOME.size_bytes, move)
        return bytes(data)

    def write(self, address: int, data: bytes) -> None:
        """Copy ``data`` to the device's memory, in as many exchanges as it takes."""

        def move(at: int, part: int, end_s: float) -> None:
            what = f"to write {part} bytes at {address + at:#010x}"
            tail = data[at : at + part]
            self._request("WRITE", what, address + at, tail=tail, end_s=end_s, part=part)

        room = self._greeted().request_bytes - BY_NAME["WRITE"].request_bytes
        self._in_parts(len(data), room, move)

    def _in_parts(self, size: int, room: int, move: Callable[[int, int, float], None]) -> None:
        """Move ``size`` bytes in parts of up to ``room``, and in shorter ones on a bad line.

        A part that did not get through is replaced by shorter ones. The first of these has the
        deadline of the part.
        """
        end_s = self._end_s(size, self._line.part_bytes(room))
        at, part_end_s = 0, end_s
        while at < size:
            part = min(self._line.part_bytes(room), size - at)
            try:
                move(at, part, part_end_s)
            except _Abandoned as lost:
                part_end_s = min(part_end_s, lost.end_s)
                continue
            at, part_end_s = at + part, end_s

    def execute(self, tasks: Sequence[Task], timeout_s: float) -> list[tuple[int, ...]]:
        """Run ``tasks`` in order; the ticks of every repeat of every task.

        ``timeout_s`` is for all of them together. A task that faults is a DeviceFault, one that
        the device stopped at its deadline a TaskTimeout. If the device says nothing, that is a
        LinkTimeout after ``timeout_s`` and another ``Timeouts.last_s``, in which it is asked once
        more.
        """
        hello = self._greeted()

        def run(payload: bytes, what: str, left_s: float) -> bytes:
            return self._request("EXECUTE", what, tail=payload, timeout_s=left_s)

        return run_task_lists(tasks, lambda: self._line.list_room(hello), timeout_s, run)

    def checksum(self, address: int, size: int) -> int:
        """CRC-32 of ``size`` bytes of the device's memory, computed there."""
        self._greeted()
        crc = 0
        end_s = self._end_s(0, 1, task_s=self._speeds.task_s(size))
        for at in range(0, size, CHECKSUM_CHUNK_BYTES):
            part = min(CHECKSUM_CHUNK_BYTES, size - at)
            what = f"to checksum {part} bytes at {address + at:#010x}"
            task_s = self._speeds.task_s(part)
            data = self._request(
                "CHECKSUM", what, address + at, part, crc, task_s=task_s, end_s=end_s
            )
            crc = int.from_bytes(data, "little")
        return crc

    def reset(self) -> None:
        """Restart the device and greet it; what was in its RAM is lost."""
        nonce = self._greeted().nonce
        # Its reply may be lost and its consequence be seen.
        with contextlib.suppress(DeviceReset):
            self._request("RESET", "to restart")
        deadline = time.monotonic() + self._timeouts.boot_s
        # Not yet down?
        while self.hello().nonce == nonce:
            time.sleep(self._timeouts.resend_s / 8)
            if time.monotonic() > deadline:
                raise LinkTimeout(
                    f"the device promised to restart and did not within "
                    f"{self._timeouts.boot_s:g} s; reset it by hand"
                )

    def close(self) -> None:
        """Let go of the stream. May be called again."""
        self._stream.close()

    # One exchange.

    def _greeted(self) -> Hello:
        return self._hello or self.hello()

    def _request(
        self,
        name: str,
        what: str,
        *values: int,
        tail: bytes = b"",
        timeout_s: float | None = None,
        line_bytes: int = 0,
        task_s: float = 0.0,
        end_s: float = math.inf,
        part: int = 0,
    ) -> bytes:
        """One exchange within a session: the contents of the reply after its outcome.

        By default its deadline follows from the bytes of request and reply and from the requested
        work. It is never after ``end_s``, the end of the whole call. ``part`` is how many bytes
        of memory it moves; it may be _Abandoned for a shorter one.
        """
        self._greeted()
        message = BY_NAME[name]
        payload = message.pack_request(*values) + tail
        if timeout_s is None:
            timeout_s = self._speeds.host_s(
                task_s,
                line_bytes=len(payload) + line_bytes + _FRAMING_BYTES,
                floor_s=self._timeouts.reply_s,
            )
        timeout_s = min(timeout_s, max(end_s - time.monotonic(), 0))
        return self._exchange(message, payload, timeout_s, what, line_bytes, part).payload

    def _end_s(self, size: int, chunk: int, task_s: float = 0.0) -> float:
        """When a call that moves ``size`` bytes in chunks must be over; nothing moves that."""
        exchanges = max(-(-size // chunk), 1)
        allowed_s = self._speeds.host_s(
            task_s,
            line_bytes=size + exchanges * _FRAMING_BYTES,
            exchanges=exchanges,
            floor_s=self._timeouts.reply_s,
        )
        return time.monotonic() + allowed_s

    def _exchange(
        self,
        message: Message,
        payload: bytes,
        timeout_s: float,
        what: str,
        line_bytes: int = 0,
        part: int = 0,
    ) -> Frame:
        """Send until an answer comes. The reply without its outcome, if its status is OK."""
        self._sequence = (self._sequence + 1) & 0xFFFFFFFF or 1
        request = Frame(message.opcode, self._sequence, self._session, payload)
        data = encode_frame(request)
        moved = len(data) + line_bytes + _FRAMING_BYTES // 2
        times = self._line.times(moved, len(data))
        if message.name == "HELLO":
            # Nothing that was learnt before holds for a device that boots.
            times = replace(self._timeouts, resend_max_s=self._timeouts.resend_s)
        waits = Waits(times, timeout_s, len(data))
        heard: Counter[str] = Counter()
        while True:
            now = time.monotonic()
            if waits.is_over(now):
                raise LinkTimeout(
                    f"asked {what}, the device did not answer within {now - waits.began_s:.1f} s "
                    f"({waits.sent} times sent, {waits.received_bytes} bytes received"
                    f"{_listed(heard)}): {self._advice(waits)}, then reset the board"
                )
            if waits.is_due(now):
                if waits.sent == 1 and message.name != "HELLO":
                    self._line.note_loss()
                    if part > self._line.part_bytes(part):
                        raise _Abandoned(waits.began_s + timeout_s)
                    waits.hurry(self._line.times(moved, len(data)))
                self._trace("->", request)
                self._stream.write(data, waits.until_over_s(now))
                waits.note_sent(time.monotonic())
            arrived = self._stream.read(_READ_BYTES, waits.until_next_s(time.monotonic()))
            items = self._decoder.feed(arrived)
            if arrived:
                is_within = self._decoder.is_within_frame
                waits.note_bytes(time.monotonic(), len(arrived), is_within)
            for item in items:
                self._trace("<-", item)
                if isinstance(item, Frame) and item.opcode & REPLY_BIT:
                    self._heard_frame = True
                if not isinstance(item, Damage) and self._answers(item, request):
                    outcome = outcome_of(item.payload, what)
                    if message.name == "EXECUTE" and outcome["status"] == Status.ACCEPTED:
                        check_size(item.payload, OUTCOME.size_bytes, what)
                        waits.note_accepted()
                        continue
                    if message.name in _QUICK and waits.sent == 1:  # else: which copy's answer?
                        self._line.note_answer(moved, time.monotonic() - waits.sent_s)
                    if waits.asks_for_result:
                        log.warning(
                            "the line lost the result of tasks or damaged a frame while they ran; "
                            "the result was asked for again, so their times may be too long"
                        )
                    if waits.sent == 1 and not heard:
                        self._line.note_good(moved)
                    self._check_session(outcome, item, what)
                    body = contents(message.name, item.payload, what, self._place_of)
                    return replace(item, payload=body)
                heard[_kind(item, request)] += 1
                if isinstance(item, Damage):
                    waits.note_loss(time.monotonic())
                elif _answers_before(item, request):
                    waits.note_late(time.monotonic())
                elif _is_boot(item):
                    # Perhaps an old one. If not, what was sent before it was sent to nobody, and
                    # the device refuses a request of a session that it does not know.
                    waits.note_loss(time.monotonic())

    def _advice(self, waits: Waits) -> str:
        """What the user should check if no answer came."""
        if waits.received_bytes and not self._heard_frame:
            return (
                "what came is nothing that the runtime says, so check the baud rate, and whether "
                "other firmware runs, such as a bootloader"
            )
        return "check cable, baud rate and that the image runs"

    @staticmethod
    def _answers(frame: Frame, request: Frame) -> bool:
        """Whether ``frame`` is the reply to ``request``, and to no other one ever sent."""
        if frame.opcode != request.opcode | REPLY_BIT or frame.sequence != request.sequence:
            return False
        check_version(frame.version)
        return request.opcode == BY_NAME["HELLO"].opcode or frame.session == request.session

    def _check_session(self, outcome: dict[str, int], frame: Frame, what: str) -> None:
        """DeviceReset if the device does not know the session."""
        if outcome["status"] != Status.NO_SESSION or len(frame.payload) != OUTCOME.size_bytes:
            return
        before, self._hello = self._hello, None
        why = "the device restarted"
        if before is not None and before.nonce == outcome["detail"]:
            why = "another program began a session with the device"
        raise DeviceReset(
            f"asked {what}, {why}: what was in its RAM is lost; load the model again",
            status=outcome["status"],
        )


def _answers_before(frame: Frame, request: Frame) -> bool:
    """Whether it is a reply to the request before, which must have been sent again too soon."""
    is_reply = frame.opcode & REPLY_BIT and frame.session == request.session
    return bool(is_reply) and frame.sequence == request.sequence - 1


def _kind(item: Frame | Damage, request: Frame) -> str:
    """What was heard instead of the reply, for an error."""
    if isinstance(item, Damage):
        return "damaged frame"
    if not item.opcode & REPLY_BIT:
        return "echo of a request"
    if _is_boot(item):
        return "boot frame"
    other = "session" if item.session != request.session else "number"
    return f"{opcode_name(item.opcode)} of another {other}"


def _listed(heard: Counter[str]) -> str:
    """``: 3 x damaged frame, 1 x boot frame``; nothing if nothing was heard."""
    words = ", ".join(f"{count} x {kind}" for kind, count in heard.most_common(4))
    return f": {words}" if words else ""


def _is_boot(frame: Frame) -> bool:
    return frame.opcode == BY_NAME["BOOT"].opcode | REPLY_BIT
