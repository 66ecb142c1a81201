"""utvm silicon: writes a file of what a real board took and what the cycle model says."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from utvm_deploy.base.errors import UsageError
from utvm_deploy.base.outputs import check_outputs
from utvm_deploy.boards.board import Board
from utvm_deploy.cli.arguments import board_of, connection
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.steps import start_dry
from utvm_deploy.graph.names import short_name
from utvm_deploy.silicon_kit import run as kit
from utvm_deploy.silicon_kit.models import ModelFile, compile_for
from utvm_deploy.silicon_kit.origin import Place
from utvm_deploy.silicon_kit.report import SCHEMA, CaseResult, ModelResult, Report, read_report


def run(args: argparse.Namespace, out: Output) -> int:
    """Exit code 1 if an output differs or anything failed."""
    if args.show:
        if args.output:
            raise UsageError("give either --show or -o; see utvm silicon --help")
        report = read_report(args.show)
    else:
        for given, what in ((args.board, "--board"), (args.output, "-o")):
            if not given:
                raise UsageError(f"{what} is missing; see utvm silicon --help")
        board = board_of(args)
        wanted = _wanted(args, board)
        with out.progress() as progress:
            if args.dry_run:
                return _dry_run(wanted)
            progress(f"looking for {board.name}", 0, 1)
            kit.check_ready(board, wanted.place)
            report = kit.measure(wanted, progress)
    _show(report, out)
    if not args.show:
        out.line(f"wrote {args.output}")
    out.result(SCHEMA, report.as_json())
    return 0 if report.is_good else 1


def _wanted(args: argparse.Namespace, board: Board) -> kit.Wanted:
    where = connection(args)
    if where["server"]:
        raise UsageError(
            "utvm silicon measures boards that are connected to this computer; run it where "
            f"{board.name} is"
        )
    paths = [*kit.shipped_models(), *(kit.models_in(args.models) if args.models else ())]
    for path in paths:
        check_outputs(path, args.output)
    return kit.Wanted(
        board=board,
        place=Place(where["port"], where["probe"], where["serial"], where["link"]),
        output=args.output,
        models=tuple(ModelFile.at(path) for path in paths),
        cases=kit.cases_named(board, args.cases),
        samples=args.samples,
    )


def _dry_run(wanted: kit.Wanted) -> int:
    """Building and starting each model, while ``process`` prints the commands and runs none."""
    for file in wanted.models:
        compiled = compile_for(file, wanted.board)
        start_dry(compiled, wanted.board, **asdict(wanted.place))
    return 0


def _show(report: Report, out: Output) -> None:
    setup, timing = report.setup, report.timing
    board, modelling, versions = setup.board, setup.modelling, setup.versions
    kind = "" if board.is_silicon else ", not silicon"
    out.line(
        f"{board.name} ({board.core}, {board.clock_hz / 1e6:g} MHz{kind}), "
        f"link {board.link}, probe {board.probe}"
    )
    out.line(
        f"utvm {versions.utvm}, {versions.compiler}, LiteRT {versions.litert}, {versions.system}"
    )
    if timing is not None:
        out.line(f"ticks are {timing.unit}, {timing.per_second:,} a second, by: {timing.source}")
    if modelling.board is None:
        out.line(f"no modelled cycles: {modelling.why}")
    else:
        out.line(
            f"modelled on {modelling.board} by {modelling.emulator}, cycle model "
            f"{modelling.cycle_model}"
        )
        if modelling.why:
            out.line(modelling.why)
    # Nothing is said to be measured that a model of the core counted.
    counted = "measured" if board.is_silicon else "counted"
    for model in report.models:
        _show_model(model, counted, out)
    if report.micro_benchmarks:
        _show_cases(report.micro_benchmarks, counted, out)
    out.line(verdict(report))


def verdict(report: Report) -> str:
    """The last line: whether all is equal, and what is not."""
    wrong = [f"{one.file} {one.state}" for one in report.models if one.state != "equal"]
    failed = sum(bool(one.error) for one in report.micro_benchmarks)
    if failed:
        wrong.append(f"{failed} micro-benchmarks failed")
    if report.unfinished:
        wrong.append(f"not finished: {report.unfinished}")
    if wrong:
        return "; ".join(wrong) + "; the same command continues from here"
    return (
        f"{len(report.models)} models, every output and layer equal to the reference; "
        f"{len(report.micro_benchmarks)} micro-benchmarks"
    )


def _show_model(model: ModelResult, counted: str, out: Output) -> None:
    out.line()
    rows: list[Sequence[object]] = [
        (
            str(layer.index),
            layer.operator,
            short_name(layer.name),
            "DIFFERS" if layer.differs else "equal" if layer.is_compared else "",
            layer.ticks,
            layer.modelled.get("memory"),
            _ratio(layer.ticks, layer.modelled.get("memory")),
        )
        for layer in model.layers
    ]
    memory = model.modelled.get("memory")
    rows.append(
        ("", "whole model", "", model.state, model.ticks, memory, _ratio(model.ticks, memory))
    )
    out.table(
        ["layer", "operator", "name", "output", f">{counted}", ">modelled", f">{counted}/modelled"],
        rows,
        title=model.file,
    )
    for text in (model.error, model.modelled_why):
        if text:
            out.line(f"{model.file}: {text}")


def _show_cases(cases: Sequence[CaseResult], counted: str, out: Output) -> None:
    out.line()
    out.table(
        ["sequence", f">{counted}", ">modelled", ">published", "source"],
        [
            (one.name, one.ticks, one.modelled, one.published, one.error or one.source)
            for one in cases
        ],
        title="micro-benchmarks, for one repetition",
    )


def _ratio(measured: float | None, modelled: float | None) -> float | None:
    return measured / modelled if measured is not None and modelled else None
