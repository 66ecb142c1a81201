"""One model on the board: outputs and layers compared, cycles measured beside cycles modelled."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from utvm_deploy.bench.oracle import run_reference
from utvm_deploy.bench.profile import Profile, profile
from utvm_deploy.bench.samples import Samples, random_samples
from utvm_deploy.bench.verify import Verification, verify
from utvm_deploy.board import Board
from utvm_deploy.compiler.model import CompiledModel
from utvm_deploy.compiler.options import AUTO
from utvm_deploy.compiler.pipeline import compile_model
from utvm_deploy.device import CYCLES, Device, connect
from utvm_deploy.emulator.counters import FIRST_MIX, HEADLINE, NAMES
from utvm_deploy.errors import UtvmError
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.progress import Progress
from utvm_deploy.project import check_fits
from utvm_deploy.silicon_kit.private import Cleaner
from utvm_deploy.silicon_kit.report import DIFFERS, EQUAL, FAILED, LayerResult, ModelResult

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
            return cls(path, hashlib.sha256(path.read_bytes()).hexdigest())
        except OSError as error:
            raise UtvmError(f"cannot read the model {path}: {error.strerror or error}") from error


def compile_for(file: ModelFile, board: Board) -> CompiledModel:
    """As every verb compiles that puts a model on a board; CompileError if it does not fit."""
    compiled = compile_model(file.path, board, scratch=AUTO)
    check_fits(compiled, board)
    return compiled


def measure_model(
    device: Device,
    emulated: Board | None,
    file: ModelFile,
    sample_count: int,
    clean: Cleaner,
    progress: Progress,
) -> ModelResult:
    """Whatever fails, what was found until then comes back, with the error."""
    result = ModelResult(clean(file.path.name), file.sha256, FAILED)
    try:
        progress(f"compiling {file.path.name}", 0, 1)
        samples = random_samples(load_model(file.path), sample_count)
        compiled = compile_for(file, device.board)
        progress(f"running the reference interpreter on {file.path.name}", 0, 1)
        reference = run_reference(file.path, samples.inputs)
        progress(f"building {file.path.name} and starting {device.board.name}", 0, 1)
        model = device.load(compiled)
        found = verify(model, file.path, samples, progress, reference=reference)
        result = _compared(result, compiled, found, clean)
        measured = profile(model, samples, progress)
        modelled: Profile | None = None
        why = ""
        if device.is_modelled:
            modelled = measured
        elif emulated is not None:
            modelled, why = _modelled(compiled, emulated, samples, clean, progress)
        result = _timed(result, measured, modelled)
        return replace(result, modelled_why=why, state=EQUAL if found.ok else DIFFERS)
    except UtvmError as error:
        return replace(result, error=clean(f"{type(error).__name__}: {error}"))


def _modelled(
    compiled: CompiledModel, emulated: Board, samples: Samples, clean: Cleaner, progress: Progress
) -> tuple[Profile | None, str]:
    """The same C on the emulated board; why not, if that fails."""
    progress(f"modelling {compiled.name} on {emulated.name}", 0, 1)
    try:
        with connect(emulated, timing=CYCLES) as device:
            model = device.load(replace(compiled, board=emulated.name))
            if not device.is_modelled:
                return None, f"{emulated.name} counted no cycles"
            return profile(model, samples, progress), ""
    except UtvmError as error:
        return None, clean(f"{type(error).__name__}: {error}")


def _compared(
    result: ModelResult, compiled: CompiledModel, found: Verification, clean: Cleaner
) -> ModelResult:
    return replace(
        result,
        macs=compiled.macs,
        samples=found.samples_run,
        output_bytes=found.output_bytes,
        layer_bytes=found.layer_bytes,
        layers=tuple(
            LayerResult(
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


def _timed(result: ModelResult, measured: Profile, modelled: Profile | None) -> ModelResult:
    layers = zip(
        result.layers,
        measured.layers,
        modelled.layers if modelled else [None] * len(measured.layers),
        strict=True,
    )
    return replace(
        result,
        runs=measured.runs,
        ticks=measured.ticks,
        ticks_median=float(measured.ticks_median),
        modelled=_figures(modelled.figures, modelled.tick_unit) if modelled else {},
        layers=tuple(
            replace(
                layer,
                ticks=ours.ticks,
                modelled=_figures(theirs.figures, modelled.tick_unit)
                if modelled and theirs
                else {},
            )
            for layer, ours, theirs in layers
        ),
    )


def _figures(found: Mapping[str, int], unit: str) -> dict[str, int]:
    """Under the counters' own names; what the ticks are comes under their unit."""
    return {name: found[unit if name == HEADLINE else name] for name in FIGURES}
