"""What work on a board needs, what is installed, and how to install the rest.

installed   Python, packages, programs            always
desk        probe, USB, rights, port, image       for a real board, in the order of bringing it up
"""

from __future__ import annotations

from utvm_deploy.boards.board import Board
from utvm_deploy.device.doctor.check import Check
from utvm_deploy.device.doctor.desk import desk_checks
from utvm_deploy.device.doctor.installed import installed_checks

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
    """Check everything that ``board`` needs, or that any board needs.

    ``port`` and ``serial`` choose one of several real boards, ``probe`` one of its flashing
    programs, ``link`` its link. Without ``builds`` no image is built for it.
    """
    checks = installed_checks(board)
    if board is not None and not board.runs_here:
        checks += desk_checks(
            board, port=port, serial=serial, probe=probe, link=link, builds=builds
        )
    return checks
