"""utvm train: layers of a model learn on a board."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import utvm_deploy
from utvm_deploy.api.steps import compile_fitting
from utvm_deploy.api.train_function import Epoch, samples_of, told
from utvm_deploy.api.trainable_function import trainable
from utvm_deploy.base.outputs import check_outputs, keep_input
from utvm_deploy.base.progress import no_progress
from utvm_deploy.base.readable import counted
from utvm_deploy.cli.arguments import board_of
from utvm_deploy.cli.compile_options import compile_options, keywords
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.reports import memory_line
from utvm_deploy.cli.steps import check_board, device_of, dry_run_step
from utvm_deploy.results.pages.training_page import training_html, what_it_takes


def run(args: argparse.Namespace, out: Output) -> int:
    """Train, and write the weights after each epoch; Ctrl-C says which they are."""
    check_outputs(args.model, args.output, args.html)
    read = {"the data": args.data, "what is held out": args.held_out, "the labels": args.labels}
    for what, given in read.items():
        keep_input(given, what, args.output, args.html)
    board = board_of(args)
    check_board(args, board)
    if args.dry_run:
        names = ("layers", "loss", "optimizer", "rate", "name")
        learner = trainable(args.model, **{name: getattr(args, name) for name in names})
        samples_of(learner, args.data, args.labels, args.held_out)
        options = compile_options(args, board)
        compiled = compile_fitting(learner, board, no_progress, **options)
        out.line(memory_line(compiled))
        if compiled.tradeoff is None:
            out.line("all activations are kept; --optimize ram shows what other plans cost")
        else:
            _show_plans(out, asdict(compiled.tradeoff))
        return dry_run_step(args, board, compiled)
    kept = "no weights were written"

    def ended(epoch: Epoch) -> None:
        nonlocal kept
        out.line(told(epoch))
        out.event("training", **epoch)
        if epoch["epoch"]:
            kept = f"{args.output} has the weights after {counted(epoch['epoch'], 'epoch')}"

    options = {**keywords(args, board), "output": args.output, "on_epoch": ended}
    try:
        with out.progress() as progress, device_of(args, board) as device:
            found = utvm_deploy.train(args.model, board=device, progress=progress, **options)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(kept) from None
    result = found.to_dict()
    if result["tradeoff"] is not None:
        _show_plans(out, result["tradeoff"])
    for line in what_it_takes(result):
        out.line(line)
    out.line(f"wrote {args.output}")
    out.file(args.html, lambda: training_html(result))
    out.found(result)
    return 0


def _show_plans(out: Output, tradeoff: Mapping[str, Any]) -> None:
    """What the plans of the memory cost that were weighed."""
    columns = "computed again", "layers in strips", "arena bytes", tradeoff["unit"]
    taken = {name: tradeoff[name] for name in ("recomputed", "streamed", "arena_bytes", "cycles")}
    rows = (tuple(one.values()) for one in tradeoff["weighed"] or (taken,))
    out.table(
        [f">{column}" for column in columns],
        [["over the budget" if n is None else f"{n:,}" for n in row] for row in rows],
    )
