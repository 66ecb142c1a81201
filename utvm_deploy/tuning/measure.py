"""Runs built candidates on a device, many in one batch, and compares every output.

    jobs ─▶ group that fits ─▶ module, tables, inputs ─▶ fill │ run │ checksum ─▶ ticks

If a candidate hangs, faults or writes where it must not, only that candidate gets an error. The
rest of its group runs again, after damaged data has been loaded again. Tables that do not fit RAM
are in flash, in an image that is made for them.
"""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from utvm_deploy.base.errors import BuildError, DeviceError, StoppedTask, TaskTimeout, UtvmError
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.boards.board import Board
from utvm_deploy.device import Call, Device, Module, Tensor
from utvm_deploy.device.module import load_module
from utvm_deploy.device.session import Session
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import ConstantArgument, ScalarArgument, TensorArgument
from utvm_deploy.project.build import build_image_with
from utvm_deploy.project.image import Image
from utvm_deploy.project.link_module import ModuleObject, merge_modules
from utvm_deploy.records import Measurement
from utvm_deploy.records.candidate import GENERIC
from utvm_deploy.tuning.build import image_with_tables
from utvm_deploy.tuning.flights import Flights
from utvm_deploy.tuning.inputs import (
    Job,
    contents_of,
    data_of,
    is_output,
    key_of,
    places_of,
    samples_of,
    tables_of,
)
from utvm_deploy.tuning.loaded import Loaded, Spent
from utvm_deploy.tuning.workload import Work

log = logging.getLogger(__name__)

_Made = TypeVar("_Made")

#: The most candidates in a module; fewer if RAM or the line is short.
GROUP = 32
#: Runs where the timer is a clock, whose readings differ; counters need one.
CLOCK_REPEATS = 20
#: What outputs hold before a candidate runs: no kernel likes to write it throughout.
FILL = 0xA5

_FILL_SYMBOL = "utvm_fill"
_CRC_SYMBOL = "utvm_crc32_of"
_FORGET_SYMBOL = "utvm_forget_history"


