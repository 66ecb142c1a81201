"""Old frames, shuffled, in both directions: they change nothing and answer nothing.

The device is the C runtime with sanitizers. Sessions begin anew, hosts change and the device
restarts now and then, so that what is replayed belongs to this session, to others and to other
boots. Every call changes memory by what it is told: a frame that is done twice, or too late, shows.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.link.conftest import build_host
from tests.link.fakes import HostDevice
from tests.soak.replayer import Replayer
from utvm_deploy.device.link.base import Task
from utvm_deploy.device.link.monitor import MonitorLink
from utvm_deploy.device.link.waits import Timeouts

# A lost answer is asked for soon; deadlines are long, for a busy computer.
TIMES = Timeouts(reply_s=30.0, last_s=5.0, resend_s=0.1, resend_max_s=0.5, boot_s=30.0)
SLOTS, SLOT_BYTES = 8, 24
SANITIZERS = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@dataclass(frozen=True)
class Plan:
    """How many old frames, and after how many calls something begins anew."""

    replays: int
    session_every: int = 7
    host_every: int = 23
    boot_every: int = 61


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replay")
    flags = ("-DUTVM_PAYLOAD_BYTES=256", "-DUTVM_WORKSPACE_BYTES=65536", *SANITIZERS)
    return build_host(folder / "host", *flags)


@pytest.fixture
def device(program: Path) -> Iterator[HostDevice]:
    device = HostDevice(program)
    yield device
    device.close()


def count_task(program: Path) -> int:
    """Address of a function that adds 1 to the word that it is given."""
    from subprocess import run

    listing = run(["nm", str(program)], check=True, capture_output=True, text=True, timeout=60)
    rows = [line.split() for line in listing.stdout.splitlines()]
    return next(int(row[0], 16) for row in rows if row[-1] == "test_count")


def soak(device: HostDevice, program: Path, plan: Plan) -> Replayer:
    rng = random.Random(plan.replays)
    line = Replayer(device.stream, plan.replays, rate=0.7)
    link = MonitorLink(line, TIMES)
    count = Task(count_task(program), deadline_s=5.0)
    model: dict[int, bytes] = {}
    call = 0
    while sum(line.replayed.values()) < plan.replays:
        call += 1
        if call % plan.boot_every == 0:
            line.inner = device.restart()
            line.forget()
            link = MonitorLink(line, TIMES)
            model.clear()
        elif call % plan.host_every == 0:
            link = MonitorLink(line, TIMES)
        elif call % plan.session_every == 0:
            link.hello()
        base = link._greeted().workspace_address
        slot = rng.randrange(SLOTS)
        address = base + slot * SLOT_BYTES
        if slot not in model or rng.random() < 0.2:
            model[slot] = rng.randbytes(SLOT_BYTES)
            link.write(address, model[slot])
        task = Task(count.function, (address,), 1, count.deadline_s)
        (ticks,) = link.execute([task], 30.0)
        assert len(ticks) == 1
        number = int.from_bytes(model[slot][:4], "little") + 1
        model[slot] = (number % 2**32).to_bytes(4, "little") + model[slot][4:]
        other = rng.choice(list(model))
        assert link.read(base + other * SLOT_BYTES, SLOT_BYTES) == model[other]
    for slot, data in model.items():
        assert link.read(base + slot * SLOT_BYTES, SLOT_BYTES) == data
    return line


@pytest.mark.parametrize(
    "plan",
    [Plan(2_000), pytest.param(Plan(100_000), marks=pytest.mark.soak)],
    ids=["short", "long"],
)
def test_old_frames_do_nothing(device: HostDevice, program: Path, plan: Plan) -> None:
    line = soak(device, program, plan)
    assert device.process.poll() is None, "the sanitizers ended the device"
    assert min(line.replayed.values()) > plan.replays // 10
