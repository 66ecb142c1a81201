"""``utvm_deploy.bundle``: the standalone deliverable for somebody else's firmware."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utvm_deploy.api import steps
from utvm_deploy.api.bundle_outputs import Making, Outputs, as_library, runs_here, with_steps
from utvm_deploy.api.compile_function import compile
from utvm_deploy.base.errors import CompileError, MissingTool
from utvm_deploy.base.outputs import keep_model
from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.base.results import Result, plain_object
from utvm_deploy.boards.board import Board
from utvm_deploy.bundling import check_destination, check_format, write_bundle
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.device import CYCLES, DeviceModel, connect
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.frontend.training.model import Trainable
from utvm_deploy.oracle.samples import load_golden, random_samples
from utvm_deploy.oracle.with_custom import run_oracle
from utvm_deploy.project import check_fits_alone
from utvm_deploy.project.model_code import ModelCode, flash_bytes, model_code
from utvm_deploy.results.profiling.layer_costs import profile
from utvm_deploy.results.profiling.summary import profile_summary
from utvm_deploy.results.verifying.bounds import bounds_of, whole_bound
from utvm_deploy.service.client.session_server import SCHEME, board_address

SCHEMA = "utvm.bundle/1"
#: Golden vectors are in the self-test's flash. There are few, but more than one, to show that no
#: run influences the next one.
DEFAULT_SAMPLES = 4
#: The board of this computer.
_HOST = "host"
#: A stream has more, up to its second whole answer, if these are not above this number.
_MOST_HOPS = 64


@dataclass(frozen=True, repr=False, eq=False)
class BundleResult(Result):
    """What ``bundle`` wrote, to the folder or the .zip file ``path``."""

    path: Path
    format: str
    board: str
    samples: int  # of the self-test
    compiled: CompiledModel
    code: ModelCode | None  # None without the board's compiler
    latency: Mapping[str, Any] | None  # a profile as of ``utvm profile --json``
    notes: tuple[str, ...]

    @property
    def headline(self) -> str:
        """Where it is, and what the model takes."""
        return f"{self.path} ({self.format}): {self.compiled.headline}"

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each file of the bundle, with its bytes."""
        return [{"file": name, "bytes": size} for name, size in _files(self.path)]

    def to_dict(self) -> dict[str, Any]:
        """The object of ``utvm bundle --json``."""
        return plain_object(
            SCHEMA,
            {
                "path": self.path,
                "name": self.compiled.name,
                "format": self.format,
                "board": self.board,
                "samples": self.samples,
                "arena_bytes": self.compiled.arena_bytes,
                "weights_bytes": self.compiled.weights_bytes,
                "pools": [pool.to_dict() for pool in self.compiled.pools],
                "flash_bytes": flash_bytes(self.compiled, self.code),
                "library_bytes": None if self.code is None else self.code.library_bytes,
                "stack_bytes": None
                if self.code is None or not self.code.stack.is_known
                else self.code.stack.total_bytes,
                "has_latency": self.latency is not None,
                "profile": self.latency,
            },
        )


