"""A worker's processes that measure: shared by batches, passed on to others, ended when idle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from utvm_deploy.base.errors import TuneError
from utvm_deploy.service.cluster.measuring import slot as measuring_slot
from utvm_deploy.service.cluster.measuring.slot import LOAD, Slot, Slots
from utvm_deploy.tuning.measuring.frames import Opening

PATIENCE_S = 30.0


class Double:
    """A slot without a process."""

    def __init__(self, board: str, key: str, opening: Opening) -> None:
        self.board, self.key, self.load = board, key, 0
        self.idle_since = time.monotonic()
        self.is_alive = True

    def close(self) -> None:
        self.is_alive = False


@pytest.fixture
def slots(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Slots]:
    monkeypatch.setattr(measuring_slot, "Slot", Double)
    return lambda count: Slots("board", count, 1)


def test_batches_fill_boards_before_they_share_them(slots: Callable[[int], Slots]) -> None:
    pool = slots(2)
    with ExitStack() as stack:
        taken = [stack.enter_context(pool.one("mine", b"")) for _ in range(2 * LOAD)]
        assert taken[0] is not taken[1]
        assert [taken.count(one) for one in dict.fromkeys(taken)] == [LOAD, LOAD]
    pool.close()
    assert not any(one.is_alive for one in taken)


def test_a_board_is_passed_on_to_who_waits_first(slots: Callable[[int], Slots]) -> None:
    pool = slots(1)
    order: list[str] = []

    def take(key: str) -> None:
        with pool.one(key, b""):
            order.append(key)

    waiting = []
    with pool.one("mine", b"") as first:
        # The second of mine comes after the other's, although my process has room for it.
        for key in ("other", "mine"):
            waiting.append(threading.Thread(target=take, args=(key,)))
            waiting[-1].start()
            deadline = time.monotonic() + PATIENCE_S
            while not pool._turn.locked():
                assert time.monotonic() < deadline
                time.sleep(0.01)
        assert order == [] and first.is_alive
    for one in waiting:
        one.join(PATIENCE_S)
    assert order == ["other", "mine"]
    assert not first.is_alive
    pool.close()


def test_a_process_that_died_is_replaced(slots: Callable[[int], Slots]) -> None:
    pool = slots(1)
    with pool.one("mine", b"") as first:
        first.close()
    with pool.one("mine", b"") as second:
        assert second is not first and second.is_alive
    pool.close()


def test_idle_processes_end(slots: Callable[[int], Slots], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring_slot, "IDLE_S", 0.1)
    with slots(1).one("mine", b"") as slot:
        time.sleep(0.3)
        assert slot.is_alive, "it has a batch"
    deadline = time.monotonic() + PATIENCE_S
    while slot.is_alive:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_board_of_the_desk_needs_its_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measuring_slot, "LEASE_S", 0.0)
    board = "nucleo_f746zg"
    slot = Slot(board, "mine", Opening(b"", 1))
    with pytest.raises(TuneError, match=f"no process measures on {board}: bench.toml lists no"):
        slot.opened(PATIENCE_S)
    (tmp_path / "bench.toml").write_text(f'[boards.{board}]\nport = "/dev/null"\n')
    with measuring_slot.held_entry(board, 0.0, "another job"):
        slot = Slot(board, "mine", Opening(b"", 1))
        with pytest.raises(TuneError, match=r"nucleo_f746zg is in use by .*another job"):
            slot.opened(PATIENCE_S)
