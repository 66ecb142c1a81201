"""The place stage: where everything is in the arena and in pools."""

from __future__ import annotations

from dataclasses import dataclass, replace

from utvm_deploy.backends.checks import check_headers
from utvm_deploy.base.errors import CompileError
from utvm_deploy.compiler.arena.needs import planned_needs
from utvm_deploy.compiler.arena.plan import Step, View, plan_arena
from utvm_deploy.compiler.lowering.program import Program, ScheduledStep
from utvm_deploy.compiler.options import FAST
from utvm_deploy.compiler.planning.pool_planning import Memories, with_pools
from utvm_deploy.compiler.stages.dump import plan_text
from utvm_deploy.compiler.stages.search import KernelPlan
from utvm_deploy.kernels.contract.call import LibraryKernel


@dataclass(frozen=True)
class Placed:
    """A program whose bytes have their places."""

    plan: KernelPlan
    program: Program

    @property
    def text(self) -> str:
        """For people: one line for each block of the arena."""
        return plan_text(self.program.plan)


def placed(plan: KernelPlan) -> Placed:
    """The program of a plan. ``Watch.check_needs`` may raise CompileError."""
    request, made = plan.request, plan.made
    graph, layers, held = made.graph, made.chosen.layers, plan.scratch
    stack_limit = held.stack.limit if held.stack is not None else 0
    sequence = _with_scratch(made.chosen.sequence, layers, stack_limit)
    rows = request.options.input_rows
    theirs = [one.kernel for one in layers if one.kernel.calls]
    called = (
        backend.called(
            [one.calls for one in theirs if one.calls and one.backend == backend.name],
            {one.engine for one in theirs if one.engine and one.backend == backend.name},
        )
        for backend in request.backends
    )
    calls = [one.step.call.kernel for one in layers]
    check_headers([one for one in calls if isinstance(one, LibraryKernel)], request.backends)
    program = Program(
        plan.prefix,
        request.board.name,
        request.core,
        graph,
        layers,
        plan_arena(graph, sequence),
        tuple(one for one in called if one is not None),
        request.options.float_math == FAST,
        has_loops=not any(
            (request.backends, request.options.whole_layers, rows, graph.training, graph.prefill)
        ),
    )
    pools = request.pools
    if held.pool is not None:
        pools = tuple(dict.fromkeys((*pools, held.pool)))
    if pools:
        near = held.pool or next((one for one in pools if one.is_faster), None)
        cache_bytes = request.board.cpu.dcache_bytes
        memories = Memories(pools, near, held.pool is not None, cache_bytes)
        program = with_pools(program, sequence, memories)
    if request.watch.check_needs is not None:
        request.watch.check_needs(planned_needs(plan.prefix, graph, sequence, program.plan))
    return Placed(plan, program)


def _with_scratch(
    sequence: tuple[Step | View, ...], layers: tuple[ScheduledStep, ...], stack_limit: int
) -> tuple[Step | View, ...]:
    """The sequence with what scheduling found out: how much scratch each step has in the arena."""
    sizes = iter(layers)
    completed: list[Step | View] = []
    for item in sequence:
        if isinstance(item, Step):
            function = next(sizes).kernel.function
            if function.scratch_bytes > stack_limit:
                scratch = tuple(s.size_bytes for s in function.scratch)
                item = replace(item, scratch_bytes=scratch)
        completed.append(item)
    if next(sizes, None) is not None:
        raise CompileError("more layers than steps; this is a bug in the pipeline")
    return tuple(completed)
