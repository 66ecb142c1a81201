"""The timer of two timers: exact, and whole across every wrap of either."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.boards.test_drivers import drivers
from utvm_deploy.boards.board import load_board

CNT = 0x24


@pytest.mark.tools
def test_two_timers_make_one_that_does_not_wrap(tmp_path: Path) -> None:
    board = load_board("netduinoplus2")
    timer = board.project.timer
    assert timer is not None
    fine, coarse = (timer.driver.setting(key) + CNT for key in ("base", "slow_base"))
    library = drivers(board, tmp_path)

    def ticks_at(now: int) -> int:
        library.fake_poke(fine, now & 0xFFFF_FFFF)
        library.fake_poke(coarse, now >> 16 & 0xFFFF_FFFF)
        return int(library.timer_ticks())

    library.timer_start()
    now, expected = 0, 0
    rng = random.Random(1)
    # Nanoseconds, in whole instructions: within one wrap, across the fine one, across many of it,
    # and up to the wrap of both.
    steps = [64, 2**32 - 64, 2**32, 2**33 + 640, 2**40]
    for step in [*steps, *(64 * rng.randrange(2**40) for _ in range(40))]:
        now += step
        expected += step // timer.divisor
        assert ticks_at(now) == expected
    assert now > 2**48
