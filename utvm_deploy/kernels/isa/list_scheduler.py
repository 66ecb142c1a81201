"""A list scheduler: orders straight code for a core by its timing table.

Dependences are taken from the order that is given; any order that keeps them is right. The greedy
choice (longest path to the end first) is made cycle by cycle by the rules of ``cores.timing``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from utvm_deploy.cores.timing import Kind, Need, Result, Slot, Timing, Unit
from utvm_deploy.cores.timing_m7 import CORTEX_M7
from utvm_deploy.cores.timings import TIMINGS
from utvm_deploy.kernels.isa.instructions import Instruction

_LOADS = (Kind.LOAD_WORD, Kind.LOAD_PART)
#: Cores whose timing is not known -> the one most like each; the Cortex-M7 for all others.
_LIKE = {"cortex-m33": "cortex-m4"}


def timing_of(core: str) -> Timing:
    """The timing that orders code for a core: its own, or that of the one most like it."""
    return TIMINGS.get(_LIKE.get(core, core), CORTEX_M7)


class _Table:
    """A core's timing, looked up fast; ``Timing`` itself is made to be read."""

    def __init__(self, timing: Timing) -> None:
        self.timing = timing
        self.rows = {row.kind: row for row in timing.rows}
        self.latency = {(r, n): timing.latency(r, n) for r in Result for n in Need}
        self._pairs: dict[tuple[Kind, Kind], bool] = {}

    def can_pair(self, older: Kind, younger: Kind) -> bool:
        key = older, younger
        if key not in self._pairs:
            self._pairs[key] = self.timing.can_pair(older, younger)
        return self._pairs[key]


@lru_cache(maxsize=8)
def _table(core: str) -> _Table:
    return _Table(TIMINGS[core])


