"""Thousands of calls over a bad line to a device that restarts now and then: no wrong result.

Every call changes memory by what it is told, so that one that is lost, or done twice, shows.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from dataclasses import dataclass

import pytest
from tiny_model import tiny_model

from tests.safety.bad_kernels import SOURCE
from tests.soak.bad_line import FAULTS, BadLine
from utvm_deploy.base.errors import DeviceReset, LinkTimeout
from utvm_deploy.boards.board import load_board
from utvm_deploy.device.link.base import Task
from utvm_deploy.device.link.monitor import MonitorLink
from utvm_deploy.device.link.waits import Timeouts
from utvm_deploy.device.probe import start
from utvm_deploy.project import build_image

# Impatient, so that a run takes minutes; the same rules as with the usual times.
QUICK = Timeouts(reply_s=5.0, last_s=1.0, byte_s=0, resend_s=0.05, resend_max_s=0.2, boot_s=10.0)
CALL_S = 0.4
# A call is three exchanges at most, each within its deadline; on a computer that has other work.
LIMIT_S = CALL_S + QUICK.last_s + 2 * QUICK.reply_s + QUICK.boot_s
SLOTS, SLOT_BYTES = 16, 96


@dataclass(frozen=True)
class Plan:
    """How many calls; which part of the frames is hurt; a reset after how many calls."""

    calls: int
    rate: float
    reset_every: int


SHORT = Plan(500, 0.03, 100)
LONG = Plan(10_000, 0.01, 500)


class Soak:
    """A device behind a bad line, and what its memory must hold."""

    def __init__(self, board_name: str, plan: Plan) -> None:
        self.board = load_board(board_name)
        self.image = build_image(tiny_model(self.board, source=SOURCE), self.board)
        self.running = start(self.board, self.image)
        self.line = BadLine(self.running.stream, plan.calls, plan.rate)
        self.link = MonitorLink(self.line, QUICK)
        self.random = random.Random(plan.calls + 1)
        #: Slot -> its bytes; a slot that is not here holds something unknown.
        self.model: dict[int, bytes] = {}
        self.outcomes: Counter[str] = Counter()
        self.slowest_s = 0.0

    def address(self, slot: int) -> int:
        return self.link.hello().workspace_address + slot * SLOT_BYTES

    def call(self) -> None:
        """Give a slot content if it has none; add to its bytes; now and then look at them."""
        slot = self.random.randrange(SLOTS)
        base = self.image.symbols["utvm_workspace"] + slot * SLOT_BYTES
        if slot not in self.model:
            data = self.random.randbytes(SLOT_BYTES)
            self.link.write(base, data)
            self.model[slot] = data
        more, repeat = self.random.randrange(1, 256), self.random.randrange(1, 4)
        task = Task(self.image.symbols["good_add"], (base, SLOT_BYTES, more), repeat, 0.2)
        data = self.model.pop(slot)
        (ticks,) = self.link.execute([task], CALL_S)
        assert len(ticks) == repeat
        self.model[slot] = bytes((byte + more * repeat) % 256 for byte in data)
        if self.random.random() < 0.5:
            assert self.link.read(base, SLOT_BYTES) == self.model[slot]

    def checked_call(self) -> None:
        began_s = time.monotonic()
        try:
            self.call()
            self.outcomes["answered"] += 1
        except DeviceReset:
            self.model.clear()
            self.outcomes["reset"] += 1
        except LinkTimeout:
            # Perhaps it ran, perhaps not: nothing is known of that slot, which is out of the model.
            self.outcomes["no answer"] += 1
        took_s = time.monotonic() - began_s
        self.slowest_s = max(self.slowest_s, took_s)
        assert took_s < LIMIT_S

    def pull_the_plug(self) -> None:
        self.running.reset()
        self.line.forget()

    def close(self) -> None:
        self.link.close()
        self.running.close()


def soak(board_name: str, plan: Plan) -> Soak:
    session = Soak(board_name, plan)
    try:
        for number in range(plan.calls):
            if number and number % plan.reset_every == 0:
                session.pull_the_plug()
            session.checked_call()
        for slot, data in session.model.items():
            assert session.link.read(session.address(slot), SLOT_BYTES) == data
    finally:
        session.close()
    return session


@pytest.mark.tools
@pytest.mark.parametrize(
    "plan", [SHORT, pytest.param(LONG, marks=pytest.mark.soak)], ids=["short", "long"]
)
@pytest.mark.parametrize(
    "board_name", ["host", pytest.param("mps2_an500", marks=pytest.mark.emulator)]
)
def test_no_wrong_result(board_name: str, plan: Plan) -> None:
    emulator = load_board(board_name).emulator
    if emulator and not shutil.which(emulator.program):
        pytest.skip(f"{emulator.program} is not installed")
    began_s = time.monotonic()
    done = soak(board_name, plan)
    took_s = time.monotonic() - began_s
    line, outcomes = done.line.done, done.outcomes
    print(
        f"{board_name}: {plan.calls} calls in {took_s:.0f} s, {dict(outcomes)}, "
        f"slowest {done.slowest_s:.2f} s, line {dict(line)}"
    )
    # Nothing but the resets cost an answer, and a reset costs one.
    assert sum(outcomes.values()) == plan.calls
    assert outcomes["reset"] <= (plan.calls - 1) // plan.reset_every
    assert outcomes["no answer"] <= plan.calls // 500
    # And the line was bad.
    for direction in ("to host", "to device"):
        faults = sum(line[direction, kind] for kind in FAULTS)
        assert 0.4 < faults / line[direction, "frames"] / plan.rate < 2.0
