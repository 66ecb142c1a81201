"""What a compiled model says of the code that a backend brought."""

from __future__ import annotations

import binascii
from dataclasses import dataclass, field

from utvm_deploy.kernels.contract.call import OTHER_STATUS

#: Addresses and sizes of registers are multiples of this: an MPU of Armv7-M needs that.
WINDOW_BYTES = 256
#: Ranges of registers that MPUs have room for.
MOST_WINDOWS = 2
_END = 1 << 32

#: Why a serialized region was refused, besides an engine's own statuses of -100 to 100.
BLOB_STATUSES = {
    OTHER_STATUS: "its engine returned a status that is not in -100 to 100",
    124: "its bytes are torn (their length or CRC-32 is wrong)",
    125: "its bytes are for another engine",
    126: "the engine is older than the format of its bytes; build the engine again",
}
#: A status of ``NAME_initialize`` from here on is of a layer: 256 times its number, and a byte.
LAYER_STATUS = 1 << 24
#: What a serialized region has before its bytes: four words.
HEADER_BYTES = 16


def engine_magic(engine: str) -> int:
    """The first word of what is serialized for an engine: the CRC-32 of its name."""
    return binascii.crc32(engine.encode())


def is_window(value: object) -> bool:
    """Whether it is the address and the size of a range of registers."""
    if not isinstance(value, tuple) or len(value) != 2:
        return False
    if not all(type(one) is int and one >= 0 and one % WINDOW_BYTES == 0 for one in value):
        return False
    address, size = value
    return size > 0 and bool(address + size <= _END)


@dataclass(frozen=True)
class ExternalLibrary:
    """A library of the user's own that the sources call, or C text that is among the sources.

    A library must be linked with the sources. C text has no ``include_dirs``, no ``library`` and no
    ``zephyr_config``.
    """

    name: str
    url: str  # where it comes from; may be empty
    include_dirs: tuple[str, ...]  # folders on this computer
    library: str  # the static library's path on this computer
    digest: str  # SHA-256 over headers and library, or over the C text
    built_with: str  # compiler, version and instruction set, for reports
    functions: tuple[str, ...]  # what is called, sorted
    # Options of Zephyr that build the library's parts which are called, without CONFIG_.
    zephyr_config: tuple[str, ...] = ()
    # A C function ``int32_t f(void *state)`` that must run once before the model does; empty: none.
    initialize: str = ""
    # The bytes of its state, which is in the arena; all of its functions get the address.
    state_bytes: int = 0
    # Registers of the device that its code uses: (address, bytes) of each range.
    registers: tuple[tuple[int, int], ...] = ()
    # Whether its code drives a device that no emulated board has.
    has_device: bool = field(default=False, metadata={"is_added": True})
    # What runs serialized regions: the beginning of the names of its C functions.
    engines: tuple[str, ...] = field(default=(), metadata={"is_added": True})

    @property
    def is_prepared(self) -> bool:
        """Whether something must run once before the model does."""
        return bool(self.initialize or self.engines)

    @property
    def is_linked(self) -> bool:
        """Whether the code is outside of the model's sources."""
        return bool(self.include_dirs or self.library or self.zephyr_config)
