"""Computes what a command stream for Ethos-U55 or U65 computes, in NumPy.

Each operation computes the whole of its output from the registers; blocks and their order change
no byte. The arithmetic is what the registers say: sums, then a scale with a rounding, zero points
and limits. Nobody compared it with silicon: that it gives LiteRT's bytes shows that the stream is
the model, if an NPU does what its registers say.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from npu_weights import decoded_weights, ordered
from numpy.typing import NDArray

from utvm_deploy.backends.ethos_u.check import WEIGHTS, NpuProgram, checked
from utvm_deploy.backends.ethos_u.feature_maps import (
    FeatureMap,
    input_shape,
    inputs_of,
    output_of,
    output_shape,
    strides,
)
from utvm_deploy.backends.ethos_u.stream import Operation, Stream
from utvm_deploy.graph.model import Array

Wide = NDArray[np.int64]

_DOUBLE, _TRUNCATE, _NATURAL = 0, 1, 2
_MUL, _ADD, _SUB, _MIN, _MAX, _LRELU, _ABS, _CLZ, _SHR, _SHL = range(10)
_MAX_POOL, _AVERAGE, _REDUCE_SUM = range(3)
_TABLE, _TABLE_BYTES = 16, 2048
#: MACs -> channels of output that a multiplier unit computes at once.
_UNIT_DEPTH = {32: 4, 64: 8, 128: 8, 256: 8}


class Npu:
    """The memory of an NPU, and what its operations do with it."""

    def __init__(self, program: NpuProgram) -> None:
        self._program = program
        self._stream: Stream = checked(program)
        self._cores = 2 if self._stream.configuration.name == "ethos-u65-512" else 1

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The bytes of the outputs, as int8, for these inputs."""
        self._memory = {
            region: np.full(size, 0xA5, np.uint8)
            for region, size in self._program.region_bytes.items()
        }
        self._memory[WEIGHTS][:] = np.frombuffer(self._program.weights, np.uint8)
        self._table = np.zeros(_TABLE_BYTES, np.uint8)
        for place, data in zip(self._program.inputs, inputs, strict=True):
            raw = np.frombuffer(data.tobytes(), np.uint8)
            self._memory[place.region][place.offset : place.end] = raw
        for operation in self._stream.operations:
            if operation.name == "DMA_START":
                self._copy(operation)
            else:
                self._compute(operation)
        return [
            self._memory[place.region][place.offset : place.end].view(np.int8).copy()
            for place in self._program.outputs
        ]

    def _copy(self, operation: Operation) -> None:
        source, target = operation["DMA0_SRC_REGION"], operation["DMA0_DST_REGION"]
        begin, length = operation["DMA0_SRC"], operation["DMA0_LEN"]
        data = self._memory[source & 7][begin : begin + length]
        to = operation["DMA0_DST"]
        if target >> 8 & 1:
            to %= _TABLE_BYTES
            self._table[to : to + length] = data
        else:
            self._memory[target & 7][to : to + length] = data

    def _loaded(self, feature_map: FeatureMap) -> Wide:
        places = feature_map.places[..., None] + np.arange(feature_map.element_bytes)
        raw = self._memory[feature_map.region][places]
        kind = f"<{'i' if feature_map.is_signed else 'u'}{feature_map.element_bytes}"
        return raw.view(kind)[..., 0].astype(np.int64)

    def _compute(self, operation: Operation) -> None:
        given = [self._loaded(one) for one in inputs_of(self._stream, operation)]
        if operation.name == "ELEMENTWISE":
            result = _elementwise(operation, given)
        else:
            result = self._windows(operation, given[0])
        output = output_of(self._stream, operation)
        assert output is not None
        limits = np.iinfo(f"{'i' if output.is_signed else 'u'}{output.element_bytes}")
        function = operation["ACTIVATION"]
        if output.element_bytes < 4 or function & 0x1F >= _TABLE:
            low, high = operation.signed("ACTIVATION_MIN"), operation.signed("ACTIVATION_MAX")
            if not output.is_signed:
                low, high = operation["ACTIVATION_MIN"], operation["ACTIVATION_MAX"]
            result = np.clip(result, low, high)
        if function & 0x1F >= _TABLE:
            result = self._looked_up(result, function & 7, output)
        if output.element_bytes < 4:
            result = np.clip(result, limits.min, limits.max)
        raw = result.astype(f"<i{output.element_bytes}")[..., None].view(np.uint8)
        places = output.places[..., None] + np.arange(output.element_bytes)
        self._memory[output.region][places] = raw

    def _looked_up(self, values: Wide, table: int, output: FeatureMap) -> Wide:
        begin = 256 * table
        data = self._table[begin : begin + 256 * output.element_bytes]
        kind = f"<{'i' if output.is_signed else 'u'}{output.element_bytes}"
        return data.view(kind)[values + (128 if output.is_signed else 0)].astype(np.int64)

    def _windows(self, operation: Operation, given: Wide) -> Wide:
        """Convolutions and pools: everything that has a kernel."""
        zero = operation.signed("IFM_ZERO_POINT")
        centred = given - zero
        if operation.name == "POOL" and operation.parameter == _REDUCE_SUM:
            return _scaled_globally(operation, centred.sum(axis=2, keepdims=True))
        upscale = operation["IFM_UPSCALE"]
        if upscale:
            centred = centred.repeat(2, axis=0).repeat(2, axis=1)
            if upscale == 2:
                centred[1::2], centred[:, 1::2] = 0, 0
        windows, counts = _windows_of(operation, centred)
        if operation.name == "POOL":
            if operation.parameter == _MAX_POOL:
                result = windows.max(
                    axis=(3, 4), where=counts[..., None, :, :] > 0, initial=-(1 << 40)
                )
                return result + operation.signed("OFM_ZERO_POINT")
            sums = (windows * counts[..., None, :, :]).sum(axis=(3, 4))
            sides = ("TOP", "LEFT", "BOTTOM", "RIGHT")
            if not any(operation[f"IFM_PAD_{side}"] for side in sides):
                return _scaled_globally(operation, sums)
            # With padding, the NPU divides by the count of elements that are inside.
            divisor = counts.sum(axis=(2, 3))[..., None]
            rounded = np.sign(sums) * ((np.abs(sums) + divisor // 2) // divisor)
            return rounded + operation.signed("OFM_ZERO_POINT")
        sums = self._convolved(operation, windows * counts[..., None, :, :])
        bias, scale, shift = self._scales(operation)
        sums = sums + bias
        if operation["OFM_PRECISION"] >> 8 & 1:
            return _scaled_globally(operation, sums)
        return _scaled(sums, scale, shift, operation) + operation.signed("OFM_ZERO_POINT")

    def _convolved(self, operation: Operation, windows: Wide) -> Wide:
        weights = self._weights(operation)
        if operation.name == "DEPTHWISE":
            return np.einsum("hwcyx,cyx->hwc", windows, weights[..., 0])
        return np.einsum("hwcyx,oyxc->hwo", windows, weights, optimize=True)

    def _weights(self, operation: Operation) -> Wide:
        bits = operation["KERNEL_STRIDE"]
        dilation = 1 + (bits >> 4 & 1), 1 + (bits >> 3 & 1)
        height, width = (
            operation[f"KERNEL_{name}_M1"] // step + 1
            for name, step in zip(("HEIGHT", "WIDTH"), dilation, strict=True)
        )
        depth = output_shape(operation)[2]
        is_depthwise = operation.name == "DEPTHWISE"
        shape = depth, height, width, 1 if is_depthwise else input_shape(operation)[2]
        weights = np.zeros(shape, np.int64)
        for core in range(self._cores):
            weights[core :: self._cores] = self._part(operation, core, weights[core :: self._cores])
        return weights

    def _part(self, operation: Operation, core: int, wanted: Wide) -> Wide:
        """The weights of one of the NPU's cores: of each second channel of the output."""
        name = f"WEIGHT{core or ''}"
        if not wanted.size:  # it has no channel
            return wanted
        begin, length = operation[f"{name}_BASE"], operation[f"{name}_LENGTH"]
        data = self._memory[operation["WEIGHT_REGION"] & 7][begin : begin + length].tobytes()
        bits = operation["KERNEL_STRIDE"]
        outputs, height, width, inputs = wanted.shape
        places = ordered(
            (outputs, height, width, inputs),
            block_depth=(operation["OFM_BLK_DEPTH_M1"] + self._cores - core) // self._cores,
            unit_depths=(_UNIT_DEPTH[self._stream.configuration.macs // self._cores], 8),
            is_depthwise=operation.name == "DEPTHWISE",
            is_part_kernel=bool(bits >> 2 & 1),
            input_bits=8 << (operation["IFM_PRECISION"] >> 2 & 3),
            part=(8 // (1 + (bits >> 4 & 1)), 8 // (1 + (bits >> 3 & 1))),
        )
        flat = decoded_weights(data)
        assert len(flat) == len(places), (operation.shown, len(flat), len(places))
        weights = np.zeros(wanted.size, np.int64)
        weights[places[places >= 0]] = flat[places >= 0]
        assert not flat[places < 0].any()
        return weights.reshape(wanted.shape)

    def _scales(self, operation: Operation) -> tuple[Wide, Wide, Wide]:
        depth = output_shape(operation)[2]
        region = self._memory[operation["SCALE_REGION"] & 7]
        rows = np.zeros((depth, 10), np.int64)
        for core in range(self._cores):
            count = len(rows[core :: self._cores])
            begin = operation[f"SCALE{core or ''}_BASE"] if count else 0
            part = region[begin : begin + 10 * count].reshape(count, 10)
            rows[core :: self._cores] = part
        bias = (rows[:, :5] << np.arange(0, 40, 8)).sum(axis=1)
        bias -= (bias >> 39 & 1) << 40
        scale = (rows[:, 5:9] << np.arange(0, 32, 8)).sum(axis=1)
        return bias, scale, rows[:, 9] & 0x3F


def _windows_of(operation: Operation, given: Wide) -> tuple[Wide, Wide]:
    """[height, width, channels, ky, kx] of the output, and which of the elements are inside."""
    height, width, _ = output_shape(operation)
    stride_y, stride_x = strides(operation)
    bits = operation["KERNEL_STRIDE"]
    rows = np.arange(0, operation["KERNEL_HEIGHT_M1"] + 1, 1 + (bits >> 4 & 1))
    columns = np.arange(0, operation["KERNEL_WIDTH_M1"] + 1, 1 + (bits >> 3 & 1))
    y = np.arange(height)[:, None] * stride_y + rows - operation["IFM_PAD_TOP"]
    x = np.arange(width)[:, None] * stride_x + columns - operation["IFM_PAD_LEFT"]
    inside = ((y >= 0) & (y < given.shape[0]))[:, None, :, None] & (
        (x >= 0) & (x < given.shape[1])
    )[None, :, None, :]
    y, x = y.clip(0, given.shape[0] - 1), x.clip(0, given.shape[1] - 1)
    taken = given[y[:, None, :, None], x[None, :, None, :]]  # h, w, ky, kx, c
    return taken.transpose(0, 1, 4, 2, 3), inside.astype(np.int64)


def _scaled_globally(operation: Operation, sums: Wide) -> Wide:
    register = operation["OFM_SCALE"]
    scale, shift = np.int64(register & 0xFFFFFFFF), np.int64(register >> 32 & 0x3F)
    return _scaled(sums, scale, shift, operation) + operation.signed("OFM_ZERO_POINT")


def _scaled(values: Wide, scale: Wide, shift: Wide, operation: Operation) -> Wide:
    """values * scale / 2**shift, rounded as the operation says."""
    mode = operation["OFM_PRECISION"] >> 14
    return _rounded_product(values, scale, shift, mode, 31)


def _rounded_product(values: Wide, scale: Wide, shift: Wide, mode: int, first: int) -> Wide:
    """Python's integers: a product has more than 64 bits."""
    values, scale, shift = np.broadcast_arrays(values, scale, shift)
    made = [
        _rounded(int(value) * int(factor), int(bits), mode, first)
        for value, factor, bits in zip(values.flat, scale.flat, shift.flat, strict=True)
    ]
    return np.array(made, np.int64).reshape(values.shape)


def _rounded(product: int, shift: int, mode: int, first: int) -> int:
    if not shift:
        return product
    if mode == _NATURAL:
        return (product + (1 << shift - 1)) >> shift
    if mode == _TRUNCATE:
        return product >> shift if product >= 0 else -(-product >> shift)
    if shift > first:  # rounded twice: half up where TFLite's doubling product is cut, then away
        once = (product + (1 << first - 1)) >> first
        return _away(once, shift - first)
    return (product + (1 << shift - 1)) >> shift


def _away(value: int, shift: int) -> int:
    half = 1 << shift - 1
    return (value + half) >> shift if value >= 0 else -((-value + half) >> shift)


def _elementwise(operation: Operation, given: list[Wide]) -> Wide:
    mode = operation.parameter
    bits = operation["IFM_PRECISION"]
    a = given[0] - operation.signed("IFM_ZERO_POINT")
    if mode in (_LRELU, _ABS, _CLZ):
        if mode == _CLZ:
            return np.array([32 - int(one & 0xFFFFFFFF).bit_length() for one in a.flat]).reshape(
                a.shape
            )
        if mode == _ABS:
            return _scaled_globally(operation, np.abs(a))
        zero = operation.signed("OFM_ZERO_POINT")
        return np.where(a >= 0, a + zero, _scaled_globally(operation, a))
    broadcast = operation["IFM2_BROADCAST"]
    if broadcast >> 7 & 1:
        b = np.full((1, 1, 1), operation.signed("IFM2_SCALAR"), np.int64)
    else:
        b = given[1]
    b = b - operation.signed("IFM2_ZERO_POINT")
    is_wide = bits >> 2 & 3 == 2
    if broadcast >> 6 & 1:
        a, b = b, a
    if mode in (_MIN, _MAX):
        result = np.minimum(a, b) if mode == _MIN else np.maximum(a, b)
        return result + operation.signed("OFM_ZERO_POINT")
    zero = operation.signed("OFM_ZERO_POINT")
    if mode == _SHL:
        return _wrapped(a << b) + zero
    if mode == _SHR:
        rounding = operation["OFM_PRECISION"] >> 14
        one = np.ones((1, 1, 1), np.int64)
        return _rounded_product(a, one, b, rounding, 63) + zero
    if mode == _MUL:
        if not is_wide:
            return _scaled_globally(operation, a * b)
        # Of two inputs of 32 bits, the product is only shifted.
        a, b = np.broadcast_arrays(a, b)
        shift = operation["OFM_SCALE"] >> 32 & 0x3F
        made = [
            _rounded(int(x) * int(y), shift, _DOUBLE, 63)
            for x, y in zip(a.flat, b.flat, strict=True)
        ]
        return np.array(made, np.int64).reshape(a.shape) + zero
    a, b = _operands(operation, a, b)
    total = a + b if mode == _ADD else a - b
    if is_wide:
        return _wrapped(total) + zero
    return _scaled_globally(operation, total)


def _operands(operation: Operation, a: Wide, b: Wide) -> tuple[Wide, Wide]:
    """Both inputs of ADD and SUB, scaled to one scale."""
    bits = operation["IFM_PRECISION"]
    if bits >> 2 & 3 == 2:
        return a, b
    opa, opb = operation["OPA_SCALE"], operation["OPB_SCALE"]
    kept, which = (20 if bits >> 2 & 3 == 0 else 15), bits >> 8 & 3
    if not which:
        return a * (opa & 0xFFFF), b * (opb & 0xFFFF)
    scale, shift = np.int64(opa & 0xFFFFFFFF), np.int64(opa >> 32 & 0x3F)

    def scaled(one: Wide) -> Wide:
        return _rounded_product(one, scale, shift, _DOUBLE, 31 - kept)

    if which == 1:
        return scaled(a), b << (kept - 1)
    return a << (kept - 1), scaled(b)


def _wrapped(values: Wide) -> Wide:
    return values.astype(np.int32).astype(np.int64)
