"""Which form of each layer's kernel is worth its flash.

A form has cycles and bytes of flash. Layers have the forms for which

    cycles of all layers + rate * bytes of flash

is least, where ``rate`` is the cycles of one inference that a byte has to save. It is a Lagrange
multiplier: each plan is the fastest one of its size. What layers share counts once. Forms change
one by one, or all layers to one candidate at once, until no change helps. If the tables of a plan
have no room in the flash, the rate is doubled until they have.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache

from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.arena.plan import Step, View
from utvm_deploy.compiler.budgets import FlashPlan
from utvm_deploy.compiler.planning.kernel_costs import Option
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall, is_native

#: What code takes of the flash: this part, but at most that many bytes.
_CODE_PART, _MOST_CODE_BYTES = 4, 128 * 1024
#: Rates of the frontier in addition to the plan's own, in cycles for each byte.
RATES = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 256.0)
#: How often a rate that is too low for the board's flash is doubled.
_DOUBLINGS = 24
#: About the bytes of a kernel's driver; those of a convolution over columns take 80 to 400.
_DRIVER_BYTES = 120
#: Nearly all instructions of the routines take four bytes.
_INSTRUCTION_BYTES = 4
#: A line of an assembly string that is neither a label nor a directive.
_INSTRUCTION = re.compile(r'^\s*"[a-z][^":]*\\n"', re.MULTILINE)


#: A step -> the forms of its kernel, the one that it has first.
Forms = Callable[[Step], Iterable[Option]]


def room_for_tables(board: Board) -> int:
    """Bytes of flash for the constant tables of a model; the rest is for code."""
    region = board.weights_flash(0)
    flash = region.size
    if region != board.main_flash:
        return flash
    return flash - min(flash // _CODE_PART, _MOST_CODE_BYTES)


def flash_bytes(calls: Iterable[KernelCall], core: str) -> int:
    """About the bytes of flash that the assembly, drivers and tables of these calls take."""
    parts: dict[Hashable, int] = {}
    for call in calls:
        parts.update(_parts(call, core))
    return sum(parts.values())


def routines_of(call: KernelCall, core: str) -> dict[str, int]:
    """The C texts with assembly that a call needs, and their bytes."""
    texts = call.kernel.texts(core) if is_native(call.kernel) else ()
    return {text: size for text in texts if (size := _assembly_bytes(text))}


def _parts(call: KernelCall, core: str) -> dict[Hashable, int]:
    """What a call has in flash, and its bytes: routines, the driver of its kernel, and tables.

    Equal parts of several calls are there once.
    """
    parts: dict[Hashable, int] = {call.kernel: _DRIVER_BYTES}
    parts.update(routines_of(call, core).items())
    for argument in call.arguments:
        if isinstance(argument, ConstantArgument):
            data = argument.data
            parts[data.dtype, data.shape, hash(data.tobytes())] = data.nbytes
    return parts


@lru_cache(maxsize=256)
def _assembly_bytes(text: str) -> int:
    return _INSTRUCTION_BYTES * len(_INSTRUCTION.findall(text))


class FlashChoice:
    """The forms of a sequence's layers, and the plans that rates make of them."""

    def __init__(self, sequence: Sequence[Step | View], forms: Forms, core: str) -> None:
        self._sequence, self._forms_of, self._core = sequence, forms, core
        self._steps = {n: item for n, item in enumerate(sequence) if isinstance(item, Step)}
        self._known_parts: dict[tuple[int, int], dict[Hashable, int]] = {}

    @cached_property
    def _forms(self) -> dict[int, tuple[Option, ...]]:
        return {n: tuple(self._forms_of(step)) for n, step in self._steps.items()}

    def plan(self, rate: float, most_bytes: float) -> tuple[Step | View, ...]:
        """The sequence at this rate, or at the least doubled one whose tables fit.

        If no rate makes tables of at most ``most_bytes``, the smallest are taken.
        """
        fits = sum(step.call.table_bytes for step in self._steps.values()) <= most_bytes
        if fits and not rate:
            return tuple(self._sequence)
        wanted = self._chosen(rate)
        found, tried = wanted, rate
        for _ in range(_DOUBLINGS):
            if sum(self._call(n, form).table_bytes for n, form in found.items()) <= most_bytes:
                break
            tried = 2 * tried or min(filter(None, RATES))
            found = self._chosen(tried)
        return tuple(
            replace(item, call=self._told(n, wanted[n], found[n], rate))
            if isinstance(item, Step)
            else item
            for n, item in enumerate(self._sequence)
        )

    def frontier(self, rate: float) -> tuple[FlashPlan, ...]:
        """Plans from the fastest to the smallest, ``rate``'s among them; each only once."""
        plans: dict[tuple[int, int], FlashPlan] = {}
        for one in sorted({*RATES, rate}):
            chosen = self._chosen(one)
            cycles = round(sum(self._forms[n][form].cycles for n, form in chosen.items()))
            parts: dict[Hashable, int] = {}
            for one_form in chosen.items():
                parts.update(self._parts_of(*one_form))
            key = cycles, sum(parts.values())
            known = plans.get(key, FlashPlan(one, *key, is_chosen=False))
            plans[key] = replace(known, is_chosen=known.is_chosen or one == rate)
        return tuple(plans.values())

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

    def _chosen(self, rate: float) -> dict[int, int]:
        """Of each layer, the position of its form; at rate 0 the first."""
        chosen = dict.fromkeys(self._forms, 0)
        if not rate:
            return chosen
        counts = Counter[Hashable]()
        for n in chosen:
            counts.update(self._parts_of(n, 0).keys())
        moves = list(self._moves())
        is_better = True
        while is_better:
            is_better = False
            for move in moves:
                changed = {n: form for n, form in move.items() if chosen[n] != form}
                gained, after = self._gain(chosen, changed, counts, rate)
                if changed and gained > 0:
                    chosen.update(changed)
                    counts, is_better = after, True
        return chosen

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
        counts: Counter[Hashable],
        rate: float,
    ) -> tuple[float, Counter[Hashable]]:
        """What a change gains in cycles, flash included, and how often parts are used then."""
        after, sizes, gained = counts.copy(), dict[Hashable, int](), 0.0
        for n, form in changed.items():
            for sign, one in ((-1, chosen[n]), (1, form)):
                parts = self._parts_of(n, one)
                gained -= sign * self._forms[n][one].cycles
                sizes.update(parts)
                for part in parts:
                    after[part] += sign
        for part, size in sizes.items():
            gained -= rate * size * ((after[part] > 0) - (counts[part] > 0))
        return gained, after

    def _parts_of(self, n: int, form: int) -> dict[Hashable, int]:
        if (n, form) not in self._known_parts:
            self._known_parts[n, form] = _parts(self._call(n, form), self._core)
        return self._known_parts[n, form]
