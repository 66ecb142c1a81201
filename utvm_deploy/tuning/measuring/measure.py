"""Runs built candidates on a device, many in one task list, and compares every output.

    jobs ─▶ group that fits ─▶ module, tables, inputs ─▶ fill │ run │ checksum ─▶ ticks

If a candidate hangs, faults or writes where it must not, only that candidate gets an error. The
rest of its group runs again, after damaged data has been loaded again. Tables that do not fit RAM
are in flash, in an image that is made for them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence

from utvm_deploy.base import errors
from utvm_deploy.boards.board import Board
from utvm_deploy.device import Call, Device
from utvm_deploy.records import Measurement
from utvm_deploy.records.candidate import GENERIC
from utvm_deploy.tuning.measuring.inputs import Job
from utvm_deploy.tuning.measuring.loaded import Loaded, Spent
from utvm_deploy.tuning.measuring.loading import Loader, NoRoom, Stopped
from utvm_deploy.tuning.measuring.tolerance import relative_error
from utvm_deploy.tuning.measuring.workload import Work

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


log = logging.getLogger(__name__)

#: Runs of a candidate where the timer is a clock, whose readings differ; a counter needs one.
CLOCK_REPEATS = 20
#: What outputs hold before a candidate runs; hardly any kernel writes this everywhere.
FILL = 0xA5

_FILL_SYMBOL = "utvm_fill"
_CRC_SYMBOL = "utvm_crc32_of"
_FORGET_SYMBOL = "utvm_forget_history"


class Measurer:
    """Measures candidates on a device; keeps tables and inputs there between batches."""

    def __init__(self, device: Device) -> None:
        self._device = device
        #: Checksum of the generic kernel's output, by kernel.
        self.expected: dict[str, int] = {}
        # The generic kernel's job, and the outputs of those that a tolerance was needed for.
        self._generic: dict[str, Job] = {}
        self._outputs: dict[str, bytes] = {}
        self.spent = Spent()
        self._stopping = threading.Event()
        self._loader = Loader(device, self.spent, self._stopping.is_set)
        self._flights = Flights()

    def stop(self) -> None:
        """End ``measure_some`` with the flight that is under way; from any thread."""
        self._stopping.set()

    @property
    def unit(self) -> str:
        """Of the ticks, as records have it."""
        unit = self._device.hello.tick_unit
        return f"modelled {unit}" if self._device.is_modelled else unit

    @property
    def flashes(self) -> bool:
        """Whether code is written into flash, a group at a time, as RAM executes none."""
        return self._loader.flashes

    @property
    def board(self) -> Board:
        """Where it measures."""
        return self._device.board

    def store_tables(self, jobs: Sequence[Job]) -> None:
        """Put the tables of these jobs into flash, where models have them, as far as it has room.

        For kernels whose candidates read the same tables, or a few different ones. The flash is
        written again if new ones come. Nothing happens on this computer, which has no flash.
        """
        begin = time.perf_counter()
        if not self.board.is_host:
            self._loader.store_tables(jobs)
        self.spent.load_s += time.perf_counter() - begin

    def measure(
        self, jobs: Sequence[Job], *, is_compared: bool = True, tolerance: float = 0.0
    ) -> list[Measurement]:
        """Each job's ticks or error; the generic candidate of a kernel counts as right.

        Outputs of floating point may differ by ``tolerance`` (see ``relative_error``).
        """
        found = self.measure_some(jobs, is_compared=is_compared, tolerance=tolerance)
        measured = [one for one in found if one is not None]
        assert len(measured) == len(jobs), "stopped: a caller that stops must call measure_some"
        return measured

    def measure_some(
        self, jobs: Sequence[Job], *, is_compared: bool = True, tolerance: float = 0.0
    ) -> list[Measurement | None]:
        """The same, with None for jobs that did not run because of ``stop``."""
        found: dict[int, tuple[Measurement, int]] = {}
        waiting = list(range(len(jobs)))
        while waiting and not self._stopping.is_set():
            group = self._loader.fitting(jobs, waiting)
            for index, outcome in zip(group, self._group([jobs[i] for i in group]), strict=True):
                if outcome is not None:
                    found[index] = outcome
            waiting = [i for i in waiting if i not in found]
        if is_compared:
            self._learn(jobs, found)
        judged: list[Measurement | None] = []
        for index, job in enumerate(jobs):
            if index not in found:
                judged.append(None)
            elif is_compared:
                judged.append(self._judged(job, *found[index], tolerance))
            else:
                judged.append(found[index][0])
        return judged

    def _learn(self, jobs: Sequence[Job], found: Mapping[int, tuple[Measurement, int]]) -> None:
        """Take the generic outputs as right."""
        for index, (measurement, checksum) in found.items():
            job = jobs[index]
            candidate = job.built.candidate
            if candidate.family == GENERIC and not candidate.choices and measurement.is_ok:
                self.expected.setdefault(job.work.kernel.key, checksum)
                self._generic.setdefault(job.work.kernel.key, job)

    def _judged(
        self, job: Job, measurement: Measurement, checksum: int, tolerance: float
    ) -> Measurement | None:
        if not measurement.is_ok:
            return measurement
        expected = self.expected.get(job.work.kernel.key)
        if expected is None and self._stopping.is_set():
            return None
        if expected is None:
            return Measurement(error="no room", detail="the generic kernel did not run here")
        if checksum == expected:
            return measurement
        detail = f"{checksum:08x} for {expected:08x}"
        if tolerance:
            error = self._error_of(job)
            if error <= tolerance:
                return measurement
            detail = f"off by {error:.1e} of the largest value; {tolerance:.0e} is allowed"
        return Measurement(error="wrong output", detail=detail)

    def _error_of(self, job: Job) -> float:
        """The relative error of a job's outputs; the job runs again for it."""
        key = job.work.kernel.key
        if key not in self._outputs:
            self._outputs[key] = self._output_of(self._generic[key])
        return relative_error(job, self._output_of(job), self._outputs[key])

    def _output_of(self, job: Job) -> bytes:
        """All outputs of a job that has run before."""
        loaded = self._loader.load([job])
        try:
            self._fly(loaded, [job], [0], {})
            return loaded.outputs[0].numpy().tobytes()
        finally:
            if not self._loader.session.ended:
                loaded.free()

    # Groups.

    def _group(
        self, jobs: Sequence[Job], *, is_first: bool = True
    ) -> list[tuple[Measurement, int] | None]:
        """Load and run jobs together, or one by one if that fails. None: stopped before it ran."""
        if self._stopping.is_set():
            return [None] * len(jobs)
        try:
            return self._run_group(jobs)
        except Stopped:
            return [None] * len(jobs)
        except errors.SystemRefused:
            raise  # no record may say that a candidate was at fault
        except errors.BuildError as error:
            if len(jobs) == 1:
                return [(Measurement(error="compile error", detail=str(error)), 0)]
        except (NoRoom, errors.UtvmError) as error:
            if isinstance(error, errors.StoppedTask) and is_first:
                # It was none of the candidates' tasks, so it says nothing of them.
                log.info("%s; once more", error)
                return self._group(jobs, is_first=False)
            if len(jobs) == 1:
                if isinstance(error, NoRoom) and self._loader.store_tables(jobs):
                    return self._group(jobs)
                kind = "no room" if isinstance(error, NoRoom) else "crash"
                return [(Measurement(error=kind, detail=str(error)), 0)]
            log.info("%d candidates together: %s; now in smaller groups", len(jobs), error)
        half = len(jobs) // 2
        return [*self._group(jobs[:half]), *self._group(jobs[half:])]

    def _run_group(self, jobs: Sequence[Job]) -> list[tuple[Measurement, int] | None]:
        found: dict[int, tuple[Measurement, int]] = {}
        loaded = self._loader.load(jobs)
        try:
            waiting = list(range(len(jobs)))
            while waiting and not self._stopping.is_set():
                flight = self._flights.next(jobs, waiting)
                is_damaged = self._fly(loaded, jobs, flight, found)
                waiting = [i for i in waiting if i not in found]
                if is_damaged and waiting:
                    self._loader.forget_all()
                    loaded = self._loader.load(jobs)
        finally:
            if not self._loader.session.ended:
                loaded.free()
        return [found.get(index) for index in range(len(jobs))]

    def _fly(
        self,
        loaded: Loaded,
        jobs: Sequence[Job],
        flight: Sequence[int],
        found: dict[int, tuple[Measurement, int]],
    ) -> bool:
        """Run some; returns whether one of them damaged what is loaded."""
        begin = time.perf_counter()
        calls = {index: self._queue(loaded, index, jobs[index]) for index in flight}
        stopped: errors.StoppedTask | None = None
        try:
            self._device.sync()
        except errors.StoppedTask as error:
            stopped = error
        done = [i for i in flight if all(call.error is None for call in calls[i])]
        if done:
            slots = loaded.slots.numpy()
            for index in done:
                ticks = calls[index][0].ticks
                found[index] = (Measurement(ticks.min, ticks.median), int(slots[index]))
        seconds = time.perf_counter() - begin
        self.spent.run_s += seconds
        if stopped is None:
            self._flights.took([jobs[index] for index in flight], seconds)
            return False
        culprit = next((i for i in flight if any(call.error is stopped for call in calls[i])), None)
        if culprit is None:
            raise stopped
        kind = "hung" if isinstance(stopped, errors.TaskTimeout) else "crash"
        found[culprit] = (Measurement(error=kind, detail=stopped.cause), 0)
        return not self._loader.is_intact(loaded)

    def _queue(self, loaded: Loaded, index: int, job: Job) -> list[Call]:
        """The call that is timed, those with other inputs, and the one for the checksum."""
        device, output = self._device, loaded.outputs[index]
        device.call(_FILL_SYMBOL, output.address, output.nbytes, FILL)
        if _FORGET_SYMBOL in device.image.symbols:
            # As if nothing had run before: ticks then depend on the candidate alone.
            device.call(_FORGET_SYMBOL)
        others = (one.block for one, _ in loaded.constants)
        blocks = tuple(dict.fromkeys((output.block, loaded.words.block, *others)))
        size = sum(block.size for block in blocks)
        calls = [
            self._loader.session.call(
                loaded.code[job.built.entry],
                job.built.candidate.label,
                (loaded.words.address + 4 * offset,),
                repeat=1 if sample or self._repeats_exactly else CLOCK_REPEATS,
                timeout_s=self._deadline_s(job.work, size),
                blocks=blocks,
            )
            for sample, offset in enumerate(loaded.offsets[index])
        ]
        slot = loaded.slots.address + 4 * index
        return [*calls, device.call(_CRC_SYMBOL, output.address, output.nbytes, slot)]

    def _deadline_s(self, work: Work, size: int) -> float:
        """For all repeats of a kernel that touches ``size`` bytes, by the device's own clock."""
        repeats = 1 if self._repeats_exactly else CLOCK_REPEATS
        return repeats * self._loader.session.speeds.task_s(size, work.kernel.macs)

    @property
    def _repeats_exactly(self) -> bool:
        return self._device.hello.tick_unit == "instructions" or self._device.is_modelled
