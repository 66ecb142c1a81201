"""Decodes the weights of a command stream for Ethos-U55 and U65, in NumPy.

The format is that of ``mlw_decode.c`` and ``mlw_encode.c`` of ethos-u-vela 5.2.0 (Apache-2.0):
slices of Golomb-Rice codes with a palette, and runs of zeros between the weights. The order of the
weights is the one in which the NPU's multipliers take them.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from utvm_deploy.graph.model import Array

_NO_ZERO_RUNS, _END_OF_STREAM, _UNCOMPRESSED = 6, 7, 7
_CHUNK = 12


class _Bits:
    """Reads numbers, lowest bit first."""

    def __init__(self, data: bytes) -> None:
        self._bits = int.from_bytes(data, "little")
        self._size = 8 * len(data)
        self.place = 0

    def take(self, count: int) -> int:
        assert self.place + count <= self._size
        value = self._bits >> self.place & ((1 << count) - 1)
        self.place += count
        return value

    def ends(self) -> bool:
        """Skips padding between parts of the stream; whether it ends there."""
        self.place = -(-self.place // 8) * 8
        return self.place == self._size


class _Coded:
    """One of the two sequences of Golomb-Rice codes of a slice."""

    def __init__(self, count: int) -> None:
        self.count, self.place, self.carry = count, 0, 0
        self.symbols: list[int] = []
        self.before: list[int] = []
        self.values: list[int] = []

    def next(self) -> None:
        self.before, self.symbols = self.symbols, []

    def remainders(self, bits: _Bits, divisor: int) -> None:
        for quotient in self.before:
            if len(self.values) < self.count:
                self.values.append((quotient << divisor) + bits.take(divisor))


def decoded_weights(data: bytes) -> Array:
    """All weights of an encoded stream, as int16."""
    out: list[int] = []
    # Python shifts whole integers, so parts of the stream are read from copies of it.
    bits = _Bits(data)
    palette: list[int] = []
    offset = width = 0
    while True:
        z_divisor = bits.take(3)
        while z_divisor == _END_OF_STREAM:
            if bits.ends():
                return np.array(out, np.int16)
            z_divisor = bits.take(3)
        count, w_divisor = bits.take(15) + 1, bits.take(3)
        truncates, is_new = bits.take(1), bits.take(1)
        has_zeros = z_divisor != _NO_ZERO_RUNS
        if is_new:
            offset, size = bits.take(5), bits.take(5)
            width = bits.take(3) + 2
            palette = [bits.take(width) for _ in range(size + 1 if size else 0)]
        is_plain = w_divisor == _UNCOMPRESSED
        if is_plain:
            w_divisor = (len(palette) - 1).bit_length() if palette else width
        weights = _Coded(count)
        zeros = _Coded(count + is_new if has_zeros else 0)
        _slice(bits, weights, zeros, (w_divisor, z_divisor, truncates, is_plain))
        out += _merged(weights.values, zeros.values, is_new if has_zeros else 0, palette, offset)


def _slice(bits: _Bits, w: _Coded, z: _Coded, mode: tuple[int, int, int, bool]) -> None:
    w_divisor, z_divisor, truncates, is_plain = mode
    has_zeros = z.count > 0
    while True:
        balance = w.place - z.place if has_zeros else 0
        w_on = (balance < 8 or not has_zeros) and w.place < w.count
        z_on = has_zeros and balance >= 0 and z.place < z.count
        w.next()
        z.next()
        first = bits.take(_CHUNK) if w_on and not is_plain else 0
        if z_on:
            length = 12 if z_divisor < 3 else 8
            unary = bits.take(length)
            for i in range(length):
                if unary >> i & 1:
                    z.carry += 1
                else:
                    z.symbols.append(z.carry)
                    z.carry = 0
            z.place += len(z.symbols)
        if w_on:
            most = 8 if is_plain and w_divisor > 5 else _CHUNK
            second = bits.take(bin(first & ((1 << most) - 1)).count("1"))
            for i in range(most):
                code = 0
                if first >> i & 1:
                    code, second = 1 + (second & 1), second >> 1
                w.carry += code
                if code < 2 or truncates:
                    w.symbols.append(w.carry)
                    w.carry = 0
            w.place += len(w.symbols)
        w.remainders(bits, w_divisor)
        z.remainders(bits, z_divisor)
        if not (w_on or z_on):
            return


def _merged(
    weights: list[int], zeros: list[int], begins: int, palette: list[int], offset: int
) -> list[int]:
    out = [0] * zeros[0] if begins else []
    for i, index in enumerate(weights):
        coded = palette[index] if index < len(palette) else index - len(palette) + offset
        out.append(-(coded >> 1) if coded & 1 else coded >> 1)
        if zeros:
            out += [0] * zeros[i + begins]
    return out


def ordered(
    shape: tuple[int, int, int, int],  # output channels, kernel height and width, input channels
    *,
    block_depth: int,
    unit_depths: tuple[int, int],  # channels of output and input that the NPU takes at once
    is_depthwise: bool,
    is_part_kernel: bool,
    input_bits: int,
    part: tuple[int, int],  # the largest kernel that is not divided
) -> Array:
    """For each weight of a stream, its position in an array of ``shape``; -1 for padding."""
    outputs, height, width, inputs = shape
    of_output, of_input = unit_depths
    in_block = 16 if is_part_kernel or input_bits == 16 else 32
    found: list[Array] = []
    for out_z in range(0, outputs, block_depth):
        clipped = min(block_depth, outputs - out_z)
        for in_z in range(0, 1 if is_depthwise else inputs, in_block):
            if is_depthwise:
                depth = of_input
            else:
                depth = min(in_block, inputs - in_z) if is_part_kernel else in_block
            for y0, x0 in product(range(0, height, part[0]), range(0, width, part[1])):
                high, wide = min(height - y0, part[0]), min(width - x0, part[1])
                elements = high * wide
                if is_part_kernel or is_depthwise:
                    unit = 2 if is_part_kernel and input_bits == 16 else 4
                    elements = -(-elements // unit) * unit
                outer, inner = (depth, 1) if is_part_kernel else (1, depth)
                axes = (
                    np.arange(0, outer, of_input),
                    np.arange(0, clipped, of_output),
                    np.arange(elements),
                    np.arange(0, inner, of_input),
                    np.arange(of_output),
                    np.arange(1 if is_depthwise else of_input),
                )
                outer_i, o_unit, element, inner_i, o, i = np.meshgrid(*axes, indexing="ij")
                z, c = out_z + o_unit + o, in_z + inner_i + outer_i + i
                y, x = y0 + element // wide, x0 + element % wide
                place = ((z * height + y) * width + x) * inputs + c
                is_real = (c < inputs) & (z < outputs) & (element // wide < high)
                found.append(np.where(is_real, place, -1).reshape(-1))
    return np.concatenate(found)
