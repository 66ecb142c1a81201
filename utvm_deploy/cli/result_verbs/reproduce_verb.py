"""utvm reproduce: make a report again, and compare the figures."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from utvm_deploy.api.report_function import report
from utvm_deploy.base.errors import UsageError, UtvmError
from utvm_deploy.base.files import check_regular, check_writable, file_digest
from utvm_deploy.base.outputs import keep_input
from utvm_deploy.boards.digest import facts_digest
from utvm_deploy.boards.facts import CYCLES
from utvm_deploy.cli.arguments import board_of, connection
from utvm_deploy.cli.compile_options import backends_of, builds_of, cmsis_nn_of
from utvm_deploy.cli.output import Output
from utvm_deploy.records.candidate import CMSIS_NN
from utvm_deploy.results.pages.report_digest import DIGEST, is_as_written
from utvm_deploy.results.reporting.differences import compared
from utvm_deploy.results.reporting.stored import read_report
from utvm_deploy.results.runs.origin import versions
from utvm_deploy.service.client.session_server import SCHEME

SCHEMA = "utvm.reproduce/1"
#: Figures that differ, in the table.
_MOST_SHOWN = 40
#: What a report may be made with, besides the model.
_FILES = ("data", "labels", "reference", "records")


def run(args: argparse.Namespace, out: Output) -> int:
    """Exit code 1 if a figure is another one; times that vary from run to run do not count."""
    then = read_report(args.report)
    if args.output is not None:
        check_writable(args.output)
        keep_input(args.report, "the report", args.output)
    compared(then, then)  # a damaged one is refused before the work
    is_edited = not is_as_written(then)
    if is_edited:
        why = (
            "was edited after it was made: its digest is not that of what it holds"
            if DIGEST in then
            else "has no digest: an older version made it, or it was edited"
        )
        out.note(f"{args.report} {why}; make the report again; the exit status will be 1")
    if args.board is None and then["board"]["given"].startswith(SCHEME):
        raise UsageError(
            "the report was made on a server's board, and only you can name a server; give --board"
        )
    args.board = args.board or then["board"]["given"]
    board = board_of(args)
    # Of another board that is given, the report is made as that is.
    if then["board"].get("is_twin") and not board.runs_here and not args.board.startswith(SCHEME):
        args.emulate = True
        board = board_of(args)
    model = _found(args, "model", then["model"])
    for what in _FILES:
        if getattr(args, what) is not None and what not in then["files"]:
            raise UsageError(f"the report was made without --{what}; leave it out")
    files = {what: _found(args, what, one) for what, one in then["files"].items()}
    for path in (model, *files.values()):
        keep_input(path, "a file of the report", args.output)
    if then.get("plugin") and args.plugin is None:
        raise UsageError(
            "the report was made with a plug-in, whose code a report cannot name; give --plugin"
        )
    for sentence in _other(then, board):
        out.note(sentence)
    if args.dry_run:
        out.line(f"would report on {model} and {board.name} again (--dry-run)")
        return 0
    with out.progress() as progress:
        now = report(
            model,
            board,
            data=files.get("data"),
            labels=files.get("labels"),
            reference=files.get("reference"),
            records=files.get("records"),
            samples=then["evaluated"].get("samples"),
            progress=progress,
            **_options(args, then, board),
        )
    out.file(args.output, lambda: now.html)
    figures = compared(then, now.to_dict())
    changed = [one for one in figures if not one.is_same]
    if changed:
        out.table(
            ["figure", ">then", ">now"],
            [(one.what, _shown(one.then), _shown(one.now)) for one in changed[:_MOST_SHOWN]],
            title=f"{args.report}: what differs",
        )
    if len(changed) > _MOST_SHOWN:
        out.line(f"and {len(changed) - _MOST_SHOWN} more; --json lists all of them")
    varying = sum(not one.is_exact for one in figures)
    more = f"; {varying} times vary from run to run and are not compared" if varying else ""
    out.line(
        f"{len(figures) - varying - len(changed)} figures are the same, {len(changed)} differ{more}"
    )
    out.result(
        SCHEMA,
        {
            "report": args.report,
            "output": args.output,
            "ok": not changed and not is_edited,
            "is_edited": is_edited,
            "figures": [{**asdict(one), "is_same": one.is_same} for one in figures],
        },
    )
    return 1 if changed or is_edited else 0


def _options(args: argparse.Namespace, then: Mapping[str, Any], board: Any) -> dict[str, Any]:
    options = {name: value for name, value in then["options"].items() if value is not None}
    if options.get("kernels") == CMSIS_NN:
        args.cmsis_nn_library = next(iter(args.cmsis_nn_library or ()), None)
        options["library"] = cmsis_nn_of(args, board)
        if options["library"] is None:
            raise UsageError("the report was made with --kernels cmsis-nn; give --cmsis-nn DIR")
    else:
        options["cmsis_nn"] = builds_of(args, board) or None
        if then.get("cmsis_nn") and options["cmsis_nn"] is None:
            raise UsageError(
                "the report has measured figures of CMSIS-NN; give its folder (--cmsis-nn DIR)"
            )
    args.ethos_u = args.ethos_u or then.get("ethos_u")
    options["plugin"] = backends_of(args, board) or None
    if "inputs" in options:
        options["inputs"] = {name: tuple(shape) for name, shape in options["inputs"].items()}
    return {**connection(args), "timing": CYCLES, **options, "given_board": args.board}


def _found(args: argparse.Namespace, what: str, one: Mapping[str, Any]) -> Path:
    """The file as the report has it: here, or in the folder of the report. Raises UtvmError."""
    name = Path(one["file"])
    given: Path | None = getattr(args, what) if what in ("model", *_FILES) else None
    places = [given] if given is not None else [name, args.report.parent / name.name]
    path = next((place for place in places if place.exists()), None)
    other = f"; give its place with --{what}"
    if path is None:
        raise UtvmError(f"the report's {what}, {places[0]}, is not there{other}")
    if one.get("sha256") is None:
        if not path.is_dir():
            raise UtvmError(f"{path} is not the {what} of the report, which is a folder{other}")
        return path
    if path.is_dir():
        raise UtvmError(f"{path} is a folder, and the {what} of the report is a file{other}")
    check_regular(path)
    digest = file_digest(path)
    if digest != one["sha256"]:
        raise UtvmError(
            f"{path} is not the {what} of the report: its SHA-256 is {digest[:12]}..., the "
            f"report's {str(one['sha256'])[:12]}...{other}"
        )
    return path


def _other(then: Mapping[str, Any], board: Any) -> list[str]:
    """What is not as it was: versions of tools, and the board's facts."""
    told = [
        f"{name} was {then['environment'][name]}, and is {version} now"
        for name, version in versions().items()
        if then["environment"].get(name, version) != version
    ]
    if then["board"].get("digest") != facts_digest(board):
        told.append(f"the facts of the board {board.name} are not those of the report")
    return told


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value if value is not None else "")
