"""Per-layer cost of a model on a board, with what it takes of RAM and flash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.base.results import one_line
from utvm_deploy.compiler.compiled.file_layers import FileLayer, layers_of_file
from utvm_deploy.compiler.compiled.model import Layer
from utvm_deploy.compiler.planning.decision import model_of
from utvm_deploy.device import DeviceModel, Figures
from utvm_deploy.oracle.samples import Samples
from utvm_deploy.results.profiling.placement import Placement, placement_of

#: Runs where the timer is a clock, which jitters; what an emulator counts needs one.
CLOCK_REPEATS = 20


@dataclass(frozen=True)
class LayerProfile:
    """One layer's cost; of a loop or a layer in strips, all of its calls together."""

    layer: Layer
    ticks: int  # the smallest over all runs
    ticks_median: float
    # Everything that was counted, by name; the ticks first, by their unit.
    figures: Figures
    #: Of a loop or a layer in strips: what each call took. How many calls compute rows.
    calls: tuple[LayerProfile, ...] = ()
    strips: int = 0
    steps: int = 0  # of a loop

    @property
    def ticks_per_mac(self) -> float | None:
        """None for a layer without multiplications, or one of an NPU, whose ticks are others."""
        is_ours = self.layer.macs and self.layer.npu_cycles is None
        return self.ticks / self.layer.macs if is_ours else None


@dataclass(frozen=True, repr=False)
class Profile:
    """A model's cost on a board."""

    board: str
    model: str
    tick_unit: str  # cycles, nanoseconds or instructions
    ticks_per_second: int
    # Whether cycles are those of a model of the core, never measured on silicon.
    is_modelled: bool
    runs: int
    layers: tuple[LayerProfile, ...]
    ticks: int  # the whole model in one call, smallest over all runs
    ticks_median: float
    figures: Figures  # the same
    macs: int
    arena_bytes: int
    weights_bytes: int
    flash_bytes: int  # of the whole image: model, kernels, runtime
    ram_bytes: int  # static RAM of the image with its stack, the arena and pools
    placement: Placement
    # Digest of the cycle model that counted; empty where ticks are not modelled.
    cycle_model: str = ""
    pool_bytes: int = 0  # of all memories besides the arena's
    twin_note: str = ""  # of an emulated twin, what is the board's, and what is the machine's
    # Whose code was missing, so that its layers did nothing; empty: all layers were computed.
    stand_in: str = ""

    @property
    def calls(self) -> tuple[LayerProfile, ...]:
        """The calls in their order: layers, and of layers in strips, each strip."""
        found = (call for one in self.layers for call in one.calls or (one,))
        return tuple(sorted(found, key=lambda call: call.layer.index))

    @property
    def npu_cycles(self) -> int | None:
        """The sum of the layers' estimates, in cycles of the NPU; None without an NPU."""
        found = [one.layer.npu_cycles for one in self.layers if one.layer.npu_cycles is not None]
        return sum(found) if found else None

    __repr__ = one_line

    @property
    def headline(self) -> str:
        """Time, RAM and flash of the whole model."""
        latency = "" if self.seconds is None else f" ({1e3 * self.seconds:.3f} ms)"
        return (
            f"{self.model} on {self.board}: {self.ticks:,} {self.unit_label}{latency}"
            f"{f' without {self.stand_in}' if self.stand_in else ''}, "
            f"{len(self.layers)} layers, RAM {self.ram_bytes:,} bytes (arena "
            f"{self.arena_bytes:,}), flash {self.flash_bytes:,} bytes"
        )

    @property
    def seconds(self) -> float | None:
        """Latency, where ticks are time; instructions are not."""
        if self.tick_unit == "instructions":
            return None
        return self.ticks / self.ticks_per_second

    @property
    def unit_label(self) -> str:
        """The unit as a text for people."""
        return f"modelled {self.tick_unit}" if self.is_modelled else self.tick_unit


def profile(model: DeviceModel, samples: Samples, progress: Progress = no_progress) -> Profile:
    """Time every layer and the whole model on the first sample."""
    compiled, device = model.compiled, model.device
    hello = device.hello
    inputs = samples.inputs[0]
    repeats_exactly = hello.tick_unit == "instructions" or device.is_modelled
    runs = 1 if repeats_exactly else CLOCK_REPEATS
    whole: list[int] = []
    by_layer: list[list[int]] = [[] for _ in compiled.layers]
    for run in range(runs):
        progress(f"profiling on {compiled.board}: run", run + 1, runs)
        whole.append(model.run(inputs)[1])
        if run == 0:
            (figures,) = device.figures(whole)
        for ticks, layer_ticks in zip(by_layer, model.run_timed(inputs), strict=True):
            ticks.append(layer_ticks)
    unit = hello.tick_unit
    smallest = [min(ticks) for ticks in by_layer]
    # With more than one run there are only ticks.
    layer_figures = device.figures(smallest) if repeats_exactly else [{unit: t} for t in smallest]
    image = device.image
    return Profile(
        board=compiled.board,
        model=compiled.name,
        tick_unit=unit,
        ticks_per_second=hello.ticks_per_second,
        is_modelled=device.is_modelled,
        runs=runs,
        layers=tuple(
            _of_layer(one, by_layer, layer_figures)
            for one in layers_of_file(compiled.layers, compiled.loops)
        ),
        ticks=min(whole),
        ticks_median=median(whole),
        figures=figures if repeats_exactly else {unit: min(whole)},
        macs=compiled.macs,
        arena_bytes=compiled.arena_bytes,
        pool_bytes=compiled.pool_bytes,
        weights_bytes=compiled.weights_bytes,
        flash_bytes=image.flash_bytes,
        ram_bytes=image.ram_bytes + compiled.arena_bytes + compiled.pool_bytes,
        placement=placement_of(model),
        cycle_model=model_of(device.board) if device.is_modelled else "",
        twin_note=device.board.emulator.twin_note if device.board.emulator else "",
    )


def _of_layer(
    one: FileLayer, ticks: Sequence[Sequence[int]], figures: Sequence[Figures]
) -> LayerProfile:
    """A layer's cost; ``ticks`` are those of each call in each run."""
    calls = tuple(
        LayerProfile(call, min(ticks[call.index]), median(ticks[call.index]), figures[call.index])
        for call in one.calls
    )
    if not one.is_streamed and one.loop is None:
        return calls[0]
    sums = [sum(run) for run in zip(*(ticks[call.index] for call in one.calls), strict=True)]
    together = {name: sum(call.figures[name] for call in calls) for name in calls[0].figures}
    if len(sums) > 1:  # a clock: the least of the sums, and not the sum of the least
        together = dict.fromkeys(together, min(sums))
    steps = one.loop.steps if one.loop else 0
    return LayerProfile(one.layer, min(sums), median(sums), together, calls, len(one.strips), steps)
