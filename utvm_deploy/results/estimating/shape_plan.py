"""The kernels and the arena of a model by its shapes alone.

A kernel follows from shapes, types and the pattern of scales. So weights are replaced by arrays of
ones that take no memory, and what was found for a layer is kept for all layers like it, of any
model. Records are not asked, and channels that are constant are not dropped.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.arena.plan import Step, View, plan_arena
from utvm_deploy.compiler.options import OPTIMIZATION_FLAGS, Objective
from utvm_deploy.compiler.planning.decision import shipped_records
from utvm_deploy.compiler.planning.planner import lowered_steps
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
    TensorArgument,
    is_native,
)
from utvm_deploy.records import Setting
from utvm_deploy.records.candidate import GENERIC, Candidate

#: Layers whose calls are kept.
MOST_KEPT = 20_000
#: About the average size of weights.
_TYPICAL_WEIGHT = 64


@dataclass(frozen=True)
class ShapedLayer:
    """A layer that has code."""

    operator: Operator
    call: KernelCall  # without its constants
    constants_bytes: int
    scratch_bytes: int


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
        for number in (one for one in operator.inputs if one is not None):
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

    def smaller(step: Step, most_bytes: int) -> KernelCall:
        own = Candidate(step.call.family)
        if own.family != GENERIC:
            with suppress(UnsupportedOperator):
                found = lower(graph, step.operator, core, own, most_scratch=most_bytes)
                return _rounded_once(found)
        return lower(graph, step.operator, core)

    wanted = lowered_steps(graph, core, lambda operator: _call_of(graph, operator, core).call)
    fitting = within_memory(graph, wanted, smaller, _scratch_of, SPARE_FOR_TIME, memory.stack)
    limit = 0 if memory.stack is None else memory.stack.limit
    placed: list[Step | View] = []
    layers: list[ShapedLayer] = []
    elsewhere = 0
    for item in fitting:
        if isinstance(item, Step):
            scratch = _scratch_of(item)
            layer = replace(_call_of(graph, item.operator, core), scratch_bytes=sum(scratch))
            if item.call.kernel != layer.call.kernel:  # memory has no room for the first one
                layer = replace(layer, call=item.call, constants_bytes=_constants_bytes(item.call))
            layers.append(layer)
            if sum(scratch) <= limit:
                elsewhere = max(elsewhere, sum(map(aligned_in_pool, scratch)))
                scratch = ()
            item = replace(item, scratch_bytes=scratch)
        placed.append(item)
    pool = elsewhere if memory.pool is not None else 0
    return ShapePlan(graph, tuple(layers), plan_arena(graph, placed).arena_bytes, pool)


def _scratch_of(step: Step) -> tuple[int, ...]:
    """Portable kernels hardly ever want scratch, and how much is known only after lowering."""
    kernel = step.call.kernel
    pieces = kernel.scratch if is_native(kernel) else ()
    return tuple(one.size_bytes for one in pieces if not one.is_on_stack)


def _call_of(graph: Graph, operator: Operator, core: str) -> ShapedLayer:
    """The layer's call; that of an equal layer is taken, of whichever model."""
    numbers = [*operator.inputs, *operator.outputs]
    facts = tuple(
        None if one is None else (numbers.index(one), *_facts(graph, operator, graph.tensors[one]))
        for one in numbers
    )
    key = operator.kind, operator.attributes, facts, core
    known = _KEPT.get(key)
    if known is None:
        call = _rounded_once(_chosen(graph, operator, core))
        activations = tuple(one for one in call.arguments if isinstance(one, TensorArgument))
        bare = replace(call, arguments=activations, rounded_once=None, exact=None)
        known = ShapedLayer(operator, bare, _constants_bytes(call), 0)
        if len(_KEPT) >= MOST_KEPT:
            del _KEPT[next(iter(_KEPT))]
        _KEPT[key] = known
    return replace(known, operator=operator, call=renamed(known.call, known.operator, operator))


#: Records of level `time` decide.
_NEAR = Setting("", "", OPTIMIZATION_FLAGS[Objective.TIME], "", "", "")


def _constants_bytes(call: KernelCall) -> int:
    tables = (one for one in call.arguments if isinstance(one, ConstantArgument))
    return sum(one.data.nbytes for one in tables)


_KEPT: dict[Hashable, ShapedLayer] = {}


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
                return replace(lower(graph, operator, core, candidate), origin=origin)
    return lower(graph, operator, core)


def _facts(graph: Graph, operator: Operator, tensor: Tensor) -> tuple[Hashable, ...]:
    """What a kernel may depend on: not the scales, but which of them are equal."""
    first = operator.inputs[0]
    found = tensor.quantization
    same = first is not None and graph.tensors[first].quantization == found
    scales = 0 if found is None else min(len(found.scales), 2)
    return tensor.shape, tensor.dtype, tensor.data is not None, scales, same
