"""The micro-benchmarks: assembly that repeats a sequence, and its cycles on a connected board.

Each case becomes two functions, a short and a long row of the same sequence. Calling, returning and
reading the timer cost the same in both, so their difference is the cost of the repetitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from utvm_deploy.base.errors import DeviceError, UtvmError
from utvm_deploy.boards.board import Board
from utvm_deploy.device import Device, Module
from utvm_deploy.silicon_kit.cases import M4, M7, Case
from utvm_deploy.targets.emulator import CycleModel
from utvm_deploy.targets.emulator.counters import HEADLINE

#: Repetitions of a sequence in its two functions; the difference counts. Nine instructions so often
#: fit into one way of an instruction cache of 4 KiB, which leaves the other to the runtime.
SHORT, LONG = 16, 48
#: Turns of a loop.
LOOP_SHORT, LOOP_LONG = 100, 300

#: Calls of each function. The first ones fill the caches, and interrupts disturb some others: the
#: fastest counts.
CALLS = 8
#: Cases in one module: a few KiB of code, so that small boards have room for it.
CASES_AT_ONCE = 8
#: Bytes of the stack that r0 and r1 point to. The stack is in a board's fastest RAM.
FIRST_BYTES, SECOND_BYTES = 2048, 512

#: What cycles for one repetition may deviate from the expected.
TOLERANCE = 0.06

#: The cases for each core whose timing is published.
CASES: Mapping[str, Sequence[Case]] = {"cortex-m7": M7, "cortex-m4": M4}


@dataclass(frozen=True)
class Count:
    """What one repetition of a case took; None where it could not be counted."""

    case: Case
    ticks: float | None = None
    # By the figure of the cycle model that the case is compared with; None without a model.
    modelled: float | None = None
    error: UtvmError | None = None


@dataclass(frozen=True)
class Cached:
    """Memory behind a data cache, for the cases that need some."""

    way_bytes: int  # of one of the cache's ways
    first: int  # two addresses, each of ``cached_bytes``
    second: int


def cases_of(board: Board) -> tuple[Case, ...]:
    """The cases of the board's core, without those that need an FPU or a cache it does not have."""
    return tuple(
        case
        for case in CASES.get(board.cpu.core, ())
        if (board.cpu.fpu != "none" or not _needs_fpu(case))
        and (way_bytes(board) or not case.is_cached)
    )


def _needs_fpu(case: Case) -> bool:
    return any(part.strip().startswith("v") for part in case.body.split(";"))


def way_bytes(board: Board) -> int:
    """The size of a way of the data cache in front of the workspace; 0 without one."""
    cache = CycleModel.for_board(board).dcache
    return cache.size_bytes // cache.ways if cache and board.main_ram.kind == "ram" else 0


def cached_bytes(way: int) -> int:
    """The bytes that the longest function accesses; each repetition moves on by a way."""
    return (LONG + 1) * way


def assembly(cases: Sequence[Case], cached: Cached | None) -> str:
    """Functions ``case_N_short`` and ``case_N_long`` for each case."""
    lines = [".syntax unified", ".thumb"]
    if cached is not None:
        lines += [
            f".equ WAY, {cached.way_bytes}",
            f".equ CACHED, {cached.first:#x}",
            f".equ CACHED_TOO, {cached.second:#x}",
        ]
    lines.append(".text")
    frame = FIRST_BYTES + SECOND_BYTES
    for number, case in enumerate(cases):
        for length, times in (("short", SHORT), ("long", LONG)):
            name = f"case_{number}_{length}"
            lines += [".balign 32", f".global {name}", f".type {name}, %function", f"{name}:"]
            lines += ["push.w {r4-r12, lr}", f"sub.w sp, sp, #{frame}"]
            lines += ["mov r0, sp", f"add.w r1, sp, #{FIRST_BYTES}", "movs r2, #0", "movs r3, #4"]
            lines += [part.strip() for part in case.setup.split(";") if part.strip()]
            body = [part.strip() for part in case.body.split(";")]
            if case.is_loop:
                turns = LOOP_SHORT if length == "short" else LOOP_LONG
                lines += [f"movw r12, #{turns}", "isb", ".balign 32", "1:", *body]
            else:
                lines += ["isb", *(body * times)]
            lines += ["2:", "isb", f"add.w sp, sp, #{frame}", "pop.w {r4-r12, pc}"]
            lines.append(f".size {name}, . - {name}")
    return "\n".join(lines) + "\n"


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
        sources = {"sequences.s": assembly(cases, cached)}
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
