"""The work of `utvm bench`: all models are checked first, then measured one by one.

A model that cannot be compared costs its own row, never those of the others.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from utvm_deploy.api.compile_function import compile
from utvm_deploy.backends.cmsis_nn import CmsisNn
from utvm_deploy.base.errors import BenchError, CompileError, UtvmError
from utvm_deploy.base.progress import Progress
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.c_text import prefix_from_path
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.options import CompileOptions
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.device import Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.passes.simplify import UNJOINED, simplify
from utvm_deploy.oracle.samples import Samples, random_samples
from utvm_deploy.project import check_fits
from utvm_deploy.records import read_records
from utvm_deploy.records.candidate import CMSIS_NN
from utvm_deploy.results.comparing.engines import compare_builds, run_engine, run_in_file
from utvm_deploy.results.comparing.facts import ModelComparison, NotCompared, OtherPlacement
from utvm_deploy.results.comparing.recorded import compare_with_recorded
from utvm_deploy.results.comparing.tightly_coupled import compare_elsewhere, with_tcm_alone


@dataclass(frozen=True)
class Ready:
    """A model that was imported and planned for both engines, and that fits the board."""

    path: Path
    graph: Graph
    samples: Samples
    ours: CompiledModel
    theirs: Mapping[str, CompiledModel]  # by the build's label
    # Theirs with all channels of the file; empty if none was dropped.
    in_file: Mapping[str, CompiledModel]


@dataclass
class Comparing:
    """Models on their way: ``check`` them all, then ``measure`` those that are ready."""

    _board: Board
    _libraries: Sequence[CmsisNn]
    _records: Path | None
    _note: Callable[[str], None]
    _progress: Progress
    allow_float: bool = True
    ready: list[Ready] = field(default_factory=list)
    found: list[ModelComparison] = field(default_factory=list)
    failed: list[NotCompared] = field(default_factory=list)
    _is_alone: bool = False

    @property
    def against(self) -> str:
        """The other engine, as --against names it."""
        return next((one.product.option for one in self._libraries), CMSIS_NN)

    def check(self, paths: Sequence[Path]) -> None:
        """Import, compile and size every model; the error itself if there is one model only."""
        self._is_alone = len(paths) == 1
        for path in paths:
            try:
                self.ready.append(self._prepare(path))
            except Exception as error:
                self._refuse(path, error)

    def measure(self, connect: Callable[[], AbstractContextManager[Device]]) -> None:
        """Compare the models that are ready. After a failure the device is connected again."""
        pending = list(self.ready)
        while pending:
            try:
                with connect() as device:
                    while pending:
                        one = pending.pop(0)
                        try:
                            self.found.append(self._compare(device, one))
                        except Exception as error:
                            self._refuse(one.path, error)
                            break
            except UtvmError as error:
                # Where no device was ever there, nothing is lost.
                if self._is_alone or len(pending) == len(self.ready):
                    raise
                for one in pending:
                    self._refuse(one.path, error)
                return

    def _refuse(self, path: Path, error: Exception) -> None:
        if self._is_alone or isinstance(error, BrokenPipeError):
            raise error
        if not isinstance(error, UtvmError | OSError):
            # Our bug keeps its traceback, and the other models keep their results.
            self._note("".join(traceback.format_exception(error)).rstrip())
        reason = str(error) or type(error).__name__
        self._note(f"{path.name} is not compared: {reason}")
        self.failed.append(
            NotCompared(prefix_from_path(path), str(path), type(error).__name__, reason)
        )

    def _prepare(self, path: Path) -> Ready:
        board = self._board
        graph = load_model(path)
        self._progress(f"compiling {path.name} for {board.name}", 0, 1)
        ours, theirs = self._compile(path, board)
        for compiled in (ours, *theirs.values()):
            check_fits(compiled, board)
        if any(compiled.external is None for compiled in theirs.values()):
            name = self._libraries[0].product.name
            raise BenchError(f"{name} has no function for any layer of {path.name}")
        in_file = {}
        if any(tensor.channels is not None for tensor in simplify(graph).tensors):
            in_file = {library.label: self._in_file(path, library) for library in self._libraries}
        return Ready(path, graph, random_samples(graph, 1), ours, theirs, in_file)

    def _in_file(self, path: Path, library: CmsisNn) -> CompiledModel:
        """Their kernels for the model as it is in the file."""
        compiled = compile_model(
            path,
            self._board,
            CompileOptions(kernels=CMSIS_NN, cmsis_nn=library, keep_channels=True),
        )
        check_fits(compiled, self._board)
        return compiled

    def _compile(self, path: Path, board: Board) -> tuple[CompiledModel, dict[str, CompiledModel]]:
        # Layers are compared one by one, so none is computed in strips.
        ours = compile_model(
            path,
            board,
            CompileOptions(
                records=None if self._records is None else read_records(self._records),
                allow_float=self.allow_float,
                whole_layers=True,
            ),
        )
        return ours, {
            library.label: compile(path, board, kernels=CMSIS_NN, cmsis_nn=library)
            for library in self._libraries
        }

    def _compare(self, device: Device, model: Ready) -> ModelComparison:
        samples, progress = model.samples, self._progress
        if not model.theirs:
            measured = run_engine(device, model.ours, samples, progress)
            return compare_with_recorded(measured, simplify(model.graph, UNJOINED), samples.origin)
        found = compare_builds(device, model.ours, model.theirs, samples, progress)
        headline = next(iter(found.ours))
        in_file = run_in_file(device, model.in_file, samples, headline, progress)
        found = replace(found, in_file=in_file)
        return replace(found, elsewhere=self._elsewhere(model)) if found.is_modelled else found

    def _elsewhere(self, model: Ready) -> OtherPlacement | None:
        smaller = with_tcm_alone(self._board)
        if smaller is None:
            return None
        try:
            ours, theirs = self._compile(model.path, smaller)
        except CompileError:
            # It does not fit there, as for what is found by linking.
            return None
        return compare_elsewhere(smaller, ours, theirs, model.samples, self._progress)
