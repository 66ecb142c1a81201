"""utvm bundle: the standalone deliverable for somebody else's firmware."""

from __future__ import annotations

import argparse
import shlex

import utvm_deploy
from utvm_deploy.base.errors import UsageError
from utvm_deploy.base.outputs import keep_model
from utvm_deploy.bundling import check_bundle, check_destination, check_format
from utvm_deploy.cli.arguments import board_of, connection
from utvm_deploy.cli.compile_options import custom_of, keywords
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.reports import memory_line
from utvm_deploy.cli.steps import compile_step
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.project import check_fits_alone
from utvm_deploy.project.model_code import flash_bytes
from utvm_deploy.results.profiling import summary


def run(args: argparse.Namespace, out: Output) -> int:
    """Write or check a bundle."""
    if args.check:
        if args.model:
            raise UsageError("give either MODEL or --check; see utvm bundle --help")
        check_bundle(args.check)
        out.line(f"{args.check}: every file is as it was written")
        out.result("utvm.bundle-check/1", {"ok": True, "path": args.check})
        return 0
    for given, what in ((args.model, "MODEL"), (args.board, "--board"), (args.output, "-o")):
        if not given:
            raise UsageError(f"{what} is missing; see utvm bundle --help")
    return _write(args, out)


def _write(args: argparse.Namespace, out: Output) -> int:
    board = board_of(args)
    if args.dry_run:
        keep_model(args.model, args.output)
        check_destination(args.output)
        check_format(args.format, board, args.benchmark)
        load_model(args.model, custom_of(args, board))
        with out.progress() as progress:
            out.line(memory_line(compile_step(args, board, progress, fits=check_fits_alone)))
        out.line("nothing written (--dry-run)")
        return 0
    with out.progress() as progress:
        found = utvm_deploy.bundle(
            args.model,
            board,
            args.output,
            server=connection(args)["server"],
            progress=progress,
            **keywords(args, board),
        )
    out.line(memory_line(found.compiled))
    if found.latency is not None:
        out.line(summary.latency_line(found.latency))
        out.line(summary.memory_line(found.latency))
    if found.code is not None:
        code, weights = found.code, found.compiled.weights_bytes
        stack = f"; stack {code.stack.total_bytes:,} bytes" if code.stack.is_known else ""
        out.line(
            f"the model alone: flash {flash_bytes(found.compiled, code):,} bytes, of which weights "
            f"{weights:,}{stack}"
        )
        if code.library:
            out.line(
                f"the C library and the compiler add {code.library_bytes:,} bytes of flash, unless "
                f"the firmware has them: {', '.join(code.library)}"
            )
    for note in found.notes:
        out.line(note)
    path = found.path
    out.line(f"wrote {path}; check it with: utvm bundle --check {shlex.quote(str(path))}")
    out.found(found.to_dict())
    return 0
