"""utvm bench: our kernels against another engine's, layer by layer."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import utvm_deploy
from utvm_deploy.bench.compare import compare, run_engine
from utvm_deploy.bench.compare_elsewhere import compare_elsewhere, with_tcm_alone
from utvm_deploy.bench.compare_facts import (
    MEASURED,
    EngineSize,
    LayerComparison,
    ModelComparison,
    OtherPlacement,
)
from utvm_deploy.bench.compare_picture import agreement, comparison_html
from utvm_deploy.bench.compare_recorded import compare_with_recorded
from utvm_deploy.bench.placement import Placement
from utvm_deploy.bench.samples import random_samples
from utvm_deploy.board import Board
from utvm_deploy.cli.arguments import Verbs, add_board, add_verb, board_of, connection
from utvm_deploy.cli.compile_options import add_cmsis_nn, add_records, cmsis_nn_of
from utvm_deploy.cli.gate import add_gate, check_before, exit_code, judge
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.steps import dry_run_step
from utvm_deploy.compiler.c_text import prefix_from_path
from utvm_deploy.compiler.cmsis_nn import CmsisNn
from utvm_deploy.compiler.options import AUTO, CMSIS_NN
from utvm_deploy.device import Device
from utvm_deploy.errors import BenchError
from utvm_deploy.files import write_text
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.passes import simplify
from utvm_deploy.progress import Progress
from utvm_deploy.project import check_fits

ENGINES = ("cmsis-nn",)
SCHEMA = "utvm.bench/1"


def add_parser(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs, common, "bench", "compare our kernels with CMSIS-NN's, layer by layer", run
    )
    parser.add_argument("models", metavar="MODEL", type=Path, nargs="+", help="int8 .tflite files")
    add_board(parser, port=True)
    parser.add_argument("--against", choices=ENGINES, default=ENGINES[0], help="the other engine")
    add_cmsis_nn(parser, "", "; without it: figures that were recorded once")
    add_records(parser)
    parser.add_argument(
        "--html", metavar="FILE", type=Path, help="also write a page with tables and bars"
    )
    add_gate(parser)


def run(args: argparse.Namespace, out: Output) -> int:
    """Compare every model; exit code 1 if the gate is shut."""
    check_before(args)
    check_names(args.models)
    board = board_of(args)
    library = cmsis_nn_of(args, board)
    with out.progress() as progress, utvm_deploy.connect(board, **connection(args)) as device:
        if args.dry_run:
            return _dry_run(args, board, library, progress)
        found = [_compare(path, device, library, args.records, progress) for path in args.models]
    figure = next(iter(found[0].ours))
    for comparison in found:
        _report(comparison, out)
    if len(found) > 1:
        _overview(found, figure, out)
    if args.html is not None:
        write_text(args.html, comparison_html(found, figure))
        out.line(f"wrote {args.html}")
    result = bench_summary(found, board, args.against)
    gate = judge(args, out, SCHEMA, result)
    out.result(SCHEMA, result | gate)
    return exit_code(gate)


def _dry_run(
    args: argparse.Namespace, board: Board, library: CmsisNn | None, progress: Progress
) -> int:
    for path in args.models:
        for kernels in ("best", CMSIS_NN) if library else ("best",):
            progress(f"compiling {path.name} for {board.name} ({kernels})", 0, 1)
            compiled = utvm_deploy.compile(
                path,
                board,
                kernels=kernels,
                cmsis_nn=library,
                scratch=AUTO,
                records=args.records,
            )
            dry_run_step(args, board, compiled)
    return 0


def _compare(
    path: Path,
    device: Device,
    library: CmsisNn | None,
    records: Path | None,
    progress: Progress,
) -> ModelComparison:
    board = device.board
    graph = load_model(path)
    samples = random_samples(graph, 1)
    progress(f"compiling {path.name} for {board.name}", 0, 1)
    ours = utvm_deploy.compile(path, board, scratch=AUTO, records=records)
    check_fits(ours, board)
    if library is None:
        measured = run_engine(device, ours, samples, progress)
        return compare_with_recorded(measured, simplify(graph), board.cpu.core, samples.origin)
    theirs = utvm_deploy.compile(path, board, kernels=CMSIS_NN, cmsis_nn=library, scratch=AUTO)
    if theirs.external is None:
        raise BenchError(f"CMSIS-NN has no function for any layer of {path.name}")
    check_fits(theirs, board)
    found = compare(device, ours, theirs, samples, progress)
    smaller = with_tcm_alone(board)
    if smaller is None or not found.is_modelled:
        return found
    ours = utvm_deploy.compile(path, smaller, scratch=AUTO, records=records)
    theirs = utvm_deploy.compile(path, smaller, kernels=CMSIS_NN, cmsis_nn=library, scratch=AUTO)
    elsewhere = compare_elsewhere(smaller, ours, theirs, samples, progress)
    return replace(found, elsewhere=elsewhere)


def check_names(models: Sequence[Path]) -> None:
    """BenchError if two files give the same name, under which results are kept."""
    names = [prefix_from_path(path) for path in models]
    for name in names:
        if names.count(name) > 1:
            raise BenchError(f"two models are called {name}; rename a file, or compare them apart")


def _report(found: ModelComparison, out: Output) -> None:
    out.line(f"{found.name} on {found.board} against {found.engine}, {found.source}")
    _table(found, out)
    for figure in found.figures:
        _totals(found, figure, out)
    ours, theirs = found.our_placement, found.their_placement
    if theirs is None or theirs == ours:
        out.line(f"placement{'' if theirs is None else ' (both)'}: {ours}")
    else:
        out.line(f"placement (ours): {ours}")
        out.line(f"placement (CMSIS-NN): {theirs}")
    if found.elsewhere is not None:
        other = found.elsewhere
        ratios = ", ".join(
            f"{name} {ratio:.3f}"
            for name in found.figures
            if (ratio := other.ratio(name)) is not None
        )
        headline = found.figures[0]
        out.line(
            f"everything but weights in {other.region} (both): ours {other.ours[headline]:,}, "
            f"CMSIS-NN {other.theirs[headline]:,} {found.unit_label}; ratios: {ratios}"
        )
    size = found.our_size
    out.line(
        f"ours: RAM {size.ram_bytes:,} bytes (arena {size.arena_bytes:,}), "
        f"flash {size.flash_bytes:,}"
    )
    if found.their_size is not None:
        size = found.their_size
        out.line(
            f"CMSIS-NN: RAM {size.ram_bytes:,} bytes (arena {size.arena_bytes:,}), "
            f"flash {size.flash_bytes:,}"
        )
    if found.source == MEASURED:
        _agreement_line(found, out)
    out.line()


def _table(found: ModelComparison, out: Output) -> None:
    headline, *further = found.figures
    out.table(
        [
            *("layer", "operator", ">MACs", ">ours", ">CMSIS-NN", ">ratio"),
            *(f">{_short(name)}" for name in further),
            *("output", "CMSIS-NN's"),
        ],
        [
            (
                str(layer.index),
                layer.kind,
                layer.macs or None,
                layer.ours[headline],
                (layer.theirs or {}).get(headline),
                layer.ratio(headline),
                *(layer.ratio(name) for name in further),
                agreement(layer),
                layer.their_kernel or ("(ours)" if found.source == MEASURED else ""),
            )
            for layer in found.layers
        ],
        title=f"{found.unit_label}; ratio: CMSIS-NN's over ours, above 1 we are faster",
    )


def _short(figure: str) -> str:
    return {"instructions": "instr.", "pessimistic": "pessim."}.get(figure, figure)


def _totals(found: ModelComparison, figure: str, out: Output) -> None:
    ratio = found.ratio(figure)
    told = "" if ratio is None else f", ratio {ratio:.3f}"
    if found.theirs is not None:
        out.line(
            f"whole model: ours {found.ours[figure]:,}, CMSIS-NN {found.theirs[figure]:,} "
            f"{figure}{told}"
        )
        return
    ours, theirs = found.matched(figure)
    count = sum(1 for layer in found.layers if layer.theirs is not None)
    out.line(
        f"the {count} of {len(found.layers)} layers that are recorded: ours {ours:,}, "
        f"CMSIS-NN {theirs:,} {figure}{told}; ours for the whole model {found.ours[figure]:,}"
    )


def _agreement_line(found: ModelComparison, out: Output) -> None:
    differing = found.differing_layers
    if not differing:
        out.line("outputs: every byte of every layer is equal")
        return
    listed = ", ".join(f"{layer.index} ({layer.kind})" for layer in differing)
    out.line(
        f"outputs: layers {listed} differ for equal inputs; ours are the reference's "
        "(utvm verify), CMSIS-NN rounds otherwise there"
    )


def _overview(found: Sequence[ModelComparison], figure: str, out: Output) -> None:
    out.table(
        ["model", ">ours", ">CMSIS-NN", ">ratio", "source"],
        [
            (
                comparison.name,
                comparison.ours[figure],
                (comparison.theirs or {}).get(figure),
                comparison.ratio(figure),
                comparison.source,
            )
            for comparison in found
        ],
        title=f"{found[0].unit_label}, whole models",
    )


def bench_summary(found: Sequence[ModelComparison], board: Board, against: str) -> dict[str, Any]:
    """The comparison for ``--json``."""
    return {
        "board": board.name,
        "core": board.cpu.core,
        "against": against,
        "models": [_model_summary(comparison) for comparison in found],
    }


def _model_summary(found: ModelComparison) -> dict[str, Any]:
    return {
        "name": found.name,
        "source": found.source,
        "engine": found.engine,
        "is_modelled": found.is_modelled,
        "inputs": found.inputs,
        "figures": found.figures,
        **_ratios(found),
        "ours": dict(found.ours),
        "theirs": None if found.theirs is None else dict(found.theirs),
        "placement": {
            "ours": _placement_summary(found.our_placement),
            "theirs": _placement_summary(found.their_placement),
        },
        "elsewhere": _elsewhere_summary(found),
        "size": {
            "ours": _size_summary(found.our_size),
            "theirs": _size_summary(found.their_size),
        },
        "layers": [_layer_summary(found, layer) for layer in found.layers],
    }


def _elsewhere_summary(found: ModelComparison) -> dict[str, Any] | None:
    other = found.elsewhere
    if other is None:
        return None
    return {
        "region": other.region,
        **_ratios(other, found.figures),
        "ours": dict(other.ours),
        "theirs": dict(other.theirs),
    }


def _layer_summary(found: ModelComparison, layer: LayerComparison) -> dict[str, Any]:
    return {
        "index": layer.index,
        "operator": layer.kind,
        "name": layer.name,
        "macs": layer.macs,
        **_ratios(layer, found.figures),
        "ours": dict(layer.ours),
        "theirs": None if layer.theirs is None else dict(layer.theirs),
        "kernel": layer.kernel,
        "their_kernel": layer.their_kernel or None,
        "output_bytes": layer.output_bytes,
        "differing_bytes": layer.differing_bytes,
    }


def _ratios(
    item: ModelComparison | LayerComparison | OtherPlacement, figures: Sequence[str] | None = None
) -> dict[str, float | None]:
    """``ratio`` of the figure to judge by, and ``ratio_NAME`` of each other one."""
    names = item.figures if isinstance(item, ModelComparison) else figures or ()
    ratios = {
        "ratio" if position == 0 else f"ratio_{name}": item.ratio(name)
        for position, name in enumerate(names)
    }
    return {"ratio": None} | ratios


def _placement_summary(placement: Placement | None) -> dict[str, str] | None:
    return None if placement is None else dict(vars(placement))


def _size_summary(size: EngineSize | None) -> dict[str, int] | None:
    return None if size is None else dict(vars(size))
