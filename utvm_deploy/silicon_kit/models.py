"""One model on the board: compares outputs and layers, and measured with modelled cycles."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.base.files import check_regular
from utvm_deploy.base.progress import Progress
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.device import CYCLES, Device, connect
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.oracle.samples import Samples, random_samples
from utvm_deploy.project import check_fits
from utvm_deploy.results.profiling.layer_costs import Profile, profile
from utvm_deploy.results.verifying.on_board import Verification, verify
from utvm_deploy.silicon_kit import report
from utvm_deploy.silicon_kit.origin import timing_of
from utvm_deploy.silicon_kit.private import Cleaner
from utvm_deploy.targets.emulator.counters import FIRST_MIX, HEADLINE, NAMES

#: What a report has of the cycle model's counts: all but the mix of instructions.
FIGURES = NAMES[:FIRST_MIX]


@dataclass(frozen=True)
class ModelFile:
    """A model to be measured."""

    path: Path
    sha256: str

    @classmethod
    def at(cls, path: Path) -> ModelFile:
        """UtvmError if it cannot be read."""
        try:
            check_regular(path)
            return cls(path, hashlib.sha256(path.read_bytes()).hexdigest())
        except OSError as error:
            raise UtvmError(f"cannot read the model {path}: {error.strerror or error}") from error


def compile_for(file: ModelFile, board: Board) -> CompiledModel:
    """As every verb compiles that puts a model on a board; CompileError if it does not fit."""
    compiled = compile_model(file.path, board)
    check_fits(compiled, board)
    return compiled


def measure_model(
    device: Device,
    emulated: Board | None,
    file: ModelFile,
    sample_count: int,
    clean: Cleaner,
    progress: Progress,
) -> tuple[report.ModelResult, report.Timing | None]:
    """The result, and the unit of the board's ticks if it ran. ``device`` is closed at the end.

    After a failure, the results until then are returned, with the error.
    """
    result = report.ModelResult(clean(file.path.name), file.sha256, report.FAILED)
    timing: report.Timing | None = None
    board = device.board
    try:
        progress(f"compiling {file.path.name}", 0, 1)
        samples = random_samples(load_model(file.path), sample_count)
        compiled = compile_for(file, board)
        progress(f"running the reference interpreter on {file.path.name}", 0, 1)
        reference = run_reference(file.path, samples.inputs)
        progress(f"building {file.path.name} and starting {board.name}", 0, 1)
        with device:
            model = device.load(compiled)
            found = verify(model, file.path, samples, progress, reference=reference)
            result = _compared(result, compiled, found, clean)
            measured = profile(model, samples, progress)
            timing = timing_of(device)
        result = _timed(result, measured)
        if measured.is_modelled:
            result = _with_modelled(result, measured)
        elif emulated is not None:
            try:
                modelled = _modelled(compiled, emulated, samples, progress)
                result = _with_modelled(result, modelled)
            except UtvmError as error:
                why = clean(f"{type(error).__name__}: {error}")
                result = replace(result, modelled_why=why)
        return replace(result, state=report.EQUAL if found.ok else report.DIFFERS), timing
    except UtvmError as error:
        return replace(result, error=clean(f"{type(error).__name__}: {error}")), timing


def _modelled(
    compiled: CompiledModel, emulated: Board, samples: Samples, progress: Progress
) -> Profile:
    """The same C on the emulated board."""
    progress(f"modelling {compiled.name} on {emulated.name}", 0, 1)
    with connect(emulated, timing=CYCLES) as device:
        model = device.load(replace(compiled, board=emulated.name))
        if not device.is_modelled:
            raise UtvmError(f"{emulated.name} counted no cycles; see its warning")
        return profile(model, samples, progress)


def _compared(
    result: report.ModelResult, compiled: CompiledModel, found: Verification, clean: Cleaner
) -> report.ModelResult:
    return replace(
        result,
        macs=compiled.macs,
        samples=found.samples_run,
        output_bytes=found.output_bytes,
        layer_bytes=found.layer_bytes,
        layers=tuple(
            report.LayerResult(
                index=check.layer.index,
                operator=clean(check.layer.kind),
                name=clean(check.layer.name),
                engine=check.layer.engine,
                macs=check.layer.macs,
                is_compared=check.samples > 0,
                differs=check.mismatch is not None,
            )
            for check in found.layers
        ),
    )


def _timed(result: report.ModelResult, measured: Profile) -> report.ModelResult:
    return replace(
        result,
        runs=measured.runs,
        ticks=measured.ticks,
        ticks_median=float(measured.ticks_median),
        layers=tuple(
            replace(layer, ticks=timed.ticks)
            for layer, timed in zip(result.layers, measured.layers, strict=True)
        ),
    )


def _with_modelled(result: report.ModelResult, modelled: Profile) -> report.ModelResult:
    return replace(
        result,
        modelled=_figures(modelled.figures, modelled.tick_unit),
        layers=tuple(
            replace(layer, modelled=_figures(counted.figures, modelled.tick_unit))
            for layer, counted in zip(result.layers, modelled.layers, strict=True)
        ),
    )


def _figures(found: Mapping[str, int], unit: str) -> dict[str, int]:
    """Under the counters' own names; what the ticks are comes under their unit."""
    return {name: found[unit if name == HEADLINE else name] for name in FIGURES}
