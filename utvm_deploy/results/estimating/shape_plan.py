"""The kernels and the arena of a model by its shapes alone.

A kernel follows from shapes, types and the pattern of scales. So weights are replaced by arrays of
ones that take no memory, unless their zeros are packed. What was found for a layer is kept for all
layers like it, of any model. Records are not asked, and channels that are constant are not dropped.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.arena.plan import Step, View, plan_arena
from utvm_deploy.compiler.options import FLASH_RATES, OPTIMIZATION_FLAGS, Objective
from utvm_deploy.compiler.planning.decision import shipped_records
from utvm_deploy.compiler.planning.flash_rate import FlashChoice, room_for_tables
from utvm_deploy.compiler.planning.kernel_costs import CoreCosts, KernelCosts, Option
from utvm_deploy.compiler.planning.planner import lowered_steps, smaller_calls
from utvm_deploy.compiler.planning.pools import aligned_in_pool, scratch_memory
from utvm_deploy.compiler.planning.scratch_limit import SPARE_FOR_TIME, within_memory
from utvm_deploy.graph.model import Graph, Operator, Quantization, Tensor
from utvm_deploy.graph.passes.simplify import CHANNEL_KEEPING, share_equal, simplify
from utvm_deploy.kernels.choose.known_calls import renamed
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.choose.space import identity_of
from utvm_deploy.kernels.contract.call import (
    ConstantArgument,
    KernelCall,
    is_native,
)
from utvm_deploy.kernels.contract.packed_weights import is_packed
from utvm_deploy.kernels.contract.reading import own_cycles
from utvm_deploy.kernels.native.sparse.layer import packable
from utvm_deploy.kernels.native.sparse.packing import smallest
from utvm_deploy.records import Setting
from utvm_deploy.targets.table import ESTIMATED, target_of

#: Layers whose calls are kept.
MOST_KEPT = 20_000
#: About what the weights of a channel have on average, if sums of them are to fit in the worst one.
_TYPICAL_WEIGHT = 80


@dataclass(frozen=True)
class ShapedLayer:
    """A layer that has code."""

    operator: Operator
    call: KernelCall  # without its constants
    constants_bytes: int
    scratch_bytes: int
    dtype: str  # of its packed weights, or else of what it reads
    cycles: float  # by its kernel; 0: the kernel does not say


@dataclass(frozen=True)
class ShapePlan:
    """A model on a board."""

    graph: Graph
    layers: tuple[ShapedLayer, ...]
    arena_bytes: int
    pool_bytes: int  # of the memory that holds the scratch, if that is another one

    @property
    def constants_bytes(self) -> int:
        """Bytes of all tables in flash."""
        return sum(one.constants_bytes for one in self.layers)


def shaped(graph: Graph, *, has_weights: bool = True) -> Graph:
    """The graph that would be compiled, with constants that stand for any.

    If the graph has no weights, equal layers count as different ones.
    """
    passes = CHANNEL_KEEPING
    if not has_weights:
        passes = tuple(one for one in passes if one[1] is not share_equal)
    simpler = simplify(graph, passes)
    tensors = list(simpler.tensors)
    for operator in simpler.operators:
        matrix = packable(simpler, operator)
        kept = operator.inputs[1:2] if matrix is not None and smallest(matrix) is not None else ()
        for number in (one for one in operator.inputs if one is not None and one not in kept):
            tensors[number] = _stand_in(tensors[number])
    return simpler.replaced(tensors=tuple(tensors))


def _stand_in(tensor: Tensor) -> Tensor:
    if tensor.data is None or tensor.data.ndim == 0:
        return tensor
    typical = np.full((), _TYPICAL_WEIGHT if tensor.dtype == "int8" else 1, tensor.data.dtype)
    data = np.broadcast_to(typical, tensor.data.shape)
    found = tensor.quantization
    if found is not None and len(found.scales) > 1:
        count = len(found.scales)
        found = Quantization(found.scales[:1] * count, found.zero_points[:1] * count, found.axis)
    return replace(tensor, data=data, quantization=found)


def shape_plan(graph: Graph, board: Board) -> ShapePlan:
    """The plan of what ``shaped`` made, with the kernels that are chosen without records."""
    core = board.cpu.kernel_core
    memory = scratch_memory(board, (), "auto")

    known: dict[int, tuple[Option, ...]] = {}

    def first(operator: Operator) -> KernelCall:
        known[id(operator)] = _forms_of(graph, operator, core)
        return known[id(operator)][0].step.call

    def forms(step: Step) -> Iterator[Option]:
        own, *others = known[id(step.operator)]
        enough = max(most, _unpacked_scratch(graph, step.operator, own, others))
        return chain([own], (one for one in others if one.scratch_bytes <= enough))

    fastest = lowered_steps(graph, core, first)
    most = max(sum(_scratch_of(one)) for one in fastest if isinstance(one, Step))
    rate = 0.0 if board.is_host else FLASH_RATES[Objective.TIME]
    wanted = FlashChoice(fastest, forms, core, rate, room_for_tables(board)).plan()
    smaller = smaller_calls(graph, core, board, _scratch_of, _rounded_once, rate)
    fitting = within_memory(graph, wanted, smaller, _scratch_of, SPARE_FOR_TIME, memory.stack)
    limit = 0 if memory.stack is None else memory.stack.limit
    placed: list[Step | View] = []
    layers: list[ShapedLayer] = []
    elsewhere = 0
    for item in fitting:
        if isinstance(item, Step):
            scratch = _scratch_of(item)
            tables = item.call.table_bytes
            own = own_cycles(item.call.kernel, core)
            cycles = getattr(item.call.kernel, "estimated_cycles", 0.0) if own is None else own
            facts = tables, sum(scratch), _dtype(graph, item), cycles
            layers.append(ShapedLayer(item.operator, item.call, *facts))
            if sum(scratch) <= limit:
                elsewhere = max(elsewhere, sum(map(aligned_in_pool, scratch)))
                scratch = ()
            item = replace(item, scratch_bytes=scratch)
        placed.append(item)
    pool = elsewhere if memory.pool is not None else 0
    return ShapePlan(graph, tuple(layers), plan_arena(graph, placed).arena_bytes, pool)


def _dtype(graph: Graph, step: Step) -> str:
    types = [graph.tensors[one].dtype for one in step.operator.inputs if one is not None]
    packed = () if step.call.is_unpacked else filter(is_packed, types)
    return next(iter(packed), types[0])


def _unpacked_scratch(
    graph: Graph, operator: Operator, own: Option, others: Sequence[Option]
) -> int:
    """Scratch that the compiler allows a layer of packed weights, to store them as int8."""
    weights = operator.inputs[1] if own.step.call.macs and not own.is_measured else None
    if weights is None or not others or not is_packed(graph.tensors[weights].dtype):
        return 0
    return min(others, key=lambda one: one.cycles).scratch_bytes


def _scratch_of(step: Step) -> tuple[int, ...]:
    """Portable kernels hardly ever want scratch, and how much is known only after lowering."""
    kernel = step.call.kernel
    pieces = kernel.scratch if is_native(kernel) else ()
    return tuple(one.size_bytes for one in pieces if not one.is_on_stack)


def _forms_of(graph: Graph, operator: Operator, core: str) -> tuple[Option, ...]:
    """The layer's call, and its other forms; an equal layer's are taken, of whichever model."""
    numbers = [*operator.inputs, *operator.outputs]
    facts = tuple(
        None if one is None else (numbers.index(one), *_facts(graph, operator, graph.tensors[one]))
        for one in numbers
    )
    key = operator.kind, operator.attributes, facts, core
    known = _KEPT.get(key)
    if known is None:
        step = Step(operator, _rounded_once(_chosen(graph, operator, core)), ())
        known = tuple(map(_bare, _costs(graph, core).forms(step, math.inf)))
        if len(_KEPT) >= MOST_KEPT:
            del _KEPT[next(iter(_KEPT))]
        _KEPT[key] = known
    other = known[0].step.operator
    return tuple(
        replace(one, step=Step(operator, renamed(one.step.call, other, operator), ()))
        for one in known
    )


#: Records of level `time` decide.
_NEAR = Setting("", "", OPTIMIZATION_FLAGS[Objective.TIME], "", "", "")


def _costs(graph: Graph, core: str) -> KernelCosts:
    table = CoreCosts(target_of(core).costs.get(core, ESTIMATED))
    near, records = replace(_NEAR, core=core), shipped_records(core)

    def smaller(step: Step, _: int) -> KernelCall:  # forms do not ask
        return step.call

    return KernelCosts(graph, records, near, smaller, _scratch_of, _rounded_once, table)


def _bare(form: Option) -> Option:
    """The form, whose tables take no memory."""
    call = form.step.call
    arguments = tuple(
        replace(one, data=np.broadcast_to(np.zeros((), one.data.dtype), one.data.shape))
        if isinstance(one, ConstantArgument)
        else one
        for one in call.arguments
    )
    call = replace(call, arguments=arguments, rounded_once=None, exact=None)
    return replace(form, step=replace(form.step, call=call))


_KEPT: dict[Hashable, tuple[Option, ...]] = {}


def _rounded_once(call: KernelCall) -> KernelCall:
    """The form with one rounding, of whose tables nothing is needed here."""
    once = getattr(call.kernel, "rounded_once", None)
    return call if once is None else replace(call, kernel=once)


def _chosen(graph: Graph, operator: Operator, core: str) -> KernelCall:
    """The layer's kernel by the records that come with the package, or its default."""
    records = shipped_records(core)
    if len(records):
        choices = records.choices(identity_of(graph, operator), core, _NEAR)
        for candidate, origin in choices:
            with suppress(UnsupportedOperator, ValueError):
                call = lower(graph, operator, core, candidate)
                return replace(call, origin=origin, candidate=candidate)
    return lower(graph, operator, core)


def _facts(graph: Graph, operator: Operator, tensor: Tensor) -> tuple[Hashable, ...]:
    """What a kernel may depend on: not the scales, but which of them are equal."""
    first = operator.inputs[0]
    found = tensor.quantization
    same = first is not None and graph.tensors[first].quantization == found
    scales = 0 if found is None else min(len(found.scales), 2)
    data: Hashable = tensor.data is not None
    if tensor.data is not None and any(tensor.data.strides):
        data = hash(tensor.data.tobytes())  # its zeros are packed
    return tensor.shape, tensor.dtype, data, scales, same
