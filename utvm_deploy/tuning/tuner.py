"""The tuning loop: search, build, measure, record, until trials or time run out.

While one batch runs on the device, in a separate thread, the next one is compiled.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice

from utvm_deploy import __version__
from utvm_deploy.base.errors import MissingTool, TuneError, UtvmError
from utvm_deploy.boards.board import Board
from utvm_deploy.cmsis_nn import CmsisNn
from utvm_deploy.cmsis_nn.choice import library_code
from utvm_deploy.compiler.decision import model_of, models_of_today, shipped_records
from utvm_deploy.compiler.kernel_function import record_code
from utvm_deploy.compiler.options import (
    AUTO,
    STACK,
    TIME,
    max_stack_scratch,
    scratch_place,
)
from utvm_deploy.device import Device
from utvm_deploy.project.build import build_image, compiler_version
from utvm_deploy.project.fit import with_larger_stack
from utvm_deploy.project.zephyr import is_zephyr
from utvm_deploy.records import Measurement, Record, Records, Setting, is_modelled, now
from utvm_deploy.records.candidate import CMSIS_NN, GENERIC, Candidate
from utvm_deploy.tuning.build import Builder, Built, flags_for
from utvm_deploy.tuning.current import code_of, current
from utvm_deploy.tuning.evolution import Evolution
from utvm_deploy.tuning.inputs import Job
from utvm_deploy.tuning.interrupts import Interrupts
from utvm_deploy.tuning.measure import Measurer
from utvm_deploy.tuning.model_runs import first_candidates
from utvm_deploy.tuning.records_file import RecordsFile
from utvm_deploy.tuning.search import KernelState, Search
from utvm_deploy.tuning.workload import Work

log = logging.getLogger(__name__)

#: Candidates that are compiled and run together.
BATCH = 16
#: The first batch has one candidate; each following batch is larger by this factor.
BATCH_GROWTH = 4
#: The same over a line on which loading takes most of the time, and how many of them are of one
#: kernel, whose tables then travel once.
SLOW_BATCH = 32
SLOW_IN_A_ROW = 8
SLOW_SHARE = 0.6
#: Winners of similar shapes that are tried early.
HINTS = 3

PLAIN = Candidate(GENERIC)


@dataclass(frozen=True)
class Tuning:
    """How far a tuning is, or what it came to."""

    setting: Setting
    states: tuple[KernelState, ...]
    trials: int  # with those that were in the records before
    trials_before: int
    trials_wanted: int
    seconds: float
    seconds_left: float | None  # as far as it is known
    # Where this process' and the device's time went; they overlap.
    lower_s: float
    load_s: float
    run_s: float
    # Bytes of scratch, by kernel's key and candidate.
    scratch_bytes: Mapping[tuple[str, Candidate], int]

    def scratch(self, key: str, candidate: Candidate) -> int:
        """Bytes of scratch that a kernel's candidate wants; 0 if they are not known."""
        return self.scratch_bytes.get((key, candidate), 0)

    @property
    def per_second(self) -> float:
        """Candidates of this run in a second."""
        return (self.trials - self.trials_before) / self.seconds if self.seconds else 0.0

    @property
    def errors(self) -> int:
        """Candidates without ticks."""
        return sum(not m.is_ok for state in self.states for m in state.measured.values())

    def total(self, *, tuned: bool) -> int | None:
        """Ticks of all layers, each alone, with the best candidates or as without the records.

        None if one is unknown.
        """
        ticks = 0
        for state in self.states:
            best = state.best
            one = (best[1] if best else None) if tuned else state.before_ticks
            if one is None:
                return None
            ticks += one * state.work.layers
        return ticks


Watch = Callable[[Tuning], None]
_Results = list[tuple[KernelState, Record]]


def check_tunable(board: Board) -> None:
    """TuneError where candidates can neither be loaded nor flashed."""
    if board.main_ram.executable:
        return
    if board.is_host or is_zephyr(board):
        raise TuneError(
            f"{board.name} runs no code from its RAM (region {board.main_ram.name} is not "
            f"executable in the board's file). Only bare-metal images can be flashed with "
            f"candidates. Tune on a board with the same core, and compile for this one "
            f"with its records"
        )


def fastest_link(board: Board) -> str | None:
    """Which link to measure over: an emulator's debugger moves memory at once; else the default."""
    return "debug" if board.emulator is not None and "debug" in board.link.kinds else None


def setting_of(board: Board, unit: str, level: str = TIME) -> Setting:
    """Under which circumstances candidates are measured for a board."""
    return Setting(
        board.cpu.kernel_core,
        compiler_version(board).partition("\n")[0],
        " ".join((*board.cpu.compiler_flags, *board.project.compiler_flags, *flags_for(level))),
        __version__,
        unit,
        model_of(board) if is_modelled(unit) else "",
    )


