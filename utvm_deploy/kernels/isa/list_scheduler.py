"""A list scheduler: orders straight code for a core by its timing table.

Dependences are taken from the order that is given; any order that keeps them is right. No load
moves after a store, because an output may overwrite an input that was read. The greedy choice
(longest path to the end first) is made cycle by cycle by the rules of ``targets.contract.timing``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from utvm_deploy.kernels.isa.instructions import Instruction
from utvm_deploy.targets.arm_m.timings import TIMINGS
from utvm_deploy.targets.contract.timing import AnyKind, Kind, Need, Result, Row, Slot, Timing, Unit

_LOADS = (Kind.LOAD_WORD, Kind.LOAD_PART)
#: An operand that was never written waits for nothing.
_LONG_AGO = -1000


class _Table:
    """A core's timing, looked up fast; ``Timing`` itself is made to be read."""

    def __init__(self, timing: Timing) -> None:
        self.timing = timing
        self.rows = {row.kind: row for row in timing.rows}
        # What a need waits for after each kind of result, by the result's value.
        self.latencies = {need: _latencies(timing, need) for need in Need}
        self._pairs: dict[tuple[AnyKind, AnyKind], bool] = {}

    def can_pair(self, older: AnyKind, younger: AnyKind) -> bool:
        key = older, younger
        if key not in self._pairs:
            self._pairs[key] = self.timing.can_pair(older, younger)
        return self._pairs[key]


def _latencies(timing: Timing, need: Need) -> tuple[int, ...]:
    latencies = [0] * (max(Result) + 1)
    for result in Result:
        latencies[result] = timing.latency(result, need)
    return tuple(latencies)


@lru_cache(maxsize=8)
def _table(core: str) -> _Table:
    return _Table(TIMINGS[core])


class _Timed:
    """An instruction with what a core's timing says of it."""

    __slots__ = ("early_waits", "instruction", "kind", "reads", "results", "row", "waits")

    def __init__(self, i: Instruction, table: _Table) -> None:
        row = table.rows[i.kind]
        self.instruction = i
        self.kind = i.kind
        self.row = row
        self.reads, self.results = i.reads, i.results
        # Each register that is read, and the latencies of its need.
        self.waits = [
            (register, table.latencies[need])
            for registers, need in (
                (i.first, row.first),
                (i.second, row.second),
                (i.accumulator, row.accumulator),
                (i.address, Need.ADDRESS),
                (i.stored, row.stored),
            )
            for register in registers
        ]
        early = table.latencies[Need.EARLY]
        self.early_waits = [(register, early) for register in (*i.first, *i.second)]


