"""Frames: shared vectors, any split of the bytes, any damage."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.link.make_vectors import VECTORS, vectors
from utvm_deploy.device.link.frame import (
    MAX_ENCODED_BYTES,
    Damage,
    Frame,
    FrameDecoder,
    cobs_decode,
    cobs_encode,
    encode_frame,
)

STORED = json.loads(VECTORS.read_text())


def test_the_vectors_are_what_this_code_makes() -> None:
    assert json.loads(json.dumps(vectors())) == STORED


def test_published_values() -> None:
    """From elsewhere, so that the vectors are not only this code's word for itself."""
    cobs = dict(map(tuple, STORED["cobs"]))
    assert cobs["00"] == "0101"
    assert cobs["0000"] == "010101"
    assert cobs["001100"] == "01021101"
    assert cobs["11220033"] == "0311220233"
    assert cobs["11000000"] == "0211010101"
    first_254 = bytes(range(1, 255)).hex()
    assert cobs[bytes(range(255)).hex()] == "01ff" + first_254 + "01"
    assert cobs[bytes(range(1, 256)).hex()] == "ff" + first_254 + "02ff"
    assert dict(map(tuple, STORED["crc"]))[b"123456789".hex()] == 0xCBF43926


@pytest.mark.parametrize("vector", STORED["frames"], ids=lambda vector: f"{vector['opcode']:#x}")
def test_frames(vector: dict[str, object]) -> None:
    frame = Frame(
        vector["opcode"], vector["sequence"], vector["session"], bytes.fromhex(vector["payload"])
    )
    encoded = bytes.fromhex(vector["encoded"])
    assert encode_frame(frame) == encoded
    assert FrameDecoder().feed(encoded) == [frame]


@given(st.binary(max_size=800))
def test_cobs_is_a_round_trip_without_zeros(data: bytes) -> None:
    encoded = cobs_encode(data)
    assert 0 not in encoded
    assert cobs_decode(encoded) == data
    # the final code may stand alone behind a full block
    assert len(encoded) <= len(data) + len(data) // 254 + 1


@given(
    st.lists(st.binary(max_size=40), max_size=4),
    st.binary(max_size=30),
    st.lists(st.integers(0, 400), max_size=5),
)
def test_frames_are_found_behind_garbage_in_any_portions(
    payloads: list[bytes], garbage: bytes, cuts: list[int]
) -> None:
    frames = [Frame(1, number, 5, payload) for number, payload in enumerate(payloads)]
    wire = garbage + b"".join(map(encode_frame, frames))
    decoder = FrameDecoder()
    found = []
    edges = [0, *sorted(min(cut, len(wire)) for cut in cuts), len(wire)]
    for begin, end in itertools.pairwise(edges):
        found += decoder.feed(wire[begin:end])
    assert [item for item in found if isinstance(item, Frame)] == frames
    assert not decoder.is_within_frame or not frames


def test_no_flipped_bit_is_believed() -> None:
    frame = Frame(4, 77, 0xDEADBEEF, bytes(range(20)))
    wire = encode_frame(frame)
    for bit in range(8, 8 * (len(wire) - 1)):
        hurt = bytearray(wire)
        hurt[bit // 8] ^= 1 << bit % 8
        assert all(isinstance(item, Damage) for item in FrameDecoder().feed(bytes(hurt)))


def test_a_frame_that_never_ends_is_dropped() -> None:
    decoder = FrameDecoder()
    for _ in range(3 * MAX_ENCODED_BYTES // 1000):
        assert decoder.feed(b"\x55" * 1000) == []
        assert len(decoder._pending) <= MAX_ENCODED_BYTES
    frame = Frame(1, 2, 3, b"after all")
    (damage, found) = decoder.feed(encode_frame(frame))
    assert isinstance(damage, Damage) and damage.why == "it was longer than any frame"
    assert found == frame


def test_the_longest_frame_passes() -> None:
    frame = Frame(1, 2, 3, b"\x55" * 0xFFFF)
    assert FrameDecoder().feed(encode_frame(frame)) == [frame]


def test_damage_says_why() -> None:
    wire = encode_frame(Frame(1, 2, 3, b"abc"))
    body = cobs_decode(wire[1:-1])
    cases = {
        b"\x09abc": "it ended early",
        b"\x04abc": "it ended early",
        cobs_encode(body[:2] + b"\x04" + body[3:]): "it says 4 bytes and holds 3",
        cobs_encode(body[:-1] + b"\x00"): "its CRC is wrong",
    }
    for data, why in cases.items():
        (damage,) = FrameDecoder().feed(b"\0" + data + b"\0")
        assert isinstance(damage, Damage) and damage.why == why
