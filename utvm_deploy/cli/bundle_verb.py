"""utvm bundle: the standalone deliverable for somebody else's firmware."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from utvm_deploy.base.errors import CompileError, MissingTool, UsageError
from utvm_deploy.base.progress import Progress
from utvm_deploy.boards.board import Board
from utvm_deploy.bundling import FORMATS, check_bundle, check_destination, write_bundle
from utvm_deploy.cli.arguments import (
    MODEL_HELP,
    Verbs,
    add_board,
    add_name,
    add_verb,
    board_of,
    keep_model,
    positive,
)
from utvm_deploy.cli.bundle_outputs import Outputs, as_library, with_steps
from utvm_deploy.cli.compile_options import add_compile_options, custom_of
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.reports import memory_line
from utvm_deploy.cli.shape_option import add_shape
from utvm_deploy.cli.steps import compile_step, load_step
from utvm_deploy.compiler.model import CompiledModel
from utvm_deploy.compiler.options import ARENA
from utvm_deploy.compiler.pool_facts import pools_summary
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.samples import Samples, load_golden, random_samples
from utvm_deploy.oracle.with_custom import run_oracle
from utvm_deploy.profiling.layer_costs import profile
from utvm_deploy.profiling.summary import profile_summary
from utvm_deploy.project import check_fits_alone
from utvm_deploy.verifying.bounds import bounds_of, whole_bound

#: Golden vectors are in the self-test's flash. There are few, but more than one, to show that no
#: run influences the next one.
DEFAULT_SAMPLES = 4


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
    add_name(parser)
    # Somebody else's firmware, whose stacks had better not be asked for more than they have.
    add_compile_options(parser, scratch=ARENA)
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
    keep_model(args.model, args.output)
    check_destination(args.output)
    board = board_of(args)
    graph = load_model(args.model, custom_of(args, board))
    samples = (
        load_golden(args.golden, graph) if args.golden else random_samples(graph, args.samples)
    )
    with out.progress() as progress:
        compiled = compile_step(args, board, progress, fits=check_fits_alone)
        out.line(memory_line(compiled))
        if args.dry_run:
            out.line("nothing written (--dry-run)")
            return 0
        progress("running the reference interpreter", 0, 1)
        reference = run_oracle(args.model, samples.inputs, custom_of(args, board))
        expected: Outputs = reference.outputs
        oracle = reference.reference
        bounds = bounds_of(compiled, oracle)
        latency = _latency(args, board, compiled, samples, out, progress)
        if compiled.external is not None:
            expected, oracle = as_library(args, board, compiled, samples, expected, out, progress)
        else:
            expected, oracle = with_steps(
                args, board, compiled, graph, samples, reference, bounds, out, progress
            )
        progress(f"writing {args.output}", 0, 1)
        path = write_bundle(
            compiled,
            board,
            args.model,
            args.output,
            format=args.format,
            inputs=samples.inputs,
            expected=expected,
            oracle=oracle,
            tolerance=whole_bound(bounds).relative,
            report=latency,
        )
    out.line(f"wrote {path}; check it with: utvm bundle --check {shlex.quote(str(path))}")
    out.result(
        "utvm.bundle/1",
        {
            "path": path,
            "name": compiled.name,
            "format": args.format,
            "board": board.name,
            "samples": len(samples.inputs),
            "arena_bytes": compiled.arena_bytes,
            "weights_bytes": compiled.weights_bytes,
            "pools": pools_summary(compiled),
            "has_latency": latency is not None,
        },
    )
    return 0


def _latency(
    args: argparse.Namespace,
    board: Board,
    compiled: CompiledModel,
    samples: Samples,
    out: Output,
    progress: Progress,
) -> Mapping[str, Any] | None:
    """A profile, if the board runs on this computer; writing a bundle flashes no board."""
    if args.no_latency:
        return None
    if not board.runs_here:
        out.line(f"no latency report: {board.name} does not run on this computer")
        return None
    try:
        with load_step(args, board, compiled, progress) as model:
            return profile_summary(profile(model, samples, progress))
    except (MissingTool, CompileError) as error:
        # The bundle may fit a board that is too small for the runtime, which the latency needs.
        out.line(f"no latency report: {error}")
        return None
