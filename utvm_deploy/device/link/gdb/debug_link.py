"""The link through a debugger's server: the core is halted, except while it runs tasks.

The server moves memory. Everything that needs the runtime is a request of the same messages as on a
line. Its payload and a mailbox are written to RAM, and the core is started at ``utvm_debug_run``.
It stops at the breakpoint on ``utvm_debug_point`` when the reply is in RAM. The image needs no
UART.

    reset ──▶ start-up ──▶ point ◀──▶ run (one request)
                             ▲            │ fault that the runtime cannot catch, endless loop
                             └── restart ─┘
"""

from __future__ import annotations

import contextlib
import logging
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from utvm_deploy.base.errors import DeviceError, DeviceReset, LinkError, LinkTimeout, UtvmError
from utvm_deploy.device.link.base import Hello, Region, Task
from utvm_deploy.device.link.deadlines import Speeds, probe_s
from utvm_deploy.device.link.fault import FAULT_BYTES, FAULT_SYMBOL, describe_fault, kept_fault
from utvm_deploy.device.link.gdb.client import GdbClient
from utvm_deploy.device.link.gdb.packets import Stop
from utvm_deploy.device.link.messages import (
    BY_NAME,
    MAILBOX,
    OUTCOME,
    PROTOCOL_VERSION,
    REGION,
    REPLY_BIT,
)
from utvm_deploy.device.link.replies import (
    check_region_count,
    check_version,
    contents,
    read_hello,
    read_regions,
    region_of,
)
from utvm_deploy.device.link.task_lists import run_task_lists, whole_room

log = logging.getLogger("utvm_deploy.device.link")

# Symbols of the port's debugger.c and start-up code.
MAILBOX_SYMBOL = "utvm_mailbox"
RUN_SYMBOL = "utvm_debug_run"
POINT_SYMBOL = "utvm_debug_point"
# Where a fault ends that the runtime could not stop, after its record was written.
FAULT_POINT_SYMBOL = "utvm_fault_point"


# OPEN gives the room of a reply in 16 bits.
_LONGEST_REPLY_BYTES = 0xFFFF


@dataclass(frozen=True)
class DebugTimeouts:
    """Every wait for the core, in seconds; those for its server are the client's."""

    # From a reset to the point where requests are taken.
    boot_s: float = 10.0
    # One request other than a list of tasks.
    request_s: float = 5.0
    # Beyond the tasks' own deadline, so that the device's report of it comes first.
    last_s: float = 0.5


