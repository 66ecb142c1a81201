"""Which workers a tuning waits for, and what it says of the others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from utvm_deploy.base.errors import TuneError
from utvm_deploy.records import Setting
from utvm_deploy.service.cluster.measuring.members import Members, Patience
from utvm_deploy.tuning.measuring.messages import packed

SETTING = Setting("cortex-m7", "a compiler", "-O3", "0", "cycles")
NEAR = "tcp://127.0.0.1:1"


class Asked:
    """The future of a worker's setting."""

    def __init__(self) -> None:
        self.setting: Setting | None = None

    def done(self) -> bool:
        return self.setting is not None

    def cancelled(self) -> bool:
        return False

    def result(self, timeout: float) -> bytes:
        return packed(self.setting)


class Scheduler:
    """A client of a scheduler that has one worker."""

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        return {"workers": {NEAR: {"name": "near", "resources": {"board:b": 1.0}}}}


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def found(said: list[str], asked: Asked, request: pytest.FixtureRequest) -> Iterator[Members]:
    patience = getattr(request, "param", Patience(look_s=0.01))
    scheduler: Any = Scheduler()
    future: Any = asked
    with Members(scheduler, "b", lambda address: future, said.append, None, patience) as found:
        yield found


@pytest.mark.parametrize("found", [Patience(look_s=0.01, first_s=0.0)], indirect=True)
def test_a_worker_that_starts_its_board_is_waited_for(found: Members, asked: Asked) -> None:
    """An image for Zephyr takes minutes to build."""
    deadline = time.monotonic() + 30
    while not found._members:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    found._seen -= 2 * found.patience.lost_s
    found.check()
    asked.setting = SETTING
    found.wait()
    assert found.addresses == {NEAR}


@pytest.mark.parametrize("found", [Patience(0.01, first_s=0.1, start_s=0.1)], indirect=True)
def test_a_worker_whose_board_does_not_start(found: Members) -> None:
    with pytest.raises(TuneError, match=r"no worker measured on b .* \(near: its board did not"):
        found.wait()


def test_a_worker_is_left_out_once(found: Members, asked: Asked, said: list[str]) -> None:
    asked.setting = SETTING
    found.wait()
    for batch in range(5):
        found.failed(NEAR, batch, "the board is lost")
    assert said == ["worker near is left out: the board is lost"]
    assert not found.addresses
