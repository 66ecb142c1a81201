"""The compile pipeline: a model and a board in, a compiled model out, in named stages.

    import ─▶ simplify ─▶ choose ─▶ lower ─▶ memory ─▶ schedule ─▶ plan ─▶ emit

``dump(stage, text)`` is called after each stage with its result. Choosing takes a candidate for
each kernel from records. Lowering makes a kernel call of each operator. The memory stage takes
kernels with less scratch where the arena would grow too much. These stages and scheduling repeat
where a record turns out to be stale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from utvm_deploy.backends.chain_choice import ChainRecords
from utvm_deploy.backends.chains import with_chains
from utvm_deploy.backends.custom import CustomOperators
from utvm_deploy.backends.interface import Backend
from utvm_deploy.base.errors import CompileError, UtvmError
from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.boards.board import Board
from utvm_deploy.cmsis_nn import CmsisNn
from utvm_deploy.cmsis_nn.lower import cmsis_nn_backend
from utvm_deploy.compiler.budgets import Budget
from utvm_deploy.compiler.c_text import check_prefix, prefix_from_path
from utvm_deploy.compiler.choice import Picks
from utvm_deploy.compiler.decision import (
    Decision,
    known_records,
)
from utvm_deploy.compiler.dump import (
    calls_text,
    graph_text,
    kernels_text,
    picks_text,
    plan_text,
    sources_text,
)
from utvm_deploy.compiler.emit import emit
from utvm_deploy.compiler.floats import refuse_float, warn_without_fpu
from utvm_deploy.compiler.memory_needs import CheckNeeds
from utvm_deploy.compiler.model import CompiledModel
from utvm_deploy.compiler.needs import least_needs, planned_needs
from utvm_deploy.compiler.options import (
    ARENA,
    AUTO,
    BALANCED,
    EXACT,
    FAST,
    FLOAT_MATHS,
    KERNELS,
    LEVELS,
    MAX_LOSS_FOR_RAM,
    MAX_LOSS_FOR_TIME,
    OPTIMIZATION_FLAGS,
    RAM,
    SCRATCH_PLACES,
    SIZE,
    STACK,
    TIME,
    cache_of_arena,
    check_option,
)
from utvm_deploy.compiler.plan import Step, View, plan_arena
from utvm_deploy.compiler.planning import Planned, Planner, lowered_steps
from utvm_deploy.compiler.pool_budget import faster_with_pool, within_pool
from utvm_deploy.compiler.pool_planning import Memories, with_pools
from utvm_deploy.compiler.pools import (
    NO_POOLS,
    ScratchMemory,
    pool_limits,
    scratch_memory,
    with_arena_limit,
)
from utvm_deploy.compiler.program import Program, ScheduledStep
from utvm_deploy.compiler.scheduling import Scheduler
from utvm_deploy.compiler.stages import Dump, Stages
from utvm_deploy.compiler.streaming import in_strips_if_smaller
from utvm_deploy.cores.core import CORES
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.check import check_graph
from utvm_deploy.graph.input_rows import with_input_rows
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.names import with_short_names
from utvm_deploy.graph.passes import CHANNEL_KEEPING, PASSES, UNJOINED, Pass, simplify
from utvm_deploy.kernels.choose.lowering import families_for, lower
from utvm_deploy.kernels.contract.call import KernelCall, with_fused_sums, with_one_rounding
from utvm_deploy.records import Records
from utvm_deploy.records.candidate import CMSIS_NN, GENERIC


def compile_model(
    model: Graph | str | Path,
    board: Board,
    *,
    name: str | None = None,
    dump: Dump | None = None,
    kernels: str = "best",
    cmsis_nn: CmsisNn | None = None,
    backend: Backend | None = None,
    scratch: str = AUTO,
    records: Records | None = None,
    level: str = TIME,
    float_math: str = EXACT,
    picks: Picks | None = None,
    decided: Callable[[Decision], None] | None = None,
    check_needs: CheckNeeds | None = None,
    allow_float: bool = True,
    budget: Budget | None = None,
    input_rows: bool = False,
    pools: Mapping[str, int] = NO_POOLS,
    keep_channels: bool = False,
    whole_layers: bool = False,
    progress: Progress = no_progress,
) -> CompiledModel:
    """Compile a ``.tflite`` file, or a graph, for a board.

    ``name`` prefixes every C symbol; by default it comes from the file's name. ``kernels`` is one
    of ``options.KERNELS``; "cmsis-nn" needs ``cmsis_nn``, which ``project.find_cmsis_nn`` gives.
    ``backend`` computes the layers that it covers, as ``project.load_backend`` gives it.
    ``scratch`` is one of ``options.SCRATCH_PLACES``. Raises ModelError if the model cannot be used
    and CompileError if it cannot be compiled. ``records`` say which candidate each layer is
    compiled with. Without a record there, the records of the package decide. ``level``
    is one of ``options.LEVELS``, and ``float_math`` one of ``options.FLOAT_MATHS``.
    ``picks`` replace the choices of records, and ``decided`` gets the choices. ``check_needs``
    gets the memory that the model needs as soon as it is known, first before kernels are made, and
    may refuse it. Without ``allow_float``, a model that computes in float32 is a ModelError.
    ``budget`` limits RAM or cycles. Scratch is in the arena then, as at level "ram", unless a RAM
    budget has room for the arena and for fast scratch in a pool.
    With ``input_rows``, the model takes its input row by row (``CompiledModel.input_rows``).
    ``pools`` maps other regions of the board's RAM to the bytes that the model may use there.
    With ``keep_channels``, layers compute all channels of the file, also those that are constant.
    With ``whole_layers``, level "time" computes no layers in strips, and no layers are joined.
    ``progress`` hears of each plan of the memory, where several are weighed.
    """
    core = board.cpu.kernel_core
    library = _backend_for(kernels, cmsis_nn, backend)
    check_option("level", level, LEVELS)
    limits = _limits(level, with_arena_limit(budget or Budget(), board, pools))
    others = pool_limits(board, pools)
    if input_rows and not limits.is_set:
        limits = Budget(board.main_ram.size)  # the fastest plan that fits the board
    if input_rows and library is not None:
        raise CompileError(
            f"layers of {library.name} cannot be computed row by row; leave input rows out, or "
            "compile with our kernels"
        )
    check_option("scratch place", scratch, SCRATCH_PLACES)
    is_asked = limits.is_set
    held = scratch_memory(board, others, _scratch_within(limits, scratch))
    # Scratch in a pool, where a RAM budget has room for it, or to be named as the faster way.
    fast = None if held.pool is not None or pools or input_rows else scratch_memory(board, (), AUTO)
    is_budget = scratch == AUTO and not limits.cycles
    # Records of the user, and choices for a trial, are followed as they are.
    is_free = not is_asked and (records, picks, decided) == (None, None, None)
    if is_free and level == TIME and held.place == ARENA and cache_of_arena(board):
        limits = Budget(loss=MAX_LOSS_FOR_TIME)
    check_option("float math", float_math, FLOAT_MATHS)
    family = GENERIC if kernels == GENERIC else core
    stage = Stages(dump)
    graph = stage.run("import", lambda: _import(model, library), graph_text)
    if not allow_float:
        refuse_float(graph)
    warn_without_fpu(graph, board)
    prefix = prefix_from_path(graph.name) if name is None else check_prefix(name)
    known = known_records(board, records)
    chains = None
    if library is not None:
        chains = ChainRecords(library, core, known.own, OPTIMIZATION_FLAGS[level])
    passes = UNJOINED if library is not None or whole_layers else PASSES
    if keep_channels:
        passes = CHANNEL_KEEPING
    graph = stage.run(
        "simplify", lambda: _with_chains(_simplify(graph, passes), chains), graph_text
    )
    if input_rows:
        graph = with_input_rows(graph)
        check_graph(graph)
    may_stream = library is None and (
        is_asked or (limits.is_set and family != GENERIC and not whole_layers)
    )
    if check_needs is not None and not may_stream:
        check_needs(least_needs(prefix, graph))  # strips may take less
    scheduler = Scheduler(core, prefix)
    planner = Planner(
        board,
        family,
        level,
        held.place,
        known,
        scheduler,
        _rounding(level, float_math),
        held.stack,
        library,
        picks,
        all_codes=decided is not None,
    )

    def planned() -> tuple[Planned, ScratchMemory]:
        if is_budget and fast is not None and fast.pool is not None and limits.ram is not None:
            found = within_pool(graph, limits.ram, planner, fast)
            if found is not None:
                return found
        if may_stream:
            return in_strips_if_smaller(graph, limits, planner, progress), held
        return planner.plan(graph, limits), held

    made, held = stage.run(
        "choose", planned, lambda found: picks_text(found[0].chosen.decision.picks)
    )
    hint = None
    if held.place == ARENA and fast is not None and fast.pool is not None and made.tradeoff:
        hint = faster_with_pool(graph, planner, fast, made.tradeoff.cycles)
    graph, chosen = made.graph, made.chosen
    if held.pool is not None:
        others = tuple(dict.fromkeys((*others, held.pool)))
    stage.told("lower", lambda: calls_text(graph, chosen.wanted))
    stage.told("memory", lambda: calls_text(graph, chosen.sequence))
    stage.told("schedule", lambda: kernels_text(chosen.layers))
    if decided is not None:
        decided(chosen.decision)
    layers = chosen.layers
    stack_limit = held.stack.limit if held.stack is not None else 0
    sequence = _with_scratch(chosen.sequence, layers, stack_limit)
    plan = stage.run("plan", lambda: plan_arena(graph, sequence), plan_text)
    calls = [layer.kernel.calls for layer in layers if layer.kernel.calls is not None]
    called = library.called(calls) if library else None
    is_fused = float_math == FAST
    program = Program(prefix, board.name, core, graph, layers, plan, called, is_fused)
    if others:
        near = held.pool or next((one for one in others if one.is_faster), None)
        memories = Memories(others, near, held.pool is not None, board.cpu.dcache_bytes)
        program = stage.run(
            "plan",
            lambda: with_pools(program, sequence, memories),
            lambda found: plan_text(found.plan),
        )
    if check_needs is not None:
        check_needs(planned_needs(prefix, graph, sequence, program.plan))
    compiled = stage.run("emit", lambda: emit(program), sources_text)
    compiled = replace(compiled, seconds=stage.seconds, optimize=level, float_math=float_math)
    return replace(compiled, tradeoff=made.tradeoff if is_asked else None, hint=hint or "")


def least_activation_bytes(graph: Graph) -> int:
    """The least arena that activations take with any family's kernels, scratch aside.

    Some kernels put their outputs on what of their inputs is done with. Raises ModelError or
    CompileError where the graph cannot be compiled.
    """
    simpler = _simplify(graph)

    def arena_bytes(core: str) -> int:
        sequence = lowered_steps(simpler, core, lambda operator: lower(simpler, operator, core))
        return plan_arena(simpler, sequence).arena_bytes

    # One core of each family.
    cores = {families_for(core): core for core in CORES}
    return min(map(arena_bytes, cores.values()))


def lowering_problems(graph: Graph) -> dict[int, str]:
    """Position in the file of each operator that no kernel can be made for -> why.

    Raises ModelError where the passes cannot do with the graph.
    """
    simpler = _simplify(graph)
    found: dict[int, str] = {}
    for operator in simpler.operators:
        try:
            for core in {families_for(core): core for core in CORES}.values():
                lower(simpler, operator, core)
        except UtvmError as error:
            names = (tensor.name for tensor in simpler.tensors)
            found[operator.sources[0]] = with_short_names(str(error), names)
    return found


def _limits(level: str, budget: Budget) -> Budget:
    """What a plan is searched by: the user's budget, or else the level's."""
    if budget.is_set:
        return budget
    return Budget(loss=MAX_LOSS_FOR_RAM) if level == RAM else Budget()


def _scratch_within(limits: Budget, scratch: str) -> str:
    """The place of scratch: the arena, where a budget counts its bytes."""
    if not limits.is_set:
        return scratch
    if scratch == STACK:
        raise CompileError(
            "budgets, level 'ram' and --input-rows count scratch as part of the arena; leave "
            "--scratch stack out"
        )
    return ARENA


def _rounding(level: str, float_math: str) -> Callable[[KernelCall], KernelCall]:
    """How kernels round.

    At level size, layers share routines, so all of them round twice. At level balanced, the planner
    decides when all kernels are known.
    """

    def rounded(call: KernelCall) -> KernelCall:
        call = call if level in (SIZE, BALANCED) else with_one_rounding(call)
        return with_fused_sums(call) if float_math == FAST else call

    return rounded


def _import(model: Graph | str | Path, backend: Backend | None) -> Graph:
    if isinstance(model, Graph):
        check_graph(model)
        return model
    # The file's name is what the user calls the model, and what names its C symbols.
    custom = None if backend is None else CustomOperators(backend)
    return replace(load_model(Path(model), custom), name=Path(model).stem)


def _simplify(graph: Graph, passes: Sequence[tuple[str, Pass]] = PASSES) -> Graph:
    simpler = simplify(graph, passes)
    check_graph(simpler)
    return simpler


def _with_chains(graph: Graph, known: ChainRecords | None) -> Graph:
    if known is None:
        return graph
    merged = with_chains(graph, known.backend, known.core, known)
    check_graph(merged)
    return merged


def _backend_for(kernels: str, cmsis_nn: CmsisNn | None, backend: Backend | None) -> Backend | None:
    check_option("kernels", kernels, KERNELS)
    if kernels != CMSIS_NN:
        return backend
    if backend is not None:
        raise CompileError(
            f"kernels='cmsis-nn' and the backend {backend.name} cannot be used together; leave "
            "one of them out"
        )
    if cmsis_nn is None:
        raise CompileError(
            "kernels='cmsis-nn' needs the library itself: its headers and a static library that "
            "was built for the board's core (--cmsis-nn DIR)"
        )
    return cmsis_nn_backend(cmsis_nn)


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
