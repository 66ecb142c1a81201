"""What a compilation begins with: a model, a board, options, and who watches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from utvm_deploy.backends.checks import check_together
from utvm_deploy.backends.cmsis_nn.lower import cmsis_nn_backend
from utvm_deploy.backends.interface import Backend
from utvm_deploy.backends.plugins import for_file
from utvm_deploy.base.errors import CompileError
from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.budgets import Budget, Goal
from utvm_deploy.compiler.memory_needs import CheckNeeds
from utvm_deploy.compiler.options import (
    ARENA,
    AUTO,
    DEFAULT_OPTIONS,
    FLASH_RATES,
    STACK,
    CompileOptions,
    Objective,
    cache_of_arena,
)
from utvm_deploy.compiler.planning.decision import Decision, Known, known_records
from utvm_deploy.compiler.planning.pools import (
    PoolLimit,
    ScratchMemory,
    pool_limits,
    scratch_memory,
    with_arena_limit,
)
from utvm_deploy.graph.model import Graph
from utvm_deploy.records.candidate import CMSIS_NN, GENERIC

#: ``dump(stage, text)`` is called with what each stage made.
Dump = Callable[[str, str], None]


@dataclass(frozen=True)
class Watch:
    """What is called while a compilation runs."""

    dump: Dump | None = None
    #: Hears of each plan of the memory, where several are weighed.
    progress: Progress = no_progress
    #: Is called with the memory that the model needs as soon as it is known, first before kernels
    #: are made, and may refuse it.
    check_needs: CheckNeeds | None = None
    #: Is called with the choice of kernels.
    decided: Callable[[Decision], None] | None = None


SILENT = Watch()


@dataclass(frozen=True)
class Request:
    """A model to be compiled for a board.

    What it says of memory raises CompileError where the board or other options do not allow it.
    """

    model: Graph | str | Path
    board: Board
    options: CompileOptions = DEFAULT_OPTIONS
    watch: Watch = SILENT

    def __post_init__(self) -> None:
        if self.options.input_rows and self.backends:
            raise CompileError(
                f"layers of {self.backends[0].name} cannot be computed row by row; leave input "
                "rows out, or compile with our kernels"
            )
        _ = self.scratch  # refused here, before the model is read

    @property
    def core(self) -> str:
        """The core whose kernels run on the board."""
        return self.board.cpu.kernel_core

    @property
    def family(self) -> str:
        """The kernels that may be taken, as ``lower`` takes it."""
        return GENERIC if self.options.kernels == GENERIC else self.core

    @cached_property
    def backends(self) -> tuple[Backend, ...]:
        """Somebody else's kernels: those of plug-ins, then CMSIS-NN."""
        found = tuple(map(self._for_model, self.options.backends))
        if self.options.kernels == CMSIS_NN and self.options.cmsis_nn is not None:
            found = (*found, cmsis_nn_backend(self.options.cmsis_nn))
            check_together(found)
        return found

    @property
    def _master(self) -> Backend | None:
        """The backend of a device that reads memory by itself."""
        return next((one for one in self.options.backends if one.is_bus_master), None)

    def _for_model(self, backend: Backend) -> Backend:
        if backend.of_file is None or backend.has_seen_file:
            return backend
        if isinstance(self.model, Graph):
            raise CompileError(f"{backend.name} needs the model's file; save the model first")
        return for_file(backend, Path(self.model))

    @cached_property
    def known(self) -> Known:
        """What records say."""
        return known_records(self.board, self.options.records)

    @cached_property
    def pools(self) -> tuple[PoolLimit, ...]:
        """The memories besides the arena's that the user gave."""
        return pool_limits(self.board, self.options.pools)

    @cached_property
    def budget(self) -> Budget:
        """The user's budget; with input rows, at least what the board has."""
        options = self.options
        budget = with_arena_limit(options.budget, self.board, options.pools)
        if options.input_rows and not budget.is_set and options.objective is not Objective.RAM:
            return Budget(self.board.main_ram.size)
        return budget

    @property
    def flash_rate(self) -> float | None:
        """The cycles of a run that each byte of flash has to save.

        None where the choices of records are followed as they are: on a host, by trials, and at
        rate 0 with the user's records.
        """
        options, board = self.options, self.board
        if options.flash_rate is None:
            is_free = options.is_trial or board.is_host
            return None if is_free else FLASH_RATES.get(options.objective)
        return (
            None if options.records is not None and not options.flash_rate else options.flash_rate
        )

    @cached_property
    def goal(self) -> Goal:
        """What the search looks for: within a budget, that decides, and not the objective."""
        options = self.options
        if self.budget.is_set:
            return Goal.WITHIN_BUDGET
        if options.objective is Objective.RAM:
            return Goal.SMALLEST
        is_behind_cache = self.scratch.place == ARENA and cache_of_arena(self.board) > 0
        return Goal.LITTLE_SLOWER if self._is_for_time and is_behind_cache else Goal.FASTEST

    @property
    def _is_for_time(self) -> bool:
        """Level time, except for the records of the user and the choices of a trial."""
        options = self.options
        is_free = options.records is None and not options.is_trial
        return is_free and options.objective is Objective.TIME

    @cached_property
    def scratch(self) -> ScratchMemory:
        """Where layers have their scratch: the arena, where a budget counts its bytes."""
        place = self.options.scratch
        if self._master is not None:
            if place == STACK or self.options.pools or self.board.main_ram.kind == "tcm":
                raise CompileError(
                    f"{self._master.name} reads the arena over the bus, and has its scratch there; "
                    "give a board whose main RAM is not tightly coupled, without --pool and "
                    "--scratch stack"
                )
            return scratch_memory(self.board, (), ARENA)
        if self.budget.is_set or self.options.objective is Objective.RAM:
            if place == STACK:
                raise CompileError(
                    "budgets, level 'ram' and --input-rows count scratch as part of the arena; "
                    "leave --scratch stack out"
                )
            place = ARENA
        return scratch_memory(self.board, self.pools, place)

    @cached_property
    def fast_scratch(self) -> ScratchMemory | None:
        """A pool for scratch that a budget may have room for; None where none is left."""
        is_fixed = self._master is not None or self.scratch.pool is not None
        if is_fixed or self.options.pools or self.options.input_rows:
            return None
        found = scratch_memory(self.board, (), AUTO)
        return None if found.pool is None else found

    @property
    def may_stream(self) -> bool:
        """Whether layers may be computed in strips."""
        if self.backends or self.goal is Goal.FASTEST:
            return False
        return not (self.goal is Goal.LITTLE_SLOWER and self._is_plain)

    @property
    def may_cut_attention(self) -> bool:
        """Whether attention may be computed in strips where that hardly costs time."""
        is_free = self.goal is Goal.FASTEST and self._is_for_time
        return is_free and not self._is_plain and not self.backends

    @property
    def _is_plain(self) -> bool:
        return self.family == GENERIC or self.options.whole_layers
