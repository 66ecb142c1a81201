"""Graph and kernel calls -> one arena: the place of every activation and every layer's scratch.

A step is one kernel call. Model inputs live from before the first step, outputs until after the
last one, states all the time, scratch during its step. Tensors that share bytes form one block.
Examples are a RESHAPE and its input, a slice and its source, the parts of a concatenation and its
output, and an operator that works in place. An output may also replace the part of a dying input
that its kernel has read by then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from utvm_deploy.compiler.arena.arenas import Layout, scratch_blocks
from utvm_deploy.compiler.arena.placement import (
    Block,
    Handover,
    Placement,
    live_peak,
    place,
    verify,
)
from utvm_deploy.compiler.arena.plan_check import verify_sharing
from utvm_deploy.compiler.arena.steps import Step, View
from utvm_deploy.compiler.row_state import with_row_state
from utvm_deploy.graph.model import Graph, Operator

__all__ = ["ArenaPlan", "Step", "View", "is_view", "plan_arena", "with_pool"]

#: What the caller must align the arena to: enough for every vector instruction of the cores here.
ARENA_ALIGNMENT = 16
#: More than any memory has.
_FAR = 1 << 40


@dataclass(frozen=True)
class ArenaPlan:
    """Offsets in bytes from the start of the arena."""

    tensors: Mapping[int, int]  # position in Graph.tensors -> offset
    scratch: tuple[tuple[int, ...], ...]  # of each step
    arena_bytes: int  # with the state of pushed rows
    # The most bytes needed at once: no plan for these kernels can be smaller.
    live_bytes: int
    blocks: tuple[Block, ...]
    handovers: tuple[Handover, ...]
    placement: Placement
    # Tensor -> the position of its block.
    block_of: Mapping[int, int]
    # Whether outputs may share their inputs' bytes.
    is_in_place: bool
    # Tensors in a pool, whose offsets are from the start of that, and the pool's bytes.
    in_pool: frozenset[int] = frozenset()
    pool_bytes: int = 0


def is_view(graph: Graph, operator: Operator) -> bool:
    """Whether the operator's output may be its input's bytes under another shape."""
    if operator.kind != "RESHAPE" or operator.inputs[0] is None:
        return False
    return graph.tensors[operator.inputs[0]].data is None


def plan_arena(graph: Graph, sequence: Sequence[Step | View]) -> ArenaPlan:
    """The smaller of the plans with and without working in place; verified."""
    layout = Layout(graph, sequence)
    plan = _plan(layout, sequence)
    if not layout.is_in_place:
        return plan
    apart = Layout(graph, sequence, may_merge=False)
    steps = [item for item in sequence if isinstance(item, Step)]
    # If both are equal, the one in place is taken: it touches less memory.
    if apart.place_below(steps, plan.placement.arena_bytes) is None:
        return plan
    return _plan(apart, sequence)


def with_pool(
    graph: Graph, sequence: Sequence[Step | View], plan: ArenaPlan, moved: Collection[int], at: int
) -> ArenaPlan:
    """The plan with some blocks in a pool, after its first ``at`` bytes; verified.

    ``moved`` are positions of blocks of tensors that are neither inputs nor outputs nor states.
    """
    layout = Layout(graph, sequence, may_merge=plan.is_in_place)
    return _plan(layout, sequence, moved, at)


def _plan(
    layout: Layout,
    sequence: Sequence[Step | View],
    moved: Collection[int] = (),
    at: int = 0,
) -> ArenaPlan:
    graph, groups, count = layout.graph, layout.groups, len(layout.blocks)
    steps = [item for item in sequence if isinstance(item, Step)]
    blocks = (*layout.blocks, *scratch_blocks(steps))
    handovers = layout.handovers(steps)
    placement, pool_bytes = _placed(blocks, handovers, moved, at)
    scratch = iter(placement.offsets[count:])
    block_of = {tensor: layout.places[groups.root(tensor)] for tensor in groups.members()}
    tensors = {
        tensor: placement.offsets[block] + groups.inside(tensor)
        for tensor, block in block_of.items()
    }
    in_pool = frozenset(tensor for tensor, block in block_of.items() if block in moved)
    # Both memories as one, in which they are far apart.
    places = {one: offset + (_FAR if one in in_pool else 0) for one, offset in tensors.items()}
    verify_sharing(graph, sequence, places)
    return ArenaPlan(
        tensors=tensors,
        scratch=tuple(tuple(next(scratch) for _ in step.scratch_bytes) for step in steps),
        arena_bytes=with_row_state(graph, placement.arena_bytes),
        live_bytes=live_peak(blocks, handovers),
        blocks=blocks,
        handovers=handovers,
        placement=placement,
        block_of=block_of,
        is_in_place=layout.is_in_place,
        in_pool=in_pool,
        pool_bytes=pool_bytes,
    )


def _placed(
    blocks: Sequence[Block], handovers: Sequence[Handover], moved: Collection[int], at: int
) -> tuple[Placement, int]:
    """Blocks in the arena, and those that are ``moved`` in a pool from ``at`` on, and its bytes."""
    offsets, ends = [0] * len(blocks), []
    for is_moved, start in ((False, 0), (True, at)):
        some = [i for i in range(len(blocks)) if (i in moved) == is_moved]
        places = {block: place for place, block in enumerate(some)}
        chosen = tuple(blocks[i] for i in some)
        kept = tuple(
            replace(one, source=places[one.source], result=places[one.result])
            for one in handovers
            if one.source in places and one.result in places
        )
        found = place(chosen, kept)
        verify(chosen, found, kept)
        ends.append(start + found.arena_bytes)
        for block, offset in zip(some, found.offsets, strict=True):
            offsets[block] = start + offset
    return Placement(tuple(offsets), ends[0]), ends[1] if moved else 0
