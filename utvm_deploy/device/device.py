"""A connected board: its memory, its functions and the models on it.

    with connect("mps2_an500") as device:
        model = device.load(compile_model("digits.tflite", load_board("mps2_an500")))
        y = model(x)

The host does what needs brains: it allocates the device's workspace, looks functions up in the
image and lays out tensors. How a board is reached is the matter of ``probe``; how a loaded model is
run, of ``model``.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from utvm_deploy.board import Board, load_board
from utvm_deploy.compiler.model import CompiledModel
from utvm_deploy.device.model import DeviceModel
from utvm_deploy.errors import BoardError, DeviceError, LinkError
from utvm_deploy.link.base import Hello, Link, Task
from utvm_deploy.link.monitor import MonitorLink
from utvm_deploy.probe import RunningBoard
from utvm_deploy.probe import start as start_board
from utvm_deploy.project import Image, build_image

log = logging.getLogger(__name__)

#: Allocations start at a multiple of this many bytes: a cache line of the largest supported core.
ALLOCATION_ALIGNMENT = 32


class Device:
    """A board that is reached on first use and let go of by ``close`` or the ``with`` block.

    Until ``load`` it runs the bare runtime: memory can be read and written and functions of the
    runtime be called. Not safe for use from several threads at once.
    """

    def __init__(self, board: Board, *, port: str | None = None) -> None:
        self.board = board
        self._port = port
        self._resources = ExitStack()
        self._running: RunningBoard | None = None
        self._link: Link | None = None
        self._image: Image | None = None
        self._hello: Hello | None = None
        self._used_bytes = 0

    def __enter__(self) -> Device:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the child process or let go of the port. May be called again."""
        self._link = self._running = self._image = self._hello = None
        self._resources.close()

    def start(self, image: Image) -> Hello:
        """Put ``image`` on the board and greet it; whatever ran there before is gone."""
        self.close()
        resources = ExitStack()
        try:
            running = resources.enter_context(start_board(self.board, image, port=self._port))
            link = MonitorLink(running.stream)
            resources.callback(link.close)
            try:
                hello = link.hello()
            except LinkError as error:
                words = running.last_words()
                if not words:
                    raise
                raise type(error)(f"{error} The board's last words: {words}") from error
        except BaseException:
            resources.close()
            raise
        self._resources, self._running = resources, running
        self._link, self._image, self._hello = link, image, hello
        self._used_bytes = 0
        log.info("%s runs %s: %s", self.board.name, image.elf.name, hello)
        return hello

    @property
    def link(self) -> Link:
        """The link to what runs on the board; starts the bare runtime if nothing does yet."""
        if self._link is None:
            self.start(build_image(None, self.board))
        assert self._link is not None
        return self._link

    @property
    def image(self) -> Image:
        """The image that runs on the board."""
        _ = self.link
        assert self._image is not None
        return self._image

    @property
    def hello(self) -> Hello:
        """What the device says of itself: workspace, tick rate and unit, largest payload."""
        _ = self.link
        assert self._hello is not None
        return self._hello

    def symbol(self, name: str) -> int:
        """Address of a function or object of the running image."""
        try:
            return self.image.symbols[name]
        except KeyError:
            raise DeviceError(
                f"the image on {self.board.name} has no symbol {name!r}; "
                f"is the model or module that defines it loaded?"
            ) from None

    def read(self, address: int, size: int) -> bytes:
        """Bytes of the device's memory."""
        return self.link.read(address, size)

    def write(self, address: int, data: bytes) -> None:
        """Change the device's memory."""
        self.link.write(address, data)

    def execute(self, tasks: Sequence[Task], timeout_s: float) -> list[tuple[int, ...]]:
        """Run a batch; the ticks of every repeat of every task."""
        return self.link.execute(tasks, timeout_s)

    def checksum(self, address: int, size: int) -> int:
        """CRC-32 (as in ``zlib.crc32``) of device memory, computed there."""
        return self.link.checksum(address, size)

    def reset(self) -> None:
        """Restart the image; everything in RAM is lost."""
        self.link.reset()
        self._hello = self.link.hello()
        self._used_bytes = 0

    def allocate(self, size: int, what: str = "a buffer") -> int:
        """Address of ``size`` bytes of the workspace, ours until the next start or reset."""
        hello = self.hello
        size += -size % ALLOCATION_ALIGNMENT
        free = hello.workspace_size - self._used_bytes
        if size > free:
            raise DeviceError(
                f"{self.board.name} has no room for {what}: it needs {size} bytes and "
                f"{free} of {hello.workspace_size} bytes of workspace are free"
            )
        address = hello.workspace_address + self._used_bytes
        self._used_bytes += size
        return address

    def load(self, compiled: CompiledModel) -> DeviceModel:
        """Build an image with the model, start it on the board and make the model callable."""
        if compiled.board != self.board.name:
            raise BoardError(
                f"the model was compiled for {compiled.board} and the device is a "
                f"{self.board.name}; compile it with board={self.board.name!r}"
            )
        self.start(build_image(compiled, self.board))
        return DeviceModel(self, compiled)


def connect(board: Board | str | Path, *, port: str | None = None) -> Device:
    """A device on ``board`` (a name, a board file or a ``Board``).

    ``port`` is where a real board's link is (``/dev/ttyACM0``, ``socket://host:port``); without it
    ``bench.toml`` is asked. Nothing is started until the device is used.
    """
    return Device(board if isinstance(board, Board) else load_board(board), port=port)
