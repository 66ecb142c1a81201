"""Gives fully connected layers the rounding of LiteRT 2.3.0.

Vela multiplies their scales as float32, and lets the NPU round twice, as older reference kernels
did. LiteRT multiplies sums by a float64, and rounds once. So these layers get another multiplier,
and the NPU's rounding mode NATURAL, half up. All sums whose output is not clamped are tried before:
a layer of which one would differ stays on the core.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from utvm_deploy.backends.ethos_u.check import SCALE_BYTES, WEIGHTS, NpuProgram
from utvm_deploy.backends.ethos_u.opcodes import OFM_PRECISION
from utvm_deploy.backends.ethos_u.stream import Operation, Stream, with_words
from utvm_deploy.kernels.contract.operands import quantization_of
from utvm_deploy.kernels.contract.operation import Operation as Layer

#: What is behind the bias in the bytes of a scale: multiplier and shift.
_BIAS_BYTES = 5
_BITS, _MOST_SHIFT = 31, 63
_NATURAL_ROUNDING = 2 << 14
#: Sums that are tried; each takes some nanoseconds.
_MOST_SUMS, _MOST_SUMS_OF_LAYER = 1 << 21, 1 << 25
#: Outputs without their zero point are not larger where they are not clamped.
_MOST_OUTPUT = 256


def exact_multipliers(layer: Layer) -> Mapping[bytes, bytes] | None:
    """Vela's multiplier and shift -> ours, of each channel; None if one cannot be exact."""
    given, result = (quantization_of(one).scale for one in (layer.source, layer.result))
    weights = quantization_of(layer.input(1)).scales
    scales = dict(zip(weights, layer.scales(len(weights)), strict=True))
    sums = sum(_MOST_OUTPUT / max(one, 1e-9) for one in scales.values())
    if sums > _MOST_SUMS_OF_LAYER or not all(map(_is_exact, scales.values())):
        return None
    # Vela multiplies the scale of the weights as float32, and several of them as float64.
    products = {one: float(np.float32(given) * np.float32(one)) / result for one in scales}
    both = ((product, scale) for one, scale in scales.items() for product in (products[one], scale))
    return _without_doubt((_packed(product), _packed(scale)) for product, scale in both)


def _without_doubt(pairs: Iterable[tuple[bytes, bytes]]) -> Mapping[bytes, bytes] | None:
    """The pairs as a mapping; None if Vela's bytes stand for two multipliers."""
    found = dict[bytes, bytes]()
    return found if all(found.setdefault(old, new) == new for old, new in pairs) else None


def _is_exact(scale: float) -> bool:
    multiplier, shift = _multiplier(scale)
    most = math.ceil(_MOST_OUTPUT / scale) + 2
    if most > _MOST_SUMS or not 0 < shift <= _MOST_SHIFT:
        return False
    sums = np.arange(-most, most + 1, dtype=np.int64)
    made = (sums * multiplier + (1 << shift - 1)) >> shift
    products = np.abs(sums * scale)
    wanted = np.floor(products)
    wanted = np.sign(sums) * (wanted + (products - wanted >= 0.5))
    return bool((made == wanted).all())


def _multiplier(scale: float) -> tuple[int, int]:
    fraction, exponent = math.frexp(scale)
    multiplier = round(fraction * 2.0**_BITS)
    if multiplier >> _BITS:
        return multiplier >> 1, _BITS - 1 - exponent
    return multiplier, _BITS - exponent


def _packed(scale: float) -> bytes:
    multiplier, shift = _multiplier(scale)
    return struct.pack("<IB", multiplier, shift & 0x3F)


def with_exact_dense(
    program: NpuProgram, stream: Stream, layers: Sequence[Mapping[bytes, bytes]], channels: int
) -> NpuProgram | None:
    """The program with other scales and rounding of its fully connected layers.

    ``channels`` is how many these have together; None if the program has not exactly these.
    """
    exact = _without_doubt(pair for one in layers for pair in one.items())
    if exact is None:
        return None
    weights, changed, found = bytearray(program.weights), dict[int, int](), set[int]()
    for operation, places in _scales_of(stream):
        old = [program.weights[p + _BIAS_BYTES : p + SCALE_BYTES] for p in places]
        if not all(one in exact for one in old):
            continue
        for place, one in zip(places, old, strict=True):
            weights[place + _BIAS_BYTES : place + SCALE_BYTES] = exact[one]
        found.update(places)
        precision = operation["OFM_PRECISION"]
        changed[operation.place] = precision
    if len(found) != channels:
        return None
    natural = {
        place: (OFM_PRECISION | (one | _NATURAL_ROUNDING) << 16, OFM_PRECISION | one << 16)
        for place, one in changed.items()
    }
    return replace(program, weights=bytes(weights), payload=with_words(program.payload, natural))


def _scales_of(stream: Stream) -> Iterator[tuple[Operation, list[int]]]:
    """Each convolution, and where the weights' region has its scales: there, or before a copy."""
    # Region and begin of what is copied -> source and length.
    copies: dict[tuple[int, int], tuple[int, int]] = {}
    for operation in stream.operations:
        if operation.name == "DMA_START" and operation["DMA0_SRC_REGION"] & 7 == WEIGHTS:
            target = operation["DMA0_DST_REGION"] & 7, operation["DMA0_DST"]
            copies.pop(target, None)  # the newest one comes last
            copies[target] = operation["DMA0_SRC"], operation["DMA0_LEN"]
        if operation.name != "CONV":
            continue
        channels, places = operation["OFM_DEPTH_M1"] + 1, list[int]()
        names = [one for one in ("SCALE", "SCALE1") if operation.registers.get(f"{one}_LENGTH")]
        for core, name in enumerate(names):
            begin = operation[f"{name}_BASE"]
            region = operation["SCALE_REGION"] & 7
            if region != WEIGHTS:
                last = [
                    source + begin - to
                    for (where, to), (source, length) in copies.items()
                    if where == region and to <= begin < to + length
                ]
                begin = last[-1] if last else -1
            count = -(-(channels - core) // len(names))
            places += [begin + SCALE_BYTES * one for one in range(count)]
        if places and min(places) >= 0:
            yield operation, places
