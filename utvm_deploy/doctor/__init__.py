"""What work on a board needs, what is there of it, and what brings the rest.

installed   Python, packages, programs            always
desk        probe, USB, rights, port, image       for a real board, in the order of bringing it up
"""

from __future__ import annotations

from utvm_deploy.boards.board import Board
from utvm_deploy.doctor.check import Check
from utvm_deploy.doctor.desk import desk_checks
from utvm_deploy.doctor.installed import installed_checks

__all__ = ["Check", "examine"]


def examine(
    board: Board | None,
    *,
    port: str | None = None,
    serial: str | None = None,
    probe: str | None = None,
    link: str | None = None,
    builds: bool = True,
) -> list[Check]:
    """Check for what ``board`` needs, or for everything that any board needs.

    ``port`` and ``serial`` say which of several real boards is meant, ``probe`` which of its
    flashing programs is to be used, ``link`` how it is to be reached. Without ``builds`` no image
    is built for it.
    """
    checks = installed_checks(board)
    if board is not None and not board.runs_here:
        checks += desk_checks(
            board, port=port, serial=serial, probe=probe, link=link, builds=builds
        )
    return checks
