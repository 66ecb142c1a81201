"""Checks that a command stream does what it must, and nothing else.

Each operation reads bytes of its regions that hold something, and writes bytes of regions that may
be written. Each byte of the outputs is written once. The first defect ends the check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from utvm_deploy.backends.ethos_u.configurations import Configuration
from utvm_deploy.backends.ethos_u.feature_maps import Places, inputs_of, output_of
from utvm_deploy.backends.ethos_u.stream import Operation, Stream, decoded, defect

#: The region of what the NPU may only read, and those that it writes, by their numbers.
WEIGHTS, SCRATCH, CACHE = 0, 1, 2
#: Of each output channel: bias, multiplier and shift (``weight_compressor.py`` of Vela).
SCALE_BYTES = 10
_ALIGNMENT = 16
# Of a DMA's regions: that it is the NPU's own memory, which has tables of this many bytes; the
# dimensions that a copy has; that an index chooses the rows.
_INTERNAL, _LUT_BYTES = 1 << 8, 2048
_DIMENSIONS_SHIFT, _INDEXED = 9, 1 << 11
#: More bytes than a DMA copies in a region that an NPU has.
_MOST_COPIED = 1 << 26


@dataclass(frozen=True)
class Place:
    """Where a region has a tensor of the model."""

    region: int
    offset: int
    size_bytes: int

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.offset + self.size_bytes


@dataclass(frozen=True)
class NpuProgram:
    """What Vela made of a graph."""

    configuration: Configuration
    payload: bytes = field(repr=False)  # for the driver: the actions and the command stream
    weights: bytes = field(repr=False)  # region WEIGHTS
    scratch_bytes: int  # of region SCRATCH, which holds inputs and outputs, too
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    cache_bytes: int = 0  # of region CACHE; 0: there is none

    @property
    def region_bytes(self) -> Mapping[int, int]:
        """Region -> its size."""
        cache = {CACHE: self.cache_bytes} if self.cache_bytes else {}
        return {WEIGHTS: len(self.weights), SCRATCH: self.scratch_bytes, **cache}


def checked(program: NpuProgram) -> Stream:
    """The stream of a program; CompileError for the first defect that is found."""
    stream = decoded(program.payload, program.configuration)
    memory = _Memory(program)
    for operation in stream.operations:
        if operation.name == "DMA_START":
            _copy(stream, operation, memory)
            continue
        for one in inputs_of(stream, operation):
            memory.read(operation, one.region, one.bytes)
        if operation.name in ("CONV", "DEPTHWISE"):
            _read_weights(stream, operation, memory)
        output = output_of(stream, operation)
        if output is not None:
            memory.write(operation, output.region, output.bytes)
    memory.check_outputs()
    return stream


class _Memory:
    """Which bytes of the regions hold something, and how those of the outputs came about."""

    def __init__(self, program: NpuProgram) -> None:
        self._holds = {
            region: np.zeros(size, bool) for region, size in program.region_bytes.items()
        }
        # Bytes that an operation wrote, and nothing has read since.
        self._fresh = {region: np.zeros_like(holds) for region, holds in self._holds.items()}
        # Of each output: bytes that were last written by an operation that writes nothing else.
        self._outputs = {place: np.zeros(place.size_bytes, bool) for place in program.outputs}
        self._holds[WEIGHTS][:] = True
        for place in (*program.inputs, *program.outputs):
            self._check("a tensor", place.region, np.array([place.offset, place.end - 1]))
        for place in program.inputs:
            self._holds[place.region][place.offset : place.end] = True

    def read(self, operation: Operation, region: int, places: Places) -> None:
        """An operation reads these bytes."""
        self._check(operation.shown, region, places)
        if not self._holds[region][places].all():
            first = int(places[~self._holds[region][places]].min())
            raise defect(
                f"has {operation.shown}, which reads byte {first} of region {region} before "
                "anything writes it"
            )
        self._fresh[region][places] = False

    def write(self, operation: Operation, region: int, places: Places) -> None:
        """An operation writes these bytes."""
        self._check(operation.shown, region, places)
        if region == WEIGHTS:
            raise defect(f"has {operation.shown}, which writes to the weights")
        ordered = np.sort(places)
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        if twice.size:
            raise defect(f"has {operation.shown}, which writes byte {int(twice[0])} twice")
        for place, is_own in self._outputs.items():
            if place.region != region:
                continue
            inside = ordered[(ordered >= place.offset) & (ordered < place.end)]
            again = inside[self._fresh[region][inside]]
            if again.size:
                raise defect(
                    f"has {operation.shown}, which writes byte {int(again[0])} of an output again"
                )
            is_own[inside - place.offset] = len(inside) == len(ordered)
        self._holds[region][places] = self._fresh[region][places] = True

    def check_outputs(self) -> None:
        """At the end: each byte of the outputs was written as an output."""
        for place, is_own in self._outputs.items():
            if not is_own.all():
                byte = place.offset + int(np.argmin(is_own))
                raise defect(f"does not write byte {byte} of region {place.region}, an output")

    def _check(self, who: str, region: int, places: Places) -> None:
        if region not in self._holds:
            raise defect(f"has {who} in region {region}, which does not exist")
        size = len(self._holds[region])
        if int(places.min()) < 0 or int(places.max()) >= size:
            raise defect(
                f"has {who} with bytes {int(places.min())} to {int(places.max())} of region "
                f"{region}, which has {size}"
            )


def _read_weights(stream: Stream, operation: Operation, memory: _Memory) -> None:
    """The encoded weights and the scales, of each of the NPU's cores."""
    others = ("WEIGHT2", "WEIGHT3") if stream.is_u85 else ()
    weights = sum(_read_encoded(operation, name, memory) for name in ("WEIGHT", "WEIGHT1", *others))
    scales = sum(
        _read_encoded(operation, name, memory)
        for name in (("SCALE",) if stream.is_u85 else ("SCALE", "SCALE1"))
    )
    channels = operation["OFM_DEPTH_M1"] + 1
    if not weights or scales < SCALE_BYTES * channels:
        raise defect(
            f"has {operation.shown} with {weights} bytes of weights and {scales} bytes of scales "
            f"for {channels} channels"
        )


