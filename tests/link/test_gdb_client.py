"""The client against servers of four dialects, each a recorded or written dialogue.

QEMU's is recorded from qemu-system-arm 7.2; OpenOCD's and pyOCD's are written after their sources
(gdb_server.c of 0.12, gdbserver.py of 0.36), J-Link's after what LLDB's tests and public logs have.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.link.gdb_server import DIALOGUES, Line, load_dialogue, serve
from utvm_deploy.errors import DeviceError, LinkClosed, LinkError, LinkTimeout, UtvmError
from utvm_deploy.link.gdb_client import GdbClient, GdbTimeouts
from utvm_deploy.link.gdb_dialects import DEFAULT_PACKET_BYTES, DIALECTS, UNKNOWN, parse_offer

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
        found = session(GdbClient(stream, PATIENT))
        assert server.is_through.wait(PATIENT.reply_s), server.problem
    assert found.pop("dialect") == {d.name.lower().replace("-", ""): d.name for d in DIALECTS}[name]
    assert "error" in str(found.pop("refusal"))
    assert found == {"memory": DATA, "pc": RAM + 0x100, "stop": 5, "interrupt": 2}


def test_every_dialect_has_its_dialogue() -> None:
    assert sorted(d.name.lower().replace("-", "") for d in DIALECTS) == SERVERS


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_that_ends_anywhere_is_a_link_error(name: str) -> None:
    lines = load_dialogue(name)
    for end in range(len(lines) - 1):
        with serve(lines[:end], stays=False) as (stream, _server), pytest.raises(LinkClosed):
            session(GdbClient(stream, PATIENT))


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
                found = session(GdbClient(stream, SHORT), SHORT.reply_s)
            except UtvmError as error:
                assert len(str(error)) > 20
            else:
                # What is optional may be refused, and a memory that reads as nothing told so.
                assert found["stop"] == 5 or server.problem
        assert time.monotonic() - began < 2.0


def exchange(lines: list[Line], act: Callable[[GdbClient], object]) -> object:
    with serve([*GREETING, *lines]) as (stream, server):
        client = GdbClient(stream, PATIENT)
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
        client = GdbClient(stream, PATIENT)
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


def test_software_breakpoints_where_hardware_has_none() -> None:
    lines = said("Z1,100,2", "E01", "Z0,100,2", "OK")
    exchange(lines, lambda client: client.insert_breakpoint(0x101))
    with pytest.raises(DeviceError, match=r"breakpoint at 0x00000100.*error 0e"):
        exchange(
            said("Z1,100,2", "", "Z0,100,2", "E0e"), lambda client: client.insert_breakpoint(0x100)
        )


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
        GdbClient(stream, GdbTimeouts(0.05, 0.05)).greet()


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
        GdbClient(Flood(), GdbTimeouts(0.05, 0.05)).greet()
    assert time.monotonic() - began < 2.0


def test_what_a_server_offers() -> None:
    offer = parse_offer("PacketSize=3fff;QStartNoAckMode+;qXfer:features:read-;swbreak?;=;x=y=z")
    assert offer.packet_bytes == 0x3FFF
    assert offer.has("QStartNoAckMode")
    assert not offer.has("qXfer:features:read") and not offer.has("swbreak")
    assert offer.dialect is UNKNOWN
    assert parse_offer("PacketSize=banana").packet_bytes == DEFAULT_PACKET_BYTES
    # Too small to hold a head and a word.
    assert parse_offer("PacketSize=1").packet_bytes == 64
