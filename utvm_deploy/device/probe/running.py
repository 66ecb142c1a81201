"""A board that runs an image. All kinds have the same interface, however they were started.

                 start            stream                debug stream    reset
child process    spawn            its pipes                             spawn again
emulator         spawn            its pipes (a UART)    a socket pair   spawn again
real board       flash, then      the serial port   a GDB server's      the flashing program's reset
"""

from __future__ import annotations

import logging
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from utvm_deploy.base import process
from utvm_deploy.base.errors import BoardError, LinkClosed, LinkError, NoDevice
from utvm_deploy.boards.facts import CHILD_PROBE, EMULATOR_PROBE, Board
from utvm_deploy.device.link.holders import other_holders
from utvm_deploy.device.link.stream import NoStream, PipeStream, SerialStream, Stream, may_come
from utvm_deploy.device.probe.argv import BOOT_SEED_SYMBOL, emulator_argv
from utvm_deploy.device.probe.cycle_model import CycleModelFiles, cycle_model_arguments
from utvm_deploy.device.probe.detect import Place, check_port_there, locate
from utvm_deploy.device.probe.flash import flash_image, reset_board
from utvm_deploy.device.probe.server import (
    DebugServer,
    flash_through_server,
    reset_through_server,
    server_commands,
    start_server,
    use_server,
)
from utvm_deploy.project import Image

logger = logging.getLogger("utvm_deploy.device.probe")

# How long a port may disappear after its board was flashed or reset. USB devices come back within a
# second or two, and udev sets the rights of their ports afterwards.
PORT_TIMEOUT_S = 5.0
PORT_RETRY_S = 0.1


class _CurrentStream:
    """The stream of a board that may be restarted without its user's knowledge."""

    def __init__(self, stream: Stream) -> None:
        self.current = stream
        self._is_open = True

    def read(self, max_bytes: int, timeout_s: float) -> bytes:
        self._check_open()
        return self.current.read(max_bytes, timeout_s)

    def write(self, data: bytes, timeout_s: float) -> None:
        self._check_open()
        self.current.write(data, timeout_s)

    def close(self) -> None:
        self._is_open = False
        self.current.close()

    def _check_open(self) -> None:
        if not self._is_open:
            raise LinkClosed("the link to the board was closed; connect again")


@dataclass(frozen=True)
class Wiring:
    """How a real board is reached; None for what was not asked for."""

    open_port: Callable[[], Stream] | None
    open_server: Callable[[], DebugServer] | None
    reset: Callable[[], None]