@dataclass
class _Pipeline:
    """The state of the core between two instructions; it takes the steps of the cycle model."""

    table: _Table
    cycle: int = 0  # the first in which the next instruction can issue
    open: _Timed | None = None  # issued in the cycle before; another one can still join it
    last: AnyKind | None = None
    written: dict[str, tuple[Result, int]] = field(default_factory=dict)
    # Units that are busy for longer than a cycle -> the cycle in which they are free again.
    free: dict[Unit, int] = field(default_factory=dict)
    # Where results are written in order, the cycle of the latest.
    results: int = _LONG_AGO

    def copy(self) -> _Pipeline:
        return replace(self, written=dict(self.written), free=dict(self.free))

    def rebased(self) -> _Pipeline:
        """The same state, with cycles counted from the next instruction on."""
        return replace(
            self,
            cycle=0,
            written={r: (k, t - self.cycle) for r, (k, t) in self.written.items()},
            free={unit: t - self.cycle for unit, t in self.free.items()},
            results=max(self.results - self.cycle, _LONG_AGO),
        )

    def start(self, one: _Timed) -> int:
        """The first cycle in which its operands and its units are ready."""
        ready = self.ready(one.waits)
        if one.row.busy_cycles:
            ready = max(ready, self.free.get(self.unit(one.row), _LONG_AGO))
        if not self.table.timing.results_in_order:
            return ready
        return max(ready, self.results - self.latency(one.row))

    def latency(self, row: Row) -> int:
        """Cycles until a result is written."""
        return self.table.latencies[Need.LATE][row.result]

    def unit(self, row: Row) -> Unit:
        """The unit that is free first of those that it can take."""
        return min(row.units, key=lambda unit: self.free.get(unit, _LONG_AGO))

    def ready(self, waits: Sequence[tuple[str, Sequence[int]]]) -> int:
        """The first cycle in which all operands are there."""
        cycle, written = _LONG_AGO, self.written
        for register, latencies in waits:
            if register in written:
                result, time = written[register]
                if result != Result.NONE and time + latencies[result] > cycle:
                    cycle = time + latencies[result]
        return cycle

    def joins(self, one: _Timed, ready: int) -> bool:
        """Whether it can issue in the cycle of the last one."""
        older = self.open
        if older is None or ready > self.cycle - 1 or not self.table.can_pair(older.kind, one.kind):
            return False
        if older.kind in _LOADS and one.kind in _LOADS:
            first, second = older.instruction.bank, one.instruction.bank
            if first is None or second is None or first[0] != second[0]:
                return False  # possibly the same bank
            return (first[1] // 4 - second[1] // 4) % self.table.timing.load_banks != 0
        return True

    def issue(self, one: _Timed) -> int:
        """Issue it next; the cycle in which it went."""
        i, row = one.instruction, one.row
        ready = self.start(one)
        older = self.open if self.joins(one, ready) else None
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
            self.open = None if alone else one
        if row.busy_cycles:
            self.free[self.unit(row)] = time + row.busy_cycles
        if self.table.timing.results_in_order:
            self.results = max(self.results, time + self.latency(row))
        result = row.result
        early = row.early is Slot.EITHER or (row.early is Slot.OLDER and not younger)
        if older is not None and Unit.SHIFTER in older.row.units:
            early = False
        if early and self.ready(one.early_waits) <= time:
            result = Result.EARLY
        done = time if younger else self.cycle - 1
        for register in i.writes:
            self.written[register] = (result, done)
        for register in i.written_back:
            self.written[register] = (Result.ADDRESS, done)
        self.last = i.kind
        return time


def cycles(code: Sequence[Instruction], timing: Timing, *, repeat: int = 1) -> int:
    """Cycles that the code takes, ``repeat`` times in a row."""
    table = _table(timing.core)
    return _cycles([_Timed(i, table) for i in code], table, repeat)


def _cycles(code: Sequence[_Timed], table: _Table, repeat: int) -> int:
    pipeline = _Pipeline(table)
    for rest in reversed(range(repeat)):
        before = pipeline.rebased()
        began = pipeline.cycle
        for one in code:
            pipeline.issue(one)
        if rest and pipeline.rebased() == before:  # all further turns are like this one
            return pipeline.cycle + rest * (pipeline.cycle - began)
    return pipeline.cycle


def ordered(
    code: Sequence[Instruction], timing: Timing, *, is_loop: bool = False
) -> list[Instruction]:
    """The code in a good order; ``is_loop``: it follows itself."""
    return list(_ordered(tuple(code), timing.core, is_loop))


@lru_cache(maxsize=1024)
def _ordered(given: tuple[Instruction, ...], core: str, is_loop: bool) -> tuple[Instruction, ...]:
    table = _table(core)
    code = [_Timed(i, table) for i in given]
    followers = _followers(code)
    priority = _priorities(followers)
    for load, store in _loads_before_stores(code):
        followers[load].setdefault(store, 0)
    start = _Pipeline(table)
    best = code
    best_cycles = _cycles(code, table, repeat=4)
    for _ in range(3):
        made, end = _pass(code, followers, priority, start)
        taken = _cycles(made, table, repeat=4)
        if taken < best_cycles:
            best, best_cycles = made, taken
        if not is_loop:
            break
        # The next pass begins as the loop's next turn finds the pipeline.
        start = end.rebased()
        start.open = None
    return tuple(one.instruction for one in best)


def _followers(code: Sequence[_Timed]) -> list[dict[int, int]]:
    """For each instruction, who must come later, and about how many cycles."""
    followers: list[dict[int, int]] = [{} for _ in code]
    # Register -> positions that read it or make it new, so far.
    readers: dict[str, list[int]] = {}
    makers: dict[str, list[int]] = {}
    for late, one in enumerate(code):
        for register in one.results:
            for early in (*readers.get(register, ()), *makers.get(register, ())):
                followers[early][late] = 0
        for register in one.reads:
            for early in makers.get(register, ()):
                followers[early][late] = 0
        for register, latencies in one.waits:
            for early in makers.get(register, ()):
                before = code[early]
                if register in before.instruction.writes:
                    distance = max(followers[early][late], latencies[before.row.result])
                    followers[early][late] = distance
        for register in one.reads:
            readers.setdefault(register, []).append(late)
        for register in one.results:
            makers.setdefault(register, []).append(late)
    return followers


def _loads_before_stores(code: Sequence[_Timed]) -> Iterator[tuple[int, int]]:
    """Positions of loads and of the stores after them, apart from slots of the stack."""
    loads: list[int] = []
    for position, one in enumerate(code):
        i = one.instruction
        if not i.address or i.address[0] == "sp":
            continue
        if i.stored:
            yield from ((load, position) for load in loads)
        elif i.writes:
            loads.append(position)


def _priorities(followers: Sequence[dict[int, int]]) -> list[float]:
    """Cycles from each instruction to the end of the code along the longest path."""
    priority = [0.0] * len(followers)
    for index in range(len(followers) - 1, -1, -1):
        priority[index] = max(
            (priority[late] + distance + 0.25 for late, distance in followers[index].items()),
            default=0.0,
        )
    return priority


def _pass(
    code: Sequence[_Timed],
    followers: Sequence[dict[int, int]],
    priority: Sequence[float],
    start: _Pipeline,
) -> tuple[list[_Timed], _Pipeline]:
    pipeline = start.copy()
    waiting = [0] * len(code)
    for later in followers:
        for late in later:
            waiting[late] += 1
    available = [index for index, count in enumerate(waiting) if count == 0]
    made: list[_Timed] = []
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
    pipeline: _Pipeline, one: _Timed, priority: float, index: int
) -> tuple[int, int, float, int]:
    ready = pipeline.start(one)
    row = one.row
    if pipeline.joins(one, ready):
        return (0, 0, -priority, index)
    stall = max(0, ready - pipeline.cycle)
    cheap = 0
    if row.pipelined_cycles:
        # One issue at a time: loads are cheap after loads, expensive elsewhere.
        cheap = -1 if pipeline.last in row.pipelined_after else 1
    # The older slot is for instructions that cannot use the other one.
    elif row.slot is not Slot.OLDER and pipeline.table.timing.width > 1:
        cheap = 1
    return (1 + stall, cheap, -priority, index)
