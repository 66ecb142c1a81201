"""Arguments that several verbs share, and what they become."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

from utvm_deploy.base.errors import BoardError, CompileError, UsageError
from utvm_deploy.boards.board import Board, load_board, with_template
from utvm_deploy.boards.facts import CYCLES, INSTRUCTIONS, TIMINGS
from utvm_deploy.boards.twin import emulated_twin
from utvm_deploy.cli.shape_option import add_shape
from utvm_deploy.compiler.c_text import check_prefix
from utvm_deploy.device.probe import check_link, check_place, choose_link
from utvm_deploy.service.client.session_server import SCHEME, board_address, check_no_place

#: What ``add_subparsers`` returns; argparse keeps the class private.
Verbs = Any


#: Seeds are what TVM's search takes for one.
_MOST_SEED = 2**31 - 1


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer") from None


def positive(text: str) -> int:
    """An integer above zero."""
    value = _integer(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above zero")
    return value


def seed(text: str) -> int:
    """What a search may begin with."""
    value = _integer(text)
    if not 0 <= value <= _MOST_SEED:
        raise argparse.ArgumentTypeError(f"{text} is not a seed; give one from 0 to {_MOST_SEED:,}")
    return value


def _prefix(text: str) -> str:
    try:
        return check_prefix(text)
    except CompileError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _link(text: str) -> str:
    try:
        check_link(text)
    except BoardError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def add_verb(
    verbs: Verbs,
    common: argparse.ArgumentParser,
    name: str,
    summary: str,
    run: Callable[..., int],
) -> argparse.ArgumentParser:
    """A verb's parser with the common arguments."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        name, parents=[common], help=summary, description=summary
    )
    parser.set_defaults(run=run)
    return parser


#: What MODEL is, for the help of verbs.
MODEL_HELP = "a model of int8 or float32: .tflite, .onnx, .pt2 or .relax"


def add_model(parser: argparse.ArgumentParser) -> None:
    """MODEL and --shape."""
    parser.add_argument("model", metavar="MODEL", type=Path, help=MODEL_HELP)
    add_shape(parser)


def add_board(parser: argparse.ArgumentParser, *, port: bool = False, needed: bool = True) -> None:
    """--board; --port, --probe, --serial and --link where the verb talks to the board."""
    default = os.environ.get("UTVM_BOARD")
    parser.add_argument(
        "--board",
        metavar="B",
        default=default,
        required=needed and default is None,
        help="a board's name (`utvm boards` lists them), a board file, or utvm://HOST/BOARD for a "
        "server's; default: $UTVM_BOARD",
    )
    add_trust(parser)
    if port:
        parser.add_argument(
            "--port",
            help="where a real board's link is (/dev/ttyACM0, socket://host:port); "
            "default: $UTVM_PORT, then bench.toml, then USB",
        )
        parser.add_argument(
            "--probe",
            help="which of a real board's probes; default: $UTVM_PROBE, bench.toml, its first",
        )
        parser.add_argument(
            "--serial",
            help="the probe's serial number; default: $UTVM_SERIAL, then bench.toml",
        )
        parser.add_argument(
            "--link",
            type=_link,
            help="monitor, debug or monitor+debug; default: as the board's file has it",
        )
        parser.add_argument(
            "--template",
            default=os.environ.get("UTVM_TEMPLATE"),
            help="what images are made from, such as zephyr; default: $UTVM_TEMPLATE, then the "
            "first that the board's file names",
        )


def add_timing(parser: argparse.ArgumentParser) -> None:
    """--timing, for verbs that show or keep ticks; the others need no cycle model."""
    parser.add_argument(
        "--timing",
        choices=TIMINGS,
        default=CYCLES,
        help="what an emulated board that has a cycle model counts: modelled cycles, or, about "
        "twice as fast, instructions; other boards have one unit; default: %(default)s",
    )


def add_emulate(parser: argparse.ArgumentParser) -> None:
    """--emulate, for verbs that run a model on a board."""
    parser.add_argument(
        "--emulate",
        action="store_true",
        help="run a real board's program on an emulated machine with the same core, with the "
        "board's clock, caches and sizes of memory; cycles are modelled",
    )


def twin_note(args: argparse.Namespace) -> str:
    """With --emulate, what is the board's, and what is the emulated machine's."""
    if args.board is None:
        raise UsageError("--emulate stands for a board; give --board")
    emulator = board_of(args).emulator
    return emulator.twin_note if emulator else ""


def add_trust(parser: argparse.ArgumentParser) -> None:
    """--trust-board."""
    parser.add_argument(
        "--trust-board",
        action="store_true",
        help="let the board file name any program, argument and compiler flag; it can then do all "
        "that you can (utvm docs security)",
    )


class Connection(TypedDict):
    """The arguments of ``connect`` that say where a board is connected, and what it counts."""

    port: str | None
    probe: str | None
    serial: str | None
    link: str | None
    server: str | None
    timing: str


def connection(args: argparse.Namespace) -> Connection:
    """What ``add_board`` with a port asked for; of a real board, else what the environment has."""
    server, _ = _server_and_board(args.board)
    settings = {} if server or board_of(args).runs_here else os.environ
    return Connection(
        port=args.port or settings.get("UTVM_PORT"),
        probe=args.probe or settings.get("UTVM_PROBE"),
        serial=args.serial or settings.get("UTVM_SERIAL"),
        link=args.link,
        server=server,
        timing=getattr(args, "timing", INSTRUCTIONS),
    )


def _server_and_board(given: str) -> tuple[str | None, str]:
    """The server's URL, if the board is one of a server, and the board's name or file."""
    return board_address(given) if given.startswith(SCHEME) else (None, given)


def add_name(parser: argparse.ArgumentParser) -> None:
    """--name."""
    parser.add_argument(
        "--name",
        metavar="PREFIX",
        type=_prefix,
        help="prefix of every C symbol; default: from the file's name",
    )


def board_of(args: argparse.Namespace) -> Board:
    """The board that the command line names, with the template that it asks for, if it has both
    that and the link.
    """
    server, name = _server_and_board(args.board)
    board = load_board(name, trust=args.trust_board)
    board = with_template(board, getattr(args, "template", None))
    if getattr(args, "emulate", False):
        if server is not None:
            raise UsageError(
                f"--emulate runs on this computer, and not on {server}; give --board {name}"
            )
        template = getattr(args, "template", None)
        if template not in (None, "baremetal"):
            raise UsageError(
                f"--emulate runs images of the template baremetal, not {template}; leave "
                "--template out"
            )
        board = emulated_twin(board)
    check = check_place if server is None else check_no_place
    check(board, **{name: getattr(args, name, None) for name in ("port", "probe", "serial")})
    choose_link(board, getattr(args, "link", None))
    return board
