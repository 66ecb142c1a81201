"""``utvm_deploy.profile``: what each layer costs on a board."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from utvm_deploy.api import steps
from utvm_deploy.api.compile_function import compile
from utvm_deploy.base.errors import UtvmError
from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.base.results import Result, plain_object
from utvm_deploy.boards.board import Board, board_names, load_board
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.device import CYCLES, Device
from utvm_deploy.frontend.files.given_shapes import chosen_now
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.graph.stream import StreamFacts
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.results.pages.bars_picture import bars_svg, layer_name
from utvm_deploy.results.profiling import layer_costs
from utvm_deploy.results.profiling.bound import layer_bounds
from utvm_deploy.results.profiling.hotspots import Hotspot, hotspots_of
from utvm_deploy.results.profiling.layer_costs import Profile
from utvm_deploy.results.profiling.memory_report import live_at
from utvm_deploy.results.profiling.summary import Bounds, profile_summary
from utvm_deploy.results.profiling.trace import trace_events

SCHEMA = "utvm.profile/1"


@dataclass(frozen=True, repr=False, eq=False)
class ProfileResult(Result):
    """What ``profile`` found; ``found`` has the figures of the whole model."""

    found: Profile
    bounds: Bounds | None  # of each layer, in cycles; None on boards that count otherwise
    hotspots: tuple[Hotspot, ...]
    live_bytes: tuple[int, ...] = ()  # of the arena, in use in each call
    hint: str = ""  # what would be much faster, in one sentence
    stream: StreamFacts | None = None  # of a model that takes some columns over time
    window: Profile | None = None  # then, what the whole window takes, if it can be compiled

    @property
    def headline(self) -> str:
        """Time, RAM and flash of the whole model."""
        return self.found.headline

    @property
    def beside(self) -> tuple[str, ...]:
        """Lines on a stream: what it is, and what a hop takes and the whole window."""
        if self.stream is None or self.window is None:
            return () if self.stream is None else (self.stream.text,)
        hop, window = self.found, self.window
        figures = {
            hop.unit_label: (hop.ticks, window.ticks),
            "bytes of arena": (hop.arena_bytes, window.arena_bytes),
            "MACs": (hop.macs, window.macs),
        }
        return self.stream.text, self.stream.beside(figures)

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each layer; the column of its ticks has their unit as its name."""
        total = sum(item.ticks for item in self.found.layers) or 1
        return [
            {
                "index": item.layer.index,
                "operator": item.layer.kind,
                "name": item.layer.name,
                self.found.tick_unit: item.ticks,
                "percent": 100 * item.ticks / total,
                "macs": item.layer.macs or None,
                f"{self.found.tick_unit}_per_mac": item.ticks_per_mac,
                "engine": item.layer.engine,
                "kernel": item.layer.kernel,
                "strips": item.strips,
            }
            for item in self.found.layers
        ]

    @property
    def svg(self) -> str | None:
        """The time of each layer as bars."""
        rows = [(layer_name(row), [float(row[self.found.tick_unit])]) for row in self.table]
        title = f"{self.found.model} on {self.found.board}, in {self.found.unit_label}"
        return bars_svg(title, rows, [self.found.tick_unit])

    def trace(self) -> dict[str, Any]:
        """One inference as Chrome's trace events, for chrome://tracing or Perfetto."""
        return trace_events(self.to_dict(), self.live_bytes)

    def to_dict(self) -> dict[str, Any]:
        """The object of ``utvm profile --json``."""
        result = profile_summary(self.found, self.bounds)
        result |= {"hint": self.hint}
        if self.stream is not None:
            names = ("ticks", "arena_bytes", "macs")
            window = self.window and {name: getattr(self.window, name) for name in names}
            result |= {"stream": {**asdict(self.stream), "window": window}}
        if self.hotspots:
            result |= {"hot": list(map(asdict, self.hotspots))}
        return plain_object(SCHEMA, result)


def profile(
    model: str | Path | Any,
    board: Board | str | Path | Device,
    *,
    hot: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> ProfileResult:
    """What a model takes on a board: the time of each layer, and bytes of RAM and flash.

    ``model`` is a file, or what ``quantize`` gave. ``board`` is a name, a board file, a ``Board``,
    ``utvm://HOST/BOARD``, or a device: this stays open. ``hot`` asks for that many of the hottest
    blocks of code, with each instruction; it needs the cycle model. ``progress(what, done, total)``
    is called on the way.

    ``options`` are those of ``compile``: ``inputs``, ``signature``, ``states``, ``stream``,
    ``image_input``, ``name``, ``kernels``, ``cmsis_nn``, ``plugin``, ``records``, ``optimize``,
    ``float_math``, ``allow_float`` and ``input_rows``. For memory and time there are ``scratch``,
    ``pools``, ``ram_budget``, ``flash_budget``, ``cycle_budget`` and ``flash_rate``.

    Ticks are cycles, nanoseconds or instructions, as ``found.tick_unit`` says. Cycles of emulated
    boards are modelled, never measured on silicon. RAM and flash are of a whole image, with the
    runtime.

    Raises ModelError for a file that cannot be imported, and CompileError for a model that does not
    fit the board. Raises UtvmError if the board fails, or for ``hot`` without a cycle model.
    """
    told = progress or no_progress
    with (
        steps.chosen_of(options, compile),
        steps.model_file(model, options.get("name")) as path,
        steps.device_of(board, CYCLES) as device,
    ):
        target = device.board
        check_hot(hot, target)
        options, custom = steps.with_backend(options, target)
        backends = options.get("plugin") or ()
        absent = {one.name for one in backends if one.stand_in}
        if absent:
            options["plugin"] = tuple(one.stand_in or one for one in backends)
        graph = load_model(path, custom, is_quiet=True)  # compile says it

        def measured(graph: Graph) -> tuple[CompiledModel, Profile]:
            compiled = steps.compile_fitting(path, target, told, **options)
            told(f"building the image and starting {target.name}", 0, 1)
            loaded = device.load(compiled)
            found = layer_costs.profile(loaded, random_samples(graph, 1), told)
            names = absent.intersection(layer.engine for layer in compiled.layers)
            return compiled, replace(found, stand_in=" and ".join(sorted(names)))

        compiled, found = measured(graph)
        hotspots: tuple[Hotspot, ...] = ()
        if hot:
            image, report = device.image, device.cycle_report()
            if report is None:  # its emulator takes no plugins
                raise _without_model(target)
            hotspots = hotspots_of(report, image, hot)
        window = None
        if chosen_now().stream is not None:  # not of a file that is a stream
            with steps.whole_window_if_it_fits():
                window = measured(load_model(path, custom, is_quiet=True))[1]
        # A bound is in cycles, so it says nothing about other figures.
        is_bounded = found.tick_unit == "cycles"
        bounds = layer_bounds(compiled, simplify(graph), target) if is_bounded else None
    live = tuple(live_at(compiled.memory, layer.index) for layer in compiled.layers)
    more = compiled.hint, graph.stream, window
    return ProfileResult(found, bounds, hotspots, live, *more)


def check_hot(hot: int | None, board: Board) -> None:
    """Refuse to look for hot code on a board without the cycle model."""
    if hot and not board.has_cycle_model:
        raise _without_model(board)


def _without_model(board: Board) -> UtvmError:
    boards = (load_board(name, trust=True) for name in board_names())
    with_model = [one for one in boards if one.has_cycle_model]
    alike = [one for one in with_model if one.cpu.target is board.cpu.target] or with_model
    return UtvmError(
        f"--hot needs the cycle model, and {board.name} counts without one; choose a board that "
        f"has it, such as {alike[0].name}"
    )
