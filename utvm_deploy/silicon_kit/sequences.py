"""The micro-benchmarks: assembly that repeats a sequence, and its cycles on a connected board.

Each case becomes two functions, a short and a long row of the same sequence. Calling, returning and
reading the timer cost the same in both, so their difference is the cost of the repetitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from utvm_deploy.board import Board
from utvm_deploy.device import Device, Module, Tensor
from utvm_deploy.emulator.counters import HEADLINE
from utvm_deploy.errors import DeviceError, UtvmError
from utvm_deploy.silicon_kit.cases import M4, M7, Case

#: Repetitions of a sequence in its two functions; the difference counts.
SHORT, LONG = 16, 56
#: Turns of a loop.
LOOP_SHORT, LOOP_LONG = 100, 300

#: Calls of each function. The first ones fill the caches, and interrupts disturb some others: the
#: fastest counts.
CALLS = 8
#: Cases in one module: a few KiB of code, so that small boards have room for it.
CASES_AT_ONCE = 8
#: Bytes behind each of the two addresses that a sequence gets.
BUFFER_BYTES = 4096

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


def cases_of(board: Board) -> tuple[Case, ...]:
    """The cases of the board's core; those with floating point only where it has that."""
    cases = CASES.get(board.cpu.core, ())
    return tuple(case for case in cases if board.cpu.fpu != "none" or not _needs_fpu(case))


def _needs_fpu(case: Case) -> bool:
    return any(part.strip().startswith("v") for part in case.body.split(";"))


def assembly(cases: Sequence[Case]) -> str:
    """Functions ``case_N_short`` and ``case_N_long`` for each case; r0 and r1 are the buffers."""
    lines = [".syntax unified", ".thumb", ".text"]
    for number, case in enumerate(cases):
        for length, times in (("short", SHORT), ("long", LONG)):
            name = f"case_{number}_{length}"
            lines += [".balign 32", f".global {name}", f".type {name}, %function", f"{name}:"]
            lines += ["push.w {r4-r12, lr}", "movs r2, #0", "movs r3, #4"]
            lines += [part.strip() for part in case.setup.split(";") if part.strip()]
            body = [part.strip() for part in case.body.split(";")]
            if case.is_loop:
                turns = LOOP_SHORT if length == "short" else LOOP_LONG
                lines += [f"movw r12, #{turns}", "isb", ".balign 32", "1:", *body]
            else:
                lines += ["isb", *(body * times)]
            lines += ["2:", "isb", "pop.w {r4-r12, pc}", f".size {name}, . - {name}"]
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
    for start in range(0, len(cases), CASES_AT_ONCE):
        some = cases[start : start + CASES_AT_ONCE]
        try:
            found = _count_some(device, some)
        except UtvmError as error:
            found = [Count(case, error=error) for case in some]
        done(found)


def _count_some(device: Device, cases: Sequence[Case]) -> list[Count]:
    buffers = [device.empty((BUFFER_BYTES,), name=f"buffer {n}") for n in range(2)]
    try:
        with device.load_module({"sequences.s": assembly(cases)}, name="sequences") as module:
            return [
                _count(device, module, buffers, number, case) for number, case in enumerate(cases)
            ]
    finally:
        for buffer in buffers:
            buffer.free()


def _count(
    device: Device, module: Module, buffers: Sequence[Tensor], number: int, case: Case
) -> Count:
    calls = [
        module[f"case_{number}_{length}"](*buffers, repeat=CALLS) for length in ("short", "long")
    ]
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
