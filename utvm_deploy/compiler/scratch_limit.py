"""Which records may be followed where scratch lies in the arena: those that do not make it larger.

A faster kernel may want more scratch than the default one. On a stack in tightly coupled RAM nobody
minds; in the arena it would cost the user RAM that nobody asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from utvm_deploy.compiler.plan import Step, View, plan_arena
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.call import KernelCall
from utvm_deploy.records import DEFAULT

#: A step -> the bytes of each piece of scratch that its kernel wants.
ScratchOf = Callable[[Step], tuple[int, ...]]


def within_default_arena(
    graph: Graph,
    sequence: Sequence[Step | View],
    default: Callable[[Operator], KernelCall],
    scratch_of: ScratchOf,
) -> tuple[Step | View, ...]:
    """The sequence, with default kernels in place of what makes the arena larger than they would.

    ``default`` gives an operator's default call.
    """
    steps = [replace(s, scratch_bytes=scratch_of(s)) for s in sequence if isinstance(s, Step)]
    plain = [_default_step(step, default, scratch_of) for step in steps]
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
    step: Step, default: Callable[[Operator], KernelCall], scratch_of: ScratchOf
) -> Step:
    """The step with its default kernel, which says why it is not the record's.

    A step that no record chose stays as it is: it may be an external library's.
    """
    if step.call.origin == DEFAULT:
        return step
    call = default(step.operator)
    if call.kernel == step.call.kernel:
        return step
    plain = replace(step, call=call)
    scratch = scratch_of(plain)
    wanted = sum(step.scratch_bytes) - sum(scratch)
    why = f"the record's kernel would make the arena larger, by up to {wanted:,} bytes of scratch"
    return replace(plain, call=replace(call, why_not=why), scratch_bytes=scratch)


def _refilled(sequence: Sequence[Step | View], steps: Sequence[Step]) -> tuple[Step | View, ...]:
    rest = iter(steps)
    return tuple(next(rest) if isinstance(item, Step) else item for item in sequence)
