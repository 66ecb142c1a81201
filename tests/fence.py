"""The fence: which loads and stores of a function on an emulated core leave the memory it may use.

    with Fence(board) as fence, connect(fence.board) as device:
        fence.arm(function_address, return_address, window, allowed)
        ...the call, and device.sync()...
        fence.crossings()

A plugin of the emulator (``fence_plugin/fence.c``) checks every access of the call. Red zones find
only stores, and a neighbour in the arena is not a red zone.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from utvm_deploy.base.errors import ProbeError
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.boards.board import Board
from utvm_deploy.targets.emulator.plugin import Plugin, plugin_argument, plugin_for

#: Stretches that one call may touch, and instructions that a report names.
ALLOWED_MAX, CROSSINGS_MAX = 512, 64
_MAGIC = 0x55464E43
# magic; generation, entry, end; window; how many are allowed; accesses, crossings
_HEADER = struct.Struct("<I3I2I3I")
_GENERATION = struct.Struct("<I")
_STRETCH = struct.Struct("<II")
_CROSSING = struct.Struct("<4I")
_CROSSINGS_AT = _HEADER.size + ALLOWED_MAX * _STRETCH.size
_FILE_BYTES = _CROSSINGS_AT + CROSSINGS_MAX * _CROSSING.size


def _headers() -> dict[str, str]:
    """What the plugin is compiled with, so that both sides agree."""
    numbers = {"MAGIC": _MAGIC, "ALLOWED_MAX": ALLOWED_MAX, "CROSSINGS_MAX": CROSSINGS_MAX}
    lines = [f"#define FENCE_{name} 0x{number:x}u" for name, number in numbers.items()]
    return {"fence_table.h": "\n".join([*lines, ""])}


FENCE = Plugin("fence", Path(__file__).with_name("fence_plugin"), _headers)


@dataclass(frozen=True)
class Stretch:
    """Bytes of the device's memory."""

    address: int
    size: int


@dataclass(frozen=True)
class Crossing:
    """The first access of an instruction that left what its function was given."""

    pc: int
    address: int
    size: int
    is_store: bool

    def __str__(self) -> str:
        kind = "store to" if self.is_store else "load from"
        return f"a {kind} {self.address:#x} of {self.size} bytes by the instruction {self.pc:#x}"


class Fence:
    """A plugin's file, and ``board`` as one whose emulator has the plugin; a context manager."""

    def __init__(self, board: Board) -> None:
        if board.emulator is None:
            raise ProbeError(f"{board.name} is not emulated; the fence is a plugin of QEMU")
        self._folder = TemporaryFolder("utvm-fence")
        try:
            path = self._folder.path / "fence.bin"
            path.write_bytes(_GENERATION.pack(_MAGIC).ljust(_FILE_BYTES, b"\0"))
            with path.open("r+b") as file:
                self._shared = mmap.mmap(file.fileno(), _FILE_BYTES)
            plugin = plugin_for(board.emulator.program, FENCE)
        except BaseException:
            self._folder.close()
            raise
        arguments = (*board.emulator.arguments, *plugin_argument(plugin, [f"shared={path}"]))
        self.board = replace(board, emulator=replace(board.emulator, arguments=arguments))
        self._generation = 0

    def __enter__(self) -> Fence:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """May be called again."""
        self._shared.close()
        self._folder.close()

    def arm(self, entry: int, end: int, window: Stretch, allowed: Sequence[Stretch]) -> None:
        """Watch the next calls of the function at ``entry``, which returns to ``end``.

        In the window it may touch what is allowed; elsewhere nobody looks. The device must be idle.
        """
        if len(allowed) > ALLOWED_MAX:
            raise ProbeError(
                f"{len(allowed)} stretches are more than the fence knows, {ALLOWED_MAX}"
            )
        self._generation += 1
        # Bit 0 of an Arm function's address is not part of it.
        numbers = (self._generation, entry & ~1, end & ~1, window.address, window.size)
        blank = bytearray(_FILE_BYTES)
        _HEADER.pack_into(blank, 0, _MAGIC, *numbers, len(allowed), 0, 0)
        for index, one in enumerate(allowed):
            _STRETCH.pack_into(blank, _HEADER.size + index * _STRETCH.size, one.address, one.size)
        self._shared[:] = bytes(blank)

    def disarm(self) -> None:
        """Watch nothing; what was found stays."""
        _GENERATION.pack_into(self._shared, _GENERATION.size, 0)

    @property
    def accesses(self) -> int:
        """How many accesses of the window were looked at since ``arm``."""
        return int(_HEADER.unpack_from(self._shared)[7])

    def crossings(self) -> list[Crossing]:
        """What left the allowed stretches since ``arm``, once for each instruction."""
        found = []
        for at in range(_CROSSINGS_AT, _FILE_BYTES, _CROSSING.size):
            pc, address, size, is_store = _CROSSING.unpack_from(self._shared, at)
            if not size:
                break
            found.append(Crossing(pc, address, size, bool(is_store)))
        return found
