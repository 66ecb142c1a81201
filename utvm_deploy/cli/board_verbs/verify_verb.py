"""utvm verify: every byte on the board against the reference interpreter."""

from __future__ import annotations

import argparse

import utvm_deploy
from utvm_deploy.cli.arguments import board_of
from utvm_deploy.cli.compile_options import keywords
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.steps import device_of, dry_run
from utvm_deploy.graph.names import short_name
from utvm_deploy.results.verifying.on_board import Mismatch, Verification


def run(args: argparse.Namespace, out: Output) -> int:
    """Exit code 1 if a byte differs, or if the reference is far from float32 in a layer."""
    board = board_of(args)
    if args.dry_run:
        return dry_run(args, board, out)
    with out.progress() as progress, device_of(args, board) as device:
        result = utvm_deploy.verify(args.model, device, progress=progress, **keywords(args, board))
    _report(result.found, out)
    for name in result.idle:
        out.line(f"{name} computes none of the layers: no operator is as its patterns ask")
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
        text += f", in the part {short_name(mismatch.tensor)} (call {mismatch.call})"
    return text
