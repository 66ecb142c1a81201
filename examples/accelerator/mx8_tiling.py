"""Cuts a layer into tiles that fit the local memory of MX8, and writes its commands.

Input, weights and output have two places each: while the matrix unit computes a tile, the others
load the next one and store the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property

from mx8_stream import LOCAL_BYTES, Stream, cycles, pair

PARAMETER_BYTES = 16
#: More tiles than this are not tried: others are faster.
_MOST_TILES = 512


@dataclass(frozen=True)
class Layer:
    """A convolution. A dense layer is one with a kernel of 1x1, and its batch as rows.

    Pairs are (rows, columns).
    """

    image: tuple[int, int]
    places: tuple[int, int]  # of the output
    kernel: tuple[int, int]
    strides: tuple[int, int]
    before: tuple[int, int]  # padding at the top and on the left
    inputs: int  # channels
    outputs: int
    range: int  # the word of MATRIX
    zero_point: int  # of the input
    source: tuple[int, int]  # region and offset
    target: tuple[int, int]
    weights: int  # offsets in region 0
    parameters: int

    @property
    def weight_bytes(self) -> int:
        """Of an output channel."""
        return self.kernel[0] * self.kernel[1] * self.inputs

    @property
    def width(self) -> int:
        """Columns that windows touch, padding included."""
        return (self.places[1] - 1) * self.strides[1] + self.kernel[1]

    def lines(self, rows: int) -> int:
        """Rows of the input for some rows of the output."""
        return (rows - 1) * self.strides[0] + self.kernel[0]


@dataclass(frozen=True)
class Tiling:
    """How a layer is cut: rows and channels of the output in a tile, and which go round first."""

    layer: Layer
    rows: int
    channels: int
    has_channels_inside: bool

    @cached_property
    def sizes(self) -> tuple[int, int, int]:
        """Bytes of a place for input, for weights with parameters, and for output."""
        layer = self.layer
        return (
            _rounded(layer.lines(self.rows) * layer.width * layer.inputs),
            _rounded(self.channels * layer.weight_bytes) + self.channels * PARAMETER_BYTES,
            _rounded(self.rows * layer.places[1] * self.channels),
        )

    @property
    def fits(self) -> bool:
        """Whether two places for each fit the local memory."""
        return 2 * sum(self.sizes) <= LOCAL_BYTES

    def place(self, what: int, side: int) -> int:
        """The address of a place."""
        return 2 * sum(self.sizes[:what]) + side * self.sizes[what]

    def tiles(self) -> Iterator[tuple[int, int]]:
        """The first row and the first channel of each tile."""
        rows = range(0, self.layer.places[0], self.rows)
        channels = range(0, self.layer.outputs, self.channels)
        if self.has_channels_inside:
            return ((row, channel) for row in rows for channel in channels)
        return ((row, channel) for channel in channels for row in rows)


def _rounded(size: int) -> int:
    return -(-size // 8) * 8


@dataclass
class _Places:
    """The two places of one kind: what is in them, and who used them last."""

    held: list[int | None] = field(default_factory=lambda: [None, None])
    used: list[int] = field(default_factory=lambda: [-1, -1])
    side: int = 1


def write(stream: Stream, tiling: Tiling, after: int) -> int:
    """Add the commands of a layer; returns the number of the last one, a STORE.

    ``after`` is the command that must be done before, or -1.
    """
    places, layer = [_Places(), _Places(), _Places()], tiling.layer
    first = len(stream.commands)
    loaded = last = -1
    for row, channel in tiling.tiles():
        rows = min(tiling.rows, layer.places[0] - row)
        channels = min(tiling.channels, layer.outputs - channel)
        for what, key in ((0, row), (1, channel)):
            one = places[what]
            if one.held[one.side] != key:
                one.side = 1 - one.side
                one.held[one.side] = key
                waited = [one.used[one.side], *([after] if len(stream.commands) == first else [])]
                local = tiling.place(what, one.side)
                if what == 0:
                    loaded = _load_input(stream, layer, row, rows, local, waited)
                else:
                    loaded = _load_weights(stream, tiling, channel, channels, local, waited)
        out = places[2]
        out.side = 1 - out.side
        words = _matrix(tiling, rows, channels, [one.side for one in places])
        done = stream.matrix(words, [loaded, out.used[out.side]])
        places[0].used[places[0].side] = places[1].used[places[1].side] = done
        region, offset = layer.target
        offset += row * layer.places[1] * layer.outputs + channel
        block = channels, rows * layer.places[1], layer.outputs, channels
        last = stream.store(region, offset, tiling.place(2, out.side), block, [done])
        out.used[out.side] = last
    return last


def _load_input(
    stream: Stream, layer: Layer, row: int, rows: int, local: int, after: list[int]
) -> int:
    """The rows that a tile reads; around them is the zero point."""
    top, left = row * layer.strides[0] - layer.before[0], -layer.before[1]
    lines, pitch = layer.lines(rows), layer.width * layer.inputs
    begin, end = max(top, 0), min(top + lines, layer.image[0])
    columns = min(left + layer.width, layer.image[1]) - max(left, 0)
    if begin > top or end < top + lines or columns < layer.width:
        number = stream.fill(layer.zero_point, local, lines * pitch, after)
        after = []
        if end <= begin:
            return number
    region, offset = layer.source
    line = layer.image[1] * layer.inputs
    block = columns * layer.inputs, end - begin, line, pitch
    at = local + (begin - top) * pitch + max(-left, 0) * layer.inputs
    return stream.load(region, offset + begin * line, at, block, after)


def _load_weights(
    stream: Stream, tiling: Tiling, channel: int, channels: int, local: int, after: list[int]
) -> int:
    layer = tiling.layer
    size, there = channels * layer.weight_bytes, layer.weights + channel * layer.weight_bytes
    stream.load(0, there, local, (size, 1, 0, 0), after)
    at = local + _rounded(tiling.channels * layer.weight_bytes)
    block = channels * PARAMETER_BYTES, 1, 0, 0
    return stream.load(0, layer.parameters + channel * PARAMETER_BYTES, at, block)


def _matrix(tiling: Tiling, rows: int, channels: int, sides: list[int]) -> list[int]:
    layer = tiling.layer
    weights = tiling.place(1, sides[1])
    return [
        tiling.place(0, sides[0]),
        weights,
        weights + _rounded(tiling.channels * layer.weight_bytes),
        tiling.place(2, sides[2]),
        pair(layer.places[1], rows),
        pair(layer.kernel[1], layer.kernel[0]),
        pair(layer.inputs, channels),
        pair(layer.strides[1], layer.strides[0]),
        layer.width * layer.inputs,
        layer.range,
    ]


@cache
def tiling_of(layer: Layer) -> Tiling | None:
    """The tiling with the fewest cycles; None if no tile fits the local memory."""
    best: tuple[int, Tiling] | None = None
    for rows in _parts(layer.places[0], 1):
        for channels in _parts(layer.outputs, 8):
            for has_channels_inside in (True, False):
                one = Tiling(layer, rows, channels, has_channels_inside)
                count = -(-layer.places[0] // rows) * -(-layer.outputs // channels)
                if not one.fits or count > _MOST_TILES:
                    continue
                stream = Stream()
                write(stream, one, -1)
                taken = cycles(stream.commands)
                if best is None or taken < best[0]:
                    best = taken, one
    return None if best is None else best[1]


def _parts(total: int, least: int) -> list[int]:
    """Sizes of a part to try: all, a half, a quarter, and so on, in steps of ``least``."""
    sizes, parts = list[int](), 1
    while not sizes or sizes[-1] > least:
        sizes.append(min(total, -(-total // parts // least) * least or least))
        parts *= 2
    return list(dict.fromkeys(sizes))
