"""The micro-benchmarks: assembly that repeats a sequence, and its cycles on a connected board.

Each case becomes two functions, a short and a long row of the same sequence. Calling, returning and
reading the timer cost the same in both, so their difference is the cost of the repetitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from utvm_deploy.base.errors import DeviceError, UtvmError
from utvm_deploy.boards.board import Board
from utvm_deploy.device import Device, Module
from utvm_deploy.targets.contract.sequences import LONG, LOOP_LONG, LOOP_SHORT, SHORT, Cached, Case
from utvm_deploy.targets.emulator import CycleModel
from utvm_deploy.targets.emulator.counters import HEADLINE

#: Calls of each function. The first ones fill the caches, and interrupts disturb some others: the
#: fastest counts.
CALLS = 8
#: Cases in one module: a few KiB of code, so that small boards have room for it.
CASES_AT_ONCE = 8
#: What cycles for one repetition may deviate from the expected.
TOLERANCE = 0.06


@dataclass(frozen=True)
class Count:
    """What one repetition of a case took; None where it could not be counted."""

    case: Case
    ticks: float | None = None
    # By the figure of the cycle model that the case is compared with; None without a model.
    modelled: float | None = None
    error: UtvmError | None = None


def cases_of(board: Board) -> tuple[Case, ...]:
    """The cases of the board's core, without those that need an FPU or a cache it does not have."""
    known = board.cpu.target.sequences
    return tuple(
        case
        for case in (known.cases.get(board.cpu.core, ()) if known else ())
        if (board.cpu.fpu != "none" or not case.needs_fpu)
        and (way_bytes(board) or not case.is_cached)
    )


def way_bytes(board: Board) -> int:
    """The size of a way of the data cache in front of the workspace; 0 without one."""
    if not board.cpu.dcache_bytes:
        return 0
    cache = CycleModel.for_board(board).dcache
    return cache.size_bytes // cache.ways if cache and board.main_ram.kind == "ram" else 0


def cached_bytes(way: int) -> int:
    """The bytes that the longest function accesses; each repetition moves on by a way."""
    return (LONG + 1) * way


def repetitions(case: Case) -> int:
    """How many more repetitions the long function has."""
    return LOOP_LONG - LOOP_SHORT if case.is_loop else LONG - SHORT


def agrees(case: Case, cycles: float) -> bool:
    """Whether these cycles are what was published for the case."""
    return abs(cycles - case.cycles) <= TOLERANCE * max(1.0, case.cycles / 10)


def count_cases(
    device: Device, cases: Sequence[Case], done: Callable[[Sequence[Count]], None]
) -> None:
    """Count every case on the device; ``done`` gets the counts of a few at a time."""
    for is_cached in (False, True):
        alike = [case for case in cases if case.is_cached == is_cached]
        for start in range(0, len(alike), CASES_AT_ONCE):
            some = alike[start : start + CASES_AT_ONCE]
            try:
                found = _count_some(device, some, way_bytes(device.board) if is_cached else 0)
            except UtvmError as error:
                found = [Count(case, error=error) for case in some]
            done(found)


def _count_some(device: Device, cases: Sequence[Case], way: int) -> list[Count]:
    with ExitStack() as stack:
        cached: Cached | None = None
        if way:
            buffers = [device.allocate(cached_bytes(way), "a sequence's memory") for _ in range(2)]
            for address in buffers:
                stack.callback(device.free, address)
            cached = Cached(way, *buffers)
        known = device.board.cpu.target.sequences
        assert known is not None
        sources = {"sequences.s": known.assembly(cases, cached)}
        module = stack.enter_context(device.load_module(sources, name="sequences"))
        return [_count(device, module, number, case) for number, case in enumerate(cases)]


def _count(device: Device, module: Module, number: int, case: Case) -> Count:
    calls = [module[f"case_{number}_{length}"](repeat=CALLS) for length in ("short", "long")]
    try:
        short, long = (call.ticks for call in calls)
    except DeviceError as error:  # a fault of this case leaves the others alone
        return Count(case, error=error)
    modelled = None
    if device.is_modelled:
        name = short.unit if case.figure == HEADLINE else case.figure
        figures = [one[name] for one in device.figures((*short.all, *long.all))]
        modelled = (min(figures[CALLS:]) - min(figures[:CALLS])) / repetitions(case)
    return Count(case, (long.min - short.min) / repetitions(case), modelled)
