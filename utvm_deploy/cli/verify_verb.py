"""utvm verify: every byte on the board against the reference interpreter."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from utvm_deploy.cli.arguments import (
    Verbs,
    add_board,
    add_model,
    add_name,
    add_verb,
    board_of,
    positive,
)
from utvm_deploy.cli.compile_options import add_compile_options, custom_of
from utvm_deploy.cli.keep_run import add_store
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.steps import check_board, compile_step, dry_run_step, load_step
from utvm_deploy.device import INSTRUCTIONS
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.float_bounds import Bound
from utvm_deploy.graph.names import short_name
from utvm_deploy.oracle.origin import difference
from utvm_deploy.oracle.samples import load_golden, random_samples
from utvm_deploy.oracle.with_custom import run_oracle
from utvm_deploy.verifying.on_board import Mismatch, Verification, verify

#: Enough to meet every rounding case a layer has, quick enough for an emulated board.
DEFAULT_SAMPLES = 8


def add_parser(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs, common, "verify", "compare every output byte and layer with the reference", run
    )
    add_model(parser)
    add_board(parser, port=True)
    add_name(parser)
    add_compile_options(parser)
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--samples",
        metavar="N",
        type=positive,
        default=DEFAULT_SAMPLES,
        help=f"random samples to compare; default {DEFAULT_SAMPLES}",
    )
    source.add_argument(
        "--golden",
        metavar="G.npz",
        type=Path,
        help="samples with recorded outputs: arrays 'inputs' and 'outputs'",
    )
    add_store(parser)


def run(args: argparse.Namespace, out: Output) -> int:
    """Exit code 1 if a byte differs."""
    board = board_of(args)
    check_board(args, board)
    graph = load_model(args.model, custom_of(args, board))
    if args.golden:
        samples = load_golden(args.golden, graph)
    else:
        samples = random_samples(graph, args.samples)
    with out.progress() as progress:
        compiled = compile_step(args, board, progress)
        if args.dry_run:
            return dry_run_step(args, board, compiled)
        # Nobody looks at ticks here.
        with load_step(args, board, compiled, progress, timing=INSTRUCTIONS) as model:
            reference = run_oracle(args.model, samples.inputs, custom_of(args, board))
            found = verify(model, args.model, samples, progress, reference=reference)
    _report(found, out)
    origin = difference(args.model, graph, samples.inputs, reference.outputs)
    if origin is not None:
        for line in origin.lines:
            out.line(line)
    summary = {**_summary(found), "origin": asdict(origin) if origin else None}
    out.result("utvm.verify/1", {"ok": found.ok, **summary})
    return 0 if found.ok else 1


def _report(found: Verification, out: Output) -> None:
    if found.ok and not found.bound.is_exact:
        _report_bounds(found, out)
        return
    if found.ok:
        out.line(
            f"{found.model} on {found.board}: {found.samples_run} samples ({found.samples}): "
            f"{found.output_bytes:,} output bytes and {found.layer_bytes:,} bytes of "
            f"{len(found.layers)} layers, all equal to {found.reference}"
        )
        return
    out.table(
        ["layer", "operator", "tensor", ">elements", ">wrong", "first wrong"],
        [
            (
                str(check.layer.index),
                check.layer.kind,
                short_name(check.layer.name),
                check.mismatch.elements if check.mismatch else None,
                check.mismatch.wrong_elements if check.mismatch else 0,
                _where(check.mismatch) if check.mismatch else "",
            )
            for check in found.layers
            if check.samples
        ],
    )
    for check in found.layers:
        if check.mismatch and check.layer.is_external:
            out.line(
                f"layer {check.layer.index} is computed by {check.layer.engine}: {check.layer.why}"
            )
    for mismatch in found.mismatches:
        out.line(
            f"output {short_name(mismatch.tensor)}: {mismatch.wrong_elements} of "
            f"{mismatch.elements} wrong, {_where(mismatch)}"
        )
    if found.golden_differs:
        out.line("the golden file's outputs differ from the reference interpreter's")
    out.line(
        f"MISMATCH: {found.model} on {found.board} differs from {found.reference} "
        f"in sample {found.samples_run - 1} ({found.samples})"
    )


def _report_bounds(found: Verification, out: Output) -> None:
    """What was compared within bounds, and with which ones."""
    inexact: dict[str, str] = {}
    for check in found.layers:
        if not check.bound.is_exact:
            inexact[check.layer.kind] = check.bound.text
    equal = sum(check.bound.is_exact for check in found.layers)
    out.line(
        f"{found.model} on {found.board}: {found.samples_run} samples ({found.samples}): float32 "
        f"outputs within {found.bound.text} of {found.reference}"
    )
    bounds = ", ".join(f"{kind} {text}" for kind, text in sorted(inexact.items()))
    out.line(
        f"given the reference's inputs, {equal} of {len(found.layers)} layers have equal bits; "
        f"the others are within their bounds: {bounds}"
    )


def _where(mismatch: Mismatch) -> str:
    return f"{list(mismatch.element)} is {mismatch.got:g}, expected {mismatch.expected:g}"


def _bound_facts(bound: Bound) -> dict[str, float]:
    return {"ulps": bound.ulps, "relative": bound.relative}


def _summary(found: Verification) -> dict[str, object]:
    return {
        "board": found.board,
        "model": found.model,
        "reference": found.reference,
        "samples": found.samples_run,
        "samples_from": found.samples,
        "output_bytes": found.output_bytes,
        "layer_bytes": found.layer_bytes,
        "bound": _bound_facts(found.bound),
        "golden_differs": found.golden_differs,
        "mismatches": [asdict(mismatch) for mismatch in found.mismatches],
        "layers": [
            {
                "index": check.layer.index,
                "operator": check.layer.kind,
                "engine": check.layer.engine,
                "name": check.layer.name,
                "bound": _bound_facts(check.bound),
                "samples": check.samples,
                "mismatch": asdict(check.mismatch) if check.mismatch else None,
            }
            for check in found.layers
        ],
    }
