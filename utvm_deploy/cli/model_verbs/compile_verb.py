"""utvm compile: a model to a Model Library Format archive of C sources."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from utvm_deploy.api.steps import whole_window_if_it_fits
from utvm_deploy.backends.custom import CustomOperators
from utvm_deploy.base.errors import FileRefused
from utvm_deploy.base.files import write_text
from utvm_deploy.base.outputs import check_outputs
from utvm_deploy.cli.arguments import board_of
from utvm_deploy.cli.compile_options import custom_of
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.reports import memory_line
from utvm_deploy.cli.steps import compile_step
from utvm_deploy.compiler.compiled.library_format import write_library
from utvm_deploy.compiler.options import ALL_STAGES
from utvm_deploy.frontend.files.given_shapes import chosen_now
from utvm_deploy.oracle.with_custom import check_accepted
from utvm_deploy.project import check_fits_alone

_log = logging.getLogger(__name__)


def run(args: argparse.Namespace, out: Output) -> int:
    """Compile, check the sizes and write the archive."""
    check_outputs(args.model, args.output)
    board = board_of(args)
    dumped: dict[str, str] = {}
    with out.progress() as progress:
        compiled = compile_step(
            args, board, progress, fits=check_fits_alone, dump=dumped.__setitem__
        )
        window = None
        if chosen_now().stream is not None:
            with whole_window_if_it_fits():
                window = compile_step(args, board, progress, fits=lambda *_: None)
    if not args.dry_run:
        _warn_of_refusal(args.model, custom_of(args, board))
        write_library(compiled, args.output)
        for stage, text in dumped.items():
            if args.dump in (stage, ALL_STAGES):
                path = args.output.with_name(f"{args.output.stem}.{stage}.txt")
                write_text(path, text)
                out.line(f"stage {stage}: {path}")
    out.line(memory_line(compiled))
    if compiled.stream is not None:
        out.line(compiled.stream.text)
    if compiled.stream is not None and window is not None:
        figures = {
            "bytes of arena": (compiled.arena_bytes, window.arena_bytes),
            "MACs": (compiled.macs, window.macs),
        }
        out.line(compiled.stream.beside(figures))
    seconds = ", ".join(f"{stage} {time:.2f}" for stage, time in compiled.seconds.items())
    out.line(f"{sum(compiled.seconds.values()):.2f} s: {seconds}")
    out.line("nothing written (--dry-run)" if args.dry_run else f"wrote {args.output}")
    out.found({**compiled.to_dict(), "output": args.output})
    return 0


def _warn_of_refusal(model: Path, custom: CustomOperators | None) -> None:
    """Say so if the reference does not take the file: the C is then exact to nothing."""
    try:
        check_accepted(model, custom)
    except FileRefused as error:
        _log.warning("%s", error)
