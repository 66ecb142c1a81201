"""The allocator of the device's workspace: best fit, coalescing, red zones. No I/O.

    | free | zone | block | pad | zone | zone | block | zone |  free          |

A red zone is directly before and after each block. Writing there is an error that the queue finds
after the tasks ran.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from utvm_deploy.base.errors import DeviceError

#: Blocks start at a multiple of this many bytes: a cache line of the largest supported core.
ALIGNMENT = 32
#: runtime/utvm.h's UTVM_ZONE_BYTES.
ZONE_BYTES = 32
#: The pattern of zones: a value that kernels hardly ever write.
ZONE_PATTERN = 0xB16B5EA7


@dataclass(eq=False)
class Block:
    """A stretch of the workspace with an owner."""

    address: int
    size: int  # bytes, without the zones
    what: str  # for error messages: "tensor weights (int8 [3, 3])"
    start: int  # of the lower zone
    end: int  # after the upper zone and padding
    #: Whether a function on the device may know the address, so that any task may use the block.
    is_shown: bool = False
    is_freed: bool = field(default=False, init=False)

    @property
    def zones(self) -> tuple[int, int]:
        """Addresses of the red zones before and after it."""
        return self.address - ZONE_BYTES, self.address + self.size

    def zone_at(self, address: int) -> str | None:
        """``before`` or ``after`` if the address is in that zone."""
        for side, start in zip(("before", "after"), self.zones, strict=True):
            if start <= address < start + ZONE_BYTES:
                return side
        return None


def zone_bytes(address: int) -> bytes:
    """What the zone at ``address`` holds while nobody wrote there; see runtime/utvm_zones.c."""
    return bytes(_zone_byte(at) for at in range(address, address + ZONE_BYTES))


def _zone_byte(address: int) -> int:
    line = address >> 5
    return (ZONE_PATTERN >> address % 4 * 8 ^ (line ^ line >> 8) * 0x3D) & 0xFF


class Memory:
    """The allocator of one workspace, for one boot of the device."""

    def __init__(self, owner: str, address: int, size: int) -> None:
        self._owner = owner
        self.address = address
        self.size = size
        # Start and end of every free stretch, by address, no two of them adjacent.
        self._free = [(address, address + size)] if size else []
        self._blocks: dict[int, Block] = {}

    @property
    def free_bytes(self) -> int:
        """The free bytes of all pieces together."""
        return sum(end - start for start, end in self._free)

    @property
    def largest_free_bytes(self) -> int:
        """The largest piece."""
        return max((end - start for start, end in self._free), default=0)

    def blocks(self) -> Iterator[Block]:
        """Everything allocated."""
        return iter(self._blocks.values())

    def allocate(self, size: int, what: str, alignment: int = ALIGNMENT) -> Block:
        """The smallest free piece that ``size`` bytes and their zones fit into."""
        if size < 0:
            raise DeviceError(f"{what} cannot have {size} bytes")
        place = self._place(size, alignment)
        if place is None:
            raise self._no_room(size, what, alignment)
        position, start, address, end = place
        free_start, free_end = self._free.pop(position)
        pieces = [(free_start, start), (end, free_end)]
        self._free[position:position] = [(a, b) for a, b in pieces if a < b]
        block = Block(address, size, what, start, end)
        self._blocks[address] = block
        return block

    def peek(self, size: int, alignment: int = ALIGNMENT) -> int | None:
        """The address that ``allocate`` would give; None if there is no room."""
        place = self._place(size, alignment)
        return place[2] if place else None

    def free(self, block: Block) -> None:
        """Give a block back; its neighbours grow together."""
        if self._blocks.get(block.address) is not block:
            raise DeviceError(f"{block.what} was freed already")
        del self._blocks[block.address]
        block.is_freed = True
        self._free.append((block.start, block.end))
        self._free.sort()
        merged: list[tuple[int, int]] = []
        for start, end in self._free:
            if merged and merged[-1][1] == start:
                merged[-1] = (merged[-1][0], end)
            else:
                merged.append((start, end))
        self._free = merged

    def block_at(self, address: int) -> Block:
        """The block that starts at ``address``."""
        try:
            return self._blocks[address]
        except KeyError:
            raise DeviceError(
                f"nothing that was allocated on {self._owner} starts at {address:#x}"
            ) from None

    def _place(self, size: int, alignment: int) -> tuple[int, int, int, int] | None:
        """Index of the free piece, start, address and end of a block there."""
        alignment = max(alignment, ALIGNMENT)
        best: tuple[int, int, int, int] | None = None
        best_bytes = 0
        for position, (free_start, free_end) in enumerate(self._free):
            address = _align(free_start + ZONE_BYTES, alignment)
            # Blocks end at multiples too, so that the next one need not be moved.
            end = min(_align(address + size + ZONE_BYTES, ALIGNMENT), free_end)
            fits = address + size + ZONE_BYTES <= end
            if fits and (best is None or free_end - free_start < best_bytes):
                best = (position, address - ZONE_BYTES, address, end)
                best_bytes = free_end - free_start
        return best

    def _no_room(self, size: int, what: str, alignment: int) -> DeviceError:
        needed = size + 2 * ZONE_BYTES
        largest = self.largest_free_bytes
        missing = max(needed - largest, 0)
        lost = f"{missing:,} bytes are missing" if missing else "alignment leaves no room"
        return DeviceError(
            f"{self._owner} has no room for {what}: with its red zones it needs {needed:,} bytes, "
            f"and {lost} (the largest free block has {largest:,} bytes, "
            f"{self.free_bytes:,} of {self.size:,} are free in all); free something first"
        )


def _align(value: int, alignment: int) -> int:
    return value + -value % alignment