def _read_encoded(operation: Operation, name: str, memory: _Memory) -> int:
    length = operation.registers.get(f"{name}_LENGTH", 0)
    if not length:
        return 0
    base = operation[f"{name}_BASE"]
    if base % _ALIGNMENT or length > _MOST_COPIED:
        raise defect(f"has {operation.shown} with {length} bytes at {name}_BASE {base:#x}")
    region = operation["SCALE_REGION" if name.startswith("SCALE") else "WEIGHT_REGION"] & 7
    memory.read(operation, region, base + np.arange(length))
    return length


def _copy(stream: Stream, operation: Operation, memory: _Memory) -> None:
    """A DMA operation: rows of bytes, from a region to another one or to the NPU's tables."""
    source, target = operation["DMA0_SRC_REGION"], operation["DMA0_DST_REGION"]
    dimensions = source >> _DIMENSIONS_SHIFT & 3
    if (source | target) & _INDEXED or (dimensions and not stream.is_u85):
        raise defect(f"has {operation.shown} with an index or a stride that is not known")
    counts = [operation[f"DMA0_SIZE{axis}"] for axis in range(dimensions)]
    length = operation["DMA0_LEN"]
    if not 0 < length * int(np.prod(counts, dtype=np.int64)) <= _MOST_COPIED:
        raise defect(f"has {operation.shown} with {length} bytes")
    for name, bits in (("SRC", source), ("DST", target)):
        places = operation[f"DMA0_{name}"] + np.arange(length, dtype=np.int64)
        for axis, count in enumerate(counts):
            step = operation[f"DMA0_{name}_STRIDE{axis}"]
            places = (np.arange(count)[:, None] * step + places).reshape(-1)
        if not bits & _INTERNAL:
            (memory.read if name == "SRC" else memory.write)(operation, bits & 7, places)
        elif name == "SRC" or length > _LUT_BYTES:
            raise defect(f"has {operation.shown} with {length} bytes of the NPU's own memory")
