"""Which workers measure for a tuning: those whose settings agree, unless they fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from utvm_deploy.base.errors import TuneError
from utvm_deploy.cluster import members
from utvm_deploy.cluster.members import ASKED, FAILURES, Members
from utvm_deploy.records import Setting
from utvm_deploy.tuning.messages import packed

SETTING = Setting("cortex-m7", "gcc 12", "-O3", "0.2.0", "cycles")
PATIENCE_S = 30.0


class Answer:
    """A future that is done."""

    def __init__(self, content: Setting | Exception) -> None:
        self._content = content

    def done(self) -> bool:
        return True

    def cancelled(self) -> bool:
        return False

    def result(self, timeout: float) -> bytes:
        if isinstance(self._content, Exception):
            raise self._content
        return packed(self._content)


class Scheduler:
    """A client whose workers have one board each, and give these answers one after the other."""

    def __init__(self, **answers: Sequence[Setting | Exception]) -> None:
        self.answers = {name: list(given) for name, given in answers.items()}
        self.asked: list[str] = []

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        one = {"resources": {"board:b": 1.0}}
        return {"workers": {name: {**one, "name": name} for name in self.answers}}

    def ask(self, address: str) -> Answer:
        self.asked.append(address)
        return Answer(self.answers[address].pop(0))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(members, "LOOK_S", 0.01)
    monkeypatch.setattr(members, "FIRST_S", 2.0)
    return []


def of(scheduler: Scheduler, told: list[str]) -> Members:
    client: Any = scheduler
    ask: Callable[[str], Any] = scheduler.ask
    return Members(client, "b", ask, told.append, None)


def test_most_workers_decide(told: list[str]) -> None:
    other = replace(SETTING, unit="instructions", compiler="gcc 13")
    scheduler = Scheduler(a=[other], b=[SETTING], c=[SETTING])
    with of(scheduler, told) as found:
        found.wait()
        assert found.setting == SETTING and found.addresses == {"b", "c"} and found.slots == 2
    why = (
        "its compiler is 'gcc 13', not 'gcc 12'; its unit of ticks is 'instructions', not 'cycles'"
    )
    assert told == [f"worker a is left out: {why}"]


def test_a_worker_whose_answer_is_lost_is_asked_again(told: list[str]) -> None:
    scheduler = Scheduler(a=[OSError("cut"), SETTING], b=[OSError("cut")] * ASKED)
    with of(scheduler, told) as found:
        found.wait()
        deadline = time.monotonic() + PATIENCE_S
        while not told:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert found.addresses == {"a"}
    assert told == ["worker b is left out: cut"]
    assert [scheduler.asked.count(name) for name in ("a", "b")] == [2, ASKED]


def test_a_worker_that_fails_again_and_again_is_left_out(told: list[str]) -> None:
    with of(Scheduler(a=[SETTING], b=[SETTING]), told) as found:
        found.wait()
        for batch in range(FAILURES):
            found.failed("a", batch, "its board is gone")
            # One batch alone may be what is wrong.
            found.failed("b", 7, "its board is gone")
        assert found.addresses == {"b"}
        found.succeeded("b")
        found.failed("b", 8, "again")
        assert found.addresses == {"b"}
    assert told == ["worker a is left out: its board is gone"]


def test_all_left_out(told: list[str]) -> None:
    scheduler = Scheduler(a=[OSError("no board")] * ASKED)
    with (
        of(scheduler, told) as found,
        pytest.raises(
            TuneError, match=r"no worker measured on b within 2 s \(a: no board\); start"
        ),
    ):
        found.wait()
