"""The client against servers of five dialects, each a recorded or written dialogue.

QEMU's is recorded from qemu-system-arm 7.2, pyOCD's from its 0.46; OpenOCD's and st-util's are
written after their sources (gdb_server.c of 0.12, gdb-server.c of 1.7), J-Link's after what LLDB's
tests and public logs have. A real OpenOCD is asked in tests/boards.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import pytest

from tests.link.fakes import PATIENCE_S
from tests.link.gdb_server import DIALOGUES, Line, load_dialogue, serve
from utvm_deploy.base.errors import (
    BoardError,
    DeviceError,
    LinkClosed,
    LinkError,
    LinkTimeout,
    UtvmError,
)
from utvm_deploy.boards.board import load_board
from utvm_deploy.device.link.gdb.client import GdbClient, GdbTimeouts
from utvm_deploy.device.link.gdb.dialects import (
    DEFAULT_PACKET_BYTES,
    DIALECTS,
    UNKNOWN,
    parse_offer,
)
from utvm_deploy.device.link.gdb.flash import FlashArea, blocks_of, parse_memory_map, write_flash
from utvm_deploy.device.link.stream import NoStream
from utvm_deploy.device.probe import choose_link
from utvm_deploy.targets.arm_m.target import ARM_M
from utvm_deploy.targets.host.target import HOST

SERVERS = sorted(path.stem for path in DIALOGUES.glob("*.txt"))
RAM = 0x2000_0000
# Among them are the three that binary packets must escape.
DATA = bytes(range(0x20, 0x30))
PATIENT = GdbTimeouts(reply_s=5.0, command_s=5.0)
# Where the answer never comes.
SHORT = GdbTimeouts(reply_s=0.1, command_s=0.1)


def session(client: GdbClient, timeout_s: float = PATIENT.reply_s) -> dict[str, object]:
    """What every dialogue is about."""
    client.greet()
    found: dict[str, object] = {"dialect": client.dialect.name}
    client.write_memory(RAM, DATA)
    found["memory"] = client.read_memory(RAM, 16)
    client.write_register("xpsr", 0x0100_0000)
    client.write_register("pc", RAM + 0x100)
    found["pc"] = client.read_register("pc")
    client.insert_breakpoint(RAM + 0x104)
    client.resume()
    found["stop"] = client.wait_for_stop(timeout_s).signal
    try:
        client.read_memory(0xF000_0000, 4)
    except DeviceError as error:
        found["refusal"] = str(error)
    client.resume()
    found["interrupt"] = client.interrupt().signal
    client.reset()
    client.detach()
    return found


@pytest.mark.parametrize("name", SERVERS)
def test_a_whole_session(name: str) -> None:
    with serve(load_dialogue(name)) as (stream, server):
        found = session(GdbClient(stream, ARM_M, PATIENT))
        assert server.is_through.wait(PATIENT.reply_s), server.problem
    assert found.pop("dialect") == {d.name.lower().replace("-", ""): d.name for d in DIALECTS}[name]
    assert "error" in str(found.pop("refusal"))
    # SIGINT, or what pyOCD says of a core that was told to stop.
    assert found.pop("interrupt") in (2, 17)
    assert found == {"memory": DATA, "pc": RAM + 0x100, "stop": 5}


def test_every_dialect_has_its_dialogue() -> None:
    assert sorted(d.name.lower().replace("-", "") for d in DIALECTS) == SERVERS


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_that_ends_anywhere_is_a_link_error(name: str) -> None:
    lines = load_dialogue(name)
    for end in range(len(lines) - 1):
        with serve(lines[:end], stays=False) as (stream, _server), pytest.raises(LinkClosed):
            session(GdbClient(stream, ARM_M, PATIENT))


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize("garbage", [b"", b"zz", b"O", b"E01", b"\xff" * 5000])
def test_nonsense_anywhere_is_an_error_in_time(name: str, garbage: bytes) -> None:
    lines = load_dialogue(name)
    spots = [at for at, line in enumerate(lines) if not line.is_clients]
    for at in spots:
        wrong = [*lines[:at], Line(False, garbage), *lines[at + 1 :]]
        began = time.monotonic()
        with serve(wrong) as (stream, server):
            try:
                found = session(GdbClient(stream, ARM_M, SHORT), SHORT.reply_s)
            except UtvmError as error:
                assert len(str(error)) > 20
            else:
                # What is optional may be refused, and a memory that reads as nothing told so.
                assert found["stop"] == 5 or server.problem
        assert time.monotonic() - began < PATIENCE_S


def exchange(lines: list[Line], act: Callable[[GdbClient], object]) -> object:
    with serve([*GREETING, *lines]) as (stream, server):
        client = GdbClient(stream, ARM_M, PATIENT)
        client.greet()
        result = act(client)
        assert server.is_through.wait(PATIENT.reply_s), server.problem
        return result


def said(*pairs: str) -> list[Line]:
    return [Line(at % 2 == 0, body.encode()) for at, body in enumerate(pairs)]


GREETING = said(
    "qSupported:swbreak+;hwbreak+;vContSupported+;xmlRegisters=arm", "PacketSize=80", "?", "S05"
)


def test_chunks_fill_packets() -> None:
    # 0x80 bytes, of which 24 are kept for the head: 52 bytes of memory as hexadecimal digits.
    lines = said("m0,34", "11" * 52, "m34,34", "22" * 52, "m68,1", "33")
    data = exchange(lines, lambda client: client.read_memory(0, 105))
    assert data == b"\x11" * 52 + b"\x22" * 52 + b"\x33"
    lines = said("X0,0:", "", "M0,34:" + "aa" * 52, "OK", "M34,1:aa", "OK")
    exchange(lines, lambda client: client.write_memory(0, b"\xaa" * 53))


def test_a_short_read_is_continued_and_an_empty_one_refused() -> None:
    lines = said("m0,8", "11" * 6, "m6,2", "2222")
    assert exchange(lines, lambda c: c.read_memory(0, 8)) == b"\x11" * 6 + b"\x22" * 2
    for answer in ("", "11" * 9):
        with pytest.raises(DeviceError):
            exchange(said("m0,8", answer), lambda c: c.read_memory(0, 8))


def test_binary_reads_where_they_are_offered() -> None:
    greeting = said(
        "qSupported:swbreak+;hwbreak+;vContSupported+;xmlRegisters=arm",
        "PacketSize=80;binary-upload+",
        "?",
        "S05",
    )
    read = [Line(True, b"x20,3"), Line(False, b"b}\x03}\x04\x00")]
    with serve([*greeting, *read]) as (stream, _):
        client = GdbClient(stream, ARM_M, PATIENT)
        client.greet()
        assert client.read_memory(0x20, 3) == b"#$\x00"


def test_registers_come_all_at_once_where_there_are_no_single_ones() -> None:
    # 16 registers, 8 of 12 bytes, one status word, and then xPSR.
    values = [f"{i:02x}000000" for i in range(16)] + ["xx" * 12] * 8 + ["00" * 4, "00000041"]
    changed = [*values]
    changed[15] = "efbe0000"
    lines = said("pf", "", "g", "".join(values))
    assert exchange(lines, lambda client: client.read_register("pc")) == 15
    lines = said(
        *("P19=00000001", ""),
        *("g", "".join(values)),
        "G" + "".join(values).replace("x", "0")[:-8] + "00000001",
        "OK",
    )
    exchange(lines, lambda client: client.write_register("xpsr", 0x0100_0000))


def test_registers_that_are_not_in_the_answer_are_no_zeros() -> None:
    lines = said("pf", "", "g", "00" * 4 * 15)
    with pytest.raises(DeviceError, match="sent 60 bytes, and 64 are needed"):
        exchange(lines, lambda client: client.read_register("pc"))


def test_a_description_of_registers_too_small_for_their_values_is_refused() -> None:
    description = '<reg name="pc" bitsize="16" regnum="15"/>'
    lines = said(
        *("qSupported:swbreak+;hwbreak+;vContSupported+;xmlRegisters=arm",),
        *("PacketSize=80;qXfer:features:read+", "qXfer:features:read:target.xml:0,68"),
        *(f"l{description}", "?", "S05"),
    )
    with serve(lines) as (stream, _server):
        client = GdbClient(stream, ARM_M, PATIENT)
        client.greet()
        with pytest.raises(DeviceError, match="pc has 2 bytes, which do not hold 0x20000000"):
            client.write_register("pc", RAM)


def test_software_breakpoints_where_hardware_has_none() -> None:
    none = ("Z1,100,2", "E01", "z1,100,2", "E01", "Z1,100,2", "E01")
    lines = said(*none, "Z0,100,2", "OK")
    exchange(lines, lambda client: client.insert_breakpoint(0x101))
    with pytest.raises(DeviceError, match=r"breakpoint at 0x00000100.*error 0e"):
        exchange(said(*none, "Z0,100,2", "E0e"), lambda client: client.insert_breakpoint(0x100))


def test_a_breakpoint_that_the_server_has_already_is_set_anew() -> None:
    """As OpenOCD 0.12 says it: recorded."""
    lines = said("Z1,100,2", "E0E", "z1,100,2", "OK", "Z1,100,2", "OK")
    exchange(lines, lambda client: client.insert_breakpoint(0x100))


def test_a_command_that_fails_says_what_the_server_printed() -> None:
    """OpenOCD's answer, recorded from one that cannot reset its target."""
    lines = [
        Line(True, b"qRcmd," + b"reset halt".hex().encode()),
        Line(False, b"O" + b"t.cpu: how to reset?\n".hex().encode()),
        Line(False, b"O0a"),
        Line(False, b"EFC"),
    ]
    with pytest.raises(DeviceError, match=r"'reset halt' \(t\.cpu: how to reset\?\), .* error FC"):
        exchange(lines, lambda client: client.command("reset halt"))


