"""Packets of the GDB protocol: good ones in any portions, and whatever else may arrive."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from utvm_deploy.device.link.gdb.packets import (
    MAX_BODY_BYTES,
    Acknowledgement,
    DamagedPacket,
    Item,
    Packet,
    PacketDecoder,
    encode_packet,
    escape,
    escaped_prefix,
    expand,
)
from utvm_deploy.device.link.gdb.registers import includes, parse_registers
from utvm_deploy.targets.arm_m.debugger import DEBUGGER


def decode(data: bytes) -> list[Item]:
    return PacketDecoder().feed(data)


@pytest.mark.parametrize(
    ("body", "wire"),
    [
        (b"", b"$#00"),
        (b"OK", b"$OK#9a"),
        (b"qSupported", b"$qSupported#37"),
        # The example of GDB's manual for repeats: "0*space" is four zeros.
        (b"0000", b"$0* #7a"),
    ],
)
def test_known_packets(body: bytes, wire: bytes) -> None:
    assert decode(wire) == [Packet(body)]
    if b"*" not in wire:
        assert encode_packet(body) == wire


@given(st.binary(max_size=400), st.integers(1, 50))
@settings(max_examples=200, deadline=None)
def test_any_data_in_any_portions(data: bytes, portion: int) -> None:
    wire = b"+" + encode_packet(escape(data)) + b"-"
    decoder = PacketDecoder()
    items = []
    for at in range(0, len(wire), portion):
        items += decoder.feed(wire[at : at + portion])
    assert items == [Acknowledgement(True), Packet(data), Acknowledgement(False)]


@given(st.binary(max_size=400), st.integers(4, 100))
@settings(max_examples=200, deadline=None)
def test_escaped_prefixes_fit_and_make_progress(data: bytes, room: int) -> None:
    done = b""
    while done != data:
        count, coded = escaped_prefix(data[len(done) :], room)
        assert count > 0 and len(coded) <= room
        assert expand(coded) == data[len(done) : len(done) + count]
        done += data[len(done) : len(done) + count]


@given(st.binary(max_size=300), st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_a_good_packet_is_understood_behind_any_bytes(noise: bytes, seed: int) -> None:
    decoder = PacketDecoder()
    decoder.feed(noise)
    # A packet that the noise began swallows one: the next one is whole again.
    body = random.Random(seed).randbytes(20)
    wire = encode_packet(escape(body))
    assert Packet(body) in decoder.feed(wire + wire)


@pytest.mark.parametrize(
    ("wire", "why"),
    [
        (b"$OK#9b", "checksum"),
        (b"$OK#zz", "checksum"),
        (b"$OK# 9a", "checksum"),
        (b"$OK$OK#9a", "lost its end"),
        (encode_packet(b"*!"), "repeats nothing"),
        (encode_packet(b"a*\x1d"), "repeats nothing"),
        (encode_packet(b"a*\x7f"), "repeats nothing"),
        (encode_packet(b"a}"), "ends within"),
        (encode_packet(b"a*"), "ends within"),
    ],
)
def test_damage_is_told(wire: bytes, why: str) -> None:
    damaged = [item for item in decode(wire) if isinstance(item, DamagedPacket)]
    assert len(damaged) == 1 and why in damaged[0].why
    assert decode(wire + b"$OK#9a")[-1] == Packet(b"OK")


def test_notifications_are_no_answers() -> None:
    note = encode_packet(b"Stop:T05").replace(b"$", b"%")
    assert decode(note + b"$OK#9a") == [Packet(b"OK")]


def test_a_server_cannot_eat_the_hosts_memory() -> None:
    decoder = PacketDecoder()
    items: list[Item] = decoder.feed(b"$")
    for _ in range(MAX_BODY_BYTES // 65536 + 1):
        items += decoder.feed(b"a" * 65536)
    assert [type(item) for item in items] == [DamagedPacket]
    # Escapes cannot shrink what repeats make large.
    with pytest.raises(ValueError, match="longer"):
        expand(b"a" + b"*~" * 20_000)


XML = """<target><architecture>arm</architecture>
<xi:include href="core.xml"/><xi:include other="x"/>
<feature name="org.gnu.gdb.arm.m-profile">
<reg name="r0" bitsize="32"/><reg name="SP" bitsize='32' regnum="13" type="data_ptr"/>
<reg name="pc" bitsize="32" regnum="15"/><reg name="bad"/><reg name="worse" bitsize="many"/>
<reg name="xPSR" bitsize="32" regnum="25"/><reg name="primask" bitsize="1"/>
</feature></target>"""


def test_register_descriptions() -> None:
    registers = parse_registers(XML)
    assert {name: r.number for name, r in registers.items()} == {
        "r0": 0,
        "sp": 13,
        "pc": 15,
        "xpsr": 25,
        "primask": 26,
    }
    assert (registers["primask"].size_bytes, registers["primask"].offset) == (1, 16)
    assert includes(XML) == ("core.xml",)
    assert parse_registers("<reg" * 1000) == {}
    assert DEBUGGER.assumed["xpsr"].offset == 164
