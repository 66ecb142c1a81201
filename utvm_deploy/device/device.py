"""A connected board: its memory, its functions and the models on it.

    with connect("mps2_an500") as device:
        module = device.load_module("void twice(int *x) { *x *= 2; }")
        x = device.tensor(np.array([21], np.int32))
        module["twice"](x)
        x.numpy()

The host does what needs brains: it allocates the device's workspace, links modules, looks functions
up in the image and lays out tensors. How a board is reached is the matter of ``probe``; calls wait
in ``queue``; what is lost at a reset belongs to ``session``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from utvm_deploy.board import Board, load_board
from utvm_deploy.compiler.model import CompiledModel
from utvm_deploy.device.calls import Argument, Call
from utvm_deploy.device.counts import Figures, counted_figures, final_report
from utvm_deploy.device.fault_record import take_fault_words
from utvm_deploy.device.kernels import load_kernels
from utvm_deploy.device.model import DeviceModel
from utvm_deploy.device.module import Module, load_module
from utvm_deploy.device.session import Session
from utvm_deploy.device.tensor import (
    Shape,
    Tensor,
    device_bytes,
    device_dtype,
    tensor_name,
    tensor_shape,
)
from utvm_deploy.device.trace import trace_if_asked
from utvm_deploy.errors import BoardError, DeviceError, DeviceReset, LinkError, UtvmError
from utvm_deploy.link.base import Hello, Link, Task
from utvm_deploy.link.fault import nearest_symbol
from utvm_deploy.probe import (
    RunningBoard,
    check_place,
    choose_link,
    needs_debugger,
    needs_line,
    open_link,
)
from utvm_deploy.probe import start as start_board
from utvm_deploy.project import Image, build_image
from utvm_deploy.project.link_module import Sources, compile_module

log = logging.getLogger(__name__)

#: What the ticks of an emulated board with a cycle model are to be.
CYCLES, INSTRUCTIONS = TIMINGS = ("cycles", "instructions")

#: Flags for generated kernels and models, as in images.
KERNEL_FLAGS = ("-O3",)


class Device:
    """A board that is reached on first use and let go of by ``close`` or the ``with`` block.

    Until ``load`` it runs the bare runtime: memory can be read and written, modules be loaded and
    functions be called. Not safe for use from several threads at once.
    """

    def __init__(
        self,
        board: Board,
        *,
        port: str | None = None,
        probe: str | None = None,
        serial: str | None = None,
        link: str | None = None,
        strict: bool = False,
        timing: str = CYCLES,
    ) -> None:
        if timing not in TIMINGS:
            raise BoardError(f"no timing {timing!r}; there are {' and '.join(TIMINGS)}")
        check_place(board, port=port, probe=probe, serial=serial)
        self.board = board
        self._timing = timing
        self._port, self._probe, self._serial = port, probe, serial
        self._link_kind = choose_link(board, link)
        self._is_strict = strict
        self._resources = ExitStack()
        self._running: RunningBoard | None = None
        self._link: Link | None = None
        self._image: Image | None = None
        self._session: Session | None = None

    def __enter__(self) -> Device:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            # What nobody asked for may have failed, too; but one error at a time.
            if error is None:
                self.sync()
        finally:
            self.close()

    def close(self) -> None:
        """End the child process or let go of the port. May be called again."""
        if self._session is not None:
            self._session.end("the device was closed")
        self._session = self._link = self._running = self._image = None
        self._resources.close()

    # What runs there.

    def start(self, image: Image) -> Hello:
        """Put ``image`` on the board and greet it; whatever ran there before is gone."""
        try:
            self.sync()
        finally:
            if self._session is not None:
                self._session.end(f"{image.elf.name} was started on {self.board.name}")
            self.close()
        trace_if_asked()
        resources = ExitStack()
        # Already now: a core that hangs in start-up is to be found there.
        self._image = image
        try:
            running = resources.enter_context(
                start_board(
                    self.board,
                    image,
                    port=self._port,
                    probe=self._probe,
                    serial=self._serial,
                    has_line=needs_line(self._link_kind),
                    has_debug_stream=needs_debugger(self._link_kind),
                    with_cycle_model=self._timing == CYCLES,
                )
            )
            link = open_link(running, self._link_kind, self._place_of)
            resources.callback(link.close)
            session = self._greet(link, running, image)
        except BaseException:
            resources.close()
            raise
        self._resources, self._running = resources, running
        self._link = link
        self._begin(session)
        return session.hello

    @property
    def session(self) -> Session:
        """What is valid until the device restarts; begins the next one if it did."""
        if self._link is None:
            self.start(build_image(None, self.board))
        assert self._link is not None and self._image is not None and self._running is not None
        if self._session is None or self._session.ended:
            if self._session is not None and self._session.is_silent:
                log.info("%s; restarting it", self._session.ended)
                self._running.reset()
            self._begin(self._greet(self._link, self._running, self._image))
        assert self._session is not None
        return self._session

    def _begin(self, session: Session) -> None:
        session.queue.is_strict = self._is_strict
        self._session = session
        log.info("%s runs %s: %s", self.board.name, session.image.elf.name, session.hello)

    def _greet(self, link: Link, running: RunningBoard, image: Image) -> Session:
        """A session with what runs on the board; if it died, the error says what of."""

        def explain(error: UtvmError) -> str:
            if isinstance(error, DeviceReset):
                return take_fault_words(link, image)
            words = running.last_words()
            notes = [f"the board's last words: {words}" if words else "", running.other_listeners()]
            return "; ".join(note for note in notes if note)

        try:
            return Session(link, image, link.hello(), explain)
        except LinkError as error:
            words = explain(error)
            if not words:
                raise
            raise type(error)(f"{error}; {words}") from error

    def _place_of(self, address: int) -> str:
        symbols = self._image.symbols if self._image else {}
        place = nearest_symbol(address, self._session.symbols() if self._session else symbols)
        line = self._image.line_of(address) if self._image else None
        return f"{place}, {line}" if line else place

    @property
    def strict(self) -> bool:
        """Whether each call runs at once, so that an error comes from where it was made."""
        return self._is_strict

    @strict.setter
    def strict(self, value: bool) -> None:
        self._is_strict = value
        if self._session is not None and not self._session.ended:
            self._session.queue.is_strict = value
            if value:
                self._session.queue.flush()

    @property
    def link(self) -> Link:
        """The link to what runs on the board; what goes over it does not wait for the queue."""
        return self.session.link

    @property
    def image(self) -> Image:
        """The image that runs on the board."""
        return self.session.image

    @property
    def hello(self) -> Hello:
        """What the device says of itself: workspace, tick rate and unit, largest payload."""
        return self.session.hello

    @property
    def is_modelled(self) -> bool:
        """Whether its cycles are those of a model, never measured on silicon."""
        return self.board.emulator is not None and self.hello.tick_unit == CYCLES

    def figures(self, ticks: Sequence[int]) -> list[Figures]:
        """What was counted in the latest calls that took these ticks, one after the other.

        A cycle model counts much, ``cycles`` first; anything else has its ticks alone, by their
        unit.
        """
        self.sync()
        unit = self.hello.tick_unit
        if not self.is_modelled:
            return [{unit: count} for count in ticks]
        assert self._running is not None
        return counted_figures(self._running, ticks, unit)

    def cycle_report(self) -> Mapping[str, Any] | None:
        """The cycle model's report on all that ran since the start; None where no model counts.

        The emulator writes it when it ends: what was on the device is lost.
        """
        if not self.is_modelled:
            return None
        self.sync()
        assert self._running is not None
        report = final_report(self._running)
        self.close()
        return report

    def symbol(self, name: str) -> int:
        """Address of a function or object of the running image."""
        try:
            return self.image.symbols[name]
        except KeyError:
            raise DeviceError(
                f"the image on {self.board.name} has no symbol {name!r}; "
                f"is the model or module that defines it loaded?"
            ) from None

    def reset(self) -> None:
        """Restart the image, after every call that is queued; everything in RAM is lost."""
        session = self.session
        try:
            session.queue.flush()
        finally:
            if not session.ended:
                with session.watch():
                    session.link.reset()
                session.end(f"{self.board.name} was reset")

    def sync(self) -> None:
        """Run every call that is queued; raises what the first failing one met."""
        if self._session is not None and not self._session.ended:
            self._session.queue.flush()

    # The primitives; each comes after every call that is queued.

    def read(self, address: int, size: int) -> bytes:
        """Bytes of the device's memory."""
        return self.session.read(address, size)

    def write(self, address: int, data: bytes) -> None:
        """Change the device's memory."""
        self.session.write(address, data)

    def execute(self, tasks: Sequence[Task], timeout_s: float) -> list[tuple[int, ...]]:
        """Run a batch; the ticks of every repeat of every task."""
        return self.session.execute(tasks, timeout_s)

    def checksum(self, address: int, size: int) -> int:
        """CRC-32 (as in ``zlib.crc32``) of device memory, computed there."""
        return self.session.checksum(address, size)

    # Memory.

    def allocate(self, size: int, what: str = "a buffer") -> int:
        """Address of ``size`` bytes of the workspace, ours until ``free`` or the next reset."""
        block = self.session.allocate(size, what)
        block.is_shown = True
        return block.address

    def free(self, address: int) -> None:
        """Give back what ``allocate`` gave."""
        self.session.free(self.session.memory.block_at(address))

    def tensor(self, array: Any, *, name: str | None = None) -> Tensor:
        """A tensor with the values and the type of ``array``; ``name`` is for error messages."""
        values = np.asarray(array)
        dtype = device_dtype(values.dtype)
        what = tensor_name(dtype, values.shape, name)
        session = self.session
        block = session.allocate_with(device_bytes(values), what)
        return Tensor(session, block, values.shape, dtype, name)

    def empty(self, shape: Shape, dtype: Any = np.int8, *, name: str | None = None) -> Tensor:
        """A tensor for a function to fill; its values are arbitrary until then."""
        found, extents = device_dtype(dtype), tensor_shape(shape)
        what = tensor_name(found, extents, name)
        session = self.session
        size = found.itemsize * int(np.prod(extents, dtype=np.int64))
        return Tensor(session, session.allocate(size, what), extents, found, name)

    # Code.

    def call(
        self,
        function: str,
        *arguments: Argument,
        repeat: int = 1,
        timeout_s: float | None = None,
    ) -> Call:
        """Queue a call of a function of the image with tensors and whole numbers."""
        address = self.symbol(function)
        return self.session.call(address, function, arguments, repeat=repeat, timeout_s=timeout_s)

    def load_module(
        self, sources: Sources, *, name: str = "module", flags: Sequence[str] = ()
    ) -> Module:
        """Compile C, link it against the running image and write it into the device's RAM.

        ``sources`` is C text, a path, a list of either, or a mapping of file names to texts;
        ``flags`` are added to the board's compiler flags.
        """
        self._check_runs_from_ram(name)
        return load_module(
            self.session, compile_module(sources, self.board, name=name, flags=flags)
        )

    def load_kernels(
        self,
        kernels: Sequence[Any] | Mapping[str, Any],
        *,
        name: str = "kernels",
        flags: Sequence[str] = KERNEL_FLAGS,
    ) -> Module:
        """A module of kernels (``kernels.call.Kernel``) or scheduled PrimFuncs.

        Functions take the PrimFunc's parameters; their working memory comes with the module. A
        mapping names the functions.
        """
        self._check_runs_from_ram(name)
        return load_kernels(self.session, self.board, kernels, name, flags)

    def load(self, compiled: CompiledModel, *, into: str = "flash") -> DeviceModel:
        """Make a model callable: built into an image and started, or as a module (``into="ram"``).

        A model in RAM leaves the image and all else that is loaded alone, and needs room for its
        weights.
        """
        if not isinstance(compiled, CompiledModel):
            raise DeviceError(
                f"a device loads what utvm_deploy.compile(...) gives, not {compiled!r} of type "
                f"{type(compiled).__name__}"
            )
        if compiled.board != self.board.name:
            raise BoardError(
                f"the model was compiled for {compiled.board} and the device is a "
                f"{self.board.name}; compile it with board={self.board.name!r}"
            )
        if into == "ram":
            if compiled.external is not None:
                raise DeviceError(
                    f"{compiled.name} calls {compiled.external.name}, which is linked into images "
                    "only; load it into flash"
                )
            if compiled.stack_bytes:
                raise DeviceError(
                    f"{compiled.name} has its scratch on the stack, and that of the running image "
                    "was not made for it; compile it with scratch='arena', or load it into flash"
                )
            module = self.load_module(
                compiled.sources, name=compiled.name, flags=("-std=c99", compiled.level)
            )
            try:
                return DeviceModel(self, compiled, module)
            except BaseException:
                module.unload()
                raise
        if into != "flash":
            raise DeviceError(f"a model is loaded into 'flash' or 'ram', not into {into!r}")
        self.start(build_image(compiled, self.board))
        return DeviceModel(self, compiled)

    def _check_runs_from_ram(self, name: str) -> None:
        ram = self.board.main_ram
        if not ram.executable:
            raise DeviceError(
                f"{self.board.name} runs no code from its RAM (region {ram.name} is not executable "
                f"in the board's file), so module {name!r} cannot be loaded; build the code into "
                f"an image instead"
            )


def connect(
    board: Board | str | Path,
    *,
    port: str | None = None,
    probe: str | None = None,
    serial: str | None = None,
    link: str | None = None,
    strict: bool = False,
    timing: str = CYCLES,
) -> Device:
    """A device on ``board`` (a name, a board file or a ``Board``).

    ``port`` is where a real board's link is (``/dev/ttyACM0``, ``socket://host:port``), ``probe``
    which of its file's probes flashes it, ``serial`` that probe's serial number, where there are
    several; what is left open ``bench.toml`` says, then USB. ``link`` is ``monitor``, ``debug`` or
    ``monitor+debug`` (batches over the monitor, much memory through the debugger); without it the
    board file decides. ``strict`` runs each call at once, for looking for errors. ``timing``
    "instructions" runs an emulated board without its cycle model, about twice as fast. Nothing is
    started until the device is used.
    """
    found = board if isinstance(board, Board) else load_board(board)
    return Device(
        found, port=port, probe=probe, serial=serial, link=link, strict=strict, timing=timing
    )
