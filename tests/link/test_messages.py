"""The message table: what it generates, and that nothing in it is said twice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from utvm_deploy.base.paths import runtime_dir
from utvm_deploy.device.link.messages import (
    BY_NAME,
    BY_OPCODE,
    FAULT,
    HEADER,
    MAILBOX,
    MAX_FAULT_WORDS,
    MESSAGES,
    OUTCOME,
    PROTOCOL_VERSION,
    REPLY_BIT,
    TASK,
    Status,
    header_text,
    opcode_name,
)
from utvm_deploy.device.link.waits import Timeouts
from utvm_deploy.targets.table import TARGETS


def test_the_c_header_is_up_to_date() -> None:
    stored = (runtime_dir() / "utvm_protocol.h").read_text()
    assert stored == header_text(), "run: python -m utvm_deploy.device.link.messages"


def test_nothing_is_defined_twice() -> None:
    names = re.findall(r"^#define (\w+)|^    (UTVM_\w+) =", header_text(), re.MULTILINE)
    flat = [first or second for first, second in names]
    assert len(flat) == len(set(flat)) > 50
    assert len(BY_OPCODE) == len(MESSAGES)


def test_fixed_sizes() -> None:
    """Frozen: two ends of different versions must still understand each other's refusal."""
    assert HEADER.format == "<BBHII"
    assert OUTCOME.format == "<HHI"


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.name)
def test_words_stay_aligned(message) -> None:
    """Fields lie on their own size, and tails on words: the runtime may copy them as they are."""
    for layout in (message.request, message.reply):
        if layout is not None:
            assert all(offset % field.size_bytes == 0 for field, offset in layout.offsets())
            assert layout.size_bytes % 4 == 0


def test_names_of_opcodes() -> None:
    assert opcode_name(4) == "EXECUTE"
    assert opcode_name(4 | REPLY_BIT) == "EXECUTE reply"
    assert opcode_name(99) == "opcode 99"


def test_the_specification_has_the_same_numbers() -> None:
    page = (Path(__file__).resolve().parents[2] / "PROTOCOL.md").read_text()
    for layout in (HEADER, OUTCOME, TASK, FAULT, MAILBOX):
        for field, offset in layout.offsets():
            assert f"| {offset} | {field.name} | {field.type} |" in page
    for field, offset in BY_NAME["OPEN"].reply.offsets():
        assert f"| {offset} | {field.name} | {field.type} |" in page
    for message in MESSAGES:
        (row,) = re.findall(rf"^\| {message.opcode} \| {message.name} \|.*$", page, re.MULTILINE)
        if message.request is not None:
            for field in message.request.fields:
                assert f"{field.name} {field.type}" in row
    for status in Status:
        assert f"| {status.value} | {status.name} |" in page
    for target in TARGETS.values():
        words = ", ".join(target.faults.names)
        assert f"| {target.tag} | {target.name} | {words} |" in page
    assert f"at most {MAX_FAULT_WORDS} |" in page
    assert f"version {PROTOCOL_VERSION}\n" in page


def test_the_specification_has_the_default_timeouts() -> None:
    page = (Path(__file__).resolve().parents[2] / "PROTOCOL.md").read_text()
    times = Timeouts()
    assert f"({times.reply_s:g} s; HELLO {times.boot_s:g} s" in page
    assert f"after {times.resend_s:g} s of silence" in page
    assert f"then every {times.resend_max_s:g} s" in page
    assert f"{1000 * times.byte_s:g} ms longer for each byte" in page
    assert f"gives the device {times.last_s:g} s" in page
