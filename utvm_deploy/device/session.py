"""One boot of the device: what is valid until it restarts.

A reset, a new image or a lost link ends the session. Its objects (tensors, modules, models) say so
when they are used. The device then begins the next session.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from utvm_deploy.base.errors import DeviceError, DeviceReset, LinkError, UtvmError
from utvm_deploy.device.calls import Argument, Call
from utvm_deploy.device.link.base import Hello, Link, Region, Task
from utvm_deploy.device.link.deadlines import speeds_of
from utvm_deploy.device.queue import FILL_SYMBOL, Queue
from utvm_deploy.device.workspace_blocks import ALIGNMENT, Block, Memory, zone_bytes
from utvm_deploy.project import Image

CRC_SYMBOL = "utvm_crc32_of"
#: The image's functions that take a size in bytes -> which of their arguments it is.
_SIZE_ARGUMENTS: Mapping[str, int] = {CRC_SYMBOL: 1, FILL_SYMBOL: 1}
# Words on the wire.
_MIN_WORD, _MAX_WORD = -(1 << 31), (1 << 32) - 1


class Session:
    """Memory, queue and link of one boot.

    ``ended`` is empty, or a phrase that says why the RAM was lost. ``is_silent`` means that nothing
    answers any more, so that the board must be restarted.
    """

    def __init__(
        self, link: Link, image: Image, hello: Hello, explain: Callable[[UtvmError], str]
    ) -> None:
        # Additional facts to the error itself when the session ends by one.
        self._explain = explain
        self.image = image
        self.hello = hello
        self.board = image.board
        self.ended = ""
        self.is_silent = False
        #: Function name -> address of what modules added.
        self.module_symbols: dict[str, int] = {}
        self.link = link
        self.memory = Memory(self.board.name, hello.workspace_address, hello.workspace_size)
        #: What every deadline is computed from.
        self.speeds = speeds_of(self.board)
        self.queue = Queue(_Watched(self), hello, image.symbols, self._zone_report, self.speeds)
        self._report: Block | None = None
        self._regions: tuple[Region, ...] | None = None

    # The end of it.

    def check(self, what: str) -> None:
        """DeviceReset that names ``what`` if the session is over."""
        if self.ended:
            raise DeviceReset(f"{what} is lost, because {self.ended}; make it again")

    def end(self, reason: str, *, is_silent: bool = False) -> None:
        """End the session: everything in RAM is lost, and calls that wait will never run."""
        if not self.ended:
            self.ended = reason
            self.is_silent = is_silent
            self.queue.drop(DeviceReset(reason))

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """End the session if the block, which talks to the device, finds that RAM is lost."""
        try:
            yield
        except DeviceReset as error:
            raise self._ended_by(error, "restarted by itself", is_silent=False) from error
        except LinkError as error:
            raise self._ended_by(error, "did not answer any more", is_silent=True) from error

    def _ended_by(self, error: UtvmError, what: str, *, is_silent: bool) -> UtvmError:
        reason = self._explain(error)
        self.end(f"{self.board.name} {what}{f' ({reason})' if reason else ''}", is_silent=is_silent)
        return type(error)(f"{error}; {reason}") if reason else error

    # The primitives, in order with what is queued.

    def read(self, address: int, size: int) -> bytes:
        """Bytes of memory, after all that is queued."""
        self.queue.flush()
        return self.read_now(address, size)

    def write(self, address: int, data: bytes) -> None:
        """Change memory, after all that is queued."""
        self.queue.flush()
        self.write_now(address, data)

    def read_now(self, address: int, size: int) -> bytes:
        """Bytes of memory that nothing queued can change."""
        with self.watch():
            return self.link.read(address, size)

    def write_now(self, address: int, data: bytes) -> None:
        """Change memory that nothing queued can use."""
        with self.watch():
            self.link.write(address, data)

    def execute(self, tasks: Sequence[Task], timeout_s: float) -> list[tuple[int, ...]]:
        """Run tasks, after all that is queued."""
        self.queue.flush()
        with self.watch():
            return self.link.execute(tasks, timeout_s)

    def checksum(self, address: int, size: int) -> int:
        """CRC-32 of memory, after all that is queued."""
        self.queue.flush()
        with self.watch():
            return self.link.checksum(address, size)

    # Memory.

    def allocate(self, size: int, what: str, alignment: int = ALIGNMENT) -> Block:
        """A block of the workspace with red zones around it; its content is arbitrary."""
        block = self.memory.allocate(size, what, alignment)
        self.queue.add_zones(block)
        return block

    def allocate_with(self, data: bytes, what: str) -> Block:
        """A block that holds ``data``, zones included in the one write."""
        block = self.memory.allocate(len(data), what)
        try:
            self.write_block(block, data)
        except BaseException:
            if not self.ended:
                self.memory.free(block)
            raise
        return block

    def write_block(self, block: Block, data: bytes) -> None:
        """Content and zones of a block that no task can know yet."""
        before, after = block.zones
        self.write_now(before, zone_bytes(before) + data + zone_bytes(after))

    def free(self, block: Block) -> None:
        """Give a block back, after all that is queued."""
        if self.ended:
            return
        try:
            if block.is_shown:
                self.queue.flush()
        finally:
            if not self.ended:
                self.queue.forget(block)
                self.memory.free(block)

    # Calls.

    def call(
        self,
        function: int,
        name: str,
        arguments: Sequence[Argument],
        *,
        repeat: int = 1,
        timeout_s: float | None = None,
        blocks: Sequence[Block] = (),
    ) -> Call:
        """Queue a call of a function; ``blocks`` take part in addition to the arguments.

        Without ``timeout_s`` the deadline follows from the bytes of the call's arguments.
        """
        if repeat < 1:
            raise DeviceError(f"{name} cannot run {repeat} times; repeat it once or more")
        words = []
        involved = list(blocks)
        for position, argument in enumerate(arguments):
            block = getattr(argument, "block", None)
            if isinstance(block, Block):
                involved.append(block)
                words.append(block.address)
            else:
                words.append(_word(argument, name, position))
        for block in involved:
            block.is_shown = True
        if timeout_s is None:
            size = sum(block.size for block in set(involved))
            if name in _SIZE_ARGUMENTS and len(words) > _SIZE_ARGUMENTS[name]:
                size += max(words[_SIZE_ARGUMENTS[name]], 0)
            timeout_s = self.speeds.task_s(size) * repeat
        elif not timeout_s > 0:  # nor is NaN
            raise DeviceError(f"{name} cannot run within {timeout_s} s; give it a time above zero")
        task = Task(function, tuple(words), repeat, deadline_s=timeout_s)
        return self.queue.add(Call(task, name, arguments, tuple(dict.fromkeys(involved))))

    def symbols(self) -> Mapping[str, int]:
        """Functions and objects of the image and of loaded modules."""
        return {**self.image.symbols, **self.module_symbols}

    def can_execute(self, address: int, size: int) -> bool:
        """Whether the device runs code from there."""
        if self._regions is None:
            with self.watch():
                self._regions = self.link.regions()
        return any(
            region.executable
            and region.address <= address
            and address + size <= region.address + region.size
            for region in self._regions
        )

    def _zone_report(self) -> Block:
        if self._report is None:
            self._report = self.memory.allocate(4, "the report on red zones")
            self.write_now(self._report.address, bytes(4))
        return self._report


class _Watched:
    """The part of a link that the queue uses; notes when the session ends."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def read(self, address: int, size: int) -> bytes:
        return self._session.read_now(address, size)

    def execute(self, tasks: Sequence[Task], timeout_s: float) -> list[tuple[int, ...]]:
        with self._session.watch():
            return self._session.link.execute(tasks, timeout_s)


def _word(argument: object, name: str, position: int) -> int:
    """A number as the wire has it; anything else is refused with what to do instead."""
    try:
        value = argument.__index__()  # type: ignore[attr-defined]
    except (AttributeError, TypeError):
        raise DeviceError(
            f"argument {position} of {name} is {_kind(argument)}; a function on the device is "
            f"called with tensors and integers: make it one by device.tensor(...)"
        ) from None
    if not _MIN_WORD <= value <= _MAX_WORD:
        raise DeviceError(
            f"argument {position} of {name} is {value}, which 32 bits do not hold; "
            f"pass it in a tensor"
        )
    return int(value)


def _kind(argument: object) -> str:
    shape = getattr(argument, "shape", None)
    if shape:
        return f"an array of shape {tuple(shape)}"
    return f"{argument!r} of type {type(argument).__name__}"
