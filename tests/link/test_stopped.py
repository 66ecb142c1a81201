"""Replies that say a task was stopped, as errors in words."""

from __future__ import annotations

import pytest

from utvm_deploy.base.errors import DeviceFault, StoppedTask, TaskTimeout
from utvm_deploy.device.link.messages import FAULT, FaultKind, Status
from utvm_deploy.device.link.stopped import stopped_task


def place_of(address: int) -> str:
    return f"<{address:x}>"


def outcome(status: Status) -> dict[str, int]:
    return {"status": int(status), "index": 3, "detail": 7}


def record(**facts: int) -> bytes:
    return FAULT.pack(*(facts.get(field.name, 0) for field in FAULT.fields))


@pytest.mark.parametrize(
    "status, facts, kind, words",
    [
        (
            Status.FAULT,
            {"exception": 5, "cfsr": 1 << 9 | 1 << 15, "bfar": 0xF0000000, "pc": 0x100},
            DeviceFault,
            "bus fault: data access to where nothing is at address 0xf0000000, in <100>",
        ),
        (
            Status.FAULT,
            {"kind": FaultKind.SIGNAL, "exception": 11, "mmfar": 0x10, "pc": 0x200},
            DeviceFault,
            "segmentation fault at address 0x00000010, in <200>",
        ),
        (
            Status.FAULT,
            {"kind": FaultKind.SIGNAL, "exception": 31},
            DeviceFault,
            "signal 31",
        ),
        (Status.TIMEOUT, {"exception": 14, "pc": 0x300}, TaskTimeout, "in <300>"),
        (Status.TIMEOUT, {}, TaskTimeout, "did not end within its deadline"),
    ],
)
def test_what_it_says(
    status: Status, facts: dict[str, int], kind: type[StoppedTask], words: str
) -> None:
    error = stopped_task(outcome(status), record(**facts), place_of)
    assert type(error) is kind
    assert words in str(error)
    assert "task 3" in str(error)
    assert (error.status, error.index, error.detail) == (status, 3, 7)
    assert error.pc == (facts.get("pc") or None)