def tune(
    works: Sequence[Work],
    device: Device,
    file: RecordsFile,
    *,
    trials: int,
    minutes: float | None = None,
    seed: int = 0,
    level: str = TIME,
    watch: Watch = lambda tuning: None,
    library: CmsisNn | None = None,
) -> Tuning:
    """Tune until ``trials`` candidates are in the records, or ``minutes`` have passed.

    Trials of these kernels that the records have already count, and are not repeated. Kernels are
    compiled as for ``level``, one of ``options.LEVELS``. ``watch`` is called after each batch.
    ``library`` is the one that ``works`` were made with.
    """
    board = device.board
    check_tunable(board)
    # The scratch of compiled models is there, too, if that is the better place.
    stack = 0
    if scratch_place(board, AUTO) == STACK and not board.is_host:
        stack = max_stack_scratch(board)
        device.check_ready()
        device.start(build_image(None, with_larger_stack(board, stack)))
    measurer = Measurer(device)
    setting = setting_of(board, measurer.unit, level)
    code = "" if library is None else library_code(library)
    first = first_candidates(works, board, level, library)
    loop = _Loop(works, measurer, file, setting, code, first, trials, minutes, seed, watch)
    with Builder(board, stack, os.cpu_count() or 1, level, library) as builder:
        return loop.run(builder)


