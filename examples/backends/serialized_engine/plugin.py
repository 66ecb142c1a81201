"""Regions of float32 as bytes, which a small engine in C interprets.

    utvm verify digits_float.tflite --board mps2_an386 --plugin plugin.py

docs/guides/backends.md explains it.
"""

import math
import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

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

VERSION = 1  # what tiny_format() of engine.c returns
NODE_WORDS = 18
STATE_BYTES = 8  # a pointer
INPUT, OUTPUT, SCRATCH = 0, 1, 2
MOST = float(np.finfo(np.float32).max)


def covers(op: Operation) -> bool:
    """CONV_2D, FULLY_CONNECTED and RELU of float32, with constant weights."""
    if op.kind == "RELU":
        return op.source.dtype == "float32"
    if op.kind not in ("CONV_2D", "FULLY_CONNECTED"):
        return False
    weights = op.input(1)
    if {op.source.dtype, weights.dtype} != {"float32"} or weights.data is None:
        return False
    if op.kind == "FULLY_CONNECTED":
        return True
    window = window_of(op, (weights.shape[1], weights.shape[2]))
    is_plain = (window.batch, *window.dilations) == (1, 1, 1)
    return is_plain and op.source.shape[3] == weights.shape[3]


@dataclass
class Writer:
    """Collects the nodes of a region and their constants."""

    match: Match
    places: dict[int, int] = field(default_factory=dict)  # tensor -> the word FROM or TO
    scratch: int = 0  # floats
    nodes: list[tuple[list[int], Array | None, Array | None]] = field(default_factory=list)

    def add(self, op: Operation) -> None:
        """Add an operator."""
        (result,) = op.operator.outputs
        if result not in self.places:
            self.places[result] = SCRATCH << 24 | self.scratch
            self.scratch += math.prod(op.result.shape)
        ends = [self.places[op.position(0)], self.places[result]]
        low, high = getattr(op.operator.attributes, "limits", None) or (0.0, MOST)
        limits = struct.unpack("<2i", struct.pack("<2f", low, high))
        if op.kind == "RELU":
            shape = [1, 1, 1, 1, 1, math.prod(op.result.shape), *[0] * 6]
            self.nodes.append(([*ends, *shape, 0, 0, *limits], None, None))
            return
        weights = op.constant(1)
        channels = weights.shape[0]
        if op.kind == "FULLY_CONNECTED":
            batch = math.prod(op.result.shape) // channels
            shape = [batch, 1, weights.shape[1], batch, 1, channels, 1, 1, 1, 1, 0, 0]
        else:
            w = window_of(op, (weights.shape[1], weights.shape[2]))
            shape = [w.height, w.width, weights.shape[3], w.output_height, w.output_width]
            shape += [channels, *w.kernel, *w.strides, w.top, w.left]
        self.nodes.append(([*ends, *shape, 0, 0, *limits], weights, op.bias(channels)))

    def blob(self) -> bytes:
        """The words that engine.c reads."""
        end = 1 + len(self.nodes) * NODE_WORDS
        words, data = [len(self.nodes)], b""
        for node, *tables in self.nodes:
            for place, table in zip((14, 15), tables, strict=True):
                if table is not None:
                    node[place] = end + len(data) // 4
                    data += np.ascontiguousarray(table, "<f4").tobytes()
            words += node
        return struct.pack(f"<{len(words)}i", *words) + data


def build(match: Match) -> KernelCall | str:
    """The region as a graph for the engine."""
    writer = Writer(match)
    for memory, numbers in ((INPUT, match.inputs), (OUTPUT, match.outputs)):
        writer.places |= {number: memory << 24 | i for i, number in enumerate(numbers)}
    for op in match.operations:
        writer.add(op)
    return serialized(
        match,
        "tiny",
        writer.blob(),
        version=VERSION,
        state_bytes=STATE_BYTES,
        scratch_bytes=4 * writer.scratch,
    )


code = CText(Path(__file__).with_name("engine.c").read_text(encoding="ascii"))
backend = Backend("Tiny engine", (), code, covers=covers, build=build)
