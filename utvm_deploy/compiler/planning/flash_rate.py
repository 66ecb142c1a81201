"""Which form of each layer's kernel is worth its flash.

A form has cycles and bytes of flash. Layers have the forms for which

    cycles of all layers + rate * bytes of flash

is least, where ``rate`` is the cycles of one inference that a byte has to save. It is a Lagrange
multiplier: each plan is the fastest one of its size. What layers share counts once. Forms change
one by one, or all layers to one candidate at once, until no change helps. Such a search can stop
early. So each rate has the best of the plans that the searches for all rates found, and whose
tables have room in the flash.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.arena.plan import Step, View
from utvm_deploy.compiler.budgets import FlashPlan
from utvm_deploy.compiler.planning.kernel_costs import Option
from utvm_deploy.kernels.contract.call import (
    AnyKernel,
    ConstantArgument,
    KernelCall,
    is_native,
)
from utvm_deploy.kernels.isa.code_cache import as_written

#: What code takes of the flash: this part, but at most that many bytes.
_CODE_PART, _MOST_CODE_BYTES = 4, 128 * 1024
#: Rates that are searched in addition to the plan's own, in cycles for each byte.
RATES = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 256.0)
#: If no table has room, rates are doubled up to this one.
_HIGHEST_RATE = 2.0**24
#: A change must gain this share of cycles and bytes: sums are rounded, and equal plans may seem
#: better by turns.
_LEAST_GAIN = 1e-9
#: And a search ends after that many turns through all changes.
_MOST_TURNS = 64
#: About the bytes of a kernel's driver; those of a convolution over columns take 80 to 400.
_DRIVER_BYTES = 120
#: Nearly all instructions of the routines take four bytes.
_INSTRUCTION_BYTES = 4
#: A line of an assembly string that is neither a label nor a directive.
_INSTRUCTION = re.compile(r'^\s*"[a-z][^":]*\\n"', re.MULTILINE)


#: A step -> the forms of its kernel, the one that it has first.
Forms = Callable[[Step], Iterable[Option]]


def room_for_tables(board: Board) -> float:
    """Bytes of flash for the constant tables of a model; the rest is for code."""
    if board.is_host:
        return math.inf
    region = board.weights_flash(0)
    flash = region.size
    if region != board.main_flash:
        return flash
    return flash - min(flash // _CODE_PART, _MOST_CODE_BYTES)


def flash_bytes(calls: Iterable[KernelCall], core: str) -> int:
    """About the bytes of flash that the assembly, drivers and tables of these calls take."""
    parts: dict[Hashable, int] = {}
    for layer, call in enumerate(calls):
        parts.update(_parts(call, core, layer))
    return sum(parts.values())


@lru_cache(maxsize=4096)
def routines_of(kernel: AnyKernel, core: str) -> Mapping[Hashable, int]:
    """The hashes of the unordered C texts with assembly that a kernel needs, and their bytes."""
    with as_written():
        texts = kernel.texts(core) if is_native(kernel) else ()
    return {hash(text): size for text in texts if (size := _assembly_bytes(text))}


def _parts(call: KernelCall, core: str, layer: int) -> dict[Hashable, int]:
    """What a call has in flash, and its bytes: routines, the driver of its kernel, and tables.

    Equal parts of several calls are there once.
    """
    parts: dict[Hashable, int] = {call.kernel: _DRIVER_BYTES}
    parts.update(routines_of(call.kernel, core))
    for argument in call.arguments:
        if isinstance(argument, ConstantArgument):
            data = argument.data
            # Of tables by shapes, all elements are one in memory: each layer has its own.
            same = hash(data.tobytes()) if any(data.strides) else layer
            parts[data.dtype, data.shape, same] = data.nbytes
    return parts


@lru_cache(maxsize=1024)
def _assembly_bytes(text: str) -> int:
    return _INSTRUCTION_BYTES * len(_INSTRUCTION.findall(text))


@dataclass(frozen=True)
class _Plan:
    """Of each step, the position of its form; and what all of them take."""

    forms: Mapping[int, int]
    cycles: float
    flash_bytes: int
    table_bytes: int

    def merit(self, rate: float) -> tuple[float, int]:
        """The least is the best at a rate."""
        return self.cycles + rate * self.flash_bytes, self.flash_bytes


class FlashChoice:
    """The forms of a sequence's layers, and the plans that rates make of them.

    With the rate None, the sequence stays as it is if its tables have room: ``room`` bytes.
    """

    def __init__(
        self,
        sequence: Sequence[Step | View],
        forms: Forms,
        core: str,
        rate: float | None,
        room: float,
    ) -> None:
        self._sequence, self._forms_of, self._core = sequence, forms, core
        self._rate, self._room = rate, room
        self._steps = {n: item for n, item in enumerate(sequence) if isinstance(item, Step)}
        self._part_numbers: dict[Hashable, int] = {}
        self._known_parts: dict[tuple[int, int], dict[int, int]] = {}
        self._known_bytes: dict[tuple[int, int], int] = {}
        self._searched: dict[float, _Plan] = {}

    @cached_property
    def _forms(self) -> dict[int, tuple[Option, ...]]:
        return {n: tuple(self._forms_of(step)) for n, step in self._steps.items()}

    def plan(self) -> tuple[Step | View, ...]:
        """The sequence with the forms of the rate's plan.

        If no rate makes tables that have room, the smallest are taken.
        """
        taken = sum(step.call.table_bytes for step in self._steps.values())
        if self._rate is None and taken <= self._room:
            return tuple(self._sequence)
        rate = self._rate or 0.0
        wanted, found = self._best(rate, math.inf).forms, self._best(rate, self._room).forms
        return tuple(
            replace(item, call=self._told(n, wanted[n], found[n], rate))
            if isinstance(item, Step)
            else item
            for n, item in enumerate(self._sequence)
        )

    def frontier(self, made: Sequence[Step | View], cycles: float) -> tuple[FlashPlan, ...]:
        """The plans that have room, from the fastest to the smallest; each only once.

        ``made`` is what is compiled, and takes about these cycles. It has other kernels than the
        rate's plan where RAM has no room for scratch. Then the chosen plan has its figures.
        """
        if self._rate is None:
            return ()
        rates = sorted({*RATES, self._rate})
        best = {rate: self._best(rate, self._room) for rate in rates}
        figures = {rate: (round(one.cycles), one.flash_bytes) for rate, one in best.items()}
        own = figures[self._rate]
        calls = [item.call for item in made if isinstance(item, Step)]
        kernels = [self._call(n, form).kernel for n, form in best[self._rate].forms.items()]
        taken = own
        if kernels != [call.kernel for call in calls]:
            taken = round(cycles), flash_bytes(calls, self._core)
        plans: dict[tuple[int, int], FlashPlan] = {}
        for rate, key in figures.items():
            shown = taken if key == own else key
            known = plans.get(key, FlashPlan(rate, *shown, is_chosen=key == own, most_rate=rate))
            plans[key] = replace(known, most_rate=rate)
        return tuple(plans.values())

    def _best(self, rate: float, room: float) -> _Plan:
        """The best plan at a rate among those of all rates whose tables have room."""
        rates = sorted({*RATES, rate, self._rate or 0.0})
        while True:
            plans = [self._plan_of(one) for one in rates]
            fitting = [one for one in plans if one.table_bytes <= room]
            if fitting:
                return min(fitting, key=lambda one: one.merit(rate))
            if rates[-1] >= _HIGHEST_RATE:
                return min(plans, key=lambda one: one.table_bytes)
            rates.append(2 * rates[-1])

    def _told(self, n: int, wanted: int, found: int, rate: float) -> KernelCall:
        """The call of a form, which says why it is not the first one."""
        call = self._call(n, found)
        if self._forms[n][found].cycles <= self._forms[n][0].cycles:
            return call
        tables = self._call(n, 0).table_bytes
        why = f"its tables of {tables:,} bytes are more than the flash has room for"
        if wanted == found:
            why = f"a faster kernel would not save {rate:g} cycles for each byte of its flash"
        return replace(call, why_not=call.why_not or why)

    def _call(self, n: int, form: int) -> KernelCall:
        return self._forms[n][form].step.call

    def _plan_of(self, rate: float) -> _Plan:
        """What the search for a rate finds."""
        if rate not in self._searched:
            forms = self._chosen(rate)
            parts: dict[int, int] = {}
            for one in forms.items():
                parts.update(self._parts_of(*one))
            cycles = sum(self._forms[n][form].cycles for n, form in forms.items())
            tables = sum(self._call(n, form).table_bytes for n, form in forms.items())
            self._searched[rate] = _Plan(forms, cycles, sum(parts.values()), tables)
        return self._searched[rate]

    def _chosen(self, rate: float) -> dict[int, int]:
        """Of each layer, the position of its form."""
        chosen = dict.fromkeys(self._forms, 0)
        counts = Counter[int]()
        least = 1.0
        for n in chosen:
            parts = self._parts_of(n, 0)
            counts.update(parts.keys())
            least += self._forms[n][0].cycles + rate * sum(parts.values())
        moves = list(self._moves())
        for _ in range(_MOST_TURNS):
            is_better = False
            for move in moves:
                changed = {n: form for n, form in move.items() if chosen[n] != form}
                if self._most_gain(chosen, changed, rate) <= _LEAST_GAIN * least:
                    continue
                gained, more = self._gain(chosen, changed, counts, rate)
                if gained > _LEAST_GAIN * least:
                    chosen.update(changed)
                    counts.update(more)
                    is_better = True
            if not is_better:
                break
        return chosen

    def _most_gain(
        self, chosen: Mapping[int, int], changed: Mapping[int, int], rate: float
    ) -> float:
        """What a change gains if nothing else uses what its layers do not use any more."""
        gained = 0.0
        for n, form in changed.items():
            own = chosen[n]
            gained += self._forms[n][own].cycles - self._forms[n][form].cycles
            gained += rate * self._bytes_of(n, own)
        return gained

    def _bytes_of(self, n: int, form: int) -> int:
        """Of all parts of a form."""
        if (n, form) not in self._known_bytes:
            self._known_bytes[n, form] = sum(self._parts_of(n, form).values())
        return self._known_bytes[n, form]

    def _moves(self) -> Iterator[dict[int, int]]:
        """Each form of each layer, and all layers at once to what one candidate makes of them."""
        together: dict[str, dict[int, int]] = {}
        for n, forms in self._forms.items():
            for form, one in enumerate(forms if len(forms) > 1 else ()):
                yield {n: form}
                call = one.step.call
                label = call.candidate.label if call.candidate else str(type(call.kernel))
                together.setdefault(label, {})[n] = form
        yield from (move for move in together.values() if len(move) > 1)

    def _gain(
        self,
        chosen: Mapping[int, int],
        changed: Mapping[int, int],
        counts: Counter[int],
        rate: float,
    ) -> tuple[float, dict[int, int]]:
        """What a change gains in cycles, flash included, and how often parts are used more then."""
        more, sizes, gained = dict[int, int](), dict[int, int](), 0.0
        for n, form in changed.items():
            for sign, one in ((-1, chosen[n]), (1, form)):
                gained -= sign * self._forms[n][one].cycles
                parts = self._parts_of(n, one)
                sizes.update(parts)
                for part in parts:
                    more[part] = more.get(part, 0) + sign
        for part, times in more.items():
            before = counts[part]
            if times and (before > 0) != (before + times > 0):
                gained += rate * sizes[part] * (1 if before else -1)
        return gained, more

    def _parts_of(self, n: int, form: int) -> dict[int, int]:
        """The parts of a form by number, and their bytes; kernels are slow to compare."""
        if (n, form) not in self._known_parts:
            numbers = self._part_numbers
            self._known_parts[n, form] = {
                numbers.setdefault(part, len(numbers)): size
                for part, size in _parts(self._call(n, form), self._core, n).items()
            }
        return self._known_parts[n, form]
