"""How much scratch each layer may take, so that everything fits the user's RAM.

The fastest kernels want scratch. In the arena, scratch is free while few activations are live, but
enlarges the arena while many are. Then a slower kernel with less scratch is taken. On the stack,
scratch costs nothing, as long as everything else fits, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from utvm_deploy.compiler.arena.arenas import Arenas, arena_bytes, refilled
from utvm_deploy.compiler.arena.placement import live_bytes
from utvm_deploy.compiler.arena.plan import Step, View, plan_arena
from utvm_deploy.compiler.options import ScratchStack
from utvm_deploy.graph.model import Graph
from utvm_deploy.kernels.contract.call import KernelCall

_log = logging.getLogger(__name__)

#: A step -> the bytes of each piece of scratch that its kernel wants.
ScratchOf = Callable[[Step], tuple[int, ...]]
#: A step, and the most bytes of scratch -> another call for it, with at most these bytes, or with
#: the fewest that are possible.
Smaller = Callable[[Step, int], KernelCall]

Sequenced = tuple[Step | View, ...]


@dataclass(frozen=True)
class Spare:
    """The bytes by which scratch may enlarge the arena: the larger of the two."""

    least_bytes: int
    part: int = 0  # one part in this number of the arena's bytes without scratch; 0: none

    def beside(self, arena_bytes: int) -> int:
        """In bytes."""
        return max(self.least_bytes, arena_bytes // self.part if self.part else 0)


#: For the sake of speed, and for that of few bytes.
SPARE_FOR_TIME, NO_SPARE = Spare(2048, part=6), Spare(0)


def within_memory(
    graph: Graph,
    sequence: Sequence[Step | View],
    smaller: Smaller,
    scratch_of: ScratchOf,
    spare: Spare,
    stack: ScratchStack | None = None,
) -> Sequenced:
    """The sequence, with other kernels for those that ask for more RAM than allowed.

    Scratch may enlarge the arena by ``spare``, and by more only if no kernel has less. ``stack``
    says where scratch is if not in the arena.
    """
    if stack is None:
        found = _within_arena(graph, sequence, smaller, scratch_of, spare)
    else:
        found = _within_stack(graph, sequence, smaller, scratch_of, spare, stack)
    for before, after in zip(sequence, found, strict=True):
        if isinstance(before, Step) and isinstance(after, Step) and before.call != after.call:
            _log.info("%s: %s", after.operator.kind, after.call.why_not)
    return found


def _within_stack(
    graph: Graph,
    sequence: Sequence[Step | View],
    smaller: Smaller,
    scratch_of: ScratchOf,
    spare: Spare,
    stack: ScratchStack,
) -> Sequenced:
    """Scratch on the stack as far as it has room, the rest in the arena.

    A kernel whose scratch fits a stack in separate memory is better than a wider one in the arena.
    """

    def in_arena(step: Step) -> tuple[int, ...]:
        scratch = scratch_of(step)
        return scratch if sum(scratch) > stack.limit else ()

    room = stack.room
    if stack.is_shared:
        steps = [replace(s, scratch_bytes=in_arena(s)) for s in sequence if isinstance(s, Step)]
        room -= arena_bytes(graph, refilled(sequence, steps))
    kept: list[Step | View] = []
    for item in sequence:
        if isinstance(item, Step):
            wanted, most = sum(scratch_of(item)), min(max(room, 0), stack.limit)
            why = f"its scratch of {wanted:,} bytes is more than the {stack.what} has"
            other = _other_step(item, smaller, scratch_of, most, why) if wanted > most else item
            # In separate memory, a stack is the faster place. Otherwise the arena takes the rest.
            is_faster = not stack.is_shared and spare != NO_SPARE
            if wanted <= stack.limit or (is_faster and sum(scratch_of(other)) <= most):
                item = other
        kept.append(item)
    return _within_arena(graph, kept, smaller, in_arena, spare)


def _within_arena(
    graph: Graph,
    sequence: Sequence[Step | View],
    smaller: Smaller,
    scratch_of: ScratchOf,
    spare: Spare,
) -> Sequenced:
    """An arena that scratch makes larger by what may be spared at most."""
    steps = [s for s in sequence if isinstance(s, Step)]
    wanted = [sum(scratch_of(step)) for step in steps]
    if not any(wanted):
        return tuple(sequence)
    bare = plan_arena(graph, refilled(sequence, [replace(s, scratch_bytes=()) for s in steps]))
    limit = bare.arena_bytes + spare.beside(bare.arena_bytes)
    live = live_bytes(range(len(steps)), bare.blocks, bare.handovers)

    arenas = Arenas(graph, sequence)

    def size_of(steps: Sequence[Step]) -> int:
        return arenas.bytes([replace(step, scratch_bytes=scratch_of(step)) for step in steps])

    fastest = size_of(steps)
    if fastest <= limit:
        return tuple(sequence)
    why = f"its scratch would make the arena larger; --ram-budget {fastest} allows that"

    @cache
    def least(index: int) -> Step:
        """What is alive at once may fit, and yet no placement be found in which it does."""
        step = steps[index]
        return _other_step(step, smaller, scratch_of, 0, why) if wanted[index] else step

    def fitted(limit: int) -> list[Step]:
        """The steps of an arena of at most ``limit`` bytes, or those with the least scratch."""
        fitting = list(steps)
        for index, step in enumerate(steps):
            if live[index] + wanted[index] > limit:
                room = max(limit - live[index], 0)
                fitting[index] = _other_step(step, smaller, scratch_of, room, why)
        tightest = sorted(range(len(steps)), key=lambda i: -live[i] - sum(scratch_of(fitting[i])))

        def less(index: int) -> Step:
            most = sum(scratch_of(fitting[index])) * 2 // 3
            return _other_step(steps[index], smaller, scratch_of, most, why)

        def fits(steps: Sequence[Step]) -> bool:
            return size_of(steps) <= limit

        low = sum(live[i] + sum(scratch_of(one)) > limit for i, one in enumerate(fitting))
        narrow = less if fits([less(i) for i in range(len(steps))]) else least
        return _narrowed(fitting, tightest, low, narrow, fits)

    found = fitted(limit)
    needed = size_of(found)
    # With any kernel, one layer may need more. Then the others may take as much for speed.
    is_for_speed = spare != NO_SPARE and needed > limit
    return refilled(sequence, fitted(needed) if is_for_speed else found)


def _narrowed(
    fitting: Sequence[Step],
    order: Sequence[int],
    low: int,
    narrow: Callable[[int], Step],
    fits: Callable[[Sequence[Step]], bool],
) -> list[Step]:
    """Narrower kernels in few layers, at least ``low`` of them, the first of ``order`` first."""

    def mixed(count: int) -> list[Step]:
        chosen = set(order[:count])
        return [narrow(i) if i in chosen else one for i, one in enumerate(fitting)]

    high = len(order)
    while low < high:
        middle = (low + high) // 2
        if fits(mixed(middle)):
            high = middle
        else:
            low = middle + 1
    found = mixed(low)
    # Of those, only some are in the way.
    for index in order[:low]:
        wider = [*found[:index], fitting[index], *found[index + 1 :]]
        if found[index] is not fitting[index] and fits(wider):
            found = wider
    return found


def _other_step(
    step: Step, smaller: Smaller, scratch_of: ScratchOf, most_bytes: int, why: str
) -> Step:
    """The step with a call that takes less scratch and says why; the same if there is none."""
    call = smaller(step, most_bytes)
    other = replace(step, call=replace(call, why_not=f"the fastest kernel is not taken: {why}"))
    return other if sum(scratch_of(other)) < sum(scratch_of(step)) else step
