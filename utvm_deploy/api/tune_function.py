"""``utvm_deploy.tune``: the fastest kernels for models, found by running them on the board."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from utvm_deploy.api.steps import Connected, board_of, chosen_of, model_file, take, with_backend
from utvm_deploy.backends.checks import check_together
from utvm_deploy.backends.cmsis_nn import CmsisNn
from utvm_deploy.backends.cmsis_nn.lower import cmsis_nn_backend
from utvm_deploy.backends.custom import CustomOperators
from utvm_deploy.backends.interface import Backend
from utvm_deploy.backends.plugins import for_file
from utvm_deploy.base.errors import TuneError, UsageError
from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.base.results import Result, plain_object
from utvm_deploy.base.without_torch import without_torch
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.stages.floats import refuse_float
from utvm_deploy.device import CYCLES, Device, connect
from utvm_deploy.frontend.files.given_shapes import chosen_now
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.passes.simplify import CHANNEL_KEEPING, PASSES, UNJOINED, simplify
from utvm_deploy.project import Plugins, find_cmsis_nn
from utvm_deploy.service.cluster.connection import open_cluster
from utvm_deploy.tuning.measuring.model_runs import ModelRun, NotFollowed, run_model
from utvm_deploy.tuning.measuring.place import check_tunable, fastest_link
from utvm_deploy.tuning.measuring.workload import Work, workload
from utvm_deploy.tuning.records_file import RecordsFile
from utvm_deploy.tuning.region_runs import weigh_in_model

if TYPE_CHECKING:
    # TVM takes a second to load, which other functions need not wait for.
    from typing_extensions import Unpack

    from utvm_deploy.api.steps import ChosenConnected
    from utvm_deploy.tuning.tuner import Tuning

SCHEMA = "utvm.tune/2"
Tell = Callable[[str], None]
#: What tuning found, and the runs of the whole models.
Found = tuple["Tuning", Sequence["ModelRun"]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False, eq=False)
class TuneResult(Result):
    """What ``tune`` found; the records have the measurements."""

    found: Tuning
    model_runs: tuple[ModelRun, ...]  # whole models, without the records and with them
    not_taken: tuple[NotFollowed, ...]  # candidates that are fastest alone, and not in the model
    records: Path

    @property
    def headline(self) -> str:
        """Kernels and trials, and what became of each model."""
        models = (one.headline for one in self.model_runs)
        return "; ".join((self.found.headline, *models))

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each kernel; times are in the unit of the board."""
        return self.found.table

    @property
    def svg(self) -> str | None:
        """Bars of each kernel, before and with its best candidate."""
        return self.found.svg

    def to_dict(self) -> dict[str, Any]:
        """The object of ``utvm tune --json``."""
        from utvm_deploy.tuning.summary import tuning_summary

        return plain_object(
            SCHEMA, tuning_summary(self.found, self.model_runs, self.not_taken, self.records)
        )


@dataclass(frozen=True)
class Prepared:
    """The models on a board, and the kernels that they consist of."""

    board: Board
    graphs: tuple[Graph, ...]
    works: Sequence[Work]
    backends: Sequence[Sequence[Backend]]  # of each graph; those of devices have seen its file


