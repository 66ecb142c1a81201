"""The kernels that a layer could have with less scratch, and the cycles of each.

A kernel that records know costs what was measured. Of the others, the cost is estimated from the
kernel's facts, by the table of the core (``CostTable``). All "cycles" here are in the table's unit,
which is instructions for a core without a table.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TypeAlias

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.compiler.arena.plan import Step
from utvm_deploy.compiler.planning.pass_costs import (
    missed_share,
    moving_cycles,
    pass_cycles,
    weight_passes,
    windows_per_column,
)
from utvm_deploy.graph.attributes import InputRows, Move
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.choose.known_calls import likeness, renamed
from utvm_deploy.kernels.choose.lowering import lower, lower_dense
from utvm_deploy.kernels.choose.space import identity_of, packings
from utvm_deploy.kernels.contract.call import AnyKernel, KernelCall, LibraryKernel, is_native
from utvm_deploy.kernels.contract.packed_weights import graph_of_call, packed_type, unpacked_graph
from utvm_deploy.kernels.contract.reading import own_cycles, reading_of
from utvm_deploy.records import Records, Setting
from utvm_deploy.records.candidate import COMPACT_LITTLE, GENERIC, SPARSE, Candidate
from utvm_deploy.targets.contract.costs import CostTable

#: The number of kernels with less and less scratch that are asked for.
MOST_STEPS = 24
#: A smaller form that neither records nor estimates know takes that many times the cycles, and
#: that many cycles for each byte of the larger tables. Making these when a layer runs takes fewer.
UNKNOWN_FACTOR, UNKNOWN_PER_BYTE = 1.5, 8.0
#: Portable C takes that many times the cycles if it unpacks weights: 1.5 to 1.7 were measured.
UNPACKING_FACTOR = 1.6


@dataclass(frozen=True)
class Option:
    """A way to compute a layer."""

    step: Step
    scratch_bytes: int
    cycles: float
    is_measured: bool


@dataclass(frozen=True)
class WholeLayer:
    """What a layer costs that is not computed in strips, with scratch in tightly coupled RAM."""

    cycles: float
    #: Parts of these: reading the weights again in each pass, and gathering pixels.
    passes: float
    macs: int
    bytes: int  # of the output


#: A layer's kind and its operators in the file -> its cost, for its strips.
WholeLayers: TypeAlias = Mapping[tuple[str, tuple[int, ...]], WholeLayer]
NO_LAYERS: WholeLayers = {}


@dataclass(frozen=True)
class CoreCosts:
    """What kernels cost on a board's core, and what their tables have to save."""

    table: CostTable
    cache_bytes: int = 0  # of the data cache between the core and the arena; 0: none
    flash_rate: float = 0.0  # cycles for each byte


