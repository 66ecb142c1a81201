"""Whether a board can be reached, as far as that is seen without touching it.

Asked before anything is compiled or built for it, which takes longer.
"""

from __future__ import annotations

from utvm_deploy.base import process
from utvm_deploy.base.errors import BoardError
from utvm_deploy.boards.facts import CHILD_PROBE, EMULATOR_PROBE, Board
from utvm_deploy.boards.twin import machine_for
from utvm_deploy.device.probe.detect import check_port_there, locate
from utvm_deploy.device.probe.flash import probe_commands
from utvm_deploy.device.probe.links import needs_debugger, needs_line
from utvm_deploy.device.probe.server import server_commands


def check_ready(
    board: Board,
    link: str,
    *,
    port: str | None = None,
    probe: str | None = None,
    serial: str | None = None,
) -> None:
    """Raise NoDevice, MissingTool or BoardError for a board that could not be started here.

    ``link`` is what ``choose_link`` gives. In a dry run everything is there.
    """
    if board.why_no_image:
        machine = machine_for(board)
        here = f"; {machine.name}, which is emulated, can run the model" if machine else ""
        raise BoardError(f"{board.why_no_image}{here}")
    kind = board.probe.kinds[0]
    own = board.cpu.target.machine
    if own is not None and not process.is_dry_run():
        own.check()
    if process.is_dry_run() or kind == CHILD_PROBE:
        return
    if kind == EMULATOR_PROBE:
        assert board.emulator is not None
        process.find_tool(board.emulator.program)
        return
    needs_port = needs_line(link)
    place = locate(board, port=port, serial=serial, needs_port=needs_port)
    if needs_port:
        assert place.port is not None
        check_port_there(board, place.port)
    if place.entry.server_address is not None:
        return
    check_programmer(board, probe, serial)
    if needs_debugger(link):
        server = server_commands(board, probe).server
        assert server is not None
        process.find_tool(server.program)


def check_programmer(board: Board, probe: str | None, serial: str | None) -> None:
    """Raise MissingTool if the program that flashes the board is not installed."""
    if not process.is_dry_run():
        entry = locate(board, serial=serial, needs_port=False).entry
        process.find_tool(probe_commands(board, probe or entry.probe).flash.program)
