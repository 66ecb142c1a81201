"""The backend of MX8: regions of int8 convolutions and dense layers as streams of commands.

    utvm verify digits.tflite --board mps2_an386 --plugin plugin.py

README.md explains it.
"""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from mx8_stream import LOCAL_BYTES, Stream, check, cycles, pair
from mx8_tiling import Layer, Tiling, tiling_of, write

from utvm_deploy.backends import (
    Array,
    Backend,
    CText,
    KernelCall,
    Match,
    Operation,
    serialized,
    window_of,
)

FOLDER = Path(__file__).resolve().parent
FORMAT = 1  # what mx8_format() of engine.c returns
MOST_REGIONS = 8
QUEUE_BYTES = 64 * 48
MODEL_BYTES = LOCAL_BYTES + 512  # of struct mx8_model; a real device takes none of our scratch
STATE_BYTES = 16
INTERRUPT, FALLBACK = 1, 2
FILES = ("mx8.h", "model.h", "driver.h", "blob.h", "model.c", "driver.c", "cpu.c", "engine.c")


def covers(op: Operation) -> bool:
    """Whether the unit computes an operator: CONV_2D or FULLY_CONNECTED of int8."""
    if op.kind not in ("CONV_2D", "FULLY_CONNECTED") or op.operator.inputs[1] is None:
        return False
    weights = op.input(1)
    if (op.source.dtype, weights.dtype, op.result.dtype) != ("int8",) * 3 or weights.data is None:
        return False
    if op.source.data is not None:
        return False
    if op.kind == "FULLY_CONNECTED":
        return True
    window = window_of(op, (weights.shape[1], weights.shape[2]))
    is_simple = window.batch == 1 and window.dilations == (1, 1)
    return is_simple and weights.shape[3] == op.source.shape[3]


