"""The compile pipeline: a model and a board in, a compiled model out, in named stages.

    import ─▶ simplify ─▶ search ─▶ place ─▶ emit

Each stage is a function from one frozen value to the next. ``Watch.dump`` is called with what each
of them made.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.budgets import Goal
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.emission.emit import emit
from utvm_deploy.compiler.options import DEFAULT_OPTIONS, CompileOptions
from utvm_deploy.compiler.stages.dump import sources_text
from utvm_deploy.compiler.stages.network import imported, simplified
from utvm_deploy.compiler.stages.placing import Placed, placed
from utvm_deploy.compiler.stages.request import SILENT, Request, Watch
from utvm_deploy.compiler.stages.search import KernelPlan, searched
from utvm_deploy.graph.model import Graph

_log = logging.getLogger(__name__)

#: Times the bytes of a model's constants, beyond which it is said.
_MUCH_FLASH = 2


@dataclass(frozen=True)
class Emitted:
    """A compiled model."""

    model: CompiledModel

    @property
    def text(self) -> str:
        """Its sources, for people."""
        return sources_text(self.model)


def emitted(found: Placed) -> Emitted:
    """The C of a program whose bytes have their places."""
    plan = found.plan
    options, goal = plan.request.options, plan.request.goal
    made = emit(found.program)
    model = replace(
        made,
        optimize=options.objective,
        float_math=options.float_math,
        # Nobody asked for what is lost at level time.
        tradeoff=plan.made.tradeoff if goal in (Goal.WITHIN_BUDGET, Goal.SMALLEST) else None,
        flash_plans=plan.made.flash_plans,
        hint="; ".join(
            filter(None, (plan.hint, _hint_of_flash(made, plan.made.graph), _idle(made, plan)))
        ),
    )
    return Emitted(model)


def _idle(made: CompiledModel, plan: KernelPlan) -> str:
    """Which device besides the core has nothing to compute, in a sentence; empty if none."""
    names = {one.name for one in plan.request.backends if one.is_bus_master}
    idle = sorted(names - {layer.engine for layer in made.layers})
    return f"no layer is computed by {', '.join(idle)}; the whys have the reasons" if idle else ""


def _hint_of_flash(made: CompiledModel, graph: Graph) -> str:
    """That speed takes much flash, in a sentence; empty if it does not."""
    own, taken = graph.constants_bytes, made.weights_bytes
    if taken <= _MUCH_FLASH * own:
        return ""
    return (
        f"for speed, tables of weights take {taken:,} bytes of flash, {taken / max(own, 1):.1f} "
        "times those of the model; --optimize size takes the least"
    )


#: Name of each stage, and its function: in this order, each takes what the one before it made.
PIPELINE: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("import", imported),
    ("simplify", simplified),
    ("search", searched),
    ("place", placed),
    ("emit", emitted),
)


def compile_model(
    model: Graph | str | Path,
    board: Board,
    options: CompileOptions = DEFAULT_OPTIONS,
    watch: Watch = SILENT,
) -> CompiledModel:
    """Compile a ``.tflite`` file, or a graph, for a board.

    Raises ModelError if the model cannot be used, and CompileError if it cannot be compiled, or not
    within its budget.
    """
    made: Any = Request(model, board, options, watch)
    seconds = dict[str, float]()
    for name, stage in PIPELINE:
        begun = time.perf_counter()
        made = stage(made)
        seconds[name] = time.perf_counter() - begun
        _log.info("%s: %.2f s", name, seconds[name])
        if watch.dump is not None:
            watch.dump(name, made.text)
    assert isinstance(made, Emitted)
    return replace(made.model, seconds=seconds)