def tune(
    models: str | Path | Any | Sequence[Any],
    board: Board | str | Path,
    records: str | Path,
    *,
    trials: int | None = None,
    minutes: float | None = None,
    optimize: str = "time",
    sketches: bool = False,
    seed: int = 0,
    cmsis_nn: str | Path | CmsisNn | None = None,
    plugin: Plugins = None,
    allow_float: bool = True,
    cluster: str | None = None,
    certificates: str | Path | None = None,
    watch: Callable[[Tuning], None] | None = None,
    progress: Progress | None = None,
    **options: Unpack[ChosenConnected],
) -> TuneResult:
    """Find the fastest kernels of models by running candidates on a board; records keep all.

    ``models`` is a file, what ``quantize`` gave, or a list of these. ``records`` is the file
    (.jsonl) of the measurements: what is there already is not measured again, and ``compile`` takes
    it. ``trials`` is the number of candidates in all, and ``minutes`` ends the search before; one
    of them is needed. ``optimize`` is as for ``compile``. ``sketches`` also searches sketches of
    TVM's rules for int8 kernels that a SIMD family computes. ``seed`` is what the search begins
    with. ``cmsis_nn`` is the folder of your CMSIS-NN, whose calls become candidates. ``plugin`` is
    as for ``compile``. Without ``allow_float``, models that compute in float32 are
    refused. ``cluster`` is the address of a Dask scheduler whose workers measure, and
    ``certificates`` the folder with its TLS files. ``options`` are ``inputs``, ``signature``,
    ``states``, ``stream``, ``image_input`` and ``number_format`` of ``compile``, and ``port``,
    ``probe``, ``serial``, ``link``, ``server`` and ``timing`` of ``connect``, which says what
    ``board`` may be. ``watch(tuning)`` is called after each batch, and ``progress(what, done,
    total)`` at each step.

    Times are in the unit of the board, such as cycles; those of emulated boards are modelled.
    Raises TuneError for a board that candidates cannot run on, UsageError for arguments that do not
    go together, and UtvmError if the board fails.
    """
    target, told = board_of(board), progress or no_progress
    check_tunable(target)
    where = take(Connected, chosen := {**options})
    other = {"cmsis_nn": cmsis_nn, "plugin": plugin, "certificates": certificates}
    check_limits(trials=trials, minutes=minutes, cluster=cluster, **other, **where)
    given = list(models) if isinstance(models, list | tuple) else [models]
    if not given:
        raise UsageError("there is no model to tune; give the path of a model file")
    loaded, custom = with_backend({"plugin": plugin}, target)
    backends: tuple[Backend, ...] = loaded["plugin"] or ()
    if cmsis_nn is not None:
        if isinstance(cmsis_nn, CmsisNn):
            library = library_backend(cmsis_nn, target)
        else:
            copy = find_cmsis_nn(Path(cmsis_nn), target)
            library = library_backend(copy, target, cmsis_nn)
        backends = (*backends, library)
        check_together(backends)

    def device(wanted: str | None = None) -> Device:
        place = board if isinstance(board, str) else target
        return connect(place, **where | {"link": where.get("link") or wanted})

    def tell(text: str) -> None:
        told(text, 0, 1)

    with chosen_of(chosen), ExitStack() as files:
        if cluster is not None and chosen_now().number_format is not None:
            raise UsageError(
                "workers of a cluster know no number formats; leave out number_format=, or cluster="
            )
        paths = [files.enter_context(model_file(model)) for model in given]
        if cluster is None:
            tell(f"looking for what {target.name} needs")
            device().check_ready()
        tell("listing the kernels of the models")
        made = prepare(paths, target, backends, custom, sketches=sketches, allow_float=allow_float)
        search = {
            "trials": trials or sum(work.trials for work in made.works),
            "minutes": minutes,
            "seed": seed,
            "level": optimize,
            "backends": backends,
            "watch": watch or (lambda tuning: None),
        }
        work = partial(_here, device, made, search, tell)
        if cluster is not None:
            folder = None if certificates is None else Path(certificates)
            work = partial(_on_cluster, cluster, folder, made, search, tell)
        return _recorded(Path(records), work)


def check_limits(
    *, trials: int | None, minutes: float | None, cluster: str | None, **given: Any
) -> None:
    """UsageError for options of ``tune`` that do not go together."""
    if trials is None and minutes is None:
        raise UsageError("no end to the tuning; give trials=N or minutes=M, or both")
    if cluster is None:
        if given["certificates"] is not None:
            raise UsageError("certificates= is of a cluster; give cluster=ADDRESS, too")
        return
    if given.get("server") is not None:
        raise UsageError(
            "board= is a board of a server, and cluster= measures on the boards of a scheduler's "
            "workers; leave one of them out"
        )
    for name in ("port", "probe", "serial", "link"):
        if given.get(name) is not None:
            raise UsageError(
                f"{name}= says where a board of this computer is, and cluster= measures on the "
                "boards of its workers; leave one of them out"
            )
    if given["plugin"] is not None:
        raise UsageError(
            "workers of a cluster run no code of yours; leave out plugin=, or tune without cluster="
        )
    if given["cmsis_nn"] is not None:
        raise UsageError(
            "workers of a cluster have no CMSIS-NN of yours; leave out cmsis_nn, or tune without "
            "cluster="
        )
    if given.get("timing", CYCLES) != CYCLES:
        raise UsageError("workers of a cluster count cycles; leave out timing=, or cluster=")