class DebugLink:
    """A ``link.base.Link`` through a GDB server. ``close`` closes the client too.

    ``symbols`` are those of the image that runs; ``place_of`` names the code at an address.
    """

    def __init__(
        self,
        client: GdbClient,
        symbols: Mapping[str, int],
        timeouts: DebugTimeouts | None = None,
        place_of: Callable[[int], str] = "{:#010x}".format,
        speeds: Speeds | None = None,
    ) -> None:
        missing = {MAILBOX_SYMBOL, RUN_SYMBOL, POINT_SYMBOL} - symbols.keys()
        if missing:
            raise DeviceError(
                f"the image has no {', '.join(sorted(missing))}, so that a debugger cannot run "
                "tasks in it; build it again with this version"
            )
        self._client = client
        self._timeouts = timeouts or DebugTimeouts()
        self._speeds = speeds or Speeds()
        self._place_of = place_of
        self._mailbox_at = symbols[MAILBOX_SYMBOL]
        self._run = self._code(symbols[RUN_SYMBOL])
        self._point = self._code(symbols[POINT_SYMBOL])
        fault_point = symbols.get(FAULT_POINT_SYMBOL)
        self._fault_point = None if fault_point is None else self._code(fault_point)
        self._record_at = symbols.get(FAULT_SYMBOL)
        self._is_open = True
        self._forget()

    def _forget(self) -> None:
        """The next call begins with a restart."""
        self._is_at_point = False
        self._hello: Hello | None = None
        self._regions: tuple[Region, ...] | None = None
        self._mailbox: dict[str, int] = {}
        # The range that was written where code may be, since the runtime was informed: first byte,
        # end.
        self._written: tuple[int, int] | None = None

    def __enter__(self) -> DebugLink:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # The primitives.

    def hello(self) -> Hello:
        """Begin a session; restarts the device unless it is still where we left it."""
        if not self._stands():
            self._restart()
        body = self._request("OPEN", b"", "to say hello")
        self._regions = None
        self._hello = read_hello(body, PROTOCOL_VERSION)
        return self._hello

    def regions(self) -> tuple[Region, ...]:
        """What the device lets be read, written and executed."""
        count = self._greeted().region_count
        if self._regions is None:
            check_region_count(count)
            found: list[Region] = []
            with self._client.within(probe_s(count * REGION.size_bytes, self._timeouts.request_s)):
                while len(found) < count:
                    ask = BY_NAME["REGIONS"].pack_request(len(found))
                    what = "to list its regions"
                    records = self._request("REGIONS", ask, what)
                    found += read_regions(records, count - len(found), what)
            self._regions = tuple(found)
        return self._regions

    def read(self, address: int, size: int) -> bytes:
        """Copy ``size`` bytes of the device's memory."""
        what = f"to read {size} bytes at {address:#010x}"
        self._region(address, size, "readable", what)
        with self._session():
            return self._client.read_memory(address, size)

    def write(self, address: int, data: bytes) -> None:
        """Copy ``data`` to the device's memory."""
        what = f"to write {len(data)} bytes at {address:#010x}"
        region = self._region(address, len(data), "writable", what)
        with self._session():
            self._client.write_memory(address, data)
        if region.executable and data:
            begin, end = self._written or (address, address)
            self._written = min(begin, address), max(end, address + len(data))

    def execute(self, tasks: Sequence[Task], timeout_s: float) -> list[tuple[int, ...]]:
        """Run ``tasks`` in order; the ticks of every repeat of every task.

        A task that the device stopped is a DeviceFault or TaskTimeout, as over any link. If the
        device does not come back, it is halted: a LinkTimeout that says where it was. If it faulted
        beyond the runtime's help, that is a DeviceReset that says why.
        """

        def run(payload: bytes, what: str, left_s: float) -> bytes:
            return self._request("EXECUTE", payload, what, left_s + self._timeouts.last_s)

        room = whole_room(self._greeted())
        return run_task_lists(tasks, lambda: room, timeout_s, run)

    def checksum(self, address: int, size: int) -> int:
        """CRC-32 of ``size`` bytes of the device's memory, computed there."""
        self._greeted()
        message = BY_NAME["CHECKSUM"]
        body = self._request(
            "CHECKSUM",
            message.pack_request(address, size, 0),
            f"to checksum {size} bytes at {address:#010x}",
            self._speeds.host_s(self._speeds.task_s(size), floor_s=self._timeouts.request_s),
        )
        return message.reply.unpack(body)["crc"]

    def reset(self) -> None:
        """Restart the device and greet it; what was in its RAM is lost."""
        self._forget()
        self.hello()

    def close(self) -> None:
        """Let the core run without us. May be called again."""
        if self._is_open:
            self._is_open = False
            if self._is_at_point:
                with contextlib.suppress(UtvmError):
                    self._client.detach()
            self._client.close()

    def _code(self, address: int) -> int:
        """Where a function is, by its address."""
        return address & ~self._client.target.code_bit

    def _pc(self) -> int:
        return self._code(self._client.read_register("pc"))

    # Requests.

    def _greeted(self) -> Hello:
        return self._hello or self.hello()

    @contextlib.contextmanager
    def _session(self) -> Iterator[None]:
        """If a dialogue breaks within the block, even by Ctrl-C, the next call begins a new one."""
        try:
            yield
        except DeviceError:
            raise
        except BaseException:
            self._forget()
            raise

    def _region(self, address: int, size: int, right: str, what: str) -> Region:
        return region_of(self.regions(), address, size, right, what)

    def _request(
        self, name: str, payload: bytes, what: str, timeout_s: float | None = None
    ) -> bytes:
        """The contents of the reply to a request, after its outcome."""
        opcode = BY_NAME[name].opcode
        with self._session():
            self._post(opcode, payload)
            self._client.resume()
            try:
                stop = self._client.wait_for_stop(
                    self._timeouts.request_s if timeout_s is None else max(timeout_s, 0)
                )
            except LinkTimeout:
                raise self._stuck(what) from None
            mailbox = self._read_mailbox()
            if mailbox["opcode"] != opcode | REPLY_BIT:
                raise self._astray(what, stop)
            length = mailbox["length"]
            if not OUTCOME.size_bytes <= length <= _LONGEST_REPLY_BYTES:
                raise LinkError(
                    f"asked {what}, the runtime says that its reply has {length} bytes: something "
                    "overwrote its memory; reset the device"
                )
            reply = self._client.read_memory(mailbox["reply"], length)
        return contents(name, reply, what, self._place_of)

    def _post(self, opcode: int, payload: bytes) -> None:
        """Put a request into RAM, and set the core to the code that serves it."""
        client, offsets = self._client, {f.name: at for f, at in MAILBOX.offsets()}
        begin, end = self._written or (0, 0)
        if payload:
            client.write_memory(self._mailbox["request"], payload)
        words = struct.pack("<4I", opcode, len(payload), begin, end - begin)
        client.write_memory(self._mailbox_at + offsets["opcode"], words)
        client.start_at(self._run)
        self._written = None

    def _read_mailbox(self) -> dict[str, int]:
        return MAILBOX.unpack(self._client.read_memory(self._mailbox_at, MAILBOX.size_bytes))

    # Restarts, and what leads to them.

    def _attach(self) -> None:
        """Begin the dialogue with the server; the breakpoints of an older one are removed."""
        self._client.greet()
        self._insert_breakpoints()

    def _insert_breakpoints(self) -> None:
        self._client.insert_breakpoint(self._point)
        if self._fault_point is not None:
            self._client.insert_breakpoint(self._fault_point)

    def _stands(self) -> bool:
        """Whether the core waits for requests, and is the one that we know.

        Somebody else may have restarted it, and its server with it.
        """
        if not self._is_at_point:
            return False
        with self._session():
            self._attach()
            pc = self._pc()
            return pc == self._point and self._read_mailbox()["nonce"] == self._mailbox["nonce"]

    def _restart(self) -> None:
        """Restart the core, and let it run to the point where it waits for requests."""
        self._forget()
        client = self._client
        with self._session():
            self._attach()
            client.reset()
            # st-util forgets them at a reset.
            self._insert_breakpoints()
            client.resume()
            try:
                stop = client.wait_for_stop(self._timeouts.boot_s)
            except LinkTimeout:
                raise self._stuck("to start") from None
            if self._pc() != self._point:
                raise self._astray("to start", stop)
            self._mailbox = self._read_mailbox()
        check_version(self._mailbox["version"])
        self._is_at_point = True

    def _stuck(self, what: str) -> LinkTimeout:
        """The core did not come back: halt it, and say where it was."""
        self._forget()
        self._client.interrupt()
        place = self._place_of(self._pc())
        return LinkTimeout(
            f"asked {what}, the device did not come back in time and was halted in {place}; "
            "it restarts at the next call, and what is in its RAM is lost"
        )

    def _astray(self, what: str, stop: Stop) -> DeviceError:
        """The core did not stop at the point, or stopped there without a reply."""
        self._forget()
        if stop.is_gone:
            raise LinkError(f"asked {what}, the debug server ended the program ({stop.text})")
        pc = self._pc()
        if pc == self._fault_point:
            why = f"the device faulted ({self._fault_words()})"
        elif pc == self._point:
            why = "the device restarted"
        else:
            why = f"the core stopped in {self._place_of(pc)} (signal {stop.signal})"
        return DeviceReset(
            f"asked {what}, {why}: what was in its RAM is lost; load the model again"
        )

    def _fault_words(self) -> str:
        """What the record says that the fault's handler has just written."""
        if self._record_at is None:
            return "cause unknown"
        try:
            memory = self._client.read_memory(self._record_at, FAULT_BYTES)
            # The next restart may have another reason.
            self._client.write_memory(self._record_at, bytes(FAULT_BYTES))
            fault = kept_fault(memory)
        except DeviceError as error:
            return f"its record cannot be read: {error}"
        return "cause unknown" if fault is None else describe_fault(fault, self._place_of)