class KernelCosts:
    """The options of a model's steps, by records where they know them."""

    def __init__(
        self,
        graph: Graph,
        records: Records,
        near: Setting,
        smaller: Callable[[Step, int], KernelCall],
        scratch_of: Callable[[Step], tuple[int, ...]],
        rounded: Callable[[KernelCall], KernelCall],
        costs: CoreCosts,
        whole: WholeLayers = NO_LAYERS,
    ) -> None:
        self._graph = graph
        self._records = records
        self._near = near
        self._smaller = smaller
        self._scratch_of = scratch_of
        self._rounded = rounded
        self.table, self._cache_bytes = costs.table, costs.cache_bytes
        self._flash_rate = costs.flash_rate
        self._whole = whole
        #: Of equal strips, one and its options or forms.
        self._of_equals: dict[Hashable, tuple[Operator, tuple[Option, ...]]] = {}

    def options(self, step: Step) -> tuple[Option, ...]:
        """The step as it is, then other kernels of it; those that records know come first.

        Larger tables than the step's must save the flash rate for each byte.
        """
        return self._once_for_equals(step, "options", self._options)

    def _once_for_equals(
        self, step: Step, what: Hashable, make: Callable[[Step], Iterable[Option]]
    ) -> tuple[Option, ...]:
        """What ``make`` says of a step, or said of a strip that is equal to it."""
        like = likeness(self._graph, step.operator)
        if like is None:
            return tuple(make(step))
        key = what, like, step.operator.sources, step.call.kernel
        if key not in self._of_equals:
            self._of_equals[key] = step.operator, tuple(make(step))
        other, (own, *others) = self._of_equals[key]

        def moved(call: KernelCall) -> Step:
            return replace(step, call=renamed(call, other, step.operator))

        return (
            replace(own, step=step),
            *(replace(one, step=moved(one.step.call)) for one in others),
        )

    def _options(self, step: Step) -> tuple[Option, ...]:
        scratch = sum(self._scratch_of(step))
        if isinstance(step.call.kernel, LibraryKernel):
            return (Option(step, scratch, self._unknown(step), False),)
        own, *others = self._as_in_tcm(step, scratch, list(self._measured(step)))
        rate, bytes_now = self._flash_rate, step.call.table_bytes

        def is_worth_it(one: Option) -> bool:
            more = one.step.call.table_bytes - bytes_now
            return more <= 0 or own.cycles - one.cycles >= rate * more

        return tuple(
            replace(one, cycles=one.cycles + self._misses_cycles(one.step, one.scratch_bytes))
            for one in (own, *(filter(is_worth_it, others) if rate else others))
        )

    def forms(self, step: Step, most_scratch: float) -> tuple[Option, ...]:
        """The step as it is, then what records know, and the smaller form; each kernel once.

        Packed weights may also become int8, with their zeros. The others have at most that many
        bytes of scratch. Only the estimates of Winograd's method count what tables of another size
        cost.
        """
        made = partial(self._forms, most_scratch=most_scratch)
        return self._once_for_equals(step, most_scratch, made)

    def _forms(self, step: Step, most_scratch: float) -> Iterator[Option]:
        cycles, is_known = self.of_kernel(step)
        is_library = isinstance(step.call.kernel, LibraryKernel)
        # A library's tables of weights are int8 in any case.
        unpacked = () if is_library else self._unpacked(step)
        if unpacked and not is_known:
            best = min(unpacked, key=lambda one: one.cycles)
            if step.call.family != SPARSE:
                cycles = self._packed_cycles(step, best)
            # Scratch is shared, and kernels that unpack weights have little.
            most_scratch = max(most_scratch, best.scratch_bytes)
        yield Option(step, sum(self._scratch_of(step)), cycles, is_known)
        if is_library:
            return
        seen: set[AnyKernel] = {step.call.kernel}

        estimated = self._estimated(self._graph, step, cycles)
        for one in chain(self._measured(step), unpacked, estimated):
            if one.step.call.kernel not in seen and one.scratch_bytes <= most_scratch:
                seen.add(one.step.call.kernel)
                yield one

    def _unpacked(self, step: Step) -> tuple[Option, ...]:
        """The forms of a layer of packed weights that have weights of int8, with all zeros."""
        if step.call.family == SPARSE:
            call = lower_dense(self._graph, step.operator, self._near.core)
            dense = self._as_int8(step, self._graph, call, tuple(self._measured(step, dense=True)))
            return *dense, *self._packings(step)
        if not step.call.macs or not packed_type(self._graph, step.operator):
            return ()
        graph = unpacked_graph(self._graph, step.operator)
        call = lower(graph, step.operator, self._near.core)
        return self._as_int8(step, graph, call, tuple(self._measured(step, graph)))

    def _packings(self, step: Step) -> Iterator[Option]:
        """All forms of packed zeros."""
        for candidate in packings(self._graph, step.operator, self._near.core):
            call = self._call(self._graph, step.operator, candidate)
            if call is not None:
                other = replace(step, call=call)
                yield Option(other, sum(self._scratch_of(other)), self._unknown(other), False)

    def _as_int8(
        self, step: Step, graph: Graph, call: KernelCall, found: tuple[Option, ...]
    ) -> tuple[Option, ...]:
        """What records have ``found`` of a step in ``graph``, or the call; and smaller ones."""
        if not found:
            other = replace(step, call=self._rounded(call))
            size = sum(self._scratch_of(other))
            found = (Option(other, size, self._unknown(other), False),)
        best = min(found, key=lambda one: one.cycles)
        found = *found, *self._estimated(graph, best.step, best.cycles)
        # Their candidates mean other kernels for packed weights.
        if step.call.family == SPARSE:
            return found
        calls = (replace(one.step.call, candidate=None, is_unpacked=True) for one in found)
        pairs = zip(found, calls, strict=True)
        return tuple(replace(one, step=replace(one.step, call=call)) for one, call in pairs)

    def _packed_cycles(self, step: Step, best: Option) -> float:
        """About what a step takes with packed weights, from its fastest form with int8.

        It is never less: how much sooner fewer bytes come from flash is not estimated.
        """
        if step.call.family == GENERIC:
            return max(UNPACKING_FACTOR * self._unknown(step), best.cycles)
        own, other = (
            getattr(one.call.kernel, "estimated_cycles", 0.0) for one in (step, best.step)
        )
        more = self.table.per_unpacked * reading_of(step.call.kernel).unpacked
        if not own and step.call.family != best.step.call.family:
            more += self.table.per_other_mac * step.call.macs
        return float(max(own * (best.cycles / other if other else 1.0), best.cycles) + more)

    def _estimated(self, graph: Graph, step: Step, cycles: float) -> Iterator[Option]:
        """Forms with smaller tables of a step, which takes these cycles."""
        own = getattr(step.call.kernel, "estimated_cycles", 0.0)
        is_told = own > 0 and reading_of(step.call.kernel).is_winograd
        for call in self._compact(graph, step):
            other = getattr(call.kernel, "estimated_cycles", 0.0) if is_told else 0.0
            unknown = UNKNOWN_FACTOR * cycles + UNKNOWN_PER_BYTE * step.call.table_bytes
            made, count = replace(step, call=call), cycles * other / own if other else unknown
            yield Option(made, sum(self._scratch_of(made)), count, False)

    def _compact(self, graph: Graph, step: Step) -> Iterator[KernelCall]:
        """Calls with smaller tables, by the step's candidate and by its family's default."""
        own, core = Candidate(step.call.family), self._near.core
        if step.call.heeds_compact > 0:
            for one in dict.fromkeys((step.call.candidate or own, own)):
                call = lower(graph, step.operator, core, one, compact=COMPACT_LITTLE)
                yield replace(self._rounded(call), candidate=None)

    def _as_in_tcm(
        self, step: Step, scratch: int, measured: Sequence[Option]
    ) -> tuple[Option, ...]:
        """The options, as if their scratch were in tightly coupled RAM."""
        known = {one.step.call.kernel: one.cycles for one in measured}
        fastest = min(known.values(), default=self._unknown(step))
        # Records keep the fastest kernels, so the least scratch among them is the base.
        least = min(measured, key=lambda one: one.scratch_bytes, default=None)
        base = self._passes_cycles(least.step if least else step)
        gathered = self._gathering_cycles(least.step if least else step)
        highest = max(known.values(), default=fastest)

        whole, enough = self._whole_of(step), self.table.depthwise_enough * scratch

        def option(one: Step) -> Option:
            size = sum(self._scratch_of(one))
            if one.call.kernel in known:
                return Option(one, size, known[one.call.kernel], True)
            if whole is not None and one.call.family == step.call.family:
                cycles = self._of_strip(one, whole)
                cycles += self._narrow_cycles(one, size, scratch, cycles)
                return Option(one, size, cycles, False)
            if one.call.family == GENERIC != step.call.family:
                return Option(one, size, self.table.portable_factor * fastest, False)
            if not known and size >= scratch:
                return Option(one, size, fastest, False)
            reading = reading_of(one.call.kernel)
            if reading.rewidens:
                more = self.table.per_rewidened_mac * one.call.macs
                return Option(one, size, fastest + more, False)
            # What records do not know is no faster. They may know only those of
            # Winograd's method.
            floor = highest
            if not reading.is_winograd and one.operator.kind == "CONV_2D":
                floor = max(floor, self.table.least_per_mac * one.call.macs)
            more = self._passes_cycles(one) - base + self._narrow_cycles(one, size, enough, floor)
            more += max(self._gathering_cycles(one) - gathered, 0.0)
            return Option(one, size, floor + max(more, 1.0), False)

        return (option(step), *measured, *map(option, self._ladder(step, scratch)))

    def of_kernel(self, step: Step) -> tuple[float, bool]:
        """What the step's own kernel takes with scratch in tightly coupled RAM, and whether its
        record says so. Else it is by that of the layer's fastest kernel, or an estimate.
        """
        known = {one.step.call.kernel: one.cycles for one in self._measured(step)}
        fastest = min(known.values(), default=None)
        if step.call.kernel in known:
            return known[step.call.kernel], True
        return self._unknown(step) if fastest is None else fastest, False

    def of_layers(self, steps: Sequence[Step]) -> WholeLayers:
        """What each layer costs with its fastest kernel."""
        found = {}
        for step in steps:
            scratch = sum(self._scratch_of(step))
            options = self._as_in_tcm(step, scratch, list(self._measured(step)))
            # Strips are too low for Winograd's method.
            direct = [o for o in options if not reading_of(o.step.call.kernel).is_winograd]
            best = min(direct or options, key=lambda one: one.cycles)
            passes = self._passes_cycles(best.step) + self._gathering_cycles(best.step)
            passes = min(passes, best.cycles)
            key = step.operator.kind, step.operator.sources
            size = self._output_bytes(step)
            found[key] = WholeLayer(best.cycles, passes, step.call.macs, size)
        return found

    def plain(self, step: Step) -> Step:
        """The step in plain C, which needs no scratch for gathered pixels."""
        call = self._rounded(lower(self._graph, step.operator))
        return replace(step, call=replace(call, candidate=Candidate(call.family)))

    def _measured(
        self, step: Step, graph: Graph | None = None, *, dense: bool = False
    ) -> Iterator[Option]:
        """What records know of a step, or of it in another graph or ``dense``: with all zeros."""
        graph = graph or graph_of_call(self._graph, step.operator, step.call)
        if self._near.core == GENERIC:
            return
        key = identity_of(graph, step.operator, dense=dense).key
        ranked, origin = self._records.ranked(self._near.core, key, self._near)
        for record in ranked:
            call = self._call(graph, step.operator, record.candidate)
            if call is None or not is_native(call.kernel):
                continue
            call = replace(call, origin=origin, candidate=record.candidate)
            other = replace(step, call=self._rounded(call))
            size = sum(self._scratch_of(other))
            yield Option(other, size, float(record.measurement.ticks_min), True)

    def _call(self, graph: Graph, operator: Operator, candidate: Candidate) -> KernelCall | None:
        try:
            return lower(graph, operator, self._near.core, candidate)
        except (UnsupportedOperator, ValueError):
            return None  # a record may name what this layer's weights do not allow

    def _ladder(self, step: Step, scratch: int) -> Iterator[Step]:
        """Kernels with less and less scratch."""
        for _ in range(MOST_STEPS):
            if not scratch:
                return
            other = replace(step, call=self._smaller(step, scratch - 1))
            size = sum(self._scratch_of(other))
            if size >= scratch:
                return
            yield other
            scratch = size

    def _passes_cycles(self, step: Step) -> float:
        """The part of a layer's cycles that reading the weights in each pass takes."""
        each = pass_cycles(self._graph, step.operator, self.table)
        if not each or not step.call.macs:
            return 0.0
        return weight_passes(self._graph, step, sum(self._scratch_of(step))) * each

    def _gathering_cycles(self, step: Step) -> float:
        """The cycles of gathering pixels one by one."""
        return self.table.per_gathered_row * reading_of(step.call.kernel).gathered_rows

    def _narrow_cycles(self, step: Step, size: int, enough: float, cycles: float) -> float:
        """The additional cycles of a depthwise convolution that has too little scratch."""
        if step.operator.kind != "DEPTHWISE_CONV_2D" or size >= enough:
            return 0.0
        return self.table.depthwise_loss * (1 - size / enough) * cycles

    def _misses_cycles(self, step: Step, size: int) -> float:
        """What a cache in front of the arena adds to a layer's cycles."""
        if not self._cache_bytes:
            return 0.0
        share = missed_share(size, self._cache_bytes)
        lines = step.call.macs / self.table.macs_per_line / windows_per_column(self._graph, step)
        return self.table.per_miss * share * lines

    def _unknown(self, step: Step) -> float:
        """The estimated cost of a layer without records."""
        size = self._output_bytes(step)
        if isinstance(step.operator.attributes, Move | InputRows):
            return moving_cycles(size, self.table)
        whole = self._whole_of(step)
        if whole is not None:
            return self._of_strip(step, whole)
        own = own_cycles(step.call.kernel, self._near.core)
        if own is None:
            own = self.table.per_estimated * getattr(step.call.kernel, "estimated_cycles", 0.0)
        if own:
            return own
        is_portable = step.call.family == GENERIC
        per_mac = self.table.per_portable_mac if is_portable else self.table.per_native_mac
        return per_mac * step.call.macs + self.table.per_output_byte * size

    def _whole_of(self, step: Step) -> WholeLayer | None:
        """The layer of which a step computes a strip; None if it computes a whole layer."""
        whole = self._whole.get((step.operator.kind, step.operator.sources))
        return whole if whole is not None and self._output_bytes(step) < whole.bytes else None

    def _of_strip(self, step: Step, whole: WholeLayer) -> float:
        """What a strip of a layer costs with a kernel."""
        share = self._output_bytes(step) / whole.bytes
        if whole.macs:
            share = step.call.macs / whole.macs
        passes = self._passes_cycles(step) + self._gathering_cycles(step)
        return self.table.per_call + share * (whole.cycles - whole.passes) + passes

    def _output_bytes(self, step: Step) -> int:
        return sum(self._graph.tensors[one].size_bytes for one in step.operator.outputs)
