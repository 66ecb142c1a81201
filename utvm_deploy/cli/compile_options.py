"""What the options that say how a model is compiled become."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from utvm_deploy.backends.cmsis_nn import CMSIS_NN as CMSIS_NN_PRODUCT
from utvm_deploy.backends.cmsis_nn import CmsisNn, Product
from utvm_deploy.backends.custom import CustomOperators
from utvm_deploy.backends.interface import Backend
from utvm_deploy.base.errors import UsageError
from utvm_deploy.boards.board import Board
from utvm_deploy.cli.options.table import (
    CMSIS_NN_LIBRARY,
    COMPILED,
    ETHOS_U,
    ETHOS_U_DRIVER,
    FLASH_BUDGET,
)
from utvm_deploy.cli.parser import given, taken
from utvm_deploy.project import find_cmsis_nn, find_cmsis_nn_builds, find_ethos_u, load_backends
from utvm_deploy.records.candidate import CMSIS_NN


def compile_options(args: argparse.Namespace, board: Board) -> dict[str, Any]:
    """The keywords of ``utvm_deploy.compile``."""
    return _with_libraries(args, board, taken(args, COMPILED))


def keywords(args: argparse.Namespace, board: Board) -> dict[str, Any]:
    """The keywords of the verb's function, with those of ``compile``."""
    return _with_libraries(args, board, taken(args, args.row.taken))


def _with_libraries(
    args: argparse.Namespace, board: Board, options: dict[str, Any]
) -> dict[str, Any]:
    for row in (CMSIS_NN_LIBRARY, ETHOS_U, ETHOS_U_DRIVER):
        options.pop(row.attribute, None)
    if args.dry_run:
        # Its levels are compiled by the C compiler, which a dry run does not start.
        options.pop(FLASH_BUDGET.attribute, None)
    return options | {
        "plugin": backends_of(args, board) or None,
        "cmsis_nn": library_of(args, board),
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
            f"{CMSIS_NN_PRODUCT.variable})"
        )
    return library


def backends_of(args: argparse.Namespace, board: Board) -> tuple[Backend, ...]:
    """The backends that --plugin and --ethos-u name, checked for the board; code is run once."""
    if getattr(args, "backends", None) is None:
        args.backends = load_backends((*(args.plugin or ()), *_ethos_u_of(args, board)), board)
    backends: tuple[Backend, ...] = args.backends
    return backends


def _ethos_u_of(args: argparse.Namespace, board: Board) -> tuple[Backend, ...]:
    text, driver = getattr(args, "ethos_u", None), getattr(args, "ethos_u_driver", None)
    if text is None and driver is not None:
        raise UsageError("--ethos-u-driver is for --ethos-u CONFIG; give both")
    return () if text is None else (find_ethos_u(text, board, driver),)


def custom_of(args: argparse.Namespace, board: Board) -> CustomOperators | None:
    """The custom operators that --plugin brings."""
    backends = backends_of(args, board)
    return CustomOperators(*backends) if backends else None


def refuse_compile_options(args: argparse.Namespace) -> None:
    """For a model that is compiled already; UsageError if one of the options was given."""
    found = given(args, args.row.taken)
    if found:
        raise UsageError(
            f"{args.model} is compiled already, so {' and '.join(found)} would change nothing; "
            "compile the model file again with it"
        )


def cmsis_nn_of(args: argparse.Namespace, board: Board) -> CmsisNn | None:
    """The user's CMSIS-NN, checked for the board; None if no folder is named."""
    folder = _folder(args, CMSIS_NN_PRODUCT)
    return find_cmsis_nn(folder, board, args.cmsis_nn_library) if folder else None


def builds_of(
    args: argparse.Namespace, board: Board, product: Product = CMSIS_NN_PRODUCT
) -> tuple[CmsisNn, ...]:
    """Every build of the user's library, checked for the board; empty if no folder is named."""
    folder, libraries = _folder(args, product), _given(args, f"{product.option}-library")
    return find_cmsis_nn_builds(folder, board, libraries or (), product) if folder else ()


def _given(args: argparse.Namespace, option: str) -> Any:
    return getattr(args, option.replace("-", "_"))


def _folder(args: argparse.Namespace, product: Product) -> Path | None:
    option = product.option
    folder = _given(args, option) or os.environ.get(product.variable)
    if not folder and _given(args, f"{option}-library"):
        raise UsageError(
            f"--{option}-library names a library without its headers; give their folder too "
            f"(--{option} DIR)"
        )
    return Path(folder) if folder else None
