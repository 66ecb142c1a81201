"""The whole run: each model and micro-benchmark, saved as soon as it is done.

    check_ready ─▶ origin ─▶ report of an earlier run ─▶ models ─▶ micro-benchmarks ─▶ file
                                                            ╰──── saved after each ────╯

After an interruption or a failure, the same command continues. It keeps what the file has already,
and repeats what failed or differed.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from utvm_deploy.base.errors import BoardError, NoDevice, UtvmError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.base.progress import Progress
from utvm_deploy.boards.board import Board
from utvm_deploy.boards.desk_file import load_bench
from utvm_deploy.device import Device, connect
from utvm_deploy.device.doctor import examine
from utvm_deploy.device.probe.usb import usb_devices
from utvm_deploy.frontend.formats import FORMATS
from utvm_deploy.project import build_image
from utvm_deploy.silicon_kit.models import ModelFile, measure_model
from utvm_deploy.silicon_kit.origin import Place, setup_of, timing_of
from utvm_deploy.silicon_kit.private import Cleaner
from utvm_deploy.silicon_kit.report import (
    EQUAL,
    CaseResult,
    ModelResult,
    Report,
    Setup,
    Timing,
    read_report,
    write_report,
)
from utvm_deploy.silicon_kit.sequences import Count, cases_of, count_cases
from utvm_deploy.targets.contract.sequences import Case

#: A model file's name ends so.
MODEL_SUFFIXES = tuple(FORMATS)


@dataclass(frozen=True)
class Wanted:
    """What a run is asked for."""

    board: Board
    place: Place
    output: Path
    models: tuple[ModelFile, ...]
    cases: tuple[Case, ...]
    samples: int


def shipped_models() -> list[Path]:
    """The models that come with the package, the smallest first."""
    return sorted(data_dir("models").glob("*.tflite"), key=lambda path: path.stat().st_size)


def models_in(folder: Path) -> list[Path]:
    """Every model file of a folder; UtvmError if there is none."""
    try:
        found = sorted(path for path in folder.iterdir() if path.suffix.lower() in MODEL_SUFFIXES)
    except OSError as error:
        raise UtvmError(
            f"cannot read the folder {folder}: {error.strerror or error}; name a folder of models"
        ) from error
    if not found:
        raise UtvmError(
            f"{folder} holds no model ({', '.join(MODEL_SUFFIXES)}); name a folder of models"
        )
    return found


def cases_named(board: Board, pattern: str | None) -> tuple[Case, ...]:
    """The core's micro-benchmarks whose names match; UtvmError if none does."""
    cases = cases_of(board)
    if pattern is None:
        return cases
    found = tuple(case for case in cases if fnmatch.fnmatchcase(case.name, pattern))
    if not found:
        names = ", ".join(repr(case.name) for case in cases[:3])
        examples = f"such as {names}" if cases else f"and there are none for {board.cpu.core}"
        raise UtvmError(f"no micro-benchmark is called {pattern!r}, {examples}")
    return found


def check_ready(board: Board, place: Place) -> None:
    """NoDevice with all that is missing, before anything is built; BoardError without images."""
    if board.why_no_image:
        raise BoardError(board.why_no_image)
    checks = examine(
        board,
        port=place.port,
        serial=place.serial,
        probe=place.probe,
        link=place.link,
        builds=False,
    )
    missing = [check for check in checks if not check.ok]
    if missing:
        raise NoDevice(
            f"{board.name} is not ready, missing: {', '.join(check.what for check in missing)}; "
            f"first {missing[0].fix}; utvm doctor --board {board.name} says what to do about each"
        )


def measure(wanted: Wanted, progress: Progress) -> Report:
    """Do everything that the file lacks; the file is complete after each item, and at the end.

    Raises UtvmError if the file is of another board or of other versions.
    """
    board, place = wanted.board, wanted.place
    clean = Cleaner(
        folders={file.path.parent.absolute() for file in wanted.models},
        secrets=_serial_numbers(board, place),
    )
    setup, emulated = setup_of(board, place, clean)
    keeper = _Keeper(wanted.output, _earlier(wanted.output, setup) or Report(setup))
    done = {
        (one.file, one.sha256)
        for one in keeper.report.models
        if one.state == EQUAL
        and one.samples >= wanted.samples
        and (one.modelled or emulated is None)
    }
    files = [one for one in wanted.models if (clean(one.path.name), one.sha256) not in done]
    counted = {
        one.name
        for one in keeper.report.micro_benchmarks
        if not one.error and (one.modelled is not None or emulated is None)
    }
    cases = [case for case in wanted.cases if case.name not in counted]
    if not files and not cases:
        return keeper.finish("")
    try:
        for file in files:
            # Made again for each model: the effects of one model on the board or its link end with
            # it.
            device = _connected(board, place)
            keeper.add_model(
                *measure_model(device, emulated, file, wanted.samples, clean, progress)
            )
        if cases:
            with _connected(board, place) as device:
                _run_cases(device, emulated, cases, clean, keeper, progress)
    except UtvmError as error:
        return keeper.finish(clean(f"{type(error).__name__}: {error}"))
    except BaseException:
        keeper.finish("interrupted")
        raise
    return keeper.finish("")


