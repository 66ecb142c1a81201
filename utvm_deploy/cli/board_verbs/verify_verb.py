"""utvm verify: every byte on the board against the reference interpreter."""

from __future__ import annotations

import argparse
from pathlib import Path

import utvm_deploy
from utvm_deploy.api.verify_function import DEFAULT_SAMPLES
from utvm_deploy.cli.arguments import (
    Verbs,
    add_board,
    add_emulate,
    add_model,
    add_name,
    add_verb,
    board_of,
    connection,
    positive,
)
from utvm_deploy.cli.compile_options import add_compile_options, compile_options, custom_of
from utvm_deploy.cli.keep_run import add_store
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.steps import check_board, compile_step, dry_run_step
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.names import short_name
from utvm_deploy.results.verifying.on_board import Mismatch, Verification


def add_parser(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs, common, "verify", "compare every output byte and layer with the reference", run
    )
    add_model(parser)
    add_board(parser, port=True)
    add_emulate(parser)
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
    parser.add_argument(
        "--allow-float-gap",
        action="store_true",
        help="exit with 0 even if the reference is far from float32 in a layer",
    )
    add_store(parser)


def run(args: argparse.Namespace, out: Output) -> int:
    """Exit code 1 if a byte differs, or if the reference is far from float32 in a layer."""
    board = board_of(args)
    if args.dry_run:
        check_board(args, board)
        load_model(args.model, custom_of(args, board))
        with out.progress() as progress:
            return dry_run_step(args, board, compile_step(args, board, progress))
    # Nobody looks at ticks here.
    device = utvm_deploy.connect(board, **connection(args))
    with out.progress() as progress, device:
        result = utvm_deploy.verify(
            args.model,
            device,
            samples=args.samples,
            golden=args.golden,
            name=args.name,
            allow_float_gap=args.allow_float_gap,
            progress=progress,
            **compile_options(args, board),
        )
    _report(result.found, out)
    if result.origin is not None:
        for line in result.origin.lines:
            out.line(line)
    out.found(result.to_dict())
    return 0 if result.ok else 1


def _report(found: Verification, out: Output) -> None:
    if found.float_gap is not None:
        out.line(found.float_gap)
    if found.is_right and not found.bound.is_exact:
        _report_bounds(found, out)
        return
    if found.is_right:
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
    text = f"{list(mismatch.element)} is {mismatch.got:g}, expected {mismatch.expected:g}"
    if mismatch.call is not None:
        text += f", in the strip {short_name(mismatch.tensor)} (call {mismatch.call})"
    return text
