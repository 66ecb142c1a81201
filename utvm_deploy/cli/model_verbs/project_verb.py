"""utvm project: a generated source tree, its build and its flashing."""

from __future__ import annotations

import argparse
import shlex

from utvm_deploy.base import process
from utvm_deploy.boards.board import Board
from utvm_deploy.cli.arguments import board_of
from utvm_deploy.cli.compile_options import refuse_compile_options
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.reports import memory_line
from utvm_deploy.cli.steps import compile_step
from utvm_deploy.compiler.compiled.library_format import read_library
from utvm_deploy.device.probe import check_programmer, flash_image
from utvm_deploy.project import build_project, check_directory, check_fits, create_project
from utvm_deploy.project.esp_idf import esp_idf_build, read_esp_idf
from utvm_deploy.project.tree import PROJECT_FILE


def run_create(args: argparse.Namespace, out: Output) -> int:
    """Write the tree."""
    is_compiled = args.model.suffix == ".tar"
    if is_compiled:
        refuse_compile_options(args)
    board = board_of(args)
    check_directory(args.directory)
    with out.progress() as progress:
        if is_compiled:
            progress(f"reading {args.model.name}", 0, 1)
            compiled = read_library(args.model)
            check_fits(compiled, board)
        else:
            compiled = compile_step(args, board, progress)
        if not args.dry_run:
            create_project(compiled, board, args.directory, args.template)
    out.line(memory_line(compiled))
    if args.dry_run:
        out.line("nothing written (--dry-run)")
    else:
        place = shlex.quote(str(args.directory))
        out.line(f"wrote {args.directory}; build it with: utvm project build {place}")
    out.result("utvm.project/1", {"directory": args.directory, "board": board.name})
    return 0


def run_build(args: argparse.Namespace, out: Output) -> int:
    """Build the image."""
    with out.progress() as progress:
        progress(f"building {args.directory}", 0, 1)
        image = build_project(args.directory, trust=args.trust_board)
    out.line(f"{image.elf}: flash {image.flash_bytes:,} bytes, RAM {image.ram_bytes:,} bytes")
    out.result(
        "utvm.image/1",
        {"elf": image.elf, "flash_bytes": image.flash_bytes, "ram_bytes": image.ram_bytes},
    )
    return 0


def run_flash(args: argparse.Namespace, out: Output) -> int:
    """Flash the image."""
    with out.progress() as progress:
        progress(f"flashing {args.directory}", 0, 1)

        def check(board: Board) -> None:
            check_programmer(board, args.probe, args.serial)

        is_ours = (args.directory / PROJECT_FILE).is_file()
        built = None if is_ours else esp_idf_build(args.directory)
        if built is None:
            image = build_project(args.directory, trust=args.trust_board, check=check)
        else:
            image = read_esp_idf(built).image
            check(image.board)
        flash_image(image, probe=args.probe, serial=args.serial, port=args.port)
    if not process.is_dry_run():
        out.line(f"{image.elf} is on the board")
    out.result("utvm.flash/1", {"elf": image.elf, "board": image.board.name})
    return 0
