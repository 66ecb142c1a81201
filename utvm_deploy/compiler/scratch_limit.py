"""Which records may be followed: those whose scratch the user's RAM has room for.

A faster kernel may want more scratch than the default one. In the arena it would cost the user RAM
that nobody asked for: no record makes that larger. On the stack nobody minds, as long as there is
room beside everything else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from utvm_deploy.compiler.options import ScratchStack
from utvm_deploy.compiler.plan import Step, View, plan_arena
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.call import KernelCall
from utvm_deploy.records import DEFAULT

_log = logging.getLogger(__name__)

#: A step -> the bytes of each piece of scratch that its kernel wants.
ScratchOf = Callable[[Step], tuple[int, ...]]


def within_default_memory(
    graph: Graph,
    sequence: Sequence[Step | View],
    default: Callable[[Operator], KernelCall],
    scratch_of: ScratchOf,
    stack: ScratchStack | None = None,
) -> tuple[Step | View, ...]:
    """The sequence, with default kernels in place of what asks for more RAM than may be taken.

    ``default`` gives an operator's default call; ``stack`` says where scratch lies if not in the
    arena.
    """
    if stack is None:
        found = _within_arena(graph, sequence, default, scratch_of)
    else:
        found = _within_stack(graph, sequence, default, scratch_of, stack)
    for before, after in zip(sequence, found, strict=True):
        if isinstance(before, Step) and isinstance(after, Step) and before.call != after.call:
            _log.info("%s: %s", after.operator.kind, after.call.why_not)
    return found


def _within_stack(
    graph: Graph,
    sequence: Sequence[Step | View],
    default: Callable[[Operator], KernelCall],
    scratch_of: ScratchOf,
    stack: ScratchStack,
) -> tuple[Step | View, ...]:
    """No more on the stack than there is room for, and no larger an arena."""

    def in_arena(step: Step) -> tuple[int, ...]:
        scratch = scratch_of(step)
        return scratch if sum(scratch) > stack.limit else ()

    room = stack.room
    if stack.is_shared:
        steps = [s for s in sequence if isinstance(s, Step)]
        plain = [_default_step(s, default, in_arena, "") for s in steps]
        sized = [replace(s, scratch_bytes=in_arena(s)) for s in plain]
        room -= plan_arena(graph, _refilled(sequence, sized)).arena_bytes
    kept: list[Step | View] = []
    for item in sequence:
        if isinstance(item, Step) and room < sum(scratch_of(item)) <= stack.limit:
            why = f"its scratch of {sum(scratch_of(item)):,} bytes is more than the stack has"
            other = _default_step(item, default, scratch_of, why)
            if sum(other.scratch_bytes) < sum(scratch_of(item)):
                item = replace(other, scratch_bytes=())
        kept.append(item)
    return _within_arena(graph, kept, default, in_arena)


def _within_arena(
    graph: Graph,
    sequence: Sequence[Step | View],
    default: Callable[[Operator], KernelCall],
    scratch_of: ScratchOf,
) -> tuple[Step | View, ...]:
    """No larger an arena than with default kernels."""
    steps = [replace(s, scratch_bytes=scratch_of(s)) for s in sequence if isinstance(s, Step)]
    if not any(step.scratch_bytes for step in steps if step.call.origin != DEFAULT):
        return tuple(sequence)
    why = "its scratch would make the arena larger"
    plain = [_default_step(step, default, scratch_of, why) for step in steps]
    limit = plan_arena(graph, _refilled(sequence, plain)).arena_bytes
    plan = plan_arena(graph, _refilled(sequence, steps))
    if plan.arena_bytes <= limit:
        return tuple(sequence)
    tensors = plan.blocks[: len(plan.blocks) - sum(len(step.scratch_bytes) for step in steps)]
    for index, (step, other) in enumerate(zip(steps, plain, strict=True)):
        live = sum(block.size_bytes for block in tensors if block.first <= index <= block.last)
        if live + sum(step.scratch_bytes) > limit:
            steps[index] = other
    if plan_arena(graph, _refilled(sequence, steps)).arena_bytes > limit:
        # What is alive at once would fit, but no placement was found in which it does.
        steps = [
            other if sum(step.scratch_bytes) > sum(other.scratch_bytes) else step
            for step, other in zip(steps, plain, strict=True)
        ]
    if plan_arena(graph, _refilled(sequence, steps)).arena_bytes > limit:
        steps = plain
    return _refilled(sequence, [replace(step, scratch_bytes=()) for step in steps])


def _default_step(
    step: Step, default: Callable[[Operator], KernelCall], scratch_of: ScratchOf, why: str
) -> Step:
    """The step with its default kernel, which says why it is not the record's.

    A step that no record chose stays as it is: it may be an external library's.
    """
    if step.call.origin == DEFAULT:
        return step
    call = default(step.operator)
    if call.kernel == step.call.kernel:
        return step
    plain = replace(step, call=replace(call, why_not=f"the record's kernel is not taken: {why}"))
    return replace(plain, scratch_bytes=scratch_of(plain))


def _refilled(sequence: Sequence[Step | View], steps: Sequence[Step]) -> tuple[Step | View, ...]:
    rest = iter(steps)
    return tuple(next(rest) if isinstance(item, Step) else item for item in sequence)
