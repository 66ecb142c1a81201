"""A connected board: its memory, its functions and the models on it.

    with connect("mps2_an500") as device:
        module = device.load_module("void twice(int *x) { *x *= 2; }")
        x = device.tensor(np.array([21], np.int32))
        module["twice"](x)
        x.numpy()

The host does the complicated work: it allocates the device's workspace, links modules, looks
functions up in the image and lays out tensors. ``connection`` reaches the board, calls wait in
``queue``, and ``session`` owns what is lost at a reset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from utvm_deploy.base.errors import BoardError, DeviceError
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.boards.facts import CYCLES, TIMINGS
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.device.calls import Argument, Call
from utvm_deploy.device.connection import Connection
from utvm_deploy.device.kernels import load_kernels
from utvm_deploy.device.link.base import Task
from utvm_deploy.device.model import DeviceModel
from utvm_deploy.device.module import Module, load_module
from utvm_deploy.device.probe import Launcher, LocalLauncher, check_place, choose_link
from utvm_deploy.device.tensor import (
    Shape,
    Tensor,
    device_bytes,
    device_dtype,
    tensor_name,
    tensor_shape,
)
from utvm_deploy.project import build_image
from utvm_deploy.project.link_module import Sources, compile_module
from utvm_deploy.service.client.remote_board import RemoteLauncher
from utvm_deploy.service.client.session_server import (
    SCHEME,
    board_address,
    check_no_place,
    http_server,
)

#: Flags for generated kernels and models, as in images.
KERNEL_FLAGS = ("-O3",)


class Device(Connection):
    """A board that is reached on first use and released by ``close`` or the ``with`` block.

    Until ``load`` it runs the bare runtime: memory can be read and written, modules be loaded and
    functions be called. Not safe for use from several threads at once.
    """

    def __enter__(self) -> Device:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        try:
            # What nobody asked for may have failed, too; but one error at a time.
            if error is None:
                self.sync()
        finally:
            self.close()

    # The primitives; each comes after every call that is queued.

    def read(self, address: int, size: int) -> bytes:
        """Bytes of the device's memory."""
        return self.session.read(address, size)

    def write(self, address: int, data: bytes) -> None:
        """Change the device's memory."""
        self.session.write(address, data)

    def execute(self, tasks: Sequence[Task], timeout_s: float) -> list[tuple[int, ...]]:
        """Run tasks, one after the other; the ticks of every repeat of every task."""
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
        """Free a block that ``allocate`` gave."""
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

    def symbol(self, name: str) -> int:
        """Address of a function or object of the running image."""
        try:
            return self.image.symbols[name]
        except KeyError:
            raise DeviceError(
                f"the image on {self.board.name} has no symbol {name!r}; "
                f"is the model or module that defines it loaded?"
            ) from None

    def call(
        self, function: str, *arguments: Argument, repeat: int = 1, timeout_s: float | None = None
    ) -> Call:
        """Queue a call of a function of the image with tensors and integers."""
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
        """A module of kernels (``kernels.contract.call.Kernel``) or scheduled PrimFuncs.

        Functions take the PrimFunc's parameters; their scratch comes with the module. A mapping
        names the functions.
        """
        self._check_runs_from_ram(name)
        return load_kernels(self.session, self.board, kernels, name, flags)

    def load(self, compiled: CompiledModel, *, into: str = "flash") -> DeviceModel:
        """Make a model callable: built into an image and started, or as a module (``into="ram"``).

        A model in RAM changes neither the image nor other loaded objects. It needs room for its
        weights, and for its pools: these are in the workspace, too.
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
            if compiled.linked:
                raise DeviceError(
                    f"{compiled.name} calls {compiled.linked[0].name}, which is linked into images "
                    "only; load it into flash"
                )
            if compiled.stack_bytes:
                raise DeviceError(
                    f"{compiled.name} has its scratch on the stack, and that of the running image "
                    "was not made for it; compile it with scratch='arena', or load it into flash"
                )
            module = self.load_module(
                compiled.sources, name=compiled.name, flags=("-std=c99", compiled.optimization_flag)
            )
            try:
                return DeviceModel(self, compiled, module)
            except BaseException:
                module.unload()
                raise
        if into != "flash":
            raise DeviceError(f"a model is loaded into 'flash' or 'ram', not into {into!r}")
        self.check_ready()
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
    server: str | None = None,
) -> Device:
    """A device on a board; nothing is started until it is used, or by ``with``.

    - ``board`` is a name, a board file's path, a ``Board``, or ``utvm://HOST[:PORT]/BOARD``: a
      board of a server.
    - ``port`` is where a real board's link is (``/dev/ttyACM0``, ``socket://host:port``).
      ``probe`` names one of the file's probes, and ``serial`` its serial number if there are
      several. If these are None, ``bench.toml`` decides, then USB.
    - ``link`` is "monitor", "debug" or "monitor+debug": tasks over the monitor, much memory
      through the debugger. Without it, the board's file decides.
    - ``strict`` runs each call at once, so that an error comes from where it was made.
    - ``timing`` is "cycles", or "instructions": an emulated board runs without its cycle model
      then, about twice as fast.
    - ``server`` is the URL of the server that the board is connected to.

    ``device.load(compiled)`` gives a ``DeviceModel``. Raises BoardError for an unknown board or
    arguments that do not fit it; later, use of the device raises UtvmError if the board fails.
    """
    if timing not in TIMINGS:
        raise BoardError(f"no timing {timing!r}; there are {' and '.join(TIMINGS)}")
    if isinstance(board, str) and board.startswith(SCHEME):
        server, board = board_address(board)
    found = board if isinstance(board, Board) else load_board(board)
    kind, has_model = choose_link(found, link), timing == CYCLES
    launcher: Launcher
    if server is None:
        check_place(found, port=port, probe=probe, serial=serial)
        launcher = LocalLauncher(found, kind, port, probe, serial, has_model)
    else:
        check_no_place(found, port=port, probe=probe, serial=serial)
        launcher = RemoteLauncher(found, http_server(server), kind, has_model)
    return Device(found, launcher, strict=strict)
