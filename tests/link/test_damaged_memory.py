"""What the host does with replies of a device whose memory something overwrote."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from utvm_deploy.base.errors import DeviceError, DeviceFault, DeviceReset, LinkError
from utvm_deploy.device.calls import Call
from utvm_deploy.device.link.base import Hello, Task
from utvm_deploy.device.link.fault import FAULT_BYTES, FAULT_SYMBOL
from utvm_deploy.device.link.gdb.combined import CombinedLink
from utvm_deploy.device.link.gdb.debug_link import (
    FAULT_POINT_SYMBOL,
    MAILBOX_SYMBOL,
    POINT_SYMBOL,
    RUN_SYMBOL,
    DebugLink,
)
from utvm_deploy.device.link.gdb.packets import Stop
from utvm_deploy.device.link.messages import BY_NAME, FAULT, MAILBOX, PROTOCOL_VERSION, REPLY_BIT
from utvm_deploy.device.queue import CHECK_SYMBOL, FILL_SYMBOL, FILL_ZONES_SYMBOL, Queue
from utvm_deploy.targets.arm_m.target import ARM_M

MAILBOX_AT, RUN, POINT = 0x2000_0000, 0x100, 0x200
SYMBOLS = {MAILBOX_SYMBOL: MAILBOX_AT, RUN_SYMBOL: RUN, POINT_SYMBOL: POINT}
HELLO = Hello(2, "1.0", 7, 256, 256, 1000, "cycles", 0x2000_1000, 4096, 0, "")


class Core:
    """In a GdbClient's place: a core that stands at the point, with a mailbox of our choosing."""

    target = ARM_M

    def __init__(self, length: int = 0, version: int = PROTOCOL_VERSION) -> None:
        opcode = BY_NAME["OPEN"].opcode | REPLY_BIT
        self.mailbox = MAILBOX.pack(version, 7, 0, 0, opcode, length, 0, 0)
        self.told: list[str] = []

    def read_memory(self, address: int, size: int) -> bytes:
        assert (address, size) == (MAILBOX_AT, MAILBOX.size_bytes)
        return self.mailbox

    def read_register(self, name: str) -> int:
        return POINT

    def wait_for_stop(self, timeout_s: float) -> Stop:
        return Stop(5, "T05")

    def __getattr__(self, name: str) -> object:
        return lambda *_: self.told.append(name)


@pytest.mark.parametrize("length", [0, 7, 0x1_0000, 0xFFFF_FFFF])
def test_a_reply_of_impossible_length_is_not_read(length: int) -> None:
    link = DebugLink(Core(length), SYMBOLS)  # type: ignore[arg-type]
    with pytest.raises(LinkError, match=f"its reply has {length} bytes: something overwrote"):
        link.hello()


@pytest.mark.parametrize(
    ("version", "advice"), [(3, "build the image again"), (5, "update utvm_deploy")]
)
def test_a_mailbox_of_another_protocol(version: int, advice: str) -> None:
    link = DebugLink(Core(version=version), SYMBOLS)  # type: ignore[arg-type]
    with pytest.raises(DeviceError, match=f"protocol version {version}, this .* 4: {advice}"):
        link.hello()


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (FAULT.pack(1, 2) + (5).to_bytes(4, "little") + bytes(4), r"bus fault: cause unknown\)"),
        (b"\xff" * 64, "its record cannot be read: the device sent a fault record of .* bytes"),
        (None, "cause unknown"),
    ],
)
def test_a_fault_beyond_the_runtimes_help(record: bytes | None, said: str) -> None:
    """The words of its record, once: the next restart may have another reason."""
    record_at, point = 0x2000_2000, 0x300

    class Faulted(Core):
        def read_register(self, name: str) -> int:
            return point

        def read_memory(self, address: int, size: int) -> bytes:
            assert (address, size) == (record_at, FAULT_BYTES)
            return (b"" if record is None else b"FLT4" + record).ljust(size, b"\0")

    core = Faulted()
    symbols = {**SYMBOLS, FAULT_POINT_SYMBOL: point, FAULT_SYMBOL: record_at}
    with pytest.raises(DeviceReset, match=rf"asked to start, the device faulted \({said}"):
        DebugLink(core, symbols).hello()  # type: ignore[arg-type]
    assert core.told[-1] == "write_memory"


def test_a_core_runs_on_although_a_copy_was_interrupted() -> None:
    class Interrupted(Core):
        def read_memory(self, address: int, size: int) -> bytes:
            raise KeyboardInterrupt

    class Line:
        def regions(self) -> tuple[object, ...]:
            return ()

    core = Interrupted()
    link = CombinedLink(Line(), core)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt), link._halted():
        core.read_memory(0, 4096)
    assert core.told == ["interrupt", "greet", "resume"]


def test_a_fault_of_a_task_that_is_none_is_still_told() -> None:
    class Astray:
        def execute(self, tasks: Sequence[Task], timeout_s: float) -> list[tuple[int, ...]]:
            raise DeviceFault("bus fault", index=200, detail=7)

    symbols = dict.fromkeys((FILL_SYMBOL, FILL_ZONES_SYMBOL, CHECK_SYMBOL), 0x100)
    queue = Queue(Astray(), HELLO, symbols, lambda: pytest.fail("no block takes part"))  # type: ignore[arg-type]
    call = queue.add(Call(Task(0x300), "f()", ()))
    with pytest.raises(DeviceFault, match=r"f\(\)"):
        queue.flush()
    assert isinstance(call.error, DeviceFault)
