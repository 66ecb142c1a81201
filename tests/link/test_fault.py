"""Fault records in words: of each target, and those that are none."""

from __future__ import annotations

import dataclasses
import json
import struct
from typing import Any

import pytest

from tests.link.make_vectors import VECTORS
from utvm_deploy.base.errors import DeviceError, DeviceFault, StoppedTask, TaskTimeout
from utvm_deploy.device.link.fault import (
    FAULT_BYTES,
    describe_fault,
    kept_fault,
    nearest_symbol,
    read_fault,
    stopped_task,
)
from utvm_deploy.device.link.messages import FAULT, MAX_FAULT_WORDS, OUTCOME, Status
from utvm_deploy.device.link.replies import contents
from utvm_deploy.targets.contract.fault import Fault, FaultWords
from utvm_deploy.targets.table import TARGETS, registered

SYMBOLS = {"reset_handler": 0x101, "peek": 0x201, "utvm_workspace": 0x2000_0000}


def record(target: str, **facts: int) -> bytes:
    """A record with all words of a target; 0: not named."""
    names = TARGETS[target].faults.names
    assert facts.keys() <= set(names)
    words = [facts.get(name, 0) for name in names]
    return FAULT.pack(TARGETS[target].tag, len(names)) + struct.pack(f"<{len(names)}I", *words)


def words(exception: int = 3, *, pc: int = 0x204, lr: int = 0x10B, **facts: int) -> str:
    fault = read_fault(record("arm_m", exception=exception, pc=pc, lr=lr, **facts))
    return describe_fault(fault, lambda at: nearest_symbol(at, SYMBOLS, 1))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            words(5, cfsr=0x8200, bfar=0xF000_0000),
            "bus fault: data access to where nothing is at address 0xf0000000, "
            "in peek+4 (0x00000204)",
        ),
        (
            words(4, cfsr=0x82, mmfar=0x40),
            "memory fault: data access to a forbidden address at address 0x00000040, "
            "in peek+4 (0x00000204)",
        ),
        (words(6, cfsr=1 << 25), "usage fault: division by zero, in peek+4 (0x00000204)"),
        # An address register without its valid bit holds anything.
        (
            words(5, cfsr=0x400, bfar=0xDEAD_BEEF),
            "bus fault: data access to where nothing is (found late), in peek+4 (0x00000204)",
        ),
        # A jump to nowhere is told by its origin.
        (
            words(6, cfsr=1 << 17, pc=0x2000_0000),
            "usage fault: jump without the Thumb bit, called from reset_handler+10 (0x0000010a)",
        ),
        (words(3, hfsr=1 << 31, pc=0), "hard fault: a breakpoint without a debugger"),
        (words(9, pc=0x80), "exception 9: cause unknown, in 0x00000080"),
    ],
)
def test_words(text: str, said: str) -> None:
    assert text == said


#: Bit of CFSR -> a part of what it means, as the manuals have it.
MEANINGS = {
    0: "fetch from a forbidden",
    1: "access to a forbidden",
    3: "forbidden access on return",
    4: "stack overflow",
    5: "forbidden access while saving floating-point",
    8: "fetch from where nothing is",
    9: "access to where nothing is",
    10: "(found late)",
    11: "bus error on return",
    12: "stack overflow",
    13: "bus error while saving",
    16: "undefined",
    17: "Thumb bit",
    18: "return from an exception",
    19: "without its unit",
    20: "stack limit",
    24: "unaligned",
    25: "division by zero",
}


@pytest.mark.parametrize("bit", range(32))
def test_each_bit(bit: int) -> None:
    """A bit names its cause; who jumped to nowhere is in the link register."""
    said = words(6, cfsr=1 << bit)
    assert MEANINGS.get(bit, "cause unknown") in said
    assert said.count(", ") == 1
    assert said.endswith(
        "called from reset_handler+10 (0x0000010a)"
        if bit in (0, 8, 17)
        else "in peek+4 (0x00000204)"
    )


def test_one_cause_is_said_once() -> None:
    assert words(5, cfsr=1 << 4 | 1 << 12).count("stack overflow") == 1


def place_of(address: int) -> str:
    return f"<{address:x}>"


def outcome(status: Status) -> dict[str, int]:
    return {"status": int(status), "index": 3, "detail": 7}