def test_a_command_that_fails_in_words_only_is_an_error() -> None:
    """As gdbserver.py of pyOCD 0.46 answers: text, where others have an error's number."""
    lines = [
        Line(True, b"qRcmd," + b"reset halt".hex().encode()),
        Line(False, b"Transfer failed: Memory transfer fault (No ACK)\n".hex().encode()),
    ]
    with pytest.raises(DeviceError, match=r"'reset halt'.*: Transfer failed: .*\(No ACK\)$"):
        exchange(lines, lambda client: client.command("reset halt"))


# What OpenOCD has of an STM32F746, and pyOCD's way of writing the same.
MAPS = {
    "OpenOCD": """<?xml version="1.0"?>
<!DOCTYPE memory-map PUBLIC "+//IDN gnu.org//DTD GDB Memory Map V1.0//EN" "x">
<memory-map>
<memory type="ram" start="0x00000000" length="0x8000000"/>
<memory type="flash" start="0x08000000" length="0x20000">
<property name="blocksize">0x8000</property>
</memory>
<memory type="flash" start="0x08020000" length="0x20000">
<property name="blocksize">0x20000</property>
</memory>
<memory type="flash" start="0x08040000" length="0xc0000">
<property name="blocksize">0x40000</property>
</memory>
<memory type="ram" start="0x08100000" length="0xf7f00000"/>
</memory-map>
""",
    "pyOCD": '<?xml version="1.0"?><memory-map><memory type="flash" start="0x8000000" '
    'length="0x20000"><property name="blocksize">0x8000</property></memory><memory type="flash" '
    'start="0x8020000" length="0x20000"><property name="blocksize">0x20000</property></memory>'
    '<memory type="flash" start="0x8040000" length="0xc0000"><property name="blocksize">0x40000'
    '</property></memory><memory type="ram" start="0x20000000" length="0x50000" /></memory-map>',
}


