"""Commands of MX8 (SPEC.md): writes them, counts their cycles, and checks that none may collide."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

LOCAL_BYTES = 32768
WORDS = 12
#: A command may wait for one of as many before it. Earlier ones are done: the queue has 64 places.
HISTORY = 64
LOAD, STORE, FILL, MATRIX = 1, 2, 3, 4
#: Which unit executes an operation.
UNITS = {LOAD: 0, FILL: 0, STORE: 1, MATRIX: 2}
_NAMES = {LOAD: "LOAD", STORE: "STORE", FILL: "FILL", MATRIX: "MATRIX"}

Command = tuple[int, ...]


def pair(columns: int, rows: int) -> int:
    """Two halves of a word."""
    return columns | rows << 16


def halves(word: int) -> tuple[int, int]:
    """The columns and the rows that a word has."""
    return word & 0xFFFF, word >> 16


@dataclass
class Stream:
    """Commands in the order of the queue. Each method returns the number of its command.

    ``after`` has at most two numbers of commands that must be done before.
    """

    commands: list[Command] = field(default_factory=list)

    def load(
        self, region: int, offset: int, local: int, rows: Sequence[int], after: Sequence[int] = ()
    ) -> int:
        """``rows``: bytes of a row, rows, distance of rows in the region, and locally."""
        size, count, pitch, local_pitch = rows
        words = offset, local, size, count, pitch, local_pitch
        return self._add(LOAD | region << 8, after, words)

    def store(
        self, region: int, offset: int, local: int, rows: Sequence[int], after: Sequence[int] = ()
    ) -> int:
        """As ``load``."""
        size, count, pitch, local_pitch = rows
        words = offset, local, size, count, pitch, local_pitch
        return self._add(STORE | region << 8, after, words)

    def fill(self, value: int, local: int, size: int, after: Sequence[int] = ()) -> int:
        """``size`` bytes of one value."""
        return self._add(FILL, after, (value & 0xFF, local, size, 1, 0, 0))

    def matrix(self, words: Sequence[int], after: Sequence[int] = ()) -> int:
        """The ten words of MATRIX."""
        return self._add(MATRIX, after, words)

    def _add(self, first: int, after: Sequence[int], words: Sequence[int]) -> int:
        number = len(self.commands)
        back = [number - one for one in after if one >= 0 and number - one < HISTORY]
        distances = pair(*[*back, 0, 0][:2])
        self.commands.append((first, distances, *words, *[0] * (WORDS - 2 - len(words))))
        return number

    @property
    def written(self) -> int:
        """Bytes that the STORE commands write."""
        return sum(one[4] * one[5] for one in self.commands if one[0] & 0xFF == STORE)

    def data(self) -> bytes:
        """The commands as the device reads them."""
        return b"".join(struct.pack(f"<{WORDS}I", *one) for one in self.commands)


def decoded(data: bytes) -> list[Command]:
    """The commands in these bytes."""
    return list(struct.iter_unpack(f"<{WORDS}I", data))


def cycles_of(command: Command) -> int:
    """The cycles of a command alone."""
    operation = command[0] & 0xFF
    if operation == FILL:
        return 4 + command[5] * _eighths(command[4])
    if operation != MATRIX:
        return 20 + command[5] * (1 + _eighths(command[4]))
    columns, rows = halves(command[6])
    (width, height), (inputs, outputs) = halves(command[7]), halves(command[8])
    return 32 + columns * rows * _eighths(outputs) * height * _eighths(width * inputs)


def _eighths(size: int) -> int:
    return -(-size // 8)


def times(commands: Sequence[Command]) -> list[tuple[int, int]]:
    """When each command begins and ends, in cycles, if the queue is filled in time."""
    free, done = [0, 0, 0], list[tuple[int, int]]()
    for number, command in enumerate(commands):
        unit = UNITS[command[0] & 0xFF]
        waited = (done[number - back][1] for back in halves(command[1]) if back)
        start = max(free[unit], *waited, 0)
        free[unit] = start + cycles_of(command)
        done.append((start, free[unit]))
    return done


def cycles(commands: Sequence[Command]) -> int:
    """The cycles of all commands together."""
    return max((end for _, end in times(commands)), default=0)


@dataclass(frozen=True)
class _Touched:
    """Bytes that a command reads or writes; region -1 is the local memory."""

    region: int
    first: int
    end: int
    is_written: bool

    def collides(self, other: _Touched) -> bool:
        """Whether the order of both matters."""
        is_same = self.region == other.region and self.first < other.end and other.first < self.end
        return is_same and (self.is_written or other.is_written)


def _touched(command: Command) -> Iterator[_Touched]:
    operation, region = command[0] & 0xFF, (command[0] >> 8) & 0xFF
    if operation == MATRIX:
        columns, rows = halves(command[6])
        (width, height), (inputs, outputs) = halves(command[7]), halves(command[8])
        right, down = halves(command[9])
        line = width * inputs
        last = ((rows - 1) * down + height - 1) * command[10] + (columns - 1) * right * inputs
        sizes = last + line, outputs * height * line, outputs * 16, columns * rows * outputs
        for place, size in zip(command[2:6], sizes, strict=True):
            yield _Touched(-1, place, place + size, place == command[5])
        return
    offset, local, size, rows, pitch, local_pitch = command[2:8]
    local_end = local + (rows - 1) * local_pitch + size
    yield _Touched(-1, local, local_end, operation != STORE)
    if operation != FILL:
        yield _Touched(region, offset, offset + (rows - 1) * pitch + size, operation == STORE)


def check(commands: Sequence[Command], region_bytes: Sequence[int]) -> None:
    """ValueError unless all addresses are within their memories, and no two commands may collide.

    Two commands collide if they touch the same bytes, one writes them, and neither waits for the
    other. ``region_bytes`` are the sizes of the regions.
    """
    touched = [tuple(_touched(command)) for command in commands]
    for number, parts in enumerate(touched):
        for part in parts:
            size = LOCAL_BYTES if part.region < 0 else region_bytes[part.region]
            if not 0 <= part.first <= part.end <= size:
                where = "local memory" if part.region < 0 else f"region {part.region}"
                raise ValueError(
                    f"command {number} ({_NAMES[commands[number][0] & 0xFF]}) has the bytes "
                    f"{part.first} to {part.end} of {where}, which has {size}"
                )
    before: list[int] = []  # of each command, a bit for each one that is done when it begins
    last = [-1, -1, -1]
    for number, command in enumerate(commands):
        unit = UNITS[command[0] & 0xFF]
        waited = [number - back for back in halves(command[1]) if back]
        known = (1 << max(0, number - HISTORY + 1)) - 1
        for one in (*waited, *([last[unit]] if last[unit] >= 0 else [])):
            known |= before[one] | 1 << one
        before.append(known)
        last[unit] = number
        for other in range(number):
            if not known >> other & 1 and any(
                a.collides(b) for a in touched[number] for b in touched[other]
            ):
                raise ValueError(f"commands {other} and {number} collide: neither waits")