@pytest.mark.parametrize(
    "status, target, facts, kind, words",
    [
        (
            Status.FAULT,
            "arm_m",
            {"exception": 5, "cfsr": 1 << 9 | 1 << 15, "bfar": 0xF0000000, "pc": 0x100},
            DeviceFault,
            "bus fault: data access to where nothing is at address 0xf0000000, in <100>",
        ),
        (
            Status.FAULT,
            "host",
            {"signal": 11, "address": 0x10, "pc": 0x200},
            DeviceFault,
            "segmentation fault at address 0x00000010, in <200>",
        ),
        (Status.FAULT, "host", {"signal": 31}, DeviceFault, "signal 31"),
        (Status.FAULT, "host", {"pc": 0x500}, DeviceFault, "cause unknown, in <500>"),
        (Status.FAULT, "x86", {"pc": 0x400}, DeviceFault, "cause unknown, in <400>"),
        (
            Status.TIMEOUT,
            "arm_m",
            {"exception": 14, "pc": 0x300},
            TaskTimeout,
            "stopped: it was in <300>",
        ),
        (Status.TIMEOUT, "host", {}, TaskTimeout, "did not end within its deadline"),
    ],
)
def test_a_stopped_task(
    status: Status, target: str, facts: dict[str, int], kind: type[StoppedTask], words: str
) -> None:
    error = stopped_task(outcome(status), record(target, **facts), place_of)
    assert type(error) is kind
    assert words in str(error)
    assert "task 3" in str(error)
    assert (error.status, error.index, error.detail) == (status, 3, 7)
    assert error.pc == (facts.get("pc") or None)


@pytest.mark.parametrize("vector", json.loads(VECTORS.read_text())["faults"])
def test_the_records_that_the_runtime_sends(vector: dict[str, Any]) -> None:
    sent = bytes.fromhex(vector["record"])
    for target in TARGETS.values():
        if target.tag == vector["architecture"]:
            assert read_fault(sent) == target.faults.decode(vector["words"])
            return
    assert f"architecture {vector['architecture']}" in read_fault(sent).phrase


def test_an_architecture_to_come_needs_no_new_version() -> None:
    """Its registers fit a record, and its target says what they mean."""
    causes = {5: "load access fault"}
    new = dataclasses.replace(
        TARGETS["x86"],
        name="new",
        tag=77,
        cores=(),
        faults=FaultWords(
            ("mcause", "mepc", "mtval", "ra", "sp", "mstatus"),
            lambda words: Fault(
                causes[words["mcause"]],
                address=words["mtval"],
                pc=words["mepc"],
                called_from=words["ra"],
            ),
        ),
    )
    with registered(new):
        sent = record("new", mcause=5, mepc=0x8000_0100, mtval=0x10, ra=0x8000_0204)
        error = stopped_task(outcome(Status.FAULT), sent, place_of)
        assert "load access fault at address 0x00000010, in <80000100>" in str(error)
        assert error.lr == 0x8000_0204
    assert "architecture 77" in read_fault(sent).phrase


def test_words_that_are_missing_or_new() -> None:
    """An older or a newer image of the same protocol: what both know is said."""
    full = record("arm_m", exception=5, pc=0x100)
    short = FAULT.pack(1, 2) + full[4:12]
    long = FAULT.pack(1, 11) + full[4:] + bytes(8)
    assert read_fault(short) == read_fault(full) == read_fault(long)
    assert read_fault(FAULT.pack(1, 0)).pc is None


def test_tags_and_words_fit_the_record() -> None:
    assert len({target.tag for target in TARGETS.values()}) == len(TARGETS)
    for target in TARGETS.values():
        assert 0 <= target.tag < 1 << 16
        assert len(set(target.faults.names)) == len(target.faults.names) <= MAX_FAULT_WORDS


def test_an_architecture_that_is_not_known() -> None:
    error = stopped_task(outcome(Status.FAULT), FAULT.pack(999, 1) + bytes(4), place_of)
    assert "its record is of architecture 999, which this version does not know" in str(error)
    assert type(error) is DeviceFault


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\0\0\0",
        FAULT.pack(1, 9),
        FAULT.pack(1, 1) + bytes(8),
        FAULT.pack(1, 2) + bytes(7),
        FAULT.pack(1, MAX_FAULT_WORDS + 1) + bytes(4 * MAX_FAULT_WORDS + 4),
        FAULT.pack(0xFFFF, 0xFFFF) + bytes(60_000),
    ],
)
def test_a_record_of_a_wrong_size_is_refused(damaged: bytes) -> None:
    reply = OUTCOME.pack(Status.FAULT, 0, 0) + damaged
    with pytest.raises(DeviceError, match="bytes") as caught:
        contents("EXECUTE", reply, "to run", place_of)
    assert not isinstance(caught.value, StoppedTask)
    assert "reset" in str(caught.value) and "\n" not in str(caught.value)


def test_a_record_that_outlives_a_restart() -> None:
    kept = b"FLT4" + record("arm_m", exception=5, pc=0x100)
    fault = kept_fault(kept.ljust(FAULT_BYTES, b"\0"))
    assert fault is not None and fault.pc == 0x100
    assert kept_fault(bytes(FAULT_BYTES)) is None
    for damaged in (b"FLT4".ljust(FAULT_BYTES, b"\xff"), b"FLT4", b"FLT4\0"):
        with pytest.raises(DeviceError, match="fault record"):
            kept_fault(damaged)
