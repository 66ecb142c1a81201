"""``utvm_deploy.bench``: our kernels against CMSIS-NN's or muRISCV-NN's, layer by layer."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from utvm_deploy.api.bench_models import Comparing
from utvm_deploy.api.steps import Connected, board_of, chosen_of, model_file, take
from utvm_deploy.backends.cmsis_nn import CMSIS_NN, MURISCV_NN, CmsisNn
from utvm_deploy.base.errors import BenchError, UsageError
from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.base.results import Result, picked, plain_object
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.c_text import prefix_from_path
from utvm_deploy.device import Device, connect
from utvm_deploy.project import find_cmsis_nn_builds
from utvm_deploy.results.comparing.facts import ModelComparison, NotCompared
from utvm_deploy.results.comparing.recorded import check_recorded_core
from utvm_deploy.results.comparing.summary import bench_summary
from utvm_deploy.results.pages.bars_picture import bars_svg

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from utvm_deploy.api.steps import ChosenConnected

SCHEMA = "utvm.bench/1"

log = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False, eq=False)
class BenchResult(Result):
    """What ``bench`` found."""

    found: tuple[ModelComparison, ...]
    failed: tuple[NotCompared, ...]  # models without a result, and why
    board: Board
    against: str

    @property
    def ok(self) -> bool:
        """Whether every model was compared."""
        return not self.failed

    @property
    def figure(self) -> str:
        """The figure that ratios are of, such as "cycles"; empty without any result."""
        return next(iter(self.found[0].ours)) if self.found else ""

    @property
    def headline(self) -> str:
        """How many times as fast each model is."""
        told = [one.headline for one in self.found]
        told += [f"{one.name}: not compared: {one.reason}" for one in self.failed]
        return "; ".join(told)

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each layer of each model; ``ratio`` is theirs over ours."""
        return [
            {
                "model": one.name,
                "index": layer.index,
                "operator": layer.kind,
                "name": layer.name,
                "figure": self.figure,
                "ours": layer.ours.get(self.figure),
                "theirs": None if layer.theirs is None else layer.theirs.get(self.figure),
                "ratio": layer.ratio(self.figure),
                **picked(layer, "macs", "kernel", "their_kernel", "differing_bytes"),
            }
            for one in self.found
            for layer in one.layers
        ]

    @property
    def svg(self) -> str | None:
        """Bars of each layer, ours and theirs; None without any result."""
        if not self.found:
            return None
        many = len(self.found) > 1
        rows = [
            (
                f"{row['model']} {row['index']}" if many else f"{row['index']} {row['operator']}",
                [row["ours"], row["theirs"]],
            )
            for row in self.table
        ]
        title = f"layers on {self.board.name}, in {self.found[0].unit_label}"
        return bars_svg(title, rows, ["ours", self.against])

    def to_dict(self) -> dict[str, Any]:
        """The object of ``utvm bench --json``."""
        return plain_object(
            SCHEMA, bench_summary(self.found, self.failed, self.board, self.against)
        )


def bench(
    models: str | Path | Any | Sequence[Any],
    board: Board | str | Path,
    *,
    cmsis_nn: str | Path | Sequence[CmsisNn] | None = None,
    muriscv_nn: str | Path | Sequence[CmsisNn] | None = None,
    records: str | Path | None = None,
    allow_float: bool = True,
    progress: Progress | None = None,
    **options: Unpack[ChosenConnected],
) -> BenchResult:
    """Compare our kernels with CMSIS-NN's on a board, layer by layer and as whole models.

    ``models`` is a file, what ``quantize`` gave, or a list of these. ``cmsis_nn`` is the folder of
    your CMSIS-NN, with its builds for the board's core, or what ``project.find_cmsis_nn_builds``
    gave. Without it, ours are compared with figures that were recorded once. ``muriscv_nn`` is
    muRISCV-NN instead, with its builds for a RISC-V core. ``records`` is a file that ``tune``
    wrote. Without ``allow_float``, models that compute in float32 are refused. ``options``
    are ``inputs``, ``signature``, ``states``, ``stream`` and ``image_input`` of ``compile``, and
    ``port``, ``probe``, ``serial``, ``link``, ``server`` and ``timing`` of ``connect``, which says
    what ``board`` may be.
    ``progress(what, done, total)`` is called on the way.

    Ratios are their time over ours, so above 1 ours is faster. Cycles of emulated boards are
    modelled, never measured on silicon; sizes are in bytes. A single model that cannot be compared
    raises its error; of several, ``failed`` names it. Raises BenchError for two models of one name
    and for a core without figures, and UtvmError if the board fails.
    """
    target = board_of(board)
    given = list(models) if isinstance(models, list | tuple) else [models]
    if not given:
        raise UsageError("there is no model to compare; give the path of a model file")
    if cmsis_nn is not None and muriscv_nn is not None:
        raise UsageError("cmsis_nn and muriscv_nn are both given; compare with one at a time")

    where = take(Connected, chosen := {**options})

    def device() -> Device:
        return connect(board if isinstance(board, str) else target, **where)

    with chosen_of(chosen), ExitStack() as files:
        paths = [files.enter_context(model_file(model)) for model in given]
        check_names(paths)
        product, theirs = CMSIS_NN, cmsis_nn
        if muriscv_nn is not None:
            product, theirs = MURISCV_NN, muriscv_nn
        if isinstance(theirs, str | Path):
            theirs = find_cmsis_nn_builds(Path(theirs), target, product=product)
        if not theirs:
            check_recorded_core(target)
        device().check_ready()
        work = Comparing(
            target,
            list(theirs or ()),
            None if records is None else Path(records),
            log.warning,
            progress or no_progress,
            allow_float=allow_float,
        )
        work.check(paths)
        work.measure(device)
        return BenchResult(tuple(work.found), tuple(work.failed), target, work.against)


def check_names(models: Sequence[Path]) -> list[str]:
    """The models' names; BenchError if two files give the same, under which results are kept."""
    names = [prefix_from_path(path) for path in models]
    for name in names:
        if names.count(name) > 1:
            raise BenchError(f"two models are called {name}; rename a file, or compare them apart")
    return names