class RunningBoard:
    """An image at work; close it, or use it as a context manager. ``start`` makes them."""

    def __init__(
        self,
        board: Board,
        image: Image,
        child_argv: Callable[[int | None], list[str]] | None,
        wiring: Wiring | None,
        has_debug_stream: bool = False,
        cycle_model: CycleModelFiles | None = None,
    ) -> None:
        self.board = board
        self.image = image
        #: What the cycle model leaves behind; None where none counts.
        self.cycle_model = cycle_model
        self._child_argv = child_argv
        self._child: process.Child | None = None
        self._wiring = wiring
        self._server: DebugServer | None = None
        self._stream: _CurrentStream | None = None
        self._debug_stream: _CurrentStream | None = None
        if child_argv is not None:
            stream, debug_stream = self._spawn(has_debug_stream)
            self._stream = _CurrentStream(stream)
            if debug_stream is not None:
                self._debug_stream = _CurrentStream(debug_stream)
            return
        assert wiring is not None
        try:
            if wiring.open_server is not None:
                self._server = wiring.open_server()
                self._debug_stream = _CurrentStream(self._server.stream)
            if wiring.open_port is not None:
                self._stream = _CurrentStream(wiring.open_port())
        except BaseException:
            self.close()
            raise

    @property
    def stream(self) -> Stream:
        """The bytes to and from the runtime; stays the same object over a reset."""
        if self._stream is None:
            raise LinkError(
                f"{self.board.name} was started without its serial line; name the link when "
                "connecting, or in its board file"
            )
        return self._stream

    @property
    def debug_stream(self) -> Stream:
        """The bytes to and from a GDB server for the core; otherwise like ``stream``."""
        if self._debug_stream is None:
            raise LinkError(
                f"{self.board.name} was started without a debug server; name the link when "
                "connecting, or in its board file"
            )
        return self._debug_stream

    @property
    def pid(self) -> int | None:
        """The process that runs the image; None for a real board."""
        return self._child.pid if self._child else None

    def stop(self) -> None:
        """End the process; its results exist until ``close``."""
        if self._child:
            self._child.close()

    def is_alive(self) -> bool:
        """Whether the process runs; of a real board only that its port is held."""
        return self._child.is_alive() if self._child else True

    def last_words(self) -> str:
        """What the process, or a real board's debug server, said, most recent last."""
        if self._child is None:
            return self._server.last_words() if self._server else ""
        # Emulators warn at every start about devices that nobody uses here.
        warning = f"{self._child.argv[0]}: warning:"
        lines = self._child.last_words().splitlines()
        return "\n".join(line for line in lines if not line.startswith(warning))

    def other_listeners(self) -> str:
        """Who has a real board's port open as well, as a phrase; empty if nobody is seen."""
        stream = self._stream.current if self._stream else None
        holders = other_holders(stream.url) if isinstance(stream, SerialStream) else []
        if not holders:
            return ""
        return f"{' and '.join(holders)} has its port open too and takes what it says; end that"

    def reset(self) -> None:
        """Restart from power-up, even if the runtime hangs; greet it again afterwards."""
        if self._wiring is not None:
            self._restart(self._wiring)
            return
        assert self._stream is not None
        self._stream.current.close()
        if self._debug_stream:
            self._debug_stream.current.close()
        if self._child:
            self._child.close()
        self._stream.current, debug_stream = self._spawn(self._debug_stream is not None)
        if self._debug_stream and debug_stream:
            self._debug_stream.current = debug_stream

    def close(self) -> None:
        """End the process, or let go of port and server; may be called again."""
        if self._stream:
            self._stream.close()
        if self._debug_stream:
            self._debug_stream.close()
        if self._server:
            self._server.close()
        if self._child:
            self._child.close()
        if self.cycle_model:
            self.cycle_model.close()

    def __enter__(self) -> RunningBoard:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _restart(self, wiring: Wiring) -> None:
        """A real board; its server gives the probe free meanwhile.

        So does the port: what is held when USB devices come back gets another name.
        """
        if self._stream is not None:
            self._stream.current.close()
        if self._server is not None:
            self._server.close()
        wiring.reset()
        if self._server is not None:
            assert self._debug_stream is not None and wiring.open_server is not None
            self._server = wiring.open_server()
            self._debug_stream.current = self._server.stream
        if self._stream is not None:
            assert wiring.open_port is not None
            self._stream.current = wiring.open_port()

    def _spawn(self, has_debug_stream: bool) -> tuple[Stream, Stream | None]:
        """The process' pipes, and our end of a socket pair whose other end it inherits."""
        assert self._child_argv is not None
        if not has_debug_stream:
            self._child = process.start(self._child_argv(None))
            return PipeStream.of_process(self._child.popen), None
        ours, theirs = socket.socketpair()
        with ours, theirs:
            fd = theirs.fileno()
            self._child = process.start(self._child_argv(fd), pass_fds=(fd,))
            ours_fd = ours.detach()
        name = f"the debug server of process {self._child.pid}"
        return PipeStream.of_process(self._child.popen), PipeStream(ours_fd, ours_fd, name)


