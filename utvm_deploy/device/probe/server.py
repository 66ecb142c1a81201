"""GDB servers for real boards: started as child processes, or running already somewhere.

start ──▶ child process ──▶ its TCP port answers ──▶ stream
              │ ends before that: its last words, as a sentence
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from pathlib import Path

from utvm_deploy.base import process
from utvm_deploy.base.errors import BoardError, NoDevice, ProbeError
from utvm_deploy.boards.facts import Board
from utvm_deploy.boards.probe_programs import EXPOSED_SERVERS, ProbeCommands
from utvm_deploy.device.link.gdb.client import GdbClient
from utvm_deploy.device.link.gdb.flash import write_flash
from utvm_deploy.device.link.stream import NoStream, PipeStream, Stream
from utvm_deploy.device.probe.argv import NEUTRAL_FOLDER, SERVER_PORTS, Wanted, server_argv
from utvm_deploy.device.probe.failures import failure
from utvm_deploy.device.probe.flash import first_installed, probe_commands
from utvm_deploy.project import Image
from utvm_deploy.targets.table import target_of

logger = logging.getLogger("utvm_deploy.device.probe")

# From its start until a server listens: pyOCD first imports for a second or two, then connects.
START_TIMEOUT_S = 20.0
# For a server that runs already, possibly on another computer.
CONNECT_TIMEOUT_S = 5.0
# How often a port is tried that does not answer yet.
_RETRY_S = 0.05
_HERE = "127.0.0.1"


class DebugServer:
    """A GDB server that listens; ``stream`` leads to it. ``close`` ends it if it is ours."""

    def __init__(self, address: tuple[str, int], child: process.Child | None, name: str) -> None:
        self.address = address
        self.name = name
        self._child = child
        self._stream: Stream | None = None

    @property
    def pid(self) -> int | None:
        """Its process; None if it was not started here."""
        return self._child.pid if self._child else None

    @property
    def stream(self) -> Stream:
        """The one connection that it serves."""
        assert self._stream is not None
        return self._stream

    def last_words(self) -> str:
        """What it printed of late."""
        return self._child.last_words() if self._child else ""

    def close(self) -> None:
        """May be called again."""
        if self._stream is not None:
            self._stream.close()
        if self._child is not None:
            self._child.close()

    def pretend(self) -> None:
        """In a dry run nothing listens."""
        self._stream = NoStream()

    def wait(self, timeout_s: float, what: str) -> None:
        """Until it takes our connection; a server that ends instead says why."""
        deadline = time.monotonic() + timeout_s
        while True:
            left_s = deadline - time.monotonic()
            if self._child is not None and not self._child.is_alive():
                raise failure(what, self.name, self.last_words(), self._child.returncode)
            if left_s < 0:
                raise ProbeError(
                    f"{what} with {self.name} took longer than {timeout_s:g} s; replug the board"
                )
            try:
                sock = socket.create_connection(self.address, left_s)
            except OSError as error:
                if self._child is None:
                    host, port = self.address
                    raise NoDevice(
                        f"no GDB server answers at {host}:{port} ({error.strerror or error}); "
                        "start it there, or take server = ... out of the bench file"
                    ) from error
                time.sleep(_RETRY_S)
                continue
            # Packets are small and waited for.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            fd = sock.detach()
            self._stream = PipeStream(fd, fd, f"the debug server {self.name}")
            return


def start_server(
    board: Board, *, probe: str | None = None, serial: str | None = None
) -> DebugServer:
    """Start a GDB server for the board and connect to it; the caller closes it."""
    commands = server_commands(board, probe)
    action = commands.server
    assert action is not None
    ports = _free_ports(SERVER_PORTS)
    argv = server_argv(commands.name, action, Wanted(serial=serial, ports=ports))
    program = Path(action.program).name
    if program in EXPOSED_SERVERS:
        logger.warning(
            "%s listens on every network interface: while it runs, anyone who reaches this "
            "computer's port %d controls the board; on a network that is not yours, "
            "take another probe",
            program,
            ports[0],
        )
    child = process.start(argv, merges_output=True, cwd=NEUTRAL_FOLDER)
    server = DebugServer((_HERE, ports[0]), child, action.program)
    if process.is_dry_run():
        server.pretend()
        return server
    try:
        server.wait(START_TIMEOUT_S, f"starting a debug server for {board.name}")
    except BaseException:
        server.close()
        raise
    logger.info("%s serves %s at port %d", action.program, board.name, ports[0])
    return server


def use_server(address: tuple[str, int]) -> DebugServer:
    """Connect to a GDB server that runs already."""
    server = DebugServer(address, None, f"at {address[0]}:{address[1]}")
    if process.is_dry_run():
        server.pretend()
    else:
        server.wait(CONNECT_TIMEOUT_S, "connecting to a debug server")
    return server


def flash_through_server(image: Image, address: tuple[str, int]) -> None:
    """Write the image with a GDB server that runs already, and start it.

    Such a server holds the probe, so that no flashing program could.
    """
    logger.info("flashing %s through the debug server at %s:%d", image.board.name, *address)
    with contextlib.closing(use_server(address)) as server:
        if process.is_dry_run():
            return
        client = GdbClient(server.stream, target_of(image.board.cpu.core))
        client.greet()
        write_flash(client, image.load_segments)
        client.reset()
        client.detach()


def reset_through_server(board: Board, address: tuple[str, int]) -> None:
    """Restart the board with a GDB server that runs already."""
    with contextlib.closing(use_server(address)) as server:
        if process.is_dry_run():
            return
        client = GdbClient(server.stream, target_of(board.cpu.core))
        client.greet()
        client.reset()
        client.detach()


def server_commands(board: Board, probe: str | None) -> ProbeCommands:
    """The board's probe of that name, by default the first that can serve here."""
    if probe is None:
        if not any(one.server for one in board.probe.commands):
            raise BoardError(
                f"{board.name} has no debug server: none of its probes "
                f"({', '.join(board.probe.kinds)}) has one"
            )
        return first_installed(board.probe.commands, lambda one: one.server)
    commands = probe_commands(board, probe)
    if commands.server is None:
        serving_names = ", ".join(one.name for one in board.probe.commands if one.server)
        raise BoardError(
            f"{probe} has no debug server for {board.name}; take another probe ({serving_names})"
        )
    return commands


def _free_ports(count: int) -> tuple[int, ...]:
    """TCP ports that nobody listens at, at this moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((_HERE, 0))
        return tuple(one.getsockname()[1] for one in sockets)