def bundle(
    model: str | Path | Any,
    board: Board | str | Path,
    output: str | Path,
    *,
    format: str = "cmake",
    benchmark: str | None = None,
    samples: int = DEFAULT_SAMPLES,
    golden: str | Path | None = None,
    latency: bool = True,
    server: str | None = None,
    timing: str = CYCLES,
    progress: Progress | None = None,
    **options: Any,
) -> BundleResult:
    """Write a model as a library for somebody else's firmware, with a self-test.

    ``model`` is a file, or what ``quantize`` or ``trainable`` gave. ``board`` is a name, a board
    file or a ``Board``; ``server`` is the URL of the server that it is connected to. ``output`` is
    a folder, or a file that ends in .zip, or in .pack for the format "cmsis-pack"; an older bundle
    there is replaced. ``format`` is "cmake" or another that ``utvm bundle --help`` names.
    ``benchmark`` is "kws01" or another of MLPerf Tiny's, for the format "mlperf-tiny". ``samples``
    is how many random samples the self-test has. Those of a stream are hops that follow each other,
    and are more if a whole answer needs more. ``golden`` is an .npz file instead, with the array
    "inputs", whose first axis counts the samples. Without ``latency``, or if the board does not run
    on this computer, the latency report is left out, and ``notes`` say why. ``timing`` is as for
    ``connect``. ``options`` are those of ``compile``, which ``profile`` lists. ``progress(what,
    done, total)`` is called on the way.

    Sizes are in bytes. Raises BundleError for an ``output`` that holds something else and for a
    ``format`` of other cores. Raises ModelError for a file or samples that do not fit, and
    CompileError for a model that does not fit the board.
    """
    told, target, destination = progress or no_progress, steps.board_of(board), Path(output)
    check_format(format, target, benchmark)
    if isinstance(board, str) and board.startswith(SCHEME):
        server, _ = board_address(board)
    if isinstance(model, Trainable):
        return _of_trainable(model, target, destination, format, samples, options)
    with steps.chosen_of(options, compile), steps.model_file(model, options.get("name")) as path:
        keep_model(path, destination)
        check_destination(destination, format)
        options, custom = steps.with_backend(options, target)
        graph = load_model(path, custom, is_quiet=True)  # compile says it
        if golden is None:
            runs = 0 if graph.stream is None else graph.stream.runs + 1
            taken = random_samples(graph, max(samples, runs if runs <= _MOST_HOPS else 0))
        else:
            taken = load_golden(Path(golden), graph)
        compiled = steps.compile_fitting(path, target, told, fits=check_fits_alone, **options)

        @contextmanager
        def loaded(where: Board, what: CompiledModel, timing: str) -> Iterator[DeviceModel]:
            told(f"building the image and starting {where.name}", 0, 1)
            with connect(where, timing=timing, server=server) as device:
                yield device.load(what)

        made = Making(path, target, compiled, graph, taken, loaded, [])
        told("running the reference interpreter", 0, 1)
        reference = run_oracle(path, taken.inputs, custom)
        bounds = bounds_of(compiled, reference.reference)
        report = _latency(made, timing, told) if latency else None
        code = _code(made)
        expected: Outputs
        if compiled.external is not None:
            expected, oracle = as_library(made, reference)
        else:
            expected, oracle = with_steps(made, reference, bounds)
        told(f"writing {destination}", 0, 1)
        written = write_bundle(
            compiled,
            target,
            path,
            destination,
            format=format,
            benchmark=benchmark,
            inputs=taken.inputs,
            expected=expected,
            oracle=oracle,
            tolerance=whole_bound(bounds).relative,
            report=report,
            code=code,
        )
    count = len(taken.inputs)
    return BundleResult(
        written, format, target.name, count, compiled, code, report, tuple(made.notes)
    )


def _of_trainable(
    model: Trainable,
    board: Board,
    destination: Path,
    format: str,
    samples: int,
    options: Mapping[str, Any],
) -> BundleResult:
    """The bundle of a model that trains; its self-test compares with the host's run of the same.

    Float math has equal bytes on all boards. Nothing else computes a train step of this file.
    """
    check_destination(destination, format)
    compiled = compile(model, board, **options)
    here = compile(model, _HOST, name=compiled.name)
    graph = model.graph.replaced(inputs=model.graph.inputs[:-1])  # without the label
    taken = random_samples(graph, samples)
    with connect(_HOST) as device:
        on_host = device.load(here)
        expected = [on_host.run(inputs)[0] for inputs in taken.inputs]
    oracle = f"utvm on {_HOST}"
    written = write_bundle(
        compiled,
        board,
        Path(graph.name),
        destination,
        format=format,
        inputs=taken.inputs,
        expected=expected,
        oracle=oracle,
    )
    told = ("no latency report: a model that trains has none",)
    return BundleResult(written, format, board.name, samples, compiled, None, None, told)


def _latency(made: Making, timing: str, progress: Progress) -> Mapping[str, Any] | None:
    """A profile, if the board runs on this computer; writing a bundle flashes no board."""
    if not runs_here(made):
        devices = [one.name for one in made.compiled.externals if one.has_device]
        where = " and ".join([made.board.name, *devices])
        made.notes.append(f"no latency report: {where} does not run on this computer")
        return None
    try:
        with made.loaded(made.board, made.compiled, timing) as model:
            return profile_summary(profile(model, made.samples, progress))
    except (MissingTool, CompileError) as error:
        # The bundle may fit a board that is too small for the runtime, which the latency needs.
        made.notes.append(f"no latency report: {error}")
        return None


def _code(made: Making) -> ModelCode | None:
    """What the model takes of flash and stack, if there is the board's compiler."""
    try:
        return model_code(made.compiled, made.board, with_library=True)
    except MissingTool as error:
        made.notes.append(f"stack and code are not known: {error}")
        return None


def _files(path: Path) -> list[tuple[str, int]]:
    if path.is_file():
        with zipfile.ZipFile(path) as archive:
            return sorted((one.filename, one.file_size) for one in archive.infolist())
    files = (file for file in path.rglob("*") if file.is_file())
    return sorted((file.relative_to(path).as_posix(), file.stat().st_size) for file in files)
