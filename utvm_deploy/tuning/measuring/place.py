"""A device of this computer as a place to measure: builds here, measures in a separate thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from utvm_deploy import __version__
from utvm_deploy.backends.choice import code_of_backend
from utvm_deploy.backends.interface import Backend
from utvm_deploy.base.errors import MissingTool, SystemRefused, TuneError, UtvmError
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.lowering.kernel_function import record_code
from utvm_deploy.compiler.options import AUTO, STACK, Objective, max_stack_scratch, scratch_place
from utvm_deploy.compiler.planning.decision import model_of
from utvm_deploy.device import Device
from utvm_deploy.project.build import build_image, compiler_version
from utvm_deploy.project.fit import with_larger_stack
from utvm_deploy.records import Measurement, Setting, is_modelled
from utvm_deploy.records.candidate import GENERIC, Candidate, is_of_backend
from utvm_deploy.tuning.measuring.build import Builder, Built, flags_for
from utvm_deploy.tuning.measuring.current import code_of
from utvm_deploy.tuning.measuring.inputs import Job
from utvm_deploy.tuning.measuring.loaded import Spent
from utvm_deploy.tuning.measuring.measure import Measurer
from utvm_deploy.tuning.measuring.places import Outcome, Outcomes, Trial
from utvm_deploy.tuning.measuring.workload import Work

T = TypeVar("T")

PLAIN = Candidate(GENERIC)


def check_tunable(board: Board) -> None:
    """TuneError where candidates can neither be loaded nor flashed."""
    if board.main_ram.executable:
        return
    if board.is_host or board.is_application:
        raise TuneError(
            f"{board.name} runs no code from its RAM (region {board.main_ram.name} is not "
            f"executable in the board's file). Only bare-metal images can be flashed with "
            f"candidates. Tune on a board with the same core, and compile for this one "
            f"with its records"
        )


def fastest_link(board: Board) -> str | None:
    """Which link to measure over: an emulator's debugger moves memory at once; else the default."""
    return "debug" if board.emulator is not None and "debug" in board.link.kinds else None


def setting_of(board: Board, unit: str, level: str = Objective.TIME) -> Setting:
    """Under which circumstances candidates are measured for a board."""
    return Setting(
        board.cpu.kernel_core,
        compiler_version(board).partition("\n")[0],
        " ".join((*board.cpu.compiler_flags, *board.project.compiler_flags, *flags_for(level))),
        __version__,
        unit,
        model_of(board) if is_modelled(unit) else "",
    )


class Place:
    """Measures on one device; a context manager.

    Kernels are compiled as for ``level``, ``jobs`` at a time. ``backends`` have candidates, too.
    """

    slots = 1

    def __init__(
        self,
        device: Device,
        *,
        jobs: int,
        level: str = Objective.TIME,
        backends: Sequence[Backend] = (),
    ) -> None:
        board = device.board
        check_tunable(board)
        # The scratch of compiled models is there, too, if that is the better place.
        stack = 0
        if scratch_place(board, AUTO) == STACK and not board.is_host:
            stack = max_stack_scratch(board)
            device.check_ready()
            device.start(build_image(None, with_larger_stack(board, stack)))
        self.board = board
        self._measurer = Measurer(device)
        self.setting = setting_of(board, self._measurer.unit, level)
        self._codes = {one.family: code_of_backend(one) for one in backends}
        # Kernels whose right output is known, or is being measured.
        self._referenced: set[Work] = set()
        self._builder = Builder(board, stack, jobs, level, backends)
        self._runner = ThreadPoolExecutor(1, thread_name_prefix="measure")

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.shutdown(wait=True)
        self._builder.close()

    @property
    def flashes(self) -> bool:
        """Whether each batch is flashed, because the board's RAM executes no code."""
        return self._measurer.flashes

    @property
    def spent(self) -> Spent:
        """Where the time went; building and measuring overlap."""
        return self._measurer.spent

    @property
    def expected(self) -> dict[str, int]:
        """The checksum of the right output, by kernel's key; found here or told."""
        return self._measurer.expected

    def expect(self, checksums: Mapping[str, int]) -> None:
        """Take over checksums of right outputs that another device found."""
        for key, checksum in checksums.items():
            self._measurer.expected.setdefault(key, checksum)

    def check(self) -> None:
        """Nothing: a device that is lost raises an error itself."""

    def stop(self) -> None:
        """End with the candidates that run now."""
        self._measurer.stop()

    def start(
        self, trials: Sequence[Trial], then: Callable[[Outcomes], T], check: Callable[[], None]
    ) -> Future[T]:
        """Lower in this thread, compile in others, and measure in the device's thread."""
        begin = time.perf_counter()
        wanted = [*self._references(trials), *trials]
        futures = []
        for trial in wanted:
            check()
            work = trial.work
            futures.append(self._builder.start(work.graph, work.operator, trial.candidate))
        self.spent.lower_s += time.perf_counter() - begin
        built: list[Built | Measurement] = []
        for future in futures:
            check()
            built.append(_result(future))
        return self._runner.submit(lambda: then(self._measured(wanted, built, len(trials))))

    def _references(self, trials: Sequence[Trial]) -> list[Trial]:
        """Trials of the plain kernels whose outputs, which count as right, are not known yet.

        Those that are among ``trials`` are left out.
        """
        wanted = []
        for work in dict.fromkeys(trial.work for trial in trials):
            is_known = work in self._referenced or work.kernel.key in self.expected
            if not is_known and Trial(work, PLAIN) not in trials:
                wanted.append(Trial(work, PLAIN))
            self._referenced.add(work)
        return wanted

    def _measured(
        self, trials: Sequence[Trial], built: Sequence[Built | Measurement], count: int
    ) -> Outcomes:
        """In the device's thread: the outcomes of the last ``count`` trials."""
        pairs = list(zip(trials, built, strict=True))
        jobs = [Job(trial.work, one) for trial, one in pairs if isinstance(one, Built)]
        self._measurer.store_tables([job for job in jobs if job.work.tables_in_image])
        measured = iter(self._measurer.measure_some(jobs))
        outcomes: list[Outcome | None] = []
        for trial, one in pairs:
            if isinstance(one, Built):
                found = next(measured)
                outcomes.append(None if found is None else self._outcome(trial, found, one))
            else:
                outcomes.append(self._outcome(trial, one, None))
        return outcomes[len(outcomes) - count :]

    def _outcome(self, trial: Trial, measurement: Measurement, built: Built | None) -> Outcome:
        if is_of_backend(trial.candidate.family):
            code = self._codes[trial.candidate.family]
        elif built is not None:
            code = record_code(built.function)
        else:
            code = code_of(trial.work, self.setting.core, trial.candidate)
        if built is None:
            return Outcome(measurement, code)
        return Outcome(measurement, code, built.module.size_bytes, built.function.scratch_bytes)


def _result(future: Future[Built]) -> Built | Measurement:
    """What was built, or its error; a missing tool or a full disk is raised, as it meets all."""
    try:
        return future.result()
    except (MissingTool, SystemRefused):
        raise  # no record may say that the candidate was at fault
    except UtvmError as error:
        return Measurement(error="compile error", detail=str(error))