class Measurer:
    """Measures candidates on a device; keeps tables and inputs there between batches."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._session: Session | None = None
        # By content, for candidates that share them, the one that was used last at the end; and
        # those that the group that is being loaded needs.
        self._tables: dict[bytes, Tensor] = {}
        self._wanted: set[bytes] = set()
        # Symbols of tables that are in this image instead, because RAM has no room for them.
        self._stored: Mapping[bytes, str] = {}
        self._stored_in: Image | None = None
        # Checksum of the generic kernel's output, by kernel.
        self._expected: dict[str, int] = {}
        self.spent = Spent()
        self._stopping = threading.Event()
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
        return not self._device.board.main_ram.executable

    @property
    def board(self) -> Board:
        """Where it measures."""
        return self._device.board

    def measure(self, jobs: Sequence[Job], *, is_compared: bool = True) -> list[Measurement]:
        """Each job's ticks or error; the generic candidate of a kernel counts as right."""
        found = self.measure_some(jobs, is_compared=is_compared)
        measured = [one for one in found if one is not None]
        assert len(measured) == len(jobs), "stopped: a caller that stops must call measure_some"
        return measured

    def measure_some(
        self, jobs: Sequence[Job], *, is_compared: bool = True
    ) -> list[Measurement | None]:
        """The same, with None for jobs that did not run because of ``stop``."""
        found: dict[int, tuple[Measurement, int]] = {}
        waiting = list(range(len(jobs)))
        while waiting and not self._stopping.is_set():
            group = self._fitting(jobs, waiting)
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
                judged.append(self._judged(job, *found[index]))
            else:
                judged.append(found[index][0])
        return judged

    def _learn(self, jobs: Sequence[Job], found: Mapping[int, tuple[Measurement, int]]) -> None:
        """Take the generic outputs as right."""
        for index, (measurement, checksum) in found.items():
            job = jobs[index]
            candidate = job.built.candidate
            if candidate.family == GENERIC and not candidate.choices and measurement.is_ok:
                self._expected.setdefault(job.work.kernel.key, checksum)

    def _judged(self, job: Job, measurement: Measurement, checksum: int) -> Measurement | None:
        if not measurement.is_ok:
            return measurement
        expected = self._expected.get(job.work.kernel.key)
        if expected is None and self._stopping.is_set():
            return None
        if expected is None:
            return Measurement(error="no room", detail="the generic kernel did not run here")
        if checksum != expected:
            return Measurement(error="wrong output", detail=f"{checksum:08x} for {expected:08x}")
        return measurement

    # Groups.

    def _fitting(self, jobs: Sequence[Job], waiting: Sequence[int]) -> list[int]:
        """The first of those that wait, as many as there is room for; at least one."""
        self._check_session()
        room = self._session_now.memory.size * 7 // 8
        taken: set[bytes] = set()
        group: list[int] = []
        for index in waiting[:GROUP]:
            job = jobs[index]
            room -= 0 if self.flashes else job.built.module.size_bytes + 256
            for key, size in contents_of(job):
                if key not in taken and key not in self._stored:
                    taken.add(key)
                    room -= size + 96
            if group and room < 0:
                break
            group.append(index)
        return group

    def _group(self, jobs: Sequence[Job]) -> list[tuple[Measurement, int] | None]:
        """Load and run; one by one where together does not work. None: stopped before it ran."""
        if self._stopping.is_set():
            return [None] * len(jobs)
        try:
            return self._run_group(jobs)
        except _Stopped:
            return [None] * len(jobs)
        except BuildError as error:
            if len(jobs) == 1:
                return [(Measurement(error="compile error", detail=str(error)), 0)]
        except (_NoRoom, UtvmError) as error:
            if len(jobs) == 1:
                if isinstance(error, _NoRoom) and self._store_tables(jobs[0]):
                    return self._group(jobs)
                kind = "no room" if isinstance(error, _NoRoom) else "crash"
                return [(Measurement(error=kind, detail=str(error)), 0)]
            log.info("%d candidates together: %s; now in smaller groups", len(jobs), error)
        half = len(jobs) // 2
        return [*self._group(jobs[:half]), *self._group(jobs[half:])]

    def _run_group(self, jobs: Sequence[Job]) -> list[tuple[Measurement, int] | None]:
        found: dict[int, tuple[Measurement, int]] = {}
        loaded = self._load(jobs)
        try:
            waiting = list(range(len(jobs)))
            while waiting and not self._stopping.is_set():
                flight = self._flights.next(jobs, waiting)
                is_damaged = self._fly(loaded, jobs, flight, found)
                waiting = [i for i in waiting if i not in found]
                if is_damaged and waiting:
                    self._forget_all()
                    loaded = self._load(jobs)
        finally:
            if not self._session_now.ended:
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
        stopped: StoppedTask | None = None
        try:
            self._device.sync()
        except StoppedTask as error:
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
        kind = "hung" if isinstance(stopped, TaskTimeout) else "crash"
        found[culprit] = (Measurement(error=kind, detail=stopped.cause), 0)
        return not self._is_intact(loaded)

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
            self._session_now.call(
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
        return repeats * self._session_now.speeds.task_s(size, work.kernel.macs)

    @property
    def _repeats_exactly(self) -> bool:
        return self._device.hello.tick_unit == "instructions" or self._device.is_modelled

    # What is on the device.

    def _load(self, jobs: Sequence[Job]) -> Loaded:
        begin = time.perf_counter()
        if self.flashes:
            self._flash(jobs)
        self._check_session()
        self._wanted = {key for job in jobs for key, _ in contents_of(job)}
        try:
            return self._load_beside_others(jobs)
        except _NoRoom:
            # There may be enough room, but in pieces.
            self._forget_all()
            return self._load_beside_others(jobs)
        finally:
            self.spent.load_s += time.perf_counter() - begin

    def _load_beside_others(self, jobs: Sequence[Job]) -> Loaded:
        own: list[Tensor] = []

        def empty(size: int, what: str) -> Tensor:
            tensor = self._allocated(lambda: self._device.empty(size, np.uint8, name=what))
            own.append(tensor)
            return tensor

        try:
            outputs: dict[str, Tensor] = {}
            words: list[int] = []
            offsets: list[list[int]] = []
            constants: dict[int, tuple[Tensor | Module, int]] = {}
            for job in jobs:
                if self._stopping.is_set():
                    raise _Stopped
                name, (stride, samples) = job.work.kernel.key, samples_of(job)
                if name not in outputs:
                    outputs[name] = empty(stride * samples, f"output of {name}")
                own_scratch: list[int] = []
                if not job.built.has_stack_scratch:
                    for scratch in job.built.function.scratch:
                        own_scratch.append(empty(scratch.size_bytes, scratch.name).address)
                starts = []
                for sample in range(samples):
                    starts.append(len(words))
                    for argument in job.built.call.arguments:
                        if isinstance(argument, ScalarArgument):
                            words.append(argument.value & 0xFFFFFFFF)
                        elif is_output(job, argument):
                            assert isinstance(argument, TensorArgument)
                            at = sample * stride + places_of(job)[argument.tensor]
                            words.append(outputs[name].address + at)
                        else:
                            assert isinstance(argument, TensorArgument | ConstantArgument)
                            data = data_of(job, argument, sample)
                            if key_of(data) in self._stored:
                                words.append(self._device.symbol(self._stored[key_of(data)]))
                                continue
                            tensor = self._table(data, name)
                            constants[tensor.address] = (tensor, zlib.crc32(data.tobytes()))
                            words.append(tensor.address)
                    words += own_scratch
                offsets.append(starts)
            table = self._allocated(lambda: self._device.tensor(np.array(words, np.uint32)))
            own.append(table)
            slots = self._allocated(lambda: self._device.empty(len(jobs), np.uint32))
            own.append(slots)
            kept = list(constants.values())
            entries = [job.built.entry for job in jobs]
            module = None
            if self.flashes:
                code = {entry: self._device.symbol(entry) for entry in entries}
            else:
                module = self._module(jobs)
                code = {entry: module[entry].address for entry in entries}
                block = module.block
                kept.append((module, self._device.checksum(block.address, block.size)))
            found = [outputs[job.work.kernel.key] for job in jobs]
            return Loaded(module, code, table, slots, offsets, found, kept, own)
        except BaseException:
            if not self._session_now.ended:
                for tensor in own:
                    tensor.free()
            raise

    def _flash(self, jobs: Sequence[Job]) -> None:
        """An image with all of the group's code; everything else on the device is lost."""
        entries = list(dict.fromkeys(job.built.entry for job in jobs))
        board = self._device.image.board
        modules = _modules(jobs)
        libraries = dict.fromkeys(Path(name) for module in modules for name in module.libraries)
        objects = [*(module.path for module in modules), *libraries]
        self._device.start(build_image_with(objects, entries, board))

    def _store_tables(self, job: Job) -> bool:
        """An image with a job's tables in flash, where models have them; False if that does not
        help.

        Everything else on the device is lost.
        """
        tables = tables_of(job)
        if self.flashes or not tables or all(key in self._stored for key in tables):
            return False
        try:
            image, self._stored = image_with_tables(tables, self._device.image.board)
            self._device.start(image)
        except BuildError as error:
            log.info("no image with the tables of %s: %s", job.work.kernel.key, error)
            return False
        self._stored_in = self._device.image
        return True

    def _module(self, jobs: Sequence[Job]) -> Module:
        unique = _modules(jobs)
        with TemporaryFolder("utvm-tune") as folder:
            merged = merge_modules(unique, "candidates", Path(folder))
            return self._allocated(lambda: load_module(self._session_now, merged))

    def _table(self, data: Array, what: str) -> Tensor:
        key = key_of(data)
        if key not in self._tables:
            self._tables[key] = self._allocated(
                lambda: self._device.tensor(data, name=f"table of {what}")
            )
        self._tables[key] = self._tables.pop(key)
        return self._tables[key]

    def _allocated(self, make: Callable[[], _Made]) -> _Made:
        """What ``make`` gives, after old tables made room; _NoRoom if that is not enough."""
        while True:
            try:
                return make()
            except DeviceError as error:
                if error.status is not None or self._session_now.ended:
                    raise
                oldest = next((key for key in self._tables if key not in self._wanted), None)
                if oldest is None:
                    raise _NoRoom(str(error)) from error
                self._tables.pop(oldest).free()

    def _is_intact(self, loaded: Loaded) -> bool:
        return all(
            self._device.checksum(one.block.address, one.block.size) == checksum
            for one, checksum in loaded.constants
        )

    @property
    def _session_now(self) -> Session:
        assert self._session is not None
        return self._session

    def _check_session(self) -> None:
        """After a restart of the device nothing is there any more."""
        session = self._device.session
        if session is not self._session:
            self._session = session
            self._tables.clear()
            if self._device.image is not self._stored_in:
                self._stored = {}

    def _forget_all(self) -> None:
        """Take everything off the device."""
        if not self._session_now.ended:
            for tensor in self._tables.values():
                tensor.free()
        self._tables.clear()


def _modules(jobs: Sequence[Job]) -> list[ModuleObject]:
    return list({job.built.module.path: job.built.module for job in jobs}.values())


class _Stopped(Exception):
    """``stop`` was called while a group was loaded."""


class _NoRoom(Exception):
    """The device has no room for a group."""
