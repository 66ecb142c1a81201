"""The options of a compiled model, and their defaults on a board.

Imports nothing heavy: the command line offers these names before TVM is needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from utvm_deploy.base.errors import CompileError
from utvm_deploy.compiler.budgets import NO_BUDGET, Budget
from utvm_deploy.records.candidate import CMSIS_NN, COMPACT_LITTLE, COMPACT_MOST, GENERIC

if TYPE_CHECKING:
    from utvm_deploy.backends.cmsis_nn import CmsisNn
    from utvm_deploy.backends.interface import Backend
    from utvm_deploy.boards.board import Board
    from utvm_deploy.compiler.picks import Picks
    from utvm_deploy.records import Records

#: Whose kernels do the layers: our best for the core, ours in plain C, or CMSIS-NN's wherever it
#: has one.
KERNELS = ("best", GENERIC, CMSIS_NN)

#: Where a layer's scratch is: in the arena, on the stack of the caller, or on the faster of the two
#: on the board.
ARENA, STACK, AUTO = "arena", "stack", "auto"
SCRATCH_PLACES = (AUTO, ARENA, STACK)

#: What a model goes through, in this order (``pipeline.PIPELINE``); each stage can be dumped.
STAGES = ("import", "simplify", "search", "place", "emit")
#: And what --dump takes: a stage, or all of them.
ALL_STAGES = "all"
DUMPED = (*STAGES, ALL_STAGES)

#: A layer that needs more than half of the RAM that the stack is in, or than this, has its scratch
#: in the arena after all.
MAX_STACK_SCRATCH_BYTES = 64 * 1024

#: What a model's own code needs of the stack at most, scratch aside; a test holds it against what
#: the C compiler says.
MODEL_STACK_BYTES = 1024

#: The RAM of the runtime and its port in addition to the stack, with the guard of an arena, and the
#: RAM of a serial line's rings. A test compares them with built images.
RUNTIME_RAM_BYTES = 6 * 1024 + 256
SERIAL_RAM_BYTES = 2 * 1024


class Objective(str, Enum):
    """What a model is compiled for: the level of optimization."""

    TIME = "time"
    SIZE = "size"  # few bytes of code
    BALANCED = "balanced"  # speed where it is worth its code
    RAM = "ram"  # a small arena

    __str__ = str.__str__

    @classmethod
    def of(cls, name: str) -> Objective:
        """The objective of a name. Raises CompileError if there is none."""
        check_option("level", name, LEVELS)
        return cls(name)


#: The names of the objectives.
LEVELS = tuple(str(one) for one in Objective)
#: The C compiler's flag for each level; docs/guides/optimize.md has what it costs and saves.
OPTIMIZATION_FLAGS: Mapping[str, str] = {
    Objective.TIME: "-O3",
    Objective.SIZE: "-Os",
    Objective.BALANCED: "-O2",
    Objective.RAM: "-O3",
}
#: And how much kernels do for few bytes of flash: ``compact`` of a ``Wish``, 0 for nothing.
COMPACT_OF_LEVEL: Mapping[str, int] = {
    Objective.TIME: 0,
    Objective.BALANCED: COMPACT_LITTLE,
    Objective.SIZE: COMPACT_MOST,
    Objective.RAM: 0,
}
#: The cycles that each byte of flash has to save, where neither the user nor the level says more.
#: Levels balanced and size take small forms by their own rules.
FLASH_RATE = 4.0
FLASH_RATES: Mapping[str, float] = {Objective.TIME: FLASH_RATE, Objective.RAM: FLASH_RATE}
#: A layer may be this much slower, as a share, where it can share another layer's kernel.
MAX_SHARING_LOSS = 0.03
#: And all layers together this much, as a share of the model's time.
MAX_SHARING_LOSS_OF_MODEL: Mapping[str, float] = {
    Objective.TIME: 0.003,
    Objective.BALANCED: MAX_SHARING_LOSS,
    Objective.RAM: 0.003,
}
#: The model may be this much slower, as a share, where its layers can do with less of the stack.
MAX_LEVELLING_LOSS = 0.02


#: How sums of products of float32 are rounded: as by the reference, or once for both operations.
EXACT, FAST = "exact", "fast"
FLOAT_MATHS = (EXACT, FAST)


@dataclass(frozen=True)
class CompileOptions:
    """How a model is compiled. Raises CompileError for a value that an option does not have."""

    objective: Objective = Objective.TIME
    #: The most RAM or cycles; the plan's objective is then what the budget leaves open.
    budget: Budget = NO_BUDGET
    #: The cycles of a run that each byte of flash has to save; None: that of ``FLASH_RATES``.
    flash_rate: float | None = None
    #: Begins every C symbol; None: it comes from the name of the model's file.
    name: str | None = None
    kernels: str = KERNELS[0]
    #: What kernels "cmsis-nn" need, as ``project.find_cmsis_nn`` gives it.
    cmsis_nn: CmsisNn | None = None
    #: Compute the layers that they cover, as ``project.load_backend`` gives them. The first one
    #: goes before others that are not known to be faster.
    backends: tuple[Backend, ...] = ()
    scratch: str = AUTO
    #: Say which candidate each layer is compiled with; without one, those of the package decide.
    records: Records | None = None
    float_math: str = EXACT
    #: Whether a model may compute in float32.
    allow_float: bool = True
    #: Whether the model takes its input row by row (``CompiledModel.input_rows``).
    input_rows: bool = False
    #: Other regions of the board's RAM -> the bytes that the model may use there.
    pools: Mapping[str, int] = field(default_factory=dict)
    #: Whether layers compute all channels of the file, also those that are constant.
    keep_channels: bool = False
    #: Whether level "time" computes no layers in strips, and no layers are joined.
    whole_layers: bool = False
    #: Whether tuning compiles to measure: records and picks are followed as they are.
    is_trial: bool = False
    #: Of a trial: candidates that replace those of records.
    picks: Picks | None = None

    def __post_init__(self) -> None:
        # A name will do; what asks for it compares members.
        object.__setattr__(self, "objective", Objective.of(self.objective))
        check_option("kernels", self.kernels, KERNELS)
        check_option("scratch place", self.scratch, SCRATCH_PLACES)
        check_option("float math", self.float_math, FLOAT_MATHS)
        check_rate(self.flash_rate)
        if not isinstance(self.pools, Mapping):
            raise CompileError(
                f"the pools are {self.pools!r}; map each region's name to bytes: {{'dtcm': 49152}}"
            )
        if self.kernels == CMSIS_NN and self.cmsis_nn is None:
            raise CompileError(
                "kernels='cmsis-nn' needs the library itself: its headers and a static library "
                "that was built for the board's core (--cmsis-nn DIR)"
            )


def check_option(what: str, value: str, choices: tuple[str, ...]) -> None:
    """CompileError unless ``value`` is one of ``choices``."""
    if value not in choices:
        raise CompileError(f"no {what} {value!r}; choose one of {', '.join(choices)}")


def check_rate(value: object) -> None:
    """CompileError unless a flash rate is None or a finite number of at least 0."""
    if value is None:
        return
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf:
        return
    raise CompileError(f"the flash rate is {value!r}; give a number of cycles of at least 0")


DEFAULT_OPTIONS = CompileOptions()


def scratch_place(board: Board, scratch: str) -> str:
    """ARENA or STACK for one of SCRATCH_PLACES.

    The stack is the better place where it has tightly coupled RAM to itself and the arena lies
    elsewhere, behind a cache. Where both share one region, scratch had better share the arena's
    bytes.
    """
    check_option("scratch place", scratch, SCRATCH_PLACES)
    if scratch != AUTO:
        return scratch
    stack = board.data_ram
    return STACK if stack.kind == "tcm" and stack != board.main_ram else ARENA


def cache_of_arena(board: Board) -> int:
    """Bytes of the data cache between the core and the RAM that an arena is in; 0: none."""
    return 0 if board.main_ram.kind == "tcm" else board.cpu.dcache_bytes


def max_stack_scratch(board: Board) -> int:
    """The most that one layer may have on the board's stack."""
    return min(board.data_ram.size // 2, MAX_STACK_SCRATCH_BYTES)


@dataclass(frozen=True)
class ScratchStack:
    """Where scratch lies if not in the arena."""

    limit: int  # a layer that wants more has it in the arena after all
    room: int  # what an image leaves to scratch, and to activations if they share the region
    is_shared: bool
    what: str = "stack"  # or a pool


def scratch_stack(board: Board) -> ScratchStack:
    """The stack of an image for the board, by estimate."""
    limit, region = max_stack_scratch(board), board.data_ram
    if board.is_host:
        return ScratchStack(limit, limit, is_shared=False)
    taken = board.project.stack_bytes + RUNTIME_RAM_BYTES + SERIAL_RAM_BYTES
    # Stacks are whole eighths of a power of two.
    room = max(region.size * 7 // 8 - taken, 0)
    return ScratchStack(limit, room, is_shared=region == board.main_ram)
