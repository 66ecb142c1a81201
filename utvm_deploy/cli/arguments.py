"""What the options of boards become: the board, and where it is connected."""

from __future__ import annotations

import argparse
import os

from utvm_deploy.api.steps import Connected
from utvm_deploy.base.errors import UsageError
from utvm_deploy.boards.board import Board, load_board, with_template
from utvm_deploy.boards.facts import INSTRUCTIONS
from utvm_deploy.boards.twin import emulated_twin
from utvm_deploy.device.probe import check_place, choose_link
from utvm_deploy.service.client.session_server import SCHEME, board_address, check_no_place


def twin_note(args: argparse.Namespace) -> str:
    """With --emulate, what is the board's, and what is the emulated machine's."""
    if args.board is None:
        raise UsageError("--emulate stands for a board; give --board")
    emulator = board_of(args).emulator
    return emulator.twin_note if emulator else ""


def connection(args: argparse.Namespace) -> Connected:
    """What the command line says; of a real board, else what the environment has."""
    server, _ = _server_and_board(args.board)
    settings = {} if server or board_of(args).runs_here else os.environ
    port, probe, serial = (
        getattr(args, name, None) or settings.get(f"UTVM_{name.upper()}")
        for name in ("port", "probe", "serial")
    )
    return Connected(
        port=port,
        probe=probe,
        serial=serial,
        link=getattr(args, "link", None),
        server=server,
        timing=getattr(args, "timing", INSTRUCTIONS),
    )


def _server_and_board(given: str) -> tuple[str | None, str]:
    """The server's URL, if the board is one of a server, and the board's name or file."""
    return board_address(given) if given.startswith(SCHEME) else (None, given)


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
