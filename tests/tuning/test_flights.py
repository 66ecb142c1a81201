"""How many candidates run at once: so few that Ctrl-C need not wait long for them."""

from __future__ import annotations

from typing import Any, cast

from utvm_deploy.records import KernelIdentity
from utvm_deploy.tuning.measuring.inputs import Job
from utvm_deploy.tuning.measuring.measure import FLIGHT, FLIGHT_S, Flights


class _Work:
    def __init__(self, name: str, macs: int) -> None:
        self.kernel = KernelIdentity(name, "int8", "CONV_2D", (), macs)


def jobs(name: str, macs: int, count: int) -> list[Job]:
    return [Job(cast(Any, _Work(name, macs)), cast(Any, None)) for _ in range(count)]


def test_slow_candidates_fly_in_small_groups() -> None:
    flights = Flights()
    small, large = jobs("small", 1000, 20), jobs("large", 1_000_000, 20)
    waiting = list(range(20))
    # Nothing is known yet.
    assert flights.next(small, waiting) == waiting[:FLIGHT]
    flights.took(small[:1], FLIGHT_S / 1000)
    assert flights.next(small, waiting) == waiting[:FLIGHT]
    # By its multiplications one of the large ones takes all of the time.
    assert flights.next(large, waiting) == [0]
    # What it took counts more than what was thought.
    flights.took(large[:1], FLIGHT_S / 3)
    assert flights.next(large, waiting[5:]) in ([5, 6], [5, 6, 7])
    flights.took(large[:1], FLIGHT_S * 30)
    assert flights.next(large, waiting) == [0]