@dataclass
class _Pipeline:
    """When what is ready; the same steps as the cycle model's."""

    table: _Table
    cycle: int = 0  # in which the next can issue
    open: Instruction | None = None  # issued in the cycle before, its slot beside it still free
    last: Kind | None = None
    written: dict[str, tuple[Result, int]] = field(default_factory=dict)

    def copy(self) -> _Pipeline:
        return _Pipeline(self.table, self.cycle, self.open, self.last, dict(self.written))

    def _ready(self, registers: Sequence[str], need: Need) -> int:
        cycle = -1000
        for register in registers:
            if register in self.written:
                result, time = self.written[register]
                if result != Result.NONE:
                    cycle = max(cycle, time + self.table.latency[result, need])
        return cycle

    def ready(self, i: Instruction) -> int:
        """The first cycle in which all operands are there."""
        row = self.table.rows[i.kind]
        return max(
            self._ready(i.first, row.first),
            self._ready(i.second, row.second),
            self._ready(i.accumulator, row.accumulator),
            self._ready(i.address, Need.ADDRESS),
            self._ready(i.stored, row.stored),
        )

    def joins(self, i: Instruction, ready: int) -> bool:
        """Whether it can issue beside the one that was issued last."""
        older = self.open
        if older is None or not self.table.can_pair(older.kind, i.kind) or ready > self.cycle - 1:
            return False
        if older.kind in _LOADS and i.kind in _LOADS:
            if older.bank is None or i.bank is None or older.bank[0] != i.bank[0]:
                return False  # possibly the same bank
            return (older.bank[1] // 4 - i.bank[1] // 4) % self.table.timing.load_banks != 0
        return True

    def issue(self, i: Instruction) -> int:
        """Issue it next; the cycle in which it went."""
        row = self.table.rows[i.kind]
        ready = self.ready(i)
        older = self.open if self.joins(i, ready) else None
        younger = older is not None
        if younger:
            time, self.open = self.cycle - 1, None
        else:
            time = max(self.cycle, ready)
            cycles = row.cycles
            if row.pipelined_cycles and self.last in row.pipelined_after:
                cycles = row.pipelined_cycles
            if row.registers_per_cycle:
                cycles += -(-len(i.writes) // row.registers_per_cycle)
            self.cycle = time + cycles
            alone = row.slot is Slot.ALONE or self.table.timing.width < 2
            self.open = None if alone else i
        result = row.result
        early = row.early is Slot.EITHER or (row.early is Slot.OLDER and not younger)
        if older is not None and Unit.SHIFTER in self.table.rows[older.kind].units:
            early = False
        sources = max(self._ready(i.first, Need.EARLY), self._ready(i.second, Need.EARLY))
        if early and sources <= time:
            result = Result.EARLY
        done = time if younger else self.cycle - 1
        for register in i.writes:
            self.written[register] = (result, done)
        for register in i.written_back:
            self.written[register] = (Result.ADDRESS, done)
        self.last = i.kind
        return time


def _pipeline(timing: Timing) -> _Pipeline:
    return _Pipeline(_table(timing.core))


def cycles(code: Sequence[Instruction], timing: Timing, *, repeat: int = 1) -> int:
    """Cycles that the code takes, ``repeat`` times in a row."""
    pipeline = _pipeline(timing)
    for _ in range(repeat):
        for i in code:
            pipeline.issue(i)
    return pipeline.cycle


def ordered(
    code: Sequence[Instruction], timing: Timing, *, is_loop: bool = False
) -> list[Instruction]:
    """The code in a good order; ``is_loop``: it follows itself."""
    followers = _followers(code, timing)
    priority = _priorities(code, followers)
    start = _pipeline(timing)
    best: list[Instruction] = list(code)
    best_cycles = cycles(code, timing, repeat=4)
    for _ in range(3):
        made, end = _pass(code, followers, priority, start)
        taken = cycles(made, timing, repeat=4)
        if taken < best_cycles:
            best, best_cycles = made, taken
        if not is_loop:
            break
        # The next pass begins as the loop's next turn finds the pipeline.
        start = end
        start.written = {r: (k, t - start.cycle) for r, (k, t) in start.written.items()}
        start.cycle, start.open = 0, None
    return best


def _followers(code: Sequence[Instruction], timing: Timing) -> list[dict[int, int]]:
    """For each instruction, who must come later, and about how many cycles."""
    followers: list[dict[int, int]] = [{} for _ in code]
    for late, i in enumerate(code):
        for early in range(late - 1, -1, -1):
            before = code[early]
            if before.results & i.reads:
                distance = _distance(before, i, timing)
            elif before.reads & i.results or before.results & i.results:
                distance = 0
            else:
                continue
            followers[early][late] = distance
    return followers


def _distance(before: Instruction, i: Instruction, timing: Timing) -> int:
    table = _table(timing.core)
    row, made = table.rows[i.kind], table.rows[before.kind]
    needs = (
        (i.first, row.first),
        (i.second, row.second),
        (i.accumulator, row.accumulator),
        (i.address, Need.ADDRESS),
        (i.stored, row.stored),
    )
    distance = 0
    for registers, need in needs:
        if set(registers) & set(before.writes):
            distance = max(distance, table.latency[made.result, need])
    return distance


def _priorities(code: Sequence[Instruction], followers: Sequence[dict[int, int]]) -> list[float]:
    """Cycles from each instruction to the end of the code along the longest path."""
    priority = [0.0] * len(code)
    for index in range(len(code) - 1, -1, -1):
        priority[index] = max(
            (priority[late] + distance + 0.25 for late, distance in followers[index].items()),
            default=0.0,
        )
    return priority


def _pass(
    code: Sequence[Instruction],
    followers: Sequence[dict[int, int]],
    priority: Sequence[float],
    start: _Pipeline,
) -> tuple[list[Instruction], _Pipeline]:
    pipeline = start.copy()
    waiting = [0] * len(code)
    for later in followers:
        for late in later:
            waiting[late] += 1
    available = [index for index, count in enumerate(waiting) if count == 0]
    made: list[Instruction] = []
    while available:
        chosen = min(available, key=lambda n: _rank(pipeline, code[n], priority[n], n))
        pipeline.issue(code[chosen])
        made.append(code[chosen])
        available.remove(chosen)
        for late in followers[chosen]:
            waiting[late] -= 1
            if waiting[late] == 0:
                available.append(late)
    return made, pipeline


def _rank(
    pipeline: _Pipeline, i: Instruction, priority: float, index: int
) -> tuple[int, int, float, int]:
    ready = pipeline.ready(i)
    row = pipeline.table.rows[i.kind]
    if pipeline.joins(i, ready):
        return (0, 0, -priority, index)
    stall = max(0, ready - pipeline.cycle)
    cheap = 0
    if row.pipelined_cycles:
        # One issue at a time: loads are cheap behind loads, dear elsewhere.
        cheap = -1 if pipeline.last in row.pipelined_after else 1
    # The older slot goes to what can stand nowhere else.
    elif row.slot is not Slot.OLDER and pipeline.table.timing.width > 1:
        cheap = 1
    return (1 + stall, cheap, -priority, index)
