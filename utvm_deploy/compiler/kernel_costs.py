"""What other kernels a layer could have for less scratch, and what each of them costs.

A kernel that records know costs what was measured. Of the others, the cost is estimated from the
kernel's facts. A kernel with scratch gathers windows of as many pixels as its scratch holds, and
then goes through all weights. So there are about ``2 MACs / (channels * scratch)`` such passes. A
pass reads each weight once more, and begins each pair of output channels again.

Records are measured with scratch in tightly coupled RAM. Where the arena is behind a data cache,
scratch of more than half of the cache is evicted before the next pair of channels reads it. Then
each line of 32 MACs is a miss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.compiler.plan import Step
from utvm_deploy.graph.attributes import Convolution, InputRows, Move
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.choose.space import identity_of
from utvm_deploy.kernels.contract.call import KernelCall, LibraryKernel, is_native
from utvm_deploy.kernels.native.dense import DenseLayer
from utvm_deploy.kernels.native.dsp.winograd import DspWinograd
from utvm_deploy.kernels.native.gathered_gemm import GatheredConv2D
from utvm_deploy.records import Records, Setting
from utvm_deploy.records.candidate import GENERIC, Candidate

#: Cycles of a pass for each weight, and for each output channel. Fitted to the records of a
#: Cortex-M7: what a block of pixels costs is there between 1.2 and 2.5 cycles a weight.
CYCLES_PER_WEIGHT, CYCLES_PER_CHANNEL = 1.0, 24.0
#: Of layers that no record knows, by MAC and by element of the output: assembly, and plain C.
CYCLES_PER_MAC = {GENERIC: 3.5}
OTHER_CYCLES_PER_MAC = 0.7
CYCLES_PER_ELEMENT = 8.0
#: What a call costs that computes a strip of a layer, and a byte that MOVE copies.
CYCLES_PER_CALL, CYCLES_PER_MOVED_BYTE = 300.0, 1.0
#: What beginning each output channel again costs in each strip, counted on the Cortex-M7.
CYCLES_PER_CHANNEL_OF_STRIP = {"CONV_2D": 65.0, "DEPTHWISE_CONV_2D": 100.0}
#: What a fully connected layer takes more that widens its inputs for each group of outputs. On the
#: Cortex-M7, 640 inputs and 128 outputs take 50,687 cycles instead of 48,344.
CYCLES_PER_DIRECT_MAC = 0.03
#: Plain C takes this many times as long as assembly.
GENERIC_FACTOR = 5.0
#: What a line costs that is not in the cache any more, and the MACs that read one line. Counted on
#: an emulated Cortex-M7 with 4 KB: of scratch from 3 KB on, nearly each line is a miss; up to 2 KB,
#: hardly any.
CYCLES_PER_MISS, MACS_PER_LINE = 26.0, 32
#: Of kernels by Winograd's method, 40 to 61 MACs read one line.
WINOGRAD_SHARING = 1.5
#: Kernels without scratch keep as much in registers and on the stack.
LEAST_SCRATCH = 192
#: Kernels with less and less scratch that are asked for.
MOST_STEPS = 24


@dataclass(frozen=True)
class Option:
    """A way to compute a layer."""

    step: Step
    scratch_bytes: int
    cycles: float
    is_measured: bool


#: Gives the options of a step; the first is the step as it is.
OptionsOf = Callable[[Step], tuple[Option, ...]]


@dataclass(frozen=True)
class WholeLayer:
    """What a layer costs that is not computed in strips."""

    cycles: float
    macs: int
    bytes: int  # of the output


#: A layer's kind and its operators in the file -> its cost, for its strips.
WholeLayers: TypeAlias = Mapping[tuple[str, tuple[int, ...]], WholeLayer]
NO_LAYERS: WholeLayers = {}


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
        cache_bytes: int = 0,
        whole: WholeLayers = NO_LAYERS,
    ) -> None:
        """``cache_bytes`` are of the data cache between the core and the arena; 0: none."""
        self._graph = graph
        self._records = records
        self._near = near
        self._smaller = smaller
        self._scratch_of = scratch_of
        self._rounded = rounded
        self._cache_bytes = cache_bytes
        self._whole = whole

    def options(self, step: Step) -> tuple[Option, ...]:
        """The step as it is, then other kernels of it; those that records know come first."""
        scratch = sum(self._scratch_of(step))
        if isinstance(step.call.kernel, LibraryKernel):
            return (Option(step, scratch, self._unknown(step), False),)
        found = self._as_in_tcm(step, scratch, list(self._measured(step)))
        return tuple(
            replace(one, cycles=one.cycles + self._misses_cycles(one.step, one.scratch_bytes))
            for one in found
        )

    def _as_in_tcm(
        self, step: Step, scratch: int, measured: Sequence[Option]
    ) -> tuple[Option, ...]:
        """The options, as if their scratch were in tightly coupled RAM."""
        known = {one.step.call.kernel: one.cycles for one in measured}
        fastest = min(known.values(), default=self._unknown(step))
        # Records keep the fastest kernels, so the least scratch among them is the base.
        least = min(measured, key=lambda one: one.scratch_bytes, default=None)
        base = self._passes_cycles(least.step if least else step)
        highest = max(known.values(), default=fastest)

        def option(one: Step) -> Option:
            size = sum(self._scratch_of(one))
            if one.call.kernel in known:
                return Option(one, size, known[one.call.kernel], True)
            if one.call.family == GENERIC != step.call.family:
                return Option(one, size, GENERIC_FACTOR * fastest, False)
            if not known and size >= scratch:
                return Option(one, size, fastest, False)
            if isinstance(one.call.kernel, DenseLayer):
                return Option(one, size, fastest + CYCLES_PER_DIRECT_MAC * one.call.macs, False)
            # What records do not know is no faster.
            more = self._passes_cycles(one) - base
            return Option(one, size, highest + max(more, 1.0), False)

        return (option(step), *measured, *map(option, self._ladder(step, scratch)))

    def of_layers(self, steps: Sequence[Step]) -> WholeLayers:
        """What each layer costs with its fastest kernel, without misses of a cache."""
        found = {}
        for step in steps:
            measured = (one.cycles for one in self._measured(step))
            cycles = min(measured, default=self._unknown(step))
            key = step.operator.kind, step.operator.sources
            found[key] = WholeLayer(cycles, step.call.macs, self._output_bytes(step))
        return found

    def plain(self, step: Step) -> Option:
        """The step in plain C, which needs no scratch for gathered pixels."""
        call = self._rounded(lower(self._graph, step.operator))
        other = replace(step, call=replace(call, candidate=Candidate(call.family)))
        options = self.options(step)
        fastest = min(one.cycles for one in options)
        return Option(other, sum(self._scratch_of(other)), GENERIC_FACTOR * fastest, False)

    def _measured(self, step: Step) -> Iterator[Option]:
        if self._near.core == GENERIC:
            return
        key = identity_of(self._graph, step.operator).key
        ranked, origin = self._records.ranked(self._near.core, key, self._near)
        for record in ranked:
            call = self._call(step.operator, record.candidate)
            if call is None or not is_native(call.kernel):
                continue
            call = replace(call, origin=origin, candidate=record.candidate)
            other = replace(step, call=self._rounded(call))
            size = sum(self._scratch_of(other))
            yield Option(other, size, float(record.measurement.ticks_min), True)

    def _call(self, operator: Operator, candidate: Candidate) -> KernelCall | None:
        try:
            return lower(self._graph, operator, self._near.core, candidate)
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
        """What going through the weights again and again takes of a layer's cycles."""
        inputs = step.operator.inputs
        number = inputs[1] if len(inputs) > 1 else None
        weights = None if number is None else self._graph.tensors[number].data
        channels = self._graph.tensors[step.operator.outputs[0]].shape[-1]
        if weights is None or not step.call.macs or not channels:
            return 0.0
        windows = 2 * step.call.macs / channels / self._sharing(step)
        passes = windows / max(sum(self._scratch_of(step)), LEAST_SCRATCH)
        per_weight = CYCLES_PER_WEIGHT
        if 0 < self._cache_bytes < 2 * weights.size:
            per_weight += CYCLES_PER_MISS / MACS_PER_LINE  # they are not in the cache any more
        return float(passes * (per_weight * weights.size + CYCLES_PER_CHANNEL * channels))

    def _misses_cycles(self, step: Step, size: int) -> float:
        """What a cache in front of the arena adds to a layer's cycles."""
        if not self._cache_bytes:
            return 0.0
        half = self._cache_bytes / 2
        share = min(max((size - half) / (half / 2), 0.0), 1.0)
        lines = step.call.macs / MACS_PER_LINE / self._sharing(step)
        return CYCLES_PER_MISS * share * lines

    def _sharing(self, step: Step) -> float:
        """How many windows of a convolution read one gathered column."""
        attributes, kernel = step.operator.attributes, step.call.kernel
        number = step.operator.inputs[1] if len(step.operator.inputs) > 1 else None
        if not isinstance(attributes, Convolution) or isinstance(kernel, GatheredConv2D):
            return 1.0
        if step.operator.kind != "CONV_2D" or number is None:
            return 1.0
        if isinstance(kernel, DspWinograd):
            return WINOGRAD_SHARING
        width = self._graph.tensors[number].shape[2]
        return max(width / attributes.strides[1], 1.0)

    def _unknown(self, step: Step) -> float:
        """Of a layer that no record knows."""
        size = self._output_bytes(step)
        if isinstance(step.operator.attributes, Move | InputRows):
            return CYCLES_PER_CALL + CYCLES_PER_MOVED_BYTE * size
        whole = self._whole.get((step.operator.kind, step.operator.sources))
        if whole is not None and size < whole.bytes:
            share = step.call.macs / whole.macs if whole.macs else size / whole.bytes
            channels = self._graph.tensors[step.operator.outputs[0]].shape[-1]
            again = CYCLES_PER_CHANNEL_OF_STRIP.get(step.operator.kind, 0.0) * channels
            return CYCLES_PER_CALL + again + share * whole.cycles
        per_mac = CYCLES_PER_MAC.get(step.call.family, OTHER_CYCLES_PER_MAC)
        return per_mac * step.call.macs + CYCLES_PER_ELEMENT * size

    def _output_bytes(self, step: Step) -> int:
        return sum(self._graph.tensors[one].size_bytes for one in step.operator.outputs)