def _connected(board: Board, place: Place) -> Device:
    return connect(board, port=place.port, probe=place.probe, serial=place.serial, link=place.link)


def _serial_numbers(board: Board, place: Place) -> set[str]:
    """Those of the probes here: an error may name them."""
    found = {one.serial for one in usb_devices(board.probe.usb)} | {place.serial or ""}
    for entries in load_bench().values():
        found |= {entry.probe_serial or "" for entry in entries}
    return found - {""}


def _earlier(path: Path, setup: Setup) -> Report | None:
    """The report to continue; UtvmError if it is of another board, or made by other versions."""
    if not path.exists():
        return None
    report = read_report(path)
    if report.setup != setup:
        what, before, now = _difference(report.setup, setup)
        raise UtvmError(
            f"{path} was made with {what} {before}, and now it is {now}; give another file with "
            "-o, or delete it"
        )
    return report


def _difference(theirs: Setup, ours: Setup) -> tuple[str, object, object]:
    """The first difference, the board's before all others."""
    for part in ("board", "versions", "modelling"):
        before, now = vars(getattr(theirs, part)), vars(getattr(ours, part))
        for name in now:
            if before[name] != now[name]:
                return f"{part}.{name}", before[name], now[name]
    raise AssertionError("equal setups")


class _Keeper:
    """The report as it grows, and its file."""

    def __init__(self, path: Path, report: Report) -> None:
        self._path = path
        self.report = replace(report, unfinished="interrupted")

    def add_model(self, result: ModelResult, timing: Timing | None) -> None:
        key = (result.file, result.sha256)
        others = [one for one in self.report.models if (one.file, one.sha256) != key]
        self._save(
            replace(self.report, timing=timing or self.report.timing, models=(*others, result))
        )

    def note_timing(self, timing: Timing) -> None:
        """What the board says of its ticks."""
        self._save(replace(self.report, timing=timing))

    def add_cases(self, results: Sequence[CaseResult]) -> None:
        names = {one.name for one in results}
        others = [one for one in self.report.micro_benchmarks if one.name not in names]
        self._save(replace(self.report, micro_benchmarks=(*others, *results)))

    def finish(self, unfinished: str) -> Report:
        self._save(replace(self.report, unfinished=unfinished))
        return self.report

    def _save(self, report: Report) -> None:
        self.report = report
        write_report(self._path, report)


def _run_cases(
    device: Device,
    emulated: Board | None,
    cases: Sequence[Case],
    clean: Cleaner,
    keeper: _Keeper,
    progress: Progress,
) -> None:
    """The board's counts are kept as they come; the emulated board's are added to them."""
    device.start(build_image(None, device.board))
    keeper.note_timing(timing_of(device))
    progress(f"counting on {device.board.name}: micro-benchmark", 0, len(cases))
    by_name: dict[str, CaseResult] = {}

    def keep(counts: Sequence[Count]) -> None:
        results = [_case_result(count, clean) for count in counts]
        by_name.update({one.name: one for one in results})
        keeper.add_cases(results)
        progress(f"counting on {device.board.name}: micro-benchmark", len(by_name), len(cases))

    count_cases(device, cases, keep)
    if emulated is None or device.is_modelled:
        return

    def complete(counts: Sequence[Count]) -> None:
        keeper.add_cases([replace(by_name[one.case.name], modelled=one.modelled) for one in counts])

    progress(f"modelling the micro-benchmarks on {emulated.name}", 0, 1)
    with connect(emulated) as model:
        count_cases(model, cases, complete)


def _case_result(count: Count, clean: Callable[[str], str]) -> CaseResult:
    case = count.case
    return CaseResult(
        name=case.name,
        sequence=case.body,
        setup=case.setup,
        figure=case.figure,
        ticks=count.ticks,
        modelled=count.modelled,
        published=float(case.cycles),
        source=case.source,
        error="" if count.error is None else clean(f"{type(count.error).__name__}: {count.error}"),
    )
