"""utvm bundle: the standalone deliverable for somebody else's firmware."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

import utvm_deploy
from utvm_deploy.api.bundle_function import DEFAULT_SAMPLES
from utvm_deploy.base.errors import UsageError
from utvm_deploy.base.outputs import keep_model
from utvm_deploy.bundling import FORMATS, check_bundle, check_destination
from utvm_deploy.cli.arguments import (
    MODEL_HELP,
    Verbs,
    add_board,
    add_name,
    add_timing,
    add_verb,
    board_of,
    connection,
    positive,
)
from utvm_deploy.cli.compile_options import add_compile_options, compile_options, custom_of
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.reports import memory_line
from utvm_deploy.cli.shape_option import add_shape
from utvm_deploy.cli.steps import compile_step
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.project import check_fits_alone
from utvm_deploy.project.model_code import flash_bytes
from utvm_deploy.results.profiling import summary


def add_parser(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs, common, "bundle", "write a model as a library for somebody else's firmware", run
    )
    parser.add_argument("model", metavar="MODEL", type=Path, nargs="?", help=MODEL_HELP)
    add_shape(parser)
    parser.add_argument(
        "--check", metavar="DIR", type=Path, help="check a bundle (folder or .zip) instead"
    )
    add_board(parser, needed=False)
    add_timing(parser)
    add_name(parser)
    add_compile_options(parser)
    parser.add_argument("-o", "--output", metavar="DIR|X.zip", type=Path)
    parser.add_argument(
        "--format", choices=sorted(FORMATS), default="cmake", help="default: %(default)s"
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--samples",
        metavar="N",
        type=positive,
        default=DEFAULT_SAMPLES,
        help=f"random samples in the self-test; default {DEFAULT_SAMPLES}",
    )
    source.add_argument("--golden", metavar="G.npz", type=Path, help="samples for the self-test")
    parser.add_argument(
        "--no-latency",
        action="store_true",
        help="leave the latency report out, which needs the board to run on this computer",
    )
    # Latency is measured on this computer only.
    parser.set_defaults(port=None, probe=None, serial=None, link=None)


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
            format=args.format,
            samples=args.samples,
            golden=args.golden,
            latency=not args.no_latency,
            server=connection(args)["server"],
            timing=args.timing,
            name=args.name,
            progress=progress,
            **compile_options(args, board),
        )
    out.line(memory_line(found.compiled))
    if found.latency is not None:
        out.line(summary.latency_line(found.latency))
        out.line(summary.memory_line(found.latency))
    if found.code is not None:
        code, weights = found.code, found.compiled.weights_bytes
        out.line(
            f"the model alone: flash {flash_bytes(found.compiled, code):,} bytes, of which weights "
            f"{weights:,}; stack {code.stack.total_bytes:,} bytes"
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
