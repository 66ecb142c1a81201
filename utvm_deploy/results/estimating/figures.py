"""What a model would take on a board."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from utvm_deploy.boards.board import Board
from utvm_deploy.graph.model import Graph
from utvm_deploy.kernels.contract.reading import own_cycles
from utvm_deploy.results.estimating.formulas import (
    Errors,
    Formulas,
    formulas_of,
    kernel_class,
    rough_cycles,
)
from utvm_deploy.results.estimating.shape_plan import ShapedLayer, shape_plan
from utvm_deploy.targets.table import ESTIMATED, TIMINGS, target_of

#: Code, and RAM of the runtime, where nothing was fitted for a core.
UNKNOWN_CODE, UNKNOWN_RAM = 20_000, 12_000
#: Code of a kernel there.
CODE_OF_KERNEL = 1_200


@dataclass(frozen=True)
class LayerEstimate:
    """A layer; its place and kind are those of the file."""

    index: int
    kind: str
    name: str  # of its output
    shape: tuple[int, ...]  # of its output
    macs: int
    ticks: int
    weights_bytes: int
    scratch_bytes: int
    kernel: str  # its class, and its family
    is_known: bool  # whether the formula is of such layers


@dataclass(frozen=True)
class Estimated:
    """The figures, and how far they may be off."""

    model: str
    board: str
    unit: str  # of ticks: cycles or instructions
    ticks: int
    clock_hz: int
    ram_bytes: int  # of an image: its runtime, the arena and pools
    arena_bytes: int
    pool_bytes: int
    flash_bytes: int  # of an image: its runtime, kernels and constants
    weights_bytes: int
    layers: tuple[LayerEstimate, ...]
    errors: dict[str, Errors]  # by name: ticks, ram, flash; empty if none is stated
    notes: tuple[str, ...]  # why no error is stated

    @property
    def milliseconds(self) -> float | None:
        """At the board's clock; None where ticks are not a time."""
        return 1e3 * self.ticks / self.clock_hz if self.unit == "cycles" else None

    @property
    def unlike(self) -> tuple[int, ...]:
        """The layers that the formulas do not know."""
        return tuple(one.index for one in self.layers if not one.is_known)

    @property
    def headline(self) -> str:
        """Time, RAM and flash, and their errors."""
        time = "" if self.milliseconds is None else f" ({self.milliseconds:.3f} ms)"
        error = "no error is stated"
        if self.errors:
            error = f"{self.unit} are {self.errors['ticks'].median:.1%} off in the median"
        return (
            f"{self.model} on {self.board}, estimated: {self.ticks:,} {self.unit}{time}, RAM "
            f"{self.ram_bytes:,} bytes (arena {self.arena_bytes:,}), flash {self.flash_bytes:,} "
            f"bytes; {error}"
        )


def estimated(graph: Graph, board: Board) -> Estimated:
    """The estimate of a graph that ``shape_plan.shaped`` made."""
    core = board.cpu.kernel_core
    known = formulas_of(core)
    plan = shape_plan(graph, board)
    table = target_of(core).costs.get(core, ESTIMATED)

    def ticks_of(layer: ShapedLayer) -> tuple[float, bool]:
        own = own_cycles(layer.call.kernel, core)
        if known is not None:
            found, is_known = known.ticks_of(graph, layer)
            if is_known or own is None:
                return found, is_known
        return rough_cycles(graph, layer, table) if own is None else own, False

    ticks = [ticks_of(one) for one in plan.layers]
    layers = tuple(
        _layer(graph, index, one, *found)
        for index, (one, found) in enumerate(zip(plan.layers, ticks, strict=True))
    )
    if known is None:
        unit = "cycles" if core in TIMINGS else "instructions"
        kernels = len({one.call.kernel for one in plan.layers})
        base, code = UNKNOWN_RAM, UNKNOWN_CODE + CODE_OF_KERNEL * kernels
    else:
        unit, base, code = known.unit, known.ram_base, round(known.code_bytes(plan.layers))
    notes = tuple(_notes(board, known, layers))
    return Estimated(
        model=graph.name,
        board=board.name,
        unit=unit,
        ticks=round(sum(value for value, _ in ticks)),
        clock_hz=board.cpu.clock_hz,
        ram_bytes=base + plan.arena_bytes + plan.pool_bytes,
        arena_bytes=plan.arena_bytes,
        pool_bytes=plan.pool_bytes,
        flash_bytes=code + plan.constants_bytes,
        weights_bytes=plan.constants_bytes,
        layers=layers,
        errors={} if notes or known is None else dict(known.errors),
        notes=notes,
    )


def _layer(
    graph: Graph, index: int, layer: ShapedLayer, ticks: float, is_known: bool
) -> LayerEstimate:
    out = graph.tensors[layer.operator.outputs[0]]
    return LayerEstimate(
        index=index,
        kind=layer.operator.kind,
        name=out.name,
        shape=out.shape,
        macs=layer.call.macs,
        ticks=round(ticks),
        weights_bytes=layer.constants_bytes,
        scratch_bytes=layer.scratch_bytes,
        kernel=kernel_class(layer),
        is_known=is_known,
    )


def _notes(board: Board, known: Formulas | None, layers: Sequence[LayerEstimate]) -> Iterator[str]:
    """Why the stated errors do not hold."""
    core = board.cpu.kernel_core
    if known is None:
        yield f"nothing was fitted for {core}: costs are the planner's constants, rough ones"
        return
    if known.board != board.name:
        yield f"the constants are of {known.board}, whose memories and caches may be others"
    unlike = [one for one in layers if not one.is_known]
    if unlike:
        kinds = ", ".join(sorted({f"{one.kind} ({one.kernel})" for one in unlike}))
        yield f"{len(unlike)} of {len(layers)} layers are priced as similar ones: {kinds}"
