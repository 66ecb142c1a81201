"""A client of a GDB server: memory, registers, breakpoints, running and stopping one core.

It knows Cortex-M and a single thread. Every wait has a deadline; what the server refuses is a
DeviceError, whatever is wrong with the dialogue a LinkError. After a LinkError ``greet`` begins
anew, if the stream still lives.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from utvm_deploy.errors import DeviceError, LinkError, LinkTimeout
from utvm_deploy.link.gdb_dialects import (
    DEFAULT_PACKET_BYTES,
    SPOKEN_ERRORS,
    Dialect,
    Offer,
    parse_offer,
)
from utvm_deploy.link.gdb_packets import (
    ACK,
    INTERRUPT,
    NACK,
    Acknowledgement,
    DamagedPacket,
    Packet,
    PacketDecoder,
    Stop,
    encode_packet,
    escaped_prefix,
)
from utvm_deploy.link.gdb_registers import (
    OLD_ARM_REGISTERS,
    Register,
    read_registers,
)
from utvm_deploy.link.stream import Stream

log = logging.getLogger("utvm_deploy.link")

_READ_BYTES = 64 * 1024
# How often a packet that arrived damaged is sent or asked for again.
_MAX_REPEATS = 3
# A file of the server's, beyond which it is not believed.
_MAX_OBJECT_BYTES = 256 * 1024
_STOP = re.compile(rb"[TSWX][0-9a-fA-F]{2}")
_ERROR = re.compile(rb"E(?:[0-9a-fA-F]{2}$|\.)")
# AIRCR: the key, and the request to reset the system.
_AIRCR_ADDRESS = 0xE000ED0C
_AIRCR_RESET = 0x05FA0004


@dataclass(frozen=True)
class GdbTimeouts:
    """Every wait for a server, in seconds."""

    # One packet. A probe that moves 16 KB at 100 kHz takes 2 s.
    reply_s: float = 5.0
    # A command to the server itself: OpenOCD's reset waits for the target.
    command_s: float = 10.0


class GdbClient:
    """One core behind a GDB server. ``close`` closes the stream."""

    def __init__(self, stream: Stream, timeouts: GdbTimeouts | None = None) -> None:
        self._stream = stream
        self._timeouts = timeouts or GdbTimeouts()
        self._forget()
        self._is_running = False

    def _forget(self) -> None:
        self._decoder = PacketDecoder()
        self._items: list[Packet | Acknowledgement | DamagedPacket] = []
        self._offer = Offer(DEFAULT_PACKET_BYTES, frozenset())
        self._acknowledges = True
        self._registers: Mapping[str, Register] = OLD_ARM_REGISTERS
        # pyOCD 0.46 takes P, but answers p with nothing.
        self._reads_single, self._writes_single = True, True
        # Whether X is understood; None: not tried yet.
        self._writes_binary: bool | None = None
        self._resume, self._single_step = b"c", b"s"

    @property
    def offer(self) -> Offer:
        """What the server said that it can do."""
        return self._offer

    @property
    def dialect(self) -> Dialect:
        """Which server it is."""
        return self._offer.dialect

    @property
    def is_running(self) -> bool:
        """Whether the core runs, as far as we have told it to."""
        return self._is_running

    # The session.

    def greet(self) -> None:
        """Begin a dialogue; the core is halted afterwards."""
        self._forget()
        # Answers to an older dialogue, such as one that Ctrl-C cut off.
        drained_s = time.monotonic() + self._timeouts.reply_s
        while self._stream.read(_READ_BYTES, 0) and time.monotonic() < drained_s:
            pass
        # Whatever was said before: a core that runs stops, and a server that listens ignores it.
        opening = ACK + (INTERRUPT if self._is_running else b"")
        self._stream.write(opening, self._timeouts.reply_s)
        self._is_running = False
        wanted = b"qSupported:swbreak+;hwbreak+;vContSupported+;xmlRegisters=arm"
        answer = self._ask(wanted, "what it supports", keep=lambda b: not b or b"PacketSize" in b)
        self._offer = parse_offer(answer.decode("ascii", "replace"))
        if self._offer.has("QStartNoAckMode") and self._ask(b"QStartNoAckMode", "to skip acks"):
            self._acknowledges = False
        if self._offer.has("vContSupported"):
            actions = self._ask(b"vCont?", "how it continues").split(b";")[1:]
            if b"c" in actions and b"s" in actions:
                self._resume, self._single_step = b"vCont;c", b"vCont;s"
        # QEMU has no single registers until its description has been read.
        if self._offer.has("qXfer:features:read"):
            found = read_registers(lambda name: self.read_object("features", name))
            self._registers = found or OLD_ARM_REGISTERS
        self._send(b"?")
        self._next_stop("why the core stands", self._timeouts.reply_s)
        log.debug("debug server %s: %s", self.dialect.name, self._offer)

    def detach(self) -> None:
        """Let the core run without us."""
        self._ask_ok(b"D", "to let go of the core")

    def close(self) -> None:
        """Let go of the stream. May be called again."""
        self._stream.close()

    # Memory.

    def read_memory(self, address: int, size: int) -> bytes:
        """Copy memory, in the largest packets that the server takes."""
        is_binary = self._offer.has("binary-upload")
        room = self._offer.payload_bytes
        chunk = (room // 2) & ~3
        data = bytearray()
        while len(data) < size:
            at, wanted = address + len(data), min(chunk, size - len(data))
            what = f"to read {wanted} bytes at {at:#010x}"
            answer = self._ask(b"%c%x,%x" % (b"x" if is_binary else b"m", at, wanted), what)
            if is_binary:
                part = answer[1:] if answer[:1] == b"b" else b""
            else:
                part = self._from_hex(answer, what)
            # A server may send less, as at the end of a memory.
            if not part or len(part) > wanted:
                raise DeviceError(
                    f"asked {what}, {self.dialect.name} sent {len(part)} bytes: is it memory?"
                )
            data += part
        return bytes(data)

    def write_memory(self, address: int, data: bytes) -> None:
        """Change memory, in the largest packets that the server takes."""
        if self._writes_binary is None and data:
            answer = self._ask(b"X%x,0:" % address, "to write binary", may_fail=True)
            self._writes_binary = answer == b"OK"
        room = self._offer.payload_bytes
        at = 0
        while at < len(data):
            if self._writes_binary:
                count, coded = escaped_prefix(data[at : at + room], room)
                command = b"X"
            else:
                count = min((room // 2) & ~3, len(data) - at)
                coded, command = data[at : at + count].hex().encode(), b"M"
            what = f"to write {count} bytes at {address + at:#010x}"
            self._ask_ok(b"%b%x,%x:%b" % (command, address + at, count, coded), what)
            at += count

    # Registers.

    def read_register(self, name: str) -> int:
        """A register by its name in lower case, such as ``pc`` or ``xpsr``."""
        register, what = self._register(name), f"for register {name}"
        if self._reads_single:
            answer = self._ask(b"p%x" % register.number, what, may_fail=True)
            if answer and not _ERROR.match(answer):
                return int.from_bytes(self._from_hex(answer, what), "little")
            self._reads_single = False
        place = slice(register.offset, register.end)
        return int.from_bytes(self._all_registers(register.end)[place], "little")

    def write_register(self, name: str, value: int) -> None:
        """Change a register of the halted core."""
        register = self._register(name)
        if value >> 8 * register.size_bytes:
            raise DeviceError(
                f"{self.dialect.name} says that register {name} has {register.size_bytes} bytes, "
                f"which do not hold {value:#x}; use another debug server"
            )
        data = value.to_bytes(register.size_bytes, "little")
        if self._writes_single:
            answer = self._ask(
                b"P%x=%b" % (register.number, data.hex().encode()),
                f"to set register {name}",
                may_fail=True,
            )
            if answer == b"OK":
                return
            self._writes_single = False
        all_of_them = bytearray(self._all_registers(register.end))
        all_of_them[register.offset : register.end] = data
        self._ask_ok(b"G" + all_of_them.hex().encode(), f"to set register {name}")

    # Running and stopping.

    def insert_breakpoint(self, address: int) -> None:
        """Stop before the instruction there; in hardware, or in RAM if there is none free."""
        where = b"%x,2" % (address & ~1)
        what = f"for a breakpoint at {address & ~1:#010x}"
        # Hardware first: software breakpoints in flash are not every server's. OpenOCD refuses
        # one that it has already.
        for command in (b"Z1,", b"z1,", b"Z1,"):
            answer = self._ask(command + where, what, may_fail=True)
            if command == b"Z1," and answer == b"OK":
                return
        self._ask_ok(b"Z0," + where, what)

    def resume(self) -> None:
        """Let the halted core run; ``wait_for_stop`` follows, or ``interrupt``."""
        self._send(self._resume)
        self._is_running = True

    def step(self) -> Stop:
        """One instruction."""
        self._send(self._single_step)
        self._is_running = True
        return self.wait_for_stop(self._timeouts.reply_s)

    def wait_for_stop(self, timeout_s: float) -> Stop:
        """LinkTimeout, and the core runs on, if it does not stop by itself."""
        return self._next_stop("for the core to stop", timeout_s)

    def interrupt(self) -> Stop:
        """Halt the running core."""
        self._stream.write(INTERRUPT, self._timeouts.reply_s)
        return self._next_stop("to halt the core", self._timeouts.reply_s)

    def command(self, text: str) -> str:
        """A command to the server itself; what it printed."""
        what = f"for its command {text!r}"
        self._send(b"qRcmd," + text.encode().hex().encode())
        printed: list[bytes] = []
        deadline = time.monotonic() + self._timeouts.command_s
        while True:
            answer = self._next_answer(what, deadline)
            # Output comes in packets of its own, or, from pyOCD, as the answer itself.
            if answer[:1] == b"O" and answer != b"OK":
                printed.append(self._from_hex(answer[1:], what))
            elif answer == b"OK":
                break
            else:
                said = " ".join(b"".join(printed).decode("utf-8", "replace").split())
                self._refuse(answer, f"{what} ({said})" if said else what)
                output = self._from_hex(answer, what)
                if output.startswith(SPOKEN_ERRORS):
                    reason = " ".join(output.decode("utf-8", "replace").split())
                    raise DeviceError(f"asked {what}, {self.dialect.name} answered: {reason}")
                printed.append(output)
                break
        return b"".join(printed).decode("utf-8", "replace")

    def read_object(self, kind: str, name: str) -> str:
        """A file that the server makes up, such as its memory map; empty if it does not."""
        data, chunk = b"", self._offer.payload_bytes
        while len(data) < _MAX_OBJECT_BYTES:
            ask = f"qXfer:{kind}:read:{name}:{len(data):x},{chunk:x}".encode()
            answer = self._ask(ask, f"for its {kind} {name}".rstrip(), may_fail=True)
            if answer[:1] not in (b"l", b"m") or answer == b"m":
                return ""
            data += answer[1:]
            if answer[:1] == b"l":
                break
        return data.decode("utf-8", "replace")

    def request(self, body: bytes, what: str, timeout_s: float | None = None) -> bytes:
        """Any other packet; empty if the server does not know it."""
        return self._ask(body, what, may_fail=True, timeout_s=timeout_s)

    def reset(self) -> None:
        """Restart the system; the core is halted afterwards."""
        for text in self.dialect.reset:
            self.command(text)
        if not self.dialect.reset:
            self.write_memory(_AIRCR_ADDRESS, _AIRCR_RESET.to_bytes(4, "little"))

    # The dialogue.

    def _register(self, name: str) -> Register:
        try:
            return self._registers[name]
        except KeyError:
            raise DeviceError(f"{self.dialect.name} knows no register {name!r}") from None

    def _all_registers(self, wanted_bytes: int) -> bytes:
        what = "for all registers"
        # Registers that cannot be read come as x.
        found = self._from_hex(self._ask(b"g", what).replace(b"x", b"0"), what)
        if len(found) < wanted_bytes:
            raise DeviceError(
                f"asked {what}, {self.dialect.name} sent {len(found)} bytes, and {wanted_bytes} "
                "are needed; use another debug server"
            )
        return found

    def _ask_ok(self, body: bytes, what: str) -> None:
        answer = self._ask(body, what)
        if answer != b"OK":
            raise DeviceError(
                f"asked {what}, {self.dialect.name} answered {_shown(answer)} instead of OK; "
                "reset the board"
            )

    def _ask(
        self,
        body: bytes,
        what: str,
        *,
        may_fail: bool = False,
        keep: Callable[[bytes], bool] | None = None,
        timeout_s: float | None = None,
    ) -> bytes:
        """One exchange. ``keep`` tells the answer from what was still under way before it."""
        self._send(body)
        deadline = time.monotonic() + (timeout_s or self._timeouts.reply_s)
        while True:
            answer = self._next_answer(what, deadline)
            if keep is None or keep(answer):
                break
        if not may_fail:
            self._refuse(answer, what, is_optional=body[:1] in b"qQv")
        return answer

    def _refuse(self, answer: bytes, what: str, *, is_optional: bool = False) -> None:
        """An error's number or an empty answer as a sentence."""
        if _ERROR.match(answer):
            code = answer[1:].decode("ascii", "replace").lstrip(".")
            raise DeviceError(
                f"asked {what}, {self.dialect.name} refused with error {code}; is there memory, "
                "and is the core halted and powered?",
            )
        if not answer and not is_optional:
            raise DeviceError(f"asked {what}, {self.dialect.name} said that it cannot do that")

    def _from_hex(self, text: bytes, what: str) -> bytes:
        try:
            return bytes.fromhex(text.decode("ascii"))
        except ValueError:
            raise LinkError(
                f"asked {what}, {self.dialect.name} answered {_shown(text)}, which is not "
                "hexadecimal: does a GDB server listen there?"
            ) from None

    def _next_answer(self, what: str, deadline_s: float) -> bytes:
        """The next packet that is no stop: those that nobody asked for, as QEMU's first, pass."""
        while True:
            body = self._next_packet(what, deadline_s)
            if not _STOP.match(body):
                return body

    def _next_stop(self, what: str, timeout_s: float) -> Stop:
        deadline = time.monotonic() + timeout_s
        while True:
            body = self._next_packet(what, deadline)
            if _STOP.match(body):
                self._is_running = False
                return Stop(int(body[1:3], 16), body.decode("ascii", "replace"))
            if body[:1] == b"O" and body != b"OK":
                log.debug("debug server: %s", self._from_hex(body[1:], what))
            elif _ERROR.match(body) or not body:
                self._is_running = False
                self._refuse(body, what)
            else:
                raise LinkError(
                    f"waiting {what}, {self.dialect.name} sent {_shown(body)}: the dialogue is "
                    "out of step; connect again"
                )

    def _send(self, body: bytes) -> None:
        log.debug("-> %s", _Shown(body))
        self._last_sent = encode_packet(body)
        self._repeats = 0
        self._stream.write(self._last_sent, self._timeouts.reply_s)

    def _next_packet(self, what: str, deadline_s: float) -> bytes:
        while True:
            left_s = deadline_s - time.monotonic()
            # What has arrived is looked at after the deadline too, but no server talks for ever.
            if left_s < (-self._timeouts.reply_s if self._items else 0):
                raise LinkTimeout(
                    f"asked {what}, {self.dialect.name} did not answer in time; is it still "
                    "connected to the core?"
                )
            if not self._items:
                arrived = self._stream.read(_READ_BYTES, left_s)
                self._items += self._decoder.feed(arrived)
                continue
            item = self._items.pop(0)
            if isinstance(item, Packet):
                log.debug("<- %s", _Shown(item.body))
                if self._acknowledges:
                    self._stream.write(ACK, self._timeouts.reply_s)
                return item.body
            if isinstance(item, DamagedPacket):
                self._repeat(NACK if self._acknowledges else b"", f"a packet {item.why}")
            elif not item.is_good:
                self._repeat(self._last_sent, "it got ours damaged")

    def _repeat(self, data: bytes, why: str) -> None:
        self._repeats += 1
        if not data or self._repeats > _MAX_REPEATS:
            raise LinkError(
                f"the dialogue with {self.dialect.name} is damaged ({why}); does a GDB server "
                "listen there? Connect again"
            )
        self._stream.write(data, self._timeouts.reply_s)


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