def library_backend(copy: CmsisNn, board: Board, folder: Any = None) -> Backend:
    """The user's CMSIS-NN as candidates; TuneError if there is nothing to link."""
    if not copy.library:
        raise TuneError(
            f"{folder or 'CMSIS-NN'} holds sources alone, and candidates are linked without "
            f"Zephyr; name a library built for {board.cpu.core} (--cmsis-nn-library FILE)"
        )
    return cmsis_nn_backend(copy)


def prepare(
    paths: Sequence[Path],
    board: Board,
    backends: Sequence[Backend],
    custom: CustomOperators | None,
    *,
    sketches: bool,
    allow_float: bool,
) -> Prepared:
    """Import the models and list their kernels with the candidates; nothing runs."""
    passes = UNJOINED if backends else PASSES
    if any(one.of_file for one in backends):
        passes = CHANNEL_KEEPING
    # A device that is not here computes nothing while ours are measured.
    given = [[for_file(one.stand_in or one, path) for one in backends] for path in paths]
    devices = [[one for one in some if one.of_file] for some in given]
    graphs = [replace(simplify(load_model(path, custom), passes), name=path.stem) for path in paths]
    if not allow_float:
        for graph in graphs:
            refuse_float(graph)
    core = board.cpu.kernel_core
    works = workload(graphs, core, backends, sketches=sketches, devices=devices)
    return Prepared(board, tuple(graphs), works, given)


def _here(
    device: Callable[[str | None], Device],
    made: Prepared,
    search: Mapping[str, Any],
    tell: Tell,
    file: Any,
) -> Found:
    """Tune, and run the whole models, on a board of this computer.

    ``device(link)`` connects over that link, or over the one that is usual.
    """
    from utvm_deploy.tuning.tuner import tune

    tell(f"starting {made.board.name}")
    with device(fastest_link(made.board)) as fast:
        found = tune(made.works, fast, file, **search)
    # Over the link that other verbs take: a debugger's writes leave the caches as they are.
    tell(f"starting {made.board.name} for whole models")
    same = {"level": search["level"], "tell": tell}
    is_new = found.trials > found.trials_before
    with device(None) as usual:
        runs = []
        for graph, backends in zip(made.graphs, made.backends, strict=True):
            # Nothing compares a device's regions with ours.
            some = [one for one in backends if one.of_file is None]
            ours = None
            if some:
                ours = weigh_in_model(
                    graph, usual, file, found.setting, backends=some, is_new=is_new, **same
                )
            made_run = run_model(graph, usual, file, found.setting, backends=backends, **same)
            runs.append(replace(made_run, ours=ours))
    return found, runs


def _on_cluster(
    address: str,
    certificates: Path | None,
    made: Prepared,
    search: Mapping[str, Any],
    tell: Tell,
    file: Any,
) -> Found:
    """The same on the boards of a cluster's workers."""
    from utvm_deploy.tuning.tuner import tune_on

    board, level = made.board, search["level"]
    tell(f"looking for workers with {board.name} at {address}")
    with open_cluster(address, certificates) as client:
        # Only now: it needs Dask, and `open_cluster` reports it if Dask is not installed.
        from utvm_deploy.service.cluster.measuring.places import cluster_places

        with cluster_places(client, board, made.works, level, tell=log.warning) as places:
            found = tune_on(made.works, places, file, **search)
            tell("running whole models at a worker")
            return found, places.run_whole(made.graphs, file)


def _recorded(path: Path, work: Callable[[Any], Found]) -> TuneResult:
    """What ``work`` finds with the records open; Ctrl-C says what they have."""
    with without_torch():
        from utvm_deploy.tuning.summary import unfollowed

    with RecordsFile(path) as file:
        kept = len(file.records)
        try:
            found, model_runs = work(file)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_kept(path, kept, len(file.records))) from None
    return TuneResult(found, tuple(model_runs), tuple(unfollowed(found, model_runs)), path)


def _kept(path: Path, before: int, after: int) -> str:
    """What Ctrl-C leaves."""
    if not after:
        return f"no trial is recorded in {path} yet; the same command starts again"
    new = f", {after - before} of them new" if before else ""
    are = "trial is" if after == 1 else "trials are"
    return f"{after} {are} recorded in {path}{new}; the same command continues from there"
