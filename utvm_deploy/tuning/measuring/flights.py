"""How many candidates run before their ticks come back."""

from __future__ import annotations

from collections.abc import Sequence

from utvm_deploy.tuning.measuring.inputs import Job

#: The most in one task list: those before a stopped candidate run once more.
FLIGHT = 8
#: The most seconds of a flight, as far as they are known: Ctrl-C waits for its end.
FLIGHT_S = 0.5


class Flights:
    """Parts candidates into flights by how long earlier ones took."""

    def __init__(self) -> None:
        # Seconds that one of a kernel's candidates took, and the fewest for a multiplication.
        self._seconds: dict[str, float] = {}
        self._seconds_per_mac = 0.0

    def next(self, jobs: Sequence[Job], waiting: Sequence[int]) -> list[int]:
        """The first waiting candidates that run in a short time together; at least one."""
        flight: list[int] = []
        seconds = 0.0
        for index in waiting[:FLIGHT]:
            kernel = jobs[index].work.kernel
            seconds += self._seconds.get(kernel.key, self._seconds_per_mac * kernel.macs)
            if flight and seconds > FLIGHT_S:
                break
            flight.append(index)
        return flight

    def took(self, jobs: Sequence[Job], seconds: float) -> None:
        """What one flight took."""
        per_mac = seconds / sum(max(job.work.kernel.macs, 1) for job in jobs)
        for job in jobs:
            kernel = job.work.kernel
            self._seconds[kernel.key] = per_mac * max(kernel.macs, 1)
        self._seconds_per_mac = min(self._seconds_per_mac or per_mac, per_mac)
