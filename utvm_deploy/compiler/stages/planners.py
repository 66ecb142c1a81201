"""The planner of a request."""

from __future__ import annotations

from collections.abc import Callable

from utvm_deploy.compiler.lowering.scheduling import Scheduler
from utvm_deploy.compiler.options import FAST, Objective
from utvm_deploy.compiler.planning.planner import Planner
from utvm_deploy.compiler.stages.request import Request
from utvm_deploy.kernels.contract.call import KernelCall, with_fused_sums, with_one_rounding


def planner_of(request: Request, prefix: str) -> Planner:
    """What chooses the kernels of a request; ``prefix`` begins its C symbols."""
    options, held = request.options, request.scratch
    return Planner(
        request.board,
        request.family,
        options.objective,
        held.place,
        request.known,
        Scheduler(request.core, prefix),
        _rounding(options.objective, options.float_math),
        held.stack,
        request.backends,
        options.picks,
        all_codes=options.is_trial,
        flash_rate=request.flash_rate,
    )


def _rounding(objective: Objective, float_math: str) -> Callable[[KernelCall], KernelCall]:
    """How kernels round.

    At level size, layers share routines, so all of them round twice. At level balanced, the planner
    decides when all kernels are known.
    """
    rounds_twice = objective in (Objective.SIZE, Objective.BALANCED)

    def rounded(call: KernelCall) -> KernelCall:
        call = call if rounds_twice else with_one_rounding(call)
        return with_fused_sums(call) if float_math == FAST else call

    return rounded
