"""utvm profile: what each layer costs on a board."""

from __future__ import annotations

import argparse

from utvm_deploy.bench.profile import Profile, profile
from utvm_deploy.bench.samples import random_samples
from utvm_deploy.cli.arguments import Verbs, add_board, add_model, add_name, add_verb, board_of
from utvm_deploy.cli.gate import add_gate, exit_code, judge
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.steps import compile_step, dry_run_step, load_step
from utvm_deploy.frontend.tflite import load_model

SCHEMA = "utvm.profile/1"


def add_parser(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verb to the command line."""
    parser = add_verb(verbs, common, "profile", "per-layer cost, RAM and flash", run)
    add_model(parser)
    add_board(parser, port=True)
    add_name(parser)
    add_gate(parser)


def run(args: argparse.Namespace, out: Output) -> int:
    """Profile and print the table."""
    board = board_of(args)
    samples = random_samples(load_model(args.model), 1)
    with out.progress() as progress:
        compiled = compile_step(args, board, progress)
        if args.dry_run:
            return dry_run_step(board, compiled)
        with load_step(args, board, compiled, progress) as model:
            found = profile(model, samples, progress)
    _report(found, out)
    result = profile_summary(found)
    gate = judge(args, out, SCHEMA, result)
    out.result(SCHEMA, result | gate)
    return exit_code(gate)


def _report(found: Profile, out: Output) -> None:
    total = sum(layer.ticks for layer in found.layers) or 1
    unit = found.tick_unit
    out.table(
        ["layer", "operator", f">{unit}", ">share %", ">MACs", f">{unit}/MAC", "kernel", "why"],
        [
            (
                str(item.layer.index),
                item.layer.kind,
                item.ticks,
                100 * item.ticks / total,
                item.layer.macs or None,
                item.ticks_per_mac,
                item.layer.kernel.removeprefix(f"{found.model}_"),
                item.layer.why,
            )
            for item in found.layers
        ],
        title=f"{found.model} on {found.board}, in {unit}",
    )
    rate = f", {found.ticks / found.macs:.2f} per MAC" if found.macs else ""
    out.line(f"whole model: {found.ticks:,} {unit}{rate}")
    if found.seconds is not None:
        out.line(f"latency: {1e3 * found.seconds:.3f} ms (smallest of {found.runs} runs)")
    out.line(
        f"RAM: {found.ram_bytes:,} bytes, of which arena {found.arena_bytes:,}; "
        f"flash: {found.flash_bytes:,} bytes, of which weights {found.weights_bytes:,}"
    )


def profile_summary(found: Profile) -> dict[str, object]:
    """A profile for ``--json`` and for a bundle's report."""
    return {
        "board": found.board,
        "model": found.model,
        "tick_unit": found.tick_unit,
        "ticks_per_second": found.ticks_per_second,
        "runs": found.runs,
        "ticks": found.ticks,
        "ticks_median": found.ticks_median,
        "seconds": found.seconds,
        "macs": found.macs,
        "arena_bytes": found.arena_bytes,
        "weights_bytes": found.weights_bytes,
        "flash_bytes": found.flash_bytes,
        "ram_bytes": found.ram_bytes,
        "layers": [
            {
                "index": item.layer.index,
                "operator": item.layer.kind,
                "name": item.layer.name,
                "ticks": item.ticks,
                "ticks_median": item.ticks_median,
                "macs": item.layer.macs,
                "kernel": item.layer.kernel,
                "why": item.layer.why,
            }
            for item in found.layers
        ],
    }