class _Loop:
    def __init__(
        self,
        works: Sequence[Work],
        measurer: Measurer,
        file: RecordsFile,
        setting: Setting,
        library_code: str,
        first: Mapping[str, Candidate],
        trials: int,
        minutes: float | None,
        seed: int,
        watch: Watch,
    ) -> None:
        self._measurer = measurer
        self._file = file
        self._setting = setting
        self._library_code = library_code
        self._first = first
        self._batches = 0
        self._wanted = trials
        self._begin = time.monotonic()
        self._until = None if minutes is None else self._begin + 60 * minutes
        self._watch = watch
        # Of whichever code: all are worth a try.
        known = [*shipped_records(setting.core), *file.records]
        self._known = Records(known, models=models_of_today(measurer.board, known))
        self._states = tuple(self._state(work, seed) for work in works)
        self._search = Search(self._states, seed)
        self._trials_before = self._trials
        self._started = self._trials
        self._lower_s = 0.0
        # Whose right output is known, or about to be.
        self._referenced: set[Work] = set()

    def _state(self, work: Work, seed: int) -> KernelState:
        free = None if work.free is None else Evolution(work.free, seed)
        first = self._first[work.kernel.key]
        state = KernelState(work, free=free, first=first if work.admits(first) else None)
        measured = self._file.records.of(work.kernel, self._setting)
        for record in current(work, measured, self._setting.core, self._library_code):
            # What a library took counts only where it may be taken.
            if record.candidate.family != CMSIS_NN or record.candidate in work.candidates:
                state.add(record.candidate, record.measurement)
        # What other compilers and versions, what ships with us, and what similar shapes found.
        chosen = self._known.choices(work.kernel, self._setting.core, self._setting)
        hints = dict.fromkeys(c for c, _ in chosen if c not in state.measured)
        state.hints = list(islice((c for c in hints if work.admits(c)), HINTS))
        return state

    @property
    def _trials(self) -> int:
        return sum(len(state.measured) for state in self._states)

    def tuning(self) -> Tuning:
        """How far it is."""
        seconds = time.monotonic() - self._begin
        done = self._trials
        new = done - self._trials_before
        left = max(self._wanted - done, 0)
        if all(state.free is None for state in self._states):
            left = min(left, sum(len(s.untried()) + len(s.pending) for s in self._states))
        ahead = left * seconds / new if new else None
        if self._until is not None:
            limit = max(self._until - time.monotonic(), 0.0)
            ahead = limit if ahead is None else min(ahead, limit)
        spent = self._measurer.spent
        return Tuning(
            self._setting,
            self._states,
            done,
            self._trials_before,
            self._wanted,
            seconds,
            ahead,
            self._lower_s,
            spent.load_s,
            spent.run_s,
            {(one.kernel.key, one.candidate): one.scratch_bytes for one in self._file.records},
        )

    def run(self, builder: Builder) -> Tuning:
        """Search, build, measure and record, until trials or time run out."""
        self._watch(self.tuning())
        with (
            Interrupts(self._measurer.stop) as interrupts,
            ThreadPoolExecutor(1, thread_name_prefix="measure") as runner,
        ):
            running: Future[_Results] | None = None
            try:
                while True:
                    batch = self._next_batch()
                    # Lowering takes this thread; the device has a separate one.
                    jobs = self._built(builder, batch, interrupts) if batch else None
                    if running is not None:
                        results, running = running.result(), None
                        self._learn(results)
                    interrupts.check()
                    if jobs is None:
                        if self._may_go_on():
                            continue
                        break
                    running = runner.submit(self._measure, *jobs)
            except BaseException:
                self._measurer.stop()
                raise
            finally:
                # What runs on the device is worth recording, even after Ctrl-C.
                if running is not None:
                    self._learn(running.result())
        return self.tuning()

    def _learn(self, results: _Results) -> None:
        for state, record in results:
            state.add(record.candidate, record.measurement)
        self._watch(self.tuning())

    def _may_go_on(self) -> bool:
        is_late = self._until is not None and time.monotonic() >= self._until
        return (
            not is_late
            and self._started < self._wanted
            and any(state.is_open for state in self._states)
        )

    def _next_batch(self) -> list[tuple[KernelState, Candidate]]:
        if not self._may_go_on():
            return []
        is_slow = self._measurer.flashes or self._measurer.spent.load_s > SLOW_SHARE * (
            time.monotonic() - self._begin
        )
        size, in_a_row = (SLOW_BATCH, SLOW_IN_A_ROW) if is_slow else (BATCH, 1)
        # The first batches are small, so that the user soon sees something. If each batch is
        # flashed, only the first is small.
        if not self._batches or not self._measurer.flashes:
            size = min(size, BATCH_GROWTH**self._batches)
        self._batches += 1
        batch = self._search.next_batch(min(size, self._wanted - self._started), in_a_row)
        self._started += len(batch)
        return batch

    def _built(
        self,
        builder: Builder,
        batch: Sequence[tuple[KernelState, Candidate]],
        interrupts: Interrupts,
    ) -> tuple[list[tuple[KernelState | None, Job]], list[tuple[KernelState, Record]]]:
        """Jobs, with those in front that give the right outputs; and what does not compile."""
        begin = time.perf_counter()
        # Outputs are compared with the plain kernel's, which need not be a trial any more.
        wanted: list[tuple[KernelState, Candidate, bool]] = []
        for state in dict.fromkeys(state for state, _ in batch):
            if (state, PLAIN) not in batch and state.work not in self._referenced:
                wanted.append((state, PLAIN, False))
            self._referenced.add(state.work)
        wanted += [(state, candidate, True) for state, candidate in batch]
        futures = []
        for state, candidate, _ in wanted:
            interrupts.check()
            futures.append(builder.start(state.work.graph, state.work.operator, candidate))
        self._lower_s += time.perf_counter() - begin
        jobs: list[tuple[KernelState | None, Job]] = []
        failed: list[tuple[KernelState, Record]] = []
        for (state, candidate, is_trial), future in zip(wanted, futures, strict=True):
            interrupts.check()
            built = _result(future)
            if isinstance(built, Built):
                jobs.append((state if is_trial else None, Job(state.work, built)))
            elif is_trial:
                failed.append((state, self._record(state, candidate, built, None)))
        return jobs, failed

    def _measure(
        self,
        jobs: Sequence[tuple[KernelState | None, Job]],
        failed: Sequence[tuple[KernelState, Record]],
    ) -> _Results:
        """In the device's thread: run, and write down."""
        measured = self._measurer.measure_some([job for _, job in jobs])
        done = list(failed)
        for (state, job), measurement in zip(jobs, measured, strict=True):
            if state is not None and measurement is not None:
                candidate = job.built.candidate
                done.append((state, self._record(state, candidate, measurement, job.built)))
        self._file.extend([record for _, record in done])
        return done

    def _record(
        self,
        state: KernelState,
        candidate: Candidate,
        measurement: Measurement,
        built: Built | None,
    ) -> Record:
        return Record(
            state.work.kernel,
            self._setting,
            candidate,
            replace(measurement, detail=measurement.detail[:200]),
            self._measurer.board.name,
            candidate == state.work.default,
            self._code_of(state.work, candidate, built),
            built.module.size_bytes if built is not None else 0,
            built.function.scratch_bytes if built is not None else 0,
            now(),
        )

    def _code_of(self, work: Work, candidate: Candidate, built: Built | None) -> str:
        if candidate.family == CMSIS_NN:
            return self._library_code
        if built is not None:
            return record_code(built.function)
        return code_of(work, self._setting.core, candidate)


def _result(future: Future[Built]) -> Built | Measurement:
    """What was built, or the error that it met; a missing tool is everybody's."""
    try:
        return future.result()
    except MissingTool:
        raise
    except UtvmError as error:
        return Measurement(error="compile error", detail=str(error))
