"""A client of a GDB server: memory, registers, breakpoints, running and stopping one core.

It knows a single thread, and what each packet does; dialogue.py sends the packets. The target knows
the registers. Every wait has a deadline. A refusal of the server is a DeviceError, and any problem
of the dialogue is a LinkError. After that, ``greet`` begins again, if the stream is still open.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass

from utvm_deploy.base.errors import BoardError, DeviceError
from utvm_deploy.device.link.deadlines import probe_s
from utvm_deploy.device.link.gdb.dialects import (
    DEFAULT_PACKET_BYTES,
    SPOKEN_ERRORS,
    Dialect,
    Offer,
    parse_offer,
)
from utvm_deploy.device.link.gdb.dialogue import Dialogue, is_error
from utvm_deploy.device.link.gdb.packets import Stop, escaped_prefix
from utvm_deploy.device.link.gdb.registers import read_registers
from utvm_deploy.device.link.stream import Stream
from utvm_deploy.targets.contract.debugger import Debugger, Register
from utvm_deploy.targets.contract.target import Target

log = logging.getLogger("utvm_deploy.device.link")

# The most bytes of a file that a server is believed to have.
_MAX_OBJECT_BYTES = 256 * 1024


@dataclass(frozen=True)
class GdbTimeouts:
    """Every wait for a server, in seconds."""

    # One packet. A probe that moves 16 KB at 100 kHz takes 2 s.
    reply_s: float = 5.0
    # A command to the server itself: OpenOCD's reset waits for the target.
    command_s: float = 10.0
    # All packets that begin a dialogue, with the description of the registers.
    greet_s: float = 30.0


def debugger_of(target: Target) -> Debugger:
    """What a debugger needs to know; BoardError if the target does not say it."""
    if target.debugger is None:
        raise BoardError(
            f"no debugger can run tasks on cores of the target {target.name}; take another link"
        )
    return target.debugger


class GdbClient:
    """One core behind a GDB server. ``close`` closes the stream."""

    def __init__(self, stream: Stream, target: Target, timeouts: GdbTimeouts | None = None) -> None:
        self.target = target
        self._debugger = debugger_of(target)
        self._timeouts = timeouts or GdbTimeouts()
        self._dialogue = Dialogue(stream, self._timeouts.reply_s)
        self._forget()

    def _forget(self) -> None:
        self._heed(Offer(DEFAULT_PACKET_BYTES, frozenset()))
        self._registers: Mapping[str, Register] = self._debugger.assumed
        # pyOCD 0.46 takes P, but answers p with nothing.
        self._reads_single, self._writes_single = True, True
        # Whether X is understood; None: not tried yet.
        self._writes_binary: bool | None = None
        self._resume, self._single_step = b"c", b"s"

    def _heed(self, offer: Offer) -> None:
        self._offer = offer
        self._dialogue.server = offer.dialect.name

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
        return self._dialogue.is_running

    # The session.

    def greet(self) -> None:
        """Begin a dialogue; the core is halted afterwards."""
        with self._dialogue.within(self._timeouts.greet_s):
            self._greet()

    def _greet(self) -> None:
        self._forget()
        self._dialogue.begin()
        ask = self._dialogue.ask
        wanted = b"qSupported:swbreak+;hwbreak+;vContSupported+;xmlRegisters="
        wanted += self._debugger.architecture.encode()
        answer = ask(wanted, "what it supports", keep=lambda b: not b or b"PacketSize" in b)
        self._heed(parse_offer(answer.decode("ascii", "replace")))
        if self._offer.has("QStartNoAckMode") and ask(b"QStartNoAckMode", "to skip acks"):
            self._dialogue.acknowledges = False
        if self._offer.has("vContSupported"):
            actions = ask(b"vCont?", "how it continues").split(b";")[1:]
            if b"c" in actions and b"s" in actions:
                self._resume, self._single_step = b"vCont;c", b"vCont;s"
        # QEMU has no single registers until its description has been read.
        if self._offer.has("qXfer:features:read"):
            found = read_registers(
                lambda name: self.read_object("features", name), self._debugger.registers
            )
            self._registers = found or self._debugger.assumed
        self._dialogue.send(b"?")
        self._dialogue.next_stop("why the core stands", self._timeouts.reply_s)
        log.debug("debug server %s: %s", self.dialect.name, self._offer)

    def detach(self) -> None:
        """Let the core run without us."""
        self._dialogue.ask_ok(b"D", "to let go of the core")

    def close(self) -> None:
        """Let go of the stream. May be called again."""
        self._dialogue.close()

    def within(self, seconds: float) -> contextlib.AbstractContextManager[None]:
        """All that the block asks of the server ends by this time."""
        return self._dialogue.within(seconds)

    # Memory.

    def read_memory(self, address: int, size: int) -> bytes:
        """Copy memory, in the largest packets that the server takes."""
        with self._dialogue.within(probe_s(size, self._timeouts.reply_s)):
            return self._read_memory(address, size)

    def _read_memory(self, address: int, size: int) -> bytes:
        is_binary = self._offer.has("binary-upload")
        room = self._offer.payload_bytes
        chunk = (room // 2) & ~3
        data = bytearray()
        while len(data) < size:
            at, wanted = address + len(data), min(chunk, size - len(data))
            what = f"to read {wanted} bytes at {at:#010x}"
            answer = self._dialogue.ask(
                b"%c%x,%x" % (b"x" if is_binary else b"m", at, wanted), what
            )
            if is_binary:
                part = answer[1:] if answer[:1] == b"b" else b""
            else:
                part = self._dialogue.from_hex(answer, what)
            # A server may send less, as at the end of a memory.
            if not part or len(part) > wanted:
                raise DeviceError(
                    f"asked {what}, {self.dialect.name} sent {len(part)} bytes: is it memory?"
                )
            data += part
        return bytes(data)

    def write_memory(self, address: int, data: bytes) -> None:
        """Change memory, in the largest packets that the server takes."""
        with self._dialogue.within(probe_s(len(data), self._timeouts.reply_s)):
            self._write_memory(address, data)

    def _write_memory(self, address: int, data: bytes) -> None:
        if self._writes_binary is None and data:
            answer = self._dialogue.ask(b"X%x,0:" % address, "to write binary", may_fail=True)
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
            self._dialogue.ask_ok(b"%b%x,%x:%b" % (command, address + at, count, coded), what)
            at += count

    # Registers.

    def read_register(self, name: str) -> int:
        """A register by its name in lower case, such as ``pc`` or ``sp``."""
        register, what = self._register(name), f"for register {name}"
        if self._reads_single:
            answer = self._dialogue.ask(b"p%x" % register.number, what, may_fail=True)
            if answer and not is_error(answer):
                value = self._dialogue.from_hex(answer, what)
                if len(value) != register.size_bytes:
                    raise DeviceError(
                        f"asked {what}, {self.dialect.name} sent {len(value)} bytes, and it has "
                        f"{register.size_bytes}; use another debug server"
                    )
                return int.from_bytes(value, "little")
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
            answer = self._dialogue.ask(
                b"P%x=%b" % (register.number, data.hex().encode()),
                f"to set register {name}",
                may_fail=True,
            )
            if answer == b"OK":
                return
            self._writes_single = False
        all_of_them = bytearray(self._all_registers(register.end))
        all_of_them[register.offset : register.end] = data
        self._dialogue.ask_ok(b"G" + all_of_them.hex().encode(), f"to set register {name}")

    # Running and stopping.

    def start_at(self, address: int) -> None:
        """Set the halted core to the code there; ``resume`` follows."""
        for name, value in self._debugger.start.items():
            self.write_register(name, value)
        self.write_register("pc", address)

    def insert_breakpoint(self, address: int) -> None:
        """Stop before the instruction there; in hardware, or in RAM if there is none free."""
        address &= ~self.target.code_bit
        where = b"%x,%x" % (address, self._debugger.breakpoint_kind)
        what = f"for a breakpoint at {address:#010x}"
        # Hardware first: software breakpoints in flash are not every server's. OpenOCD refuses
        # one that it has already.
        for command in (b"Z1,", b"z1,", b"Z1,"):
            answer = self._dialogue.ask(command + where, what, may_fail=True)
            if command == b"Z1," and answer == b"OK":
                return
        self._dialogue.ask_ok(b"Z0," + where, what)

    def resume(self) -> None:
        """Let the halted core run; ``wait_for_stop`` follows, or ``interrupt``."""
        self._dialogue.send(self._resume)
        self._dialogue.is_running = True

    def step(self) -> Stop:
        """One instruction."""
        self._dialogue.send(self._single_step)
        self._dialogue.is_running = True
        return self.wait_for_stop(self._timeouts.reply_s)

    def wait_for_stop(self, timeout_s: float) -> Stop:
        """LinkTimeout, and the core runs on, if it does not stop by itself."""
        return self._dialogue.next_stop("for the core to stop", timeout_s)

    def interrupt(self) -> Stop:
        """Halt the running core."""
        self._dialogue.interrupt()
        return self._dialogue.next_stop("to halt the core", self._timeouts.reply_s)

    def command(self, text: str) -> str:
        """A command to the server itself; what it printed."""
        what = f"for its command {text!r}"
        self._dialogue.send(b"qRcmd," + text.encode().hex().encode())
        printed: list[bytes] = []
        deadline = time.monotonic() + self._timeouts.command_s
        while True:
            answer = self._dialogue.next_answer(what, deadline)
            # Output comes in separate packets, or, from pyOCD, as the answer itself.
            if answer[:1] == b"O" and answer != b"OK":
                printed.append(self._dialogue.from_hex(answer[1:], what))
            elif answer == b"OK":
                break
            else:
                said = " ".join(b"".join(printed).decode("utf-8", "replace").split())
                self._dialogue.refuse(answer, f"{what} ({said})" if said else what)
                output = self._dialogue.from_hex(answer, what)
                if output.startswith(SPOKEN_ERRORS):
                    reason = " ".join(output.decode("utf-8", "replace").split())
                    raise DeviceError(f"asked {what}, {self.dialect.name} answered: {reason}")
                printed.append(output)
                break
        return b"".join(printed).decode("utf-8", "replace")

    def read_object(self, kind: str, name: str) -> str:
        """A file that the server makes up, such as its memory map; empty if it does not."""
        with self._dialogue.within(self._timeouts.command_s):
            return self._read_object(kind, name)

    def _read_object(self, kind: str, name: str) -> str:
        data, chunk = b"", self._offer.payload_bytes
        what = f"for its {kind} {name}".rstrip()
        while True:
            ask = f"qXfer:{kind}:read:{name}:{len(data):x},{chunk:x}".encode()
            answer = self._dialogue.ask(ask, what, may_fail=True)
            if answer[:1] not in (b"l", b"m") or answer == b"m":
                return ""
            data += answer[1:]
            if len(answer) > chunk + 1 or len(data) > _MAX_OBJECT_BYTES:
                raise DeviceError(
                    f"asked {what}, {self.dialect.name} sent {len(answer) - 1} bytes of "
                    f"{len(data)}, more than was asked for or than such a file has; use another "
                    "debug server"
                )
            if answer[:1] == b"l":
                return data.decode("utf-8", "replace")

    def request(self, body: bytes, what: str, timeout_s: float | None = None) -> bytes:
        """Any other packet; empty if the server does not know it."""
        return self._dialogue.ask(body, what, may_fail=True, timeout_s=timeout_s)

    def reset(self) -> None:
        """Restart the system; the core is halted afterwards."""
        for text in self.dialect.reset:
            self.command(text)
        if self.dialect.reset:
            return
        if self._debugger.reset is None:
            raise DeviceError(
                f"it is not known how {self.dialect.name} resets a core of the target "
                f"{self.target.name}; use OpenOCD or J-Link"
            )
        address, word = self._debugger.reset
        self.write_memory(address, word.to_bytes(4, "little"))

    # Registers, one and all.

    def _register(self, name: str) -> Register:
        try:
            return self._registers[name]
        except KeyError:
            raise DeviceError(f"{self.dialect.name} knows no register {name!r}") from None

    def _all_registers(self, wanted_bytes: int) -> bytes:
        what = "for all registers"
        # Registers that cannot be read come as x.
        found = self._dialogue.from_hex(self._dialogue.ask(b"g", what).replace(b"x", b"0"), what)
        if len(found) < wanted_bytes:
            raise DeviceError(
                f"asked {what}, {self.dialect.name} sent {len(found)} bytes, and {wanted_bytes} "
                "are needed; use another debug server"
            )
        return found
