"""Computes what a command stream for Ethos-U85 computes: what differs from U55 and U65.

Sources: the register command stream generator and the weight encoder for Ethos-U85 of
ethos-u-vela (Apache-2.0). Scales have a rounding mode, weights lie in another order, and a
feature map may go from one operation to the next without memory.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from npu_interpreter import Npu, Wide, _rounded, _windows_of, _wrapped
from npu_weights import decoded_weights

from utvm_deploy.backends.ethos_u.feature_maps import (
    UNARY,
    inputs_of,
    output_of,
    output_shape,
    strides,
)
from utvm_deploy.backends.ethos_u.stream import Operation
from utvm_deploy.graph.model import Array

_MUL, _ADD, _SUB, _MIN, _MAX, _LRELU, _ABS, _CLZ, _SHR, _SHL = range(10)
_MAX_POOL, _AVERAGE, _REDUCE_SUM, _SUM = range(4)
# Rounding modes of a scale; the ones of inputs are the first two.
_DOUBLE, _NATURAL, _TO_LOWER = 0, 1, 5
_CHAINED, _NO_STORAGE = 2, 3
#: Of ACC_FORMAT: sums go on with those of the operation before.
_KEEP = 1
_FAST, _SPARSE = 1, 1 << 4
# Height and width of the micro blocks of ACC_FORMAT, in the order of their numbers.
_MICRO_BLOCKS = ((1, 1), (1, 2), (1, 4), (2, 2), (2, 4), (4, 4))
_CORES = {128: 1, 256: 1, 512: 2, 1024: 4, 2048: 4}
#: Channels of output that each core has in turn.
_INTERLEAVED = 4
#: Elements of a table's outputs: numbers of activations -> bytes.
_TABLE_BYTES = {4: 1, 5: 2, 7: 4}


class Npu85(Npu):
    """The same as ``Npu`` for the second architecture."""

    _chained: Wide
    _accumulated: Wide

    def _compute(self, operation: Operation) -> None:
        given = [self._loaded(one) for one in inputs_of(self._stream, operation)]
        if operation.name == "ELEMENTWISE":
            result = self._elementwise(operation, given)
        else:
            if operation["IFM_PRECISION"] >> 14 == _CHAINED:
                given = [self._chained, *given]
            result = self._windows(operation, given[0])
        if operation["OFM_PRECISION"] >> 14 == _NO_STORAGE:
            return
        result = self._activated(operation, result)
        output = output_of(self._stream, operation)
        if output is None:
            self._chained = result
            return
        order = _TRANSPOSED[operation["OFM_PRECISION"] >> 11 & 7]
        raw = result.transpose(order).astype(f"<i{output.element_bytes}")[..., None].view(np.uint8)
        places = output.places[..., None] + np.arange(output.element_bytes)
        self._memory[output.region][places] = raw

    def _activated(self, operation: Operation, result: Wide) -> Wide:
        bits = operation["OFM_PRECISION"]
        size, is_signed = 1 << (bits >> 1 & 3), bits & 1
        function, table = operation["ACTIVATION"] & 0x1F, operation["ACTIVATION"] >> 5 & 7
        if size < 4 or function:
            low, high = operation.signed("ACTIVATION_MIN"), operation.signed("ACTIVATION_MAX")
            if not is_signed:
                low, high = operation["ACTIVATION_MIN"], operation["ACTIVATION_MAX"]
            result = np.clip(result, low, high)
        if function:
            made = _TABLE_BYTES[function]
            data = self._table[256 * made * table :][: 256 * made].view(f"<i{made}")
            result = data[np.clip(result, -128, 127) + 128].astype(np.int64)
        if size < 4:
            limits = np.iinfo(f"{'i' if is_signed else 'u'}{size}")
            return np.clip(result, limits.min, limits.max)
        return _wrapped(result)

    def _windows(self, operation: Operation, given: Wide) -> Wide:
        centred = given - operation.signed("IFM_ZERO_POINT")
        zero = operation.signed("OFM_ZERO_POINT")
        is_pool = operation.name == "POOL"
        if is_pool and operation.parameter == _REDUCE_SUM:
            return _globally(operation, centred.sum(axis=2, keepdims=True)) + zero
        upscale = operation["IFM_UPSCALE"]
        if upscale:
            centred = centred.repeat(2, axis=0).repeat(2, axis=1)
            if upscale == 2:
                centred[1::2], centred[:, 1::2] = 0, 0
        windows, counts = _windows_of(operation, centred)
        if is_pool and operation.parameter == _MAX_POOL:
            inside = counts[..., None, :, :] > 0
            return windows.max(axis=(3, 4), where=inside, initial=-(1 << 40)) + zero
        if is_pool:
            sums = self._kept(operation, (windows * counts[..., None, :, :]).sum(axis=(3, 4)))
            assert operation.parameter in (_AVERAGE, _SUM)
            if operation.parameter == _AVERAGE:
                divisor = counts.sum(axis=(2, 3))[..., None]
                sums = np.sign(sums) * ((np.abs(sums) + divisor // 2) // divisor)
            return _globally(operation, sums) + zero
        given = windows * counts[..., None, :, :]
        sums = self._kept(operation, self._convolved(operation, given))
        bias, scale, shift = self._scales(operation)
        if operation["OFM_PRECISION"] >> 8 & 1:
            return _globally(operation, sums + bias) + zero
        mode = operation["OFM_SCALE"] >> 45 & 7
        return _scaled(sums + bias, scale, shift, mode, 31) + zero

    def _kept(self, operation: Operation, sums: Wide) -> Wide:
        """Sums of a part of a large kernel, with those of the parts before."""
        if operation["ACC_FORMAT"] >> 4 & 3 == _KEEP:
            sums = sums + self._accumulated
        self._accumulated = sums
        return sums

    def _weights(self, operation: Operation) -> Wide:
        bits = operation["KERNEL_STRIDE"]
        dilation = 1 + (bits >> 4 & 1), 1 + (bits >> 3 & 1)
        height, width = (
            operation[f"KERNEL_{name}_M1"] // step + 1
            for name, step in zip(("HEIGHT", "WIDTH"), dilation, strict=True)
        )
        depth = output_shape(operation)[2]
        inputs = 1 if operation.name == "DEPTHWISE" else operation["IFM_DEPTH_M1"] + 1
        shape, macs = (depth, height, width, inputs), self._stream.configuration.macs
        cores = [_ordered(operation, shape, dilation, macs, core) for core in range(_CORES[macs])]
        read = decoded_weights
        if operation["WEIGHT_FORMAT"] & 0xF == _FAST:  # one stream, with the cores' parts in turn
            size, read = _at_once(operation, macs), _fast_weights
            cores = [np.stack([one.reshape(-1, size) for one in cores], axis=1).reshape(-1)]
        weights, region = np.zeros(np.prod(shape), np.int64), operation["WEIGHT_REGION"] & 7
        for core, places in enumerate(cores):
            name = f"WEIGHT{core or ''}"
            begin, length = operation[f"{name}_BASE"], operation[f"{name}_LENGTH"]
            flat = read(self._memory[region][begin : begin + length].tobytes())
            assert len(flat) == len(places) or read is _fast_weights, operation.shown
            flat = flat[: len(places)]
            weights[places[places >= 0]] = flat[places >= 0]
            assert not flat[places < 0].any()
        return weights.reshape(shape)

    def _scales(self, operation: Operation) -> tuple[Wide, Wide, Wide]:
        depth, begin = output_shape(operation)[2], operation["SCALE_BASE"]
        region = self._memory[operation["SCALE_REGION"] & 7]
        rows = region[begin : begin + 10 * depth].reshape(depth, 10).astype(np.int64)
        words = [(rows[:, at : at + 4] << np.arange(0, 32, 8)).sum(axis=1) for at in (0, 4)]
        bias = words[0].astype(np.int32).astype(np.int64)
        return bias, words[1], rows[:, 8] & 0x3F

    def _elementwise(self, operation: Operation, given: list[Wide]) -> Wide:
        mode, waiting = operation.parameter, list(given)
        is_unary = mode in UNARY

        def operand(name: str) -> Wide:
            storage = operation[f"{name}_PRECISION"] >> 14
            if operation[f"{name}_BROADCAST"] & 8:
                register = operation["SCALAR"]
                value = np.full((1, 1, 1), register - ((register >> 31 & 1) << 32), np.int64)
            elif storage == _CHAINED:
                value = self._chained
            else:
                value = waiting.pop(0)
            return value - operation.signed(f"{name}_ZERO_POINT")

        zero, a = operation.signed("OFM_ZERO_POINT"), operand("IFM")
        is_wide = operation["IFM_PRECISION"] >> 2 & 3 == 2
        if mode == _CLZ:
            clz = [32 - int(one & 0xFFFFFFFF).bit_length() for one in a.flat]
            return np.array(clz).reshape(a.shape)
        if mode == _ABS:
            return _globally(operation, np.abs(_given(operation, "IFM", a))) + zero
        if mode == _LRELU:
            slope = np.where(a >= 0, _given(operation, "IFM", a), _given(operation, "IFM2", a))
            return _globally(operation, slope) + zero
        assert not is_unary
        b = operand("IFM2")
        if mode in (_MIN, _MAX):
            return (np.minimum(a, b) if mode == _MIN else np.maximum(a, b)) + zero
        if mode == _SHL:
            return _wrapped(a << b) + zero
        if mode == _SHR:
            rounding = operation["OFM_SCALE"] >> 45 & 7
            return _scaled(a, np.ones((1, 1, 1), np.int64), b, rounding, 63) + zero
        if mode == _MUL:
            a, b = np.broadcast_arrays(a, b)
            if not is_wide:
                return _globally(operation, a * b) + zero
            shift = operation["OFM_SCALE"] >> 32 & 0x3F
            pairs = zip(a.flat, b.flat, strict=True)
            rounding = operation["OFM_SCALE"] >> 45 & 7
            made = [_in_mode(int(x) * int(y), shift, rounding, 63) for x, y in pairs]
            return np.array(made, np.int64).reshape(a.shape) + zero
        a, b = _given(operation, "IFM", a), _given(operation, "IFM2", b)
        return _globally(operation, a + b if mode == _ADD else a - b) + zero


_TRANSPOSED = {0: (0, 1, 2), 1: (1, 0, 2), 2: (0, 2, 1), 3: (1, 2, 0), 6: (2, 0, 1), 7: (2, 1, 0)}


def _given(operation: Operation, name: str, values: Wide) -> Wide:
    """An input by its scale; what is rounded twice has been shifted left before."""
    register = operation[f"{name}_SCALE"]
    first = 31 - (register >> 38 & 0x1F)
    return _scaled(
        values,
        np.int64(register & 0xFFFFFFFF),
        np.int64(register >> 32 & 0x3F),
        register >> 45 & 7,
        first,
    )


def _globally(operation: Operation, values: Wide) -> Wide:
    register = operation["OFM_SCALE"]
    scale, shift = np.int64(register & 0xFFFFFFFF), np.int64(register >> 32 & 0x3F)
    return _scaled(values, scale, shift, register >> 45 & 7, 31)


def _scaled(values: Wide, scale: Wide, shift: Wide, mode: int, first: int) -> Wide:
    values, scale, shift = np.broadcast_arrays(values, scale, shift)
    made = [
        _in_mode(int(value) * int(factor), int(bits), mode, first)
        for value, factor, bits in zip(values.flat, scale.flat, shift.flat, strict=True)
    ]
    return np.array(made, np.int64).reshape(values.shape)


def _in_mode(value: int, shift: int, mode: int, first: int) -> int:
    assert mode in (_DOUBLE, _NATURAL, _TO_LOWER), mode
    if not shift or mode == _TO_LOWER:
        return value >> shift
    if mode == _NATURAL:
        return (value + (1 << shift - 1)) >> shift
    return _rounded(value, shift, 0, first)


def _fast_weights(data: bytes) -> Array:
    """Weights of 2, 4 or 8 bits behind a header of 256, which has a palette of 16."""
    header = int.from_bytes(data[:32], "little")
    is_raw, is_small, offset = header & 1, header >> 1 & 1, np.int8(header >> 104 & 0xFF)
    raw = np.frombuffer(data[32:], np.uint8)
    if is_raw:
        return raw.view(np.int8).astype(np.int16) - np.int16(offset)
    folded = [header >> 112 + 9 * one & 0x1FF for one in range(16)]
    palette = np.array([-(one >> 1) if one & 1 else one >> 1 for one in folded], np.int16)
    bits = 2 if is_small else 4
    indices = raw[:, None] >> np.arange(0, 8, bits) & ((1 << bits) - 1)
    return palette[indices.reshape(-1)]


def _units(operation: Operation, macs: int) -> tuple[int, int, int, int]:
    """Channels of output and of input in a unit, channels of input in turn, elements in turn."""
    high, wide = _MICRO_BLOCKS[operation["ACC_FORMAT"] >> 8 & 7]
    of_output = macs // 8 // (high * wide)
    if operation.name == "DEPTHWISE":
        return of_output, 1, 1, 10
    is_sparse = bool(operation["WEIGHT_FORMAT"] & _SPARSE)
    at_once = 16 if is_sparse else 8
    if operation["KERNEL_STRIDE"] >> 2 & 1:
        return of_output, 16, at_once, 10 if is_sparse else 5
    if is_sparse:
        return of_output, 128, at_once, 1
    return of_output, 32 if macs <= 256 and of_output == 16 else 64, at_once, 1


def _at_once(operation: Operation, macs: int) -> int:
    """How many weights a core has in its turn."""
    of_output, of_input, _, rounds = _units(operation, macs)
    return of_output * of_input * rounds // _CORES[macs]


def _ordered(
    operation: Operation,
    shape: tuple[int, int, int, int],
    dilation: tuple[int, int],
    macs: int,
    core: int,
) -> Array:
    """For each weight of a core's stream its position in an array of ``shape``; -1: padding."""
    outputs, height, width, inputs = shape
    is_depthwise, is_part = operation.name == "DEPTHWISE", operation["KERNEL_STRIDE"] >> 2 & 1
    of_output, of_input, inner, rounds = _units(operation, macs)
    stride = strides(operation) if is_part or is_depthwise else (1, 1)
    step, cores = inputs if is_depthwise else of_input, _CORES[macs]
    # Of a depthwise kernel, the NPU pads the elements that it takes at once.
    more = 0 if macs <= 256 or not is_depthwise else 2 if macs <= 512 else 6
    o = np.concatenate(
        [np.arange(one, one + _INTERLEAVED) for one in range(4 * core, of_output, 4 * cores)]
    )
    c = np.arange(inner)
    found: list[Array] = []
    block_depth = operation["OFM_BLK_DEPTH_M1"] + 1
    for number, out_z in enumerate(range(0, outputs, block_depth)):
        in_blocks = range(0, inputs, step)
        for in_z in in_blocks if number % 2 == 0 else reversed(in_blocks):
            depth = 1 if is_depthwise else min(step, inputs - in_z)
            for x0, y0 in product(
                range(0, width, 8 // dilation[1]), range(0, height, 8 // dilation[0])
            ):
                size = min(height - y0, 8 // dilation[0]), min(width - x0, 8 // dilation[1])
                path = _path(size, stride)
                left = -(-len(path) // rounds) * rounds
                for outer, o_unit in product(
                    range(0, depth, of_input),
                    range(0, min(block_depth, outputs - out_z), of_output),
                ):
                    remaining = left
                    for y, x in path:
                        remaining -= 1
                        for i in range(0, of_input, inner):
                            z = (out_z + o_unit + o)[:, None]
                            channel = (in_z + outer + i + c)[None, :]
                            place = ((z * height + y0 + y) * width + x0 + x) * inputs + channel
                            real = (channel < inputs) & (z < outputs)
                            found.append(np.where(real, place, -1).reshape(-1))
                        if is_depthwise and remaining % rounds == 0:
                            found.append(np.full(more * of_output // cores, -1))
                    if remaining:
                        count = (remaining + more) * of_input * of_output // cores
                        found.append(np.full(count, -1))
    return np.concatenate(found)


def _path(size: tuple[int, int], stride: tuple[int, int]) -> list[tuple[int, int]]:
    """The elements of a kernel in order: those that a stride takes at once, to and fro."""
    found = []
    for by, bx in product(range(stride[0]), range(stride[1])):
        rows, columns = range(by, size[0], stride[0]), range(bx, size[1], stride[1])
        for number, y in enumerate(rows):
            found += [(y, x) for x in (columns if number % 2 == 0 else reversed(columns))]
    return found