@dataclass
class _Region:
    """What is known of a region while its operators are added."""

    match: Match
    places: dict[int, tuple[int, int]] = field(default_factory=dict)  # tensor -> region and offset
    data: bytearray = field(default_factory=bytearray)
    work_bytes: int = 0
    layers: list[Layer] = field(default_factory=list)
    tilings: list[Tiling] = field(default_factory=list)

    def add(self, one: Match) -> str:
        """Add an operator; returns why it cannot be computed, or an empty text."""
        op, tables, numbers = one.first, one.our_tables, one.our_numbers
        weights, result = op.constant(1), op.operator.outputs[0]
        if result not in self.places:
            self.places[result] = 1, self.work_bytes
            self.work_bytes += -(-op.result.size_bytes // 8) * 8
        is_dense = op.kind == "FULLY_CONNECTED"
        common = {
            "source": self.places[op.position(0)],
            "target": self.places[result],
            "outputs": weights.shape[0],
            "zero_point": op.ends[0].zero_point,
            "range": _range(numbers, is_rounded_once=is_dense),
            "weights": self._put(weights.astype(np.int8)),
            "parameters": self._put(_parameters(weights.shape[0], tables, numbers)),
        }
        if is_dense:
            outputs, inputs = weights.shape
            batch = math.prod(op.result.shape) // outputs
            shape = (batch, 1), (batch, 1), (1, 1), (1, 1), (0, 0)
            layer = Layer(*shape, inputs, **common)
        else:
            _, *kernel, inputs = weights.shape
            w = window_of(op, (kernel[0], kernel[1]))
            ends = (w.height, w.width), (w.output_height, w.output_width)
            layer = Layer(*ends, w.kernel, w.strides, (w.top, w.left), inputs, **common)
        tiling = tiling_of(layer)
        if tiling is None:
            return f"no tile of {op.result.name!r} fits the local memory"
        self.layers.append(layer)
        self.tilings.append(tiling)
        return ""

    def _put(self, table: Array) -> int:
        """Add a table to the data; returns its offset."""
        offset = len(self.data)
        self.data += table.tobytes() + bytes(-table.nbytes % 8)
        return offset

    def stream(self) -> Stream:
        """The commands of all layers."""
        stream, last = Stream(), -1
        for tiling in self.tilings:
            last = write(stream, tiling, last)
        return stream

    @property
    def region_bytes(self) -> list[int]:
        """The size of each region: data, work, inputs, outputs."""
        tensors = self.match.graph.tensors
        ends = (*self.match.inputs, *self.match.outputs)
        return [len(self.data), self.work_bytes, *(tensors[one].size_bytes for one in ends)]


def _parameters(channels: int, tables: Mapping[str, Array], numbers: Mapping[str, int]) -> Array:
    """[channels, 4]: bias, and high, low and shift of the scale, as our own kernels have them."""

    def column(*names: str) -> Array:
        for name in names:
            if name in tables:
                return tables[name]
            if name in numbers:
                return np.full(channels, numbers[name], np.int32)
        return np.zeros(channels, np.int32)

    columns = (
        column("bias"),
        column("multiplier", "multiplier_high"),
        column("multiplier_low"),
        column("shift", "multiplier_shift"),
    )
    return np.stack(columns, axis=1).astype("<i4")


def _range(numbers: Mapping[str, int], *, is_rounded_once: bool) -> int:
    ends = numbers.get("output_zero_point", 0), numbers.get("low", -128), numbers.get("high", 127)
    low, middle, high = (one & 0xFF for one in ends)
    return low | middle << 8 | high << 16 | is_rounded_once << 24


def _cpu_words(layer: Layer) -> tuple[int, ...]:
    """A layer as cpu.c reads it."""
    return (
        *layer.source,
        *layer.target,
        *(
            pair(one[1], one[0])
            for one in (layer.image, layer.places, layer.kernel, layer.strides, layer.before)
        ),
        pair(layer.inputs, layer.outputs),
        layer.weights,
        layer.parameters,
        layer.range,
        layer.zero_point & 0xFFFFFFFF,
    )


def planned(match: Match) -> _Region | str:
    """The layers of a region and their tiles, or why there are none."""
    ends = (*match.inputs, *match.outputs)
    if len(ends) + 2 > MOST_REGIONS:
        return f"it has {len(ends)} inputs and outputs"
    region = _Region(match, {tensor: (2 + i, 0) for i, tensor in enumerate(ends)})
    for one in match.each:
        if why := region.add(one):
            return why
    return region


def blob_of(region: _Region, flags: int, test: int) -> bytes:
    """What engine.c reads: blob.h describes it."""
    match, stream, sizes = region.match, region.stream(), region.region_bytes
    check(stream.commands, sizes)
    ends = len(match.inputs), len(match.outputs)
    head = flags, test, len(stream.commands), stream.written, *ends, len(region.layers)
    layers = [word for layer in region.layers for word in _cpu_words(layer)]
    words = [*head, *sizes, *layers]
    return struct.pack(f"<{len(words)}I", *words) + stream.data() + bytes(region.data)


def accelerator(
    *, has_interrupt: bool = True, has_fallback: bool = False, test: int = 0
) -> Backend:
    """The backend.

    Without the interrupt, the driver polls. With the fallback, the CPU computes a region when the
    device fails. ``test`` makes the device fail: 1 it hangs, 2 it gets a bad command, 3 it writes
    half of its results.
    """
    flags = INTERRUPT * has_interrupt | FALLBACK * has_fallback

    def build(match: Match) -> KernelCall | str:
        region = planned(match)
        if isinstance(region, str):
            return region
        return serialized(
            match,
            "mx8",
            blob_of(region, flags, test),
            version=FORMAT,
            state_bytes=STATE_BYTES,
            scratch_bytes=MODEL_BYTES + QUEUE_BYTES + region.work_bytes,
        )

    def estimate(match: Match) -> float | None:
        region = planned(match)
        return None if isinstance(region, str) else float(cycles(region.stream().commands))

    return Backend(
        "MX8",
        patterns=(),
        code=CText("\n".join(_text(FOLDER / name) for name in FILES)),
        covers=covers,
        build=build,
        estimate=estimate,
    )


def _text(path: Path) -> str:
    lines = path.read_text(encoding="ascii").splitlines()
    return "\n".join(line for line in lines if not line.startswith('#include "'))


backend = accelerator()
