"""The options that say how a model is compiled, for every verb that compiles one."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from utvm_deploy.backends.cmsis_nn import CmsisNn
from utvm_deploy.backends.custom import CustomOperators
from utvm_deploy.backends.interface import Backend
from utvm_deploy.base.errors import UsageError
from utvm_deploy.boards.board import Board
from utvm_deploy.cli.budget_arguments import add_budgets, add_pools, pools_of
from utvm_deploy.compiler.options import (
    AUTO,
    EXACT,
    FLOAT_MATHS,
    KERNELS,
    LEVELS,
    SCRATCH_PLACES,
    Objective,
)
from utvm_deploy.project import find_cmsis_nn, find_cmsis_nn_builds, load_backend
from utvm_deploy.records.candidate import CMSIS_NN

#: Names the user's copy of CMSIS-NN for every verb.
CMSIS_NN_VARIABLE = "UTVM_CMSIS_NN"


def add_compile_options(parser: argparse.ArgumentParser) -> None:
    """Add them; ``compile_options`` reads them."""
    group = parser.add_argument_group("how the model is compiled")
    group.add_argument(
        "--kernels",
        choices=KERNELS,
        default=KERNELS[0],
        help="best: ours, the fastest for the core; generic: ours in plain C; cmsis-nn: your "
        "CMSIS-NN where it has a function, unless --records know a faster kernel; "
        "default: %(default)s",
    )
    add_cmsis_nn(group, "for --kernels cmsis-nn, ")
    add_plugin(group)
    add_records(group)
    add_optimize(group)
    group.add_argument(
        "--float-math",
        choices=FLOAT_MATHS,
        default=EXACT,
        help="exact: float32 is rounded where the reference rounds; fast: a product and the sum "
        "after it may be rounded together, where the core can; default: %(default)s",
    )
    group.add_argument(
        "--scratch",
        choices=SCRATCH_PLACES,
        default=AUTO,
        help="where layers keep their scratch: in the arena, on the stack, or (auto) in a separate "
        "buffer, if the board has tightly coupled RAM for it; default: %(default)s",
    )
    add_budgets(group)
    add_pools(group)
    add_input_rows(group)
    add_no_float(group)


def add_input_rows(parser: Any) -> None:
    """--input-rows."""
    parser.add_argument(
        "--input-rows",
        action="store_true",
        help="the model takes its input row by row, as a camera gives it, by NAME_push_rows(arena, "
        "rows, n); the input is never whole in RAM",
    )


def add_no_float(parser: Any) -> None:
    """--no-float."""
    parser.add_argument(
        "--no-float",
        action="store_true",
        help="refuse a model with operators that compute in float32",
    )


def add_optimize(parser: Any) -> None:
    """--optimize."""
    parser.add_argument(
        "--optimize",
        choices=LEVELS,
        default=Objective.TIME,
        help="time: as fast as possible; size: as little flash as possible; balanced: less flash "
        "where that costs little time; ram: the smallest arena, at most 20 %% slower; "
        "default: %(default)s",
    )


def add_records(parser: Any) -> None:
    """--records."""
    parser.add_argument(
        "--records",
        metavar="R.jsonl",
        type=Path,
        help="what `utvm tune` measured: each layer gets its fastest kernel; for layers that it "
        "does not have, the records that come with utvm choose",
    )


def compile_options(args: argparse.Namespace, board: Board) -> dict[str, Any]:
    """The arguments that ``utvm_deploy.compile`` gets for them."""
    return {
        "kernels": args.kernels,
        "plugin": backend_of(args, board),
        "cmsis_nn": library_of(args, board),
        "scratch": args.scratch,
        "records": args.records,
        "optimize": args.optimize,
        "allow_float": not args.no_float,
        "float_math": args.float_math,
        "ram_budget": args.ram_budget,
        # Its levels are compiled by the C compiler, which a dry run does not start.
        "flash_budget": None if args.dry_run else args.flash_budget,
        "cycle_budget": args.cycle_budget,
        "input_rows": args.input_rows,
        "pools": pools_of(args),
    }


def library_of(args: argparse.Namespace, board: Board) -> CmsisNn | None:
    """The library that --kernels asks for; UsageError if that and --cmsis-nn do not agree."""
    library = cmsis_nn_of(args, board) if args.kernels == CMSIS_NN else None
    if args.kernels != CMSIS_NN and (args.cmsis_nn or args.cmsis_nn_library):
        raise UsageError(
            f"--cmsis-nn works only with --kernels {CMSIS_NN}, and --kernels is "
            f"{args.kernels!r}; give both or neither"
        )
    if args.kernels == CMSIS_NN and library is None:
        raise UsageError(
            f"--kernels {CMSIS_NN} needs your own copy of CMSIS-NN; name the folder that holds its "
            f"Include/ and a libcmsis-nn.a built for {board.cpu.core} (--cmsis-nn DIR, or "
            f"{CMSIS_NN_VARIABLE})"
        )
    return library


def add_plugin(parser: Any) -> None:
    """--plugin; ``backend_of`` reads it."""
    parser.add_argument(
        "--plugin",
        metavar="FILE.py|NAME",
        help="your backend, which computes the operators that it covers: a Python file, or the "
        "name of an installed plug-in; its code runs with your rights",
    )


def backend_of(args: argparse.Namespace, board: Board) -> Backend | None:
    """The backend that --plugin names, checked for the board; its code is run once."""
    if args.plugin is None:
        return None
    if args.kernels == CMSIS_NN:
        raise UsageError(
            f"--plugin and --kernels {CMSIS_NN} cannot be used together: a model takes one "
            "backend; leave one of them out, or let the plug-in call CMSIS-NN itself"
        )
    if getattr(args, "backend", None) is None:
        args.backend = load_backend(args.plugin, board)
    backend: Backend = args.backend
    return backend


def custom_of(args: argparse.Namespace, board: Board) -> CustomOperators | None:
    """The custom operators that --plugin brings."""
    backend = backend_of(args, board)
    return None if backend is None else CustomOperators(backend)


def refuse_compile_options(args: argparse.Namespace) -> None:
    """For a model that is compiled already; UsageError if one of the options was given."""
    given = [
        flag
        for flag, is_given in (
            ("--name", args.name is not None),
            ("--kernels", args.kernels != KERNELS[0]),
            ("--cmsis-nn", args.cmsis_nn is not None),
            ("--plugin", args.plugin is not None),
            ("--cmsis-nn-library", args.cmsis_nn_library is not None),
            ("--records", args.records is not None),
            ("--optimize", args.optimize != Objective.TIME),
            ("--float-math", args.float_math != EXACT),
            ("--scratch", args.scratch != AUTO),
            ("--no-float", args.no_float),
            ("--ram-budget", args.ram_budget is not None),
            ("--flash-budget", args.flash_budget is not None),
            ("--cycle-budget", args.cycle_budget is not None),
            ("--pool", bool(args.pool)),
            ("--input-rows", args.input_rows),
        )
        if is_given
    ]
    if given:
        raise UsageError(
            f"{args.model} is compiled already, so {' and '.join(given)} would change nothing; "
            "compile the model file again with it"
        )


def add_cmsis_nn(parser: Any, when: str, otherwise: str = "", *, several: bool = False) -> None:
    """--cmsis-nn and --cmsis-nn-library; ``when`` and ``otherwise`` complete the help.

    With ``several`` the folder may hold several builds; ``cmsis_nn_builds_of`` gives them.
    """
    held = "each libcmsis-nn.a in or below it" if several else "libcmsis-nn.a"
    parser.add_argument(
        "--cmsis-nn",
        metavar="DIR",
        type=Path,
        help=f"{when}your CMSIS-NN: a folder with Include/ and {held}, built for the board's "
        f"core, or with Zephyr its module; default: ${CMSIS_NN_VARIABLE}{otherwise}",
    )
    parser.add_argument(
        "--cmsis-nn-library",
        metavar="FILE",
        type=Path,
        action="append" if several else "store",
        help="the library, if it lies elsewhere" + ("; may be given several times" * several),
    )


def cmsis_nn_of(args: argparse.Namespace, board: Board) -> CmsisNn | None:
    """The user's CMSIS-NN, checked for the board; None if no folder is named."""
    folder = _cmsis_nn_folder(args)
    return find_cmsis_nn(folder, board, args.cmsis_nn_library) if folder else None


def cmsis_nn_builds_of(args: argparse.Namespace, board: Board) -> tuple[CmsisNn, ...]:
    """Every build of the user's CMSIS-NN, checked for the board; empty if no folder is named."""
    folder = _cmsis_nn_folder(args)
    return find_cmsis_nn_builds(folder, board, args.cmsis_nn_library or ()) if folder else ()


def _cmsis_nn_folder(args: argparse.Namespace) -> Path | None:
    folder = args.cmsis_nn or os.environ.get(CMSIS_NN_VARIABLE)
    if not folder and args.cmsis_nn_library:
        raise UsageError(
            "--cmsis-nn-library names a library without its headers; give their folder too "
            "(--cmsis-nn DIR)"
        )
    return Path(folder) if folder else None