@pytest.mark.parametrize("server", MAPS)
def test_memory_maps(server: str) -> None:
    areas = parse_memory_map(MAPS[server])
    assert [(a.start, a.length, a.block_bytes) for a in areas] == [
        (0x0800_0000, 0x2_0000, 0x8000),
        (0x0802_0000, 0x2_0000, 0x2_0000),
        (0x0804_0000, 0xC_0000, 0x4_0000),
    ]
    # Whole blocks of every size, each once, neighbours together.
    segments = [(0x0800_0000, bytes(0x1E0)), (0x0800_01E0, bytes(0x8000)), (0x0801_FFFF, b"ab")]
    assert blocks_of(segments, areas) == [(0x0800_0000, 0x1_0000), (0x0801_8000, 0x2_8000)]
    with pytest.raises(DeviceError, match="knows no flash at 0x08100000"):
        blocks_of([(0x080F_FFFF, b"xy")], areas)


def test_blocks_are_counted_from_the_start_of_their_area() -> None:
    area = FlashArea(0x0800_4000, 0x2_0000, 0x1_0000)
    assert blocks_of([(0x0801_3FFF, b"x")], [area]) == [(0x0800_4000, 0x1_0000)]
    assert blocks_of([(0x0801_3FFF, b"xy")], [area]) == [(0x0800_4000, 0x2_0000)]