def start(
    board: Board,
    image: Image,
    *,
    port: str | None = None,
    probe: str | None = None,
    serial: str | None = None,
    has_line: bool = True,
    has_debug_stream: bool = False,
    with_cycle_model: bool = False,
) -> RunningBoard:
    """Put the image on the board and let it run.

    Of a real board, ``port`` is its serial port or an address, ``probe`` one of its file's probes
    and ``serial`` that probe's serial number. If they are None, bench.toml decides, then USB.
    Without its line it needs no port. With a debug stream, an emulated core is halted at first.
    With its cycle model, a board that has one counts cycles, at half the speed; without it,
    instructions.
    """
    kind = board.probe.kinds[0]
    if has_debug_stream and kind != EMULATOR_PROBE and not board.has_debug_link:
        raise BoardError(
            f"{board.name} has no debug server that could be started here; use link='monitor'"
        )
    if kind == CHILD_PROBE:
        return RunningBoard(board, image, lambda _fd: [str(image.elf)], None)
    if kind == EMULATOR_PROBE:
        return _start_emulator(board, image, has_debug_stream, with_cycle_model)
    # Before minutes of flashing: is there a port at all?
    needs_port = has_line and not process.is_dry_run()

    def find_place() -> Place:
        return locate(board, port=port, serial=serial, needs_port=needs_port)

    place = find_place()
    if needs_port:
        assert place.port is not None
        check_port_there(board, place.port)
    return _start_real(board, image, place, find_place, probe, has_line, has_debug_stream)


def _start_real(
    board: Board,
    image: Image,
    place: Place,
    find_place: Callable[[], Place],
    wanted_probe: str | None,
    has_line: bool,
    has_debug_stream: bool,
) -> RunningBoard:
    probe, serial = wanted_probe or place.entry.probe, place.serial
    address = place.entry.server_address
    if address is None:
        if has_debug_stream:
            server_commands(board, wanted_probe)
        flash_image(image, probe=probe, serial=serial, port=place.port)
    else:
        flash_through_server(image, address)

    def open_port() -> Stream:
        if process.is_dry_run():
            return NoStream()
        return _open_port(board, find_place)

    def open_server() -> DebugServer:
        if address is not None:
            return use_server(address)
        return start_server(board, probe=wanted_probe, serial=serial)

    def reset() -> None:
        if address is None:
            reset_board(board, probe=probe, serial=serial, port=place.port)
        else:
            reset_through_server(board, address)

    wiring = Wiring(
        open_port if has_line else None, open_server if has_debug_stream else None, reset
    )
    return RunningBoard(board, image, None, wiring)


def _start_emulator(
    board: Board, image: Image, has_debug_stream: bool, with_cycle_model: bool
) -> RunningBoard:
    # In a dry run there is no image to look into.
    symbols: Mapping[str, int] = {} if process.is_dry_run() else image.symbols
    files = CycleModelFiles() if with_cycle_model and board.has_cycle_model else None
    try:
        model = cycle_model_arguments(board, symbols, files) if files else []

        def argv(gdb_fd: int | None) -> list[str]:
            seed = secrets.randbits(32)
            return [
                *emulator_argv(board, image.elf, symbols.get(BOOT_SEED_SYMBOL), seed, gdb_fd),
                *model,
            ]

        return RunningBoard(board, image, argv, None, has_debug_stream, files)
    except BaseException:
        if files:
            files.close()
        raise


def _open_port(board: Board, find_place: Callable[[], Place]) -> Stream:
    """The port of a board that was flashed or reset, which may have taken it from USB with it."""
    deadline = time.monotonic() + PORT_TIMEOUT_S
    while True:
        try:
            place = find_place()
            assert place.port is not None
            return SerialStream(place.port, place.entry.baud or board.link.baud)
        except (LinkError, NoDevice) as exc:
            is_passing = isinstance(exc, NoDevice) or may_come(exc)
            if not is_passing or time.monotonic() > deadline:
                raise NoDevice(f"{board.name} was flashed, but {exc}") from exc
        time.sleep(PORT_RETRY_S)