def test_flash_is_erased_in_blocks_and_written_in_packets() -> None:
    text = MAPS["OpenOCD"]
    greeting = said(
        "qSupported:swbreak+;hwbreak+;vContSupported+;xmlRegisters=arm",
        "PacketSize=80;qXfer:memory-map:read+",
        *("?", "S05"),
    )
    parts = [text[at : at + 0x68] for at in range(0, len(text), 0x68)]
    for number, part in enumerate(parts):
        mark = "l" if number == len(parts) - 1 else "m"
        greeting += said(f"qXfer:memory-map:read::{number * 0x68:x},68", mark + part)
    data = b"}" * 40 + bytes(60)  # what must be escaped takes two bytes
    lines = [
        *said("vFlashErase:8000000,8000", "OK"),
        Line(True, b"vFlashWrite:8000000:" + data[:64]),
        Line(False, b"OK"),
        Line(True, b"vFlashWrite:8000040:" + data[64:]),
        Line(False, b"OK"),
        *said("vFlashDone", "OK"),
    ]
    with serve([*greeting, *lines]) as (stream, server):
        client = GdbClient(stream, ARM_M, PATIENT)
        client.greet()
        write_flash(client, [(0x0800_0000, data)])
        assert server.is_through.wait(PATIENT.reply_s), server.problem


def test_flash_that_refuses_is_told() -> None:
    greeting = said(
        "qSupported:swbreak+;hwbreak+;vContSupported+;xmlRegisters=arm",
        "PacketSize=4000;qXfer:memory-map:read+",
        *("?", "S05", "qXfer:memory-map:read::0,3fe8", "l" + MAPS["pyOCD"]),
    )
    with serve([*greeting, *said("vFlashErase:8000000,8000", "E05")]) as (stream, _):
        client = GdbClient(stream, ARM_M, PATIENT)
        client.greet()
        with pytest.raises(
            DeviceError, match=r"to erase 32768 bytes of flash at 0x08000000.*b'E05'"
        ):
            write_flash(client, [(0x0800_0000, b"data")])


def test_a_server_without_a_memory_map_takes_plain_writes_to_flash() -> None:
    lines = said("X8000000,0:", "OK", "X8000000,4:data", "OK")
    exchange(lines, lambda client: write_flash(client, [(0x0800_0000, b"data")]))


def test_steps_and_console_output() -> None:
    lines = [Line(True, b"s"), Line(False, b"O" + b"hello".hex().encode()), Line(False, b"S05")]
    stop = exchange(lines, lambda client: client.step())
    assert stop.signal == 5 and not stop.is_gone  # type: ignore[attr-defined]


def test_an_unknown_server_is_reset_through_the_core() -> None:
    lines = said("Xe000ed0c,0:", "", "Me000ed0c,4:0400fa05", "OK")
    exchange(lines, lambda client: client.reset())


def test_a_core_that_does_not_stop_is_a_timeout() -> None:
    def act(client: GdbClient) -> None:
        client.resume()
        with pytest.raises(LinkTimeout):
            client.wait_for_stop(0.05)
        assert client.is_running
        assert client.interrupt().signal == 2
        assert not client.is_running

    lines = [Line(True, b"c"), Line(True, b"^C"), Line(False, b"T02")]
    exchange(lines, act)


def test_no_one_there_is_a_timeout() -> None:
    with serve([Line(True, b"never")]) as (stream, _), pytest.raises(LinkError):
        GdbClient(stream, ARM_M, GdbTimeouts(0.05, 0.05)).greet()


@pytest.mark.parametrize("flood", [b"+", b"$T05#b9", b"%a#61", b"$O41#c4"])
def test_a_server_that_talks_for_ever_is_a_timeout(flood: bytes) -> None:
    class Flood:
        def read(self, max_bytes: int, timeout_s: float) -> bytes:
            return flood

        def write(self, data: bytes, timeout_s: float) -> None:
            pass

        def close(self) -> None:
            pass

    began = time.monotonic()
    with pytest.raises(LinkError):
        GdbClient(Flood(), ARM_M, GdbTimeouts(0.05, 0.05)).greet()
    assert time.monotonic() - began < PATIENCE_S


def test_what_a_server_offers() -> None:
    offer = parse_offer("PacketSize=3fff;QStartNoAckMode+;qXfer:features:read-;swbreak?;=;x=y=z")
    assert offer.packet_bytes == 0x3FFF
    assert offer.has("QStartNoAckMode")
    assert not offer.has("qXfer:features:read") and not offer.has("swbreak")
    assert offer.dialect is UNKNOWN
    assert parse_offer("PacketSize=banana").packet_bytes == DEFAULT_PACKET_BYTES
    # Too small to hold a head and a word.
    assert parse_offer("PacketSize=1").packet_bytes == 64


def test_a_target_without_facts_for_a_debugger_is_refused() -> None:
    board = load_board("host")
    with_server = dataclasses.replace(board, link=dataclasses.replace(board.link, kinds=("debug",)))
    for act in (lambda: GdbClient(NoStream(), HOST), lambda: choose_link(with_server)):
        with pytest.raises(BoardError, match="cores of the target host; take another link"):
            act()
