"""The passes: what each one does, what it leaves alone, and that no byte ever changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from graph_interpreter import run_graph
from small_models import (
    MODELS,
    RENAMED,
    build_model,
    built,
    int8,
    int32,
    ring_buffer,
    sample_inputs,
)
from tflite_writer import ModelWriter

from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.passes import simplify as passes
from utvm_deploy.graph.passes.simplify import PASSES, simplify
from utvm_deploy.oracle.reference import run_reference

Rng = np.random.Generator
SPATIAL = [[0, 0], [1, 0], [0, 2], [0, 0]]


def _conv(m: ModelWriter, x: int, rng: Rng, **options: object) -> int:
    channels = m.tensors[x].shape[3]
    return m.conv2d(x, int8(rng, 4, 3, 3, channels), int32(rng, 4), **options)  # type: ignore[arg-type]


def _pad_conv(m: ModelWriter, rng: Rng) -> None:
    m.output(_conv(m, m.pad(m.input((1, 6, 6, 2), 0.05, 9), SPATIAL), rng, padding="VALID"))


def _pad_conv_same(m: ModelWriter, rng: Rng) -> None:
    m.output(_conv(m, m.pad(m.input((1, 6, 6, 2), 0.05, 9), SPATIAL), rng, stride=2))


def _pad_pad_depthwise(m: ModelWriter, rng: Rng) -> None:
    x = m.pad(m.pad(m.input((1, 6, 6, 2), 0.05, 9), SPATIAL), SPATIAL)
    m.output(m.depthwise_conv2d(x, int8(rng, 1, 3, 3, 4), None, stride=2))


def _pad_channels(m: ModelWriter, rng: Rng) -> None:
    paddings = [[0, 0], [1, 1], [1, 1], [0, 1]]
    m.output(_conv(m, m.pad(m.input((1, 5, 5, 2), 0.05, 9), paddings), rng))


def _pad_of_another_value(m: ModelWriter, rng: Rng) -> None:
    x = m.input((1, 5, 5, 2), 0.05, 9)
    value = m.constant(np.array([-9], np.int8), 0.05, 9)
    x = m.node("PADV2", [x, *_ints(m, SPATIAL), value], (1, 6, 7, 2), scale=0.05, zero_point=9)
    m.output(_conv(m, x, rng, padding="VALID"))


def _pad_used_twice(m: ModelWriter, rng: Rng) -> None:
    x = m.pad(m.input((1, 5, 5, 2), 0.05, 9), SPATIAL)
    m.output(_conv(m, x, rng), m.max_pool(x, 2))


def _pad_is_output(m: ModelWriter, rng: Rng) -> None:
    x = m.pad(m.input((1, 5, 5, 2), 0.05, 9), SPATIAL)
    m.output(_conv(m, x, rng), x)


def _conv_relu(m: ModelWriter, rng: Rng) -> None:
    x = m.input((1, 6, 6, 2), 0.05, 9)
    y = m.relu6(_conv(m, x, rng, scale=0.04, zero_point=-30), scale=0.04, zero_point=-30)
    m.output(m.relu(y, scale=0.04, zero_point=-30))


def _relu_after_everything(m: ModelWriter, rng: Rng) -> None:
    q = {"scale": 0.05, "zero_point": -40}
    x = m.relu(
        m.depthwise_conv2d(m.input((1, 6, 6, 2), 0.05, -40), int8(rng, 1, 3, 3, 2), **q), **q
    )
    y = m.relu6(m.max_pool(x, 2), **q)
    z = m.relu6(m.average_pool(y, 2, stride=1, padding="SAME"), **q)
    s = m.relu(m.add(y, z, activation="RELU_N1_TO_1", **q), **q)
    m.output(m.relu6(m.fully_connected(m.reshape(s, (1, 18)), int8(rng, 5, 18), **q), **q))


def _relu_between_clamps(m: ModelWriter, rng: Rng) -> None:
    """The second clamp begins where the first one ends, because real zero is below its range."""
    x = m.input((1, 30), 0.05, 0)
    q = {"scale": 0.05, "zero_point": 0}
    m.output(m.relu(m.add(x, x, activation="RELU_N1_TO_1", **q), **q))


def _relu_rescales(m: ModelWriter, rng: Rng) -> None:
    x = m.input((1, 6, 6, 2), 0.05, 9)
    m.output(m.relu(_conv(m, x, rng, scale=0.04), scale=0.041))


def _relu_of_shared(m: ModelWriter, rng: Rng) -> None:
    x = _conv(m, m.input((1, 6, 6, 2), 0.05, 9), rng, scale=0.04)
    m.output(m.relu(x, scale=0.04), m.max_pool(x, 2))


def _relu_of_input(m: ModelWriter, rng: Rng) -> None:
    m.output(m.relu(m.input((1, 9), 0.04, 9), scale=0.04, zero_point=9))


def _reshapes(m: ModelWriter, rng: Rng) -> None:
    x = m.reshape(m.reshape(m.input((1, 4, 6), 0.04, 9), (2, 12)), (3, 8))
    m.output(m.relu(m.reshape(x, (24,)), scale=0.1))


def _reshape_to_the_same(m: ModelWriter, rng: Rng) -> None:
    x = m.reshape(m.input((1, 24), 0.04, 9), (1, 24))
    m.output(m.reshape(m.relu(x, scale=0.1), (1, 24)))


def _reshape_to_the_same_twice(m: ModelWriter, rng: Rng) -> None:
    """Of two copies of a tensor, one is an output, which takes the tensor's place."""
    x = m.relu(m.input((1, 24), 0.04, 9), scale=0.1)
    m.output(m.relu6(m.reshape(x, (1, 24)), scale=0.07), m.reshape(x, (1, 24)))


def _reshape_in_between_is_output(m: ModelWriter, rng: Rng) -> None:
    x = m.reshape(m.input((1, 24), 0.04, 9), (2, 12))
    m.output(x, m.reshape(x, (3, 8)))


def _reshape_only(m: ModelWriter, rng: Rng) -> None:
    m.output(m.reshape(m.input((1, 24), 0.04, 9), (1, 24)))


def _unused(m: ModelWriter, rng: Rng) -> None:
    x = m.input((1, 6, 6, 2), 0.05, 9)
    m.relu(_conv(m, x, rng), scale=0.3)
    m.output(m.max_pool(x, 2))


def _constants(m: ModelWriter, rng: Rng) -> None:
    c = m.pad(m.reshape(m.constant(int8(rng, 6), 0.03, 7), (2, 3)), [[0, 0], [1, 2]])
    m.output(m.add(m.input((2, 6), 0.04, 9), c, scale=0.1))


def _float_and_back(m: ModelWriter, rng: Rng) -> None:
    x = m.relu(m.input((1, 256), 0.037, 9), scale=0.05, zero_point=9)
    back = m.quantize(m.dequantize(x), scale=0.05, zero_point=9)
    m.output(m.relu6(m.quantize(back, scale=0.05, zero_point=9), scale=0.07))


def _float_and_back_differs(m: ModelWriter, rng: Rng) -> None:
    x = m.dequantize(m.input((1, 256), 0.037, 9))
    m.output(m.quantize(x, scale=0.038, zero_point=9))


def _normalized_channels(m: ModelWriter, rng: Rng) -> None:
    """The mean and the deviation of each channel; a row of constants is none of channels."""
    x = m.dequantize(m.input((1, 4, 4, 3), 0.037, 9))
    for kind, data in (("SUB", [0.1, 0.2, 0.3]), ("DIV", [0.3, 0.2, 0.1]), ("MUL", 0.5)):
        operands = [x, m.constant(np.array(data, np.float32))]
        options = (f"{kind.title()}Options", {})
        x = m.node(kind, operands[:: 1 if kind == "SUB" else -1], (1, 4, 4, 3), options)
    m.output(m.quantize(x, scale=0.05, zero_point=3))


def _float_rounds(m: ModelWriter, rng: Rng) -> None:
    x = m.quantize(m.float_input((1, 64)), scale=0.05)
    m.output(m.dequantize(x))


def _nothing_moves(m: ModelWriter, rng: Rng) -> None:
    order = m.constant(np.array([1, 0], np.int32))
    row = m.input((1, 6), 0.1, 2)
    m.output(m.node("TRANSPOSE", [row, order], (6, 1), ("TransposeOptions", {})))
    m.output(m.node("SQUEEZE", [row], (6,), ("SqueezeOptions", {})))
    one = m.node("CONCATENATION", [row], (1, 6), ("ConcatenationOptions", {"Axis": 1}))
    m.output(m.relu(m.pad(one, [[0, 0], [0, 0]])))


def _moved_constants(m: ModelWriter, rng: Rng) -> None:
    constant = m.constant(int8(rng, 2, 6), 0.1, 2)
    order = m.constant(np.array([1, 0], np.int32))
    turned = m.node("TRANSPOSE", [constant, order], (6, 2), ("TransposeOptions", {}))
    joined = m.node(
        "CONCATENATION", [turned, turned], (6, 4), ("ConcatenationOptions", {"Axis": 1})
    )
    m.output(m.add(m.input((6, 4)), joined, scale=0.2))


def _ints(m: ModelWriter, *arrays: object) -> list[int]:
    return [m.constant(np.array(array, np.int32)) for array in arrays]


def _in_blocks(
    m: ModelWriter,
    x: int,
    blocks: list[int],
    paddings: list[list[int]],
    crops: list[list[int]],
    work: Callable[[int], int],
    joined: list[int] | None = None,
) -> int:
    """What ``work`` makes of blocks, put together again."""
    batch, *extents, channels = m.tensors[x].shape
    count, lengths = int(np.prod(blocks)), zip(extents, paddings, blocks, strict=True)
    parts = [(d + sum(padding)) // block for d, padding, block in lengths]
    made = (batch * count, *parts, channels)
    y = work(m.node("SPACE_TO_BATCH_ND", [x, *_ints(m, blocks, paddings)], made))
    joined = blocks if joined is None else joined
    images, *parts, channels = m.tensors[y].shape
    lengths = zip(parts, crops, joined, strict=True)
    whole = [part * block - sum(crop) for part, crop, block in lengths]
    made = (images // int(np.prod(joined)), *whole, channels)
    return m.node("BATCH_TO_SPACE_ND", [y, *_ints(m, joined, crops)], made)


def _dilated(m: ModelWriter, rng: Rng) -> None:
    for paddings in ([[2, 3], [2, 2]], [[0, 1], [4, 1]], [[2, 1], [0, 2]]):
        x = m.input((2, 7, 9, 3), 0.05, 9)
        blocks = [2, 3] if paddings[0][1] == 3 or paddings[1][0] == 4 else [1, 1]
        blocks = [2, 1] if blocks == [1, 1] else blocks
        paddings[1][1] += -(9 + sum(paddings[1])) % blocks[1]
        paddings[0][1] += -(7 + sum(paddings[0])) % blocks[0]
        crops = [[0, min(1, paddings[0][1])], [0, min(1, paddings[1][1])]]
        y = _in_blocks(m, x, blocks, paddings, crops, lambda x: _conv(m, x, rng, padding="VALID"))
        m.output(y)


def _dilated_depthwise(m: ModelWriter, rng: Rng) -> None:
    def work(x: int) -> int:
        weights = int8(rng, 1, 3, 2, 4)
        return m.depthwise_conv2d(x, weights, None, padding="VALID", activation="RELU6")

    m.output(_in_blocks(m, m.input((1, 8, 8, 2)), [2, 2], [[0, 0]] * 2, [[0, 0]] * 2, work))


def _dilated_rows(m: ModelWriter, rng: Rng) -> None:
    """As Keras writes a causal Conv1D: the rows are padded, cut, and images in between."""
    for axis, window in ((1, (1, 3)), (2, (3, 1))):

        def work(x: int, axis: int = axis, window: tuple[int, int] = window) -> int:
            n, length, channels = m.tensors[x].shape
            image = (n, 1, length, channels) if axis == 1 else (n, length, 1, channels)
            kernel = m.constant(np.array(axis, np.int32))
            x = m.node("EXPAND_DIMS", [x, kernel], image, ("ExpandDimsOptions", {}))
            x = m.conv2d(x, int8(rng, 4, *window, channels), int32(rng, 4), padding="VALID")
            n, *_, channels = m.tensors[x].shape
            length = m.tensors[x].shape[3 - axis]
            return m.node(
                "SQUEEZE", [x], (n, length, channels), ("SqueezeOptions", {"SqueezeDims": [axis]})
            )

        x = m.pad(m.input((2, 11, 3), 0.05, -7), [[0, 0], [8, 0], [0, 0]])
        m.output(_in_blocks(m, x, [4], [[0, 1]], [[0, 1]], work))


def _blocks_of_a_stride(m: ModelWriter, rng: Rng) -> None:
    x = m.input((1, 12, 12, 2))
    none = [[0, 0]] * 2
    m.output(
        _in_blocks(m, x, [2, 2], none, none, lambda x: _conv(m, x, rng, padding="VALID", stride=2))
    )


def _blocks_of_other_blocks(m: ModelWriter, rng: Rng) -> None:
    x, none = m.input((1, 8, 8, 2)), [[0, 0]] * 2
    m.output(
        _in_blocks(
            m, x, [2, 2], none, none, lambda x: _conv(m, x, rng, padding="VALID"), joined=[4, 1]
        )
    )


def _blocks_used_twice(m: ModelWriter, rng: Rng) -> None:
    def work(x: int) -> int:
        m.output(m.max_pool(x, 2))
        return _conv(m, x, rng, padding="VALID")

    m.output(_in_blocks(m, m.input((1, 8, 8, 2)), [2, 2], [[0, 0]] * 2, [[0, 0]] * 2, work))


def _cropped(m: ModelWriter, rng: Rng, begin: list[int], size: list[int]) -> None:
    x = _conv(m, m.input((1, 7, 7, 2), 0.05, 9), rng)
    m.output(m.node("SLICE", [x, *_ints(m, begin, size)], size, ("SliceOptions", {})))


def _constant_channels(m: ModelWriter, rng: Rng) -> None:
    """Six of twelve channels are constant, whatever the input is."""
    x = m.input((1, 6, 6, 2), 0.05, 9)
    bias = int32(rng, 12)
    bias[::2] = 1 << 24
    x = m.conv2d(x, int8(rng, 12, 1, 1, 2), bias)
    m.output(_conv(m, x, rng, padding="VALID"))


def _equal_layers(m: ModelWriter, rng: Rng) -> None:
    x = m.input((1, 6, 6, 2), 0.05, 9)
    weights, bias = int8(rng, 4, 3, 3, 2), int32(rng, 4)
    pools = [m.max_pool(m.conv2d(x, weights, bias), 2) for _ in range(2)]
    m.output(m.add(*pools, scale=0.1, zero_point=3))


def _nearly_equal_layers(m: ModelWriter, rng: Rng) -> None:
    """Other weights, another quantization, another stride; equal ones that are both outputs."""
    x = m.input((1, 6, 6, 2), 0.05, 9)
    weights, bias = int8(rng, 4, 3, 3, 2), int32(rng, 4)
    one = m.conv2d(x, weights, bias, scale=0.1)
    m.output(m.add(one, m.conv2d(x, weights[::-1].copy(), bias, scale=0.1)))
    m.output(m.conv2d(x, weights, bias, scale=0.2), m.conv2d(x, weights, bias, stride=2))
    m.output(m.max_pool(x, 2), m.max_pool(x, 2))


def _parallel_dense(m: ModelWriter, rng: Rng) -> None:
    x = m.input((1, 20), 0.05, 9)
    parts = (m.fully_connected(x, int8(rng, 16, 20), weight_scale=0.01) for _ in range(2))
    m.output(*parts)


def _swapped(m: ModelWriter, rng: Rng) -> None:
    """ADD and MUL of the same in either order, also with equal constants."""
    x, y = m.input((1, 6), 0.05, 9), m.input((1, 6), 0.07, -20)
    half = m.add(m.add(x, y, scale=0.2), m.add(y, x, scale=0.2), scale=0.3)
    options = ("MulOptions", {"FusedActivationFunction": 0})
    data = int8(rng, 1, 6)
    one, other = (m.constant(data, 0.03, 4) for _ in range(2))
    left, right = (
        m.node("MUL", pair, (1, 6), options, scale=0.2, zero_point=3)
        for pair in ([half, one], [other, half])
    )
    m.output(m.add(left, right, scale=0.4))


def _turned_right_side(m: ModelWriter, rng: Rng) -> None:
    x, y = m.input((1, 2, 5, 8), 0.05, 9), m.input((1, 2, 6, 8), 0.05, -3)
    m.output(_product(m, x, _turned(m, y, [0, 1, 3, 2]), (1, 2, 5, 6)))


def _turned_for_others(m: ModelWriter, rng: Rng) -> None:
    """One that the model gives away is made in any case."""
    x, y = m.input((1, 5, 8), 0.05, 9), m.input((1, 6, 8), 0.05, -3)
    turned = _turned(m, y, [0, 2, 1])
    m.output(turned, _product(m, x, turned, (1, 5, 6)))


def _product(m: ModelWriter, x: int, y: int, shape: tuple[int, ...]) -> int:
    options = ("BatchMatMulOptions", {"AdjX": False, "AdjY": False})
    return m.node("BATCH_MATMUL", [x, y], shape, options, scale=0.4, zero_point=2)


def _turned(m: ModelWriter, x: int, order: list[int]) -> int:
    shape = [m.tensors[x].shape[axis] for axis in order]
    return m.node("TRANSPOSE", [x, *_ints(m, order)], shape, ("TransposeOptions", {}))


def _constants_of_other_scales(m: ModelWriter, rng: Rng) -> None:
    """Equal bytes of constants, which mean other values."""
    x, data = m.input((1, 6), 0.05, 9), int8(rng, 1, 6)
    options = ("MulOptions", {"FusedActivationFunction": 0})
    one, other = (
        m.node("MUL", [x, m.constant(data, scale, 4)], (1, 6), options, scale=0.2, zero_point=3)
        for scale in (0.03, 0.05)
    )
    m.output(m.add(one, other, scale=0.4))


def _equal_layer_is_output(m: ModelWriter, rng: Rng) -> None:
    x = m.input((1, 6, 6, 2), 0.05, 9)
    pools = [m.max_pool(x, 2) for _ in range(2)]
    m.output(m.relu6(pools[0]), pools[1])


def _last_columns(m: ModelWriter, rng: Rng) -> None:
    x = m.input((1, 2, 3, 4), 0.05)
    m.output(_conv(m, ring_buffer(m, x, np.zeros((1, 5, 3, 4), np.int8)), rng))


CASES: dict[str, tuple[Callable[[ModelWriter, Rng], None], list[str]]] = {
    "last_columns": (
        _last_columns,
        ["READ_VARIABLE", "SHIFT", "CONV_2D", "ASSIGN_VARIABLE"],
    ),
    "pad_conv": (_pad_conv, ["CONV_2D"]),
    "pad_conv_same": (_pad_conv_same, ["CONV_2D"]),
    "pad_pad_depthwise": (_pad_pad_depthwise, ["DEPTHWISE_CONV_2D"]),
    "pad_channels": (_pad_channels, ["PAD", "CONV_2D"]),
    "pad_of_another_value": (_pad_of_another_value, ["PADV2", "CONV_2D"]),
    "pad_used_twice": (_pad_used_twice, ["PAD", "CONV_2D", "MAX_POOL_2D"]),
    "pad_is_output": (_pad_is_output, ["PAD", "CONV_2D"]),
    "dilated": (_dilated, ["CONV_2D"] * 3),
    "dilated_depthwise": (_dilated_depthwise, ["DEPTHWISE_CONV_2D"]),
    "dilated_rows": (_dilated_rows, ["RESHAPE", "CONV_2D", "RESHAPE"] * 2),
    "blocks_of_a_stride": (
        _blocks_of_a_stride,
        ["SPACE_TO_BATCH_ND", "CONV_2D", "BATCH_TO_SPACE_ND"],
    ),
    "blocks_of_other_blocks": (
        _blocks_of_other_blocks,
        ["SPACE_TO_BATCH_ND", "CONV_2D", "BATCH_TO_SPACE_ND"],
    ),
    "blocks_used_twice": (
        _blocks_used_twice,
        ["SPACE_TO_BATCH_ND", "MAX_POOL_2D", "CONV_2D", "BATCH_TO_SPACE_ND"],
    ),
    "crop_of_padding": (lambda m, rng: _cropped(m, rng, [0, 1, 0, 0], [1, 6, 6, 4]), ["CONV_2D"]),
    "crop_of_image": (
        lambda m, rng: _cropped(m, rng, [0, 2, 0, 0], [1, 3, 7, 4]),
        ["CONV_2D", "SLICE"],
    ),
    "crop_of_rows_at_the_top": (
        lambda m, rng: _cropped(m, rng, [0, 2, 0, 0], [1, 5, 7, 4]),
        ["CONV_2D", "SLICE"],
    ),
    "crop_of_rows_at_the_end": (
        lambda m, rng: _cropped(m, rng, [0, 0, 0, 0], [1, 5, 7, 4]),
        ["CONV_2D", "SLICE"],
    ),
    "crop_of_channels": (
        lambda m, rng: _cropped(m, rng, [0, 0, 0, 1], [1, 7, 7, 3]),
        ["CONV_2D", "SLICE"],
    ),
    "constant_channels": (_constant_channels, ["CONV_2D", "CONV_2D"]),
    "equal_layers": (_equal_layers, ["CONV_2D", "MAX_POOL_2D", "ADD"]),
    "nearly_equal_layers": (
        _nearly_equal_layers,
        ["CONV_2D", "CONV_2D", "ADD", "CONV_2D", "CONV_2D", "MAX_POOL_2D", "MAX_POOL_2D"],
    ),
    "parallel_dense": (_parallel_dense, ["FULLY_CONNECTED", "SPLIT", "SPLIT"]),
    "turned_right_side": (_turned_right_side, ["BATCH_MATMUL"]),
    "turned_for_others": (_turned_for_others, ["TRANSPOSE", "BATCH_MATMUL"]),
    "swapped": (_swapped, ["ADD", "ADD", "MUL", "ADD"]),
    "constants_of_other_scales": (_constants_of_other_scales, ["MUL", "MUL", "ADD"]),
    "equal_layer_is_output": (_equal_layer_is_output, ["MAX_POOL_2D", "RELU6"]),
    "conv_relu": (_conv_relu, ["CONV_2D"]),
    "relu_after_everything": (
        _relu_after_everything,
        [
            "DEPTHWISE_CONV_2D",
            "MAX_POOL_2D",
            "AVERAGE_POOL_2D",
            "ADD",
            "RESHAPE",
            "FULLY_CONNECTED",
        ],
    ),
    "relu_between_clamps": (_relu_between_clamps, ["ADD"]),
    "relu_rescales": (_relu_rescales, ["CONV_2D", "RELU"]),
    "relu_of_shared": (_relu_of_shared, ["CONV_2D", "RELU", "MAX_POOL_2D"]),
    "relu_of_input": (_relu_of_input, ["RELU"]),
    "reshapes": (_reshapes, ["RESHAPE", "RELU"]),
    "reshape_to_the_same": (_reshape_to_the_same, ["RELU"]),
    "reshape_to_the_same_twice": (_reshape_to_the_same_twice, ["RELU", "RELU6"]),
    "reshape_in_between_is_output": (_reshape_in_between_is_output, ["RESHAPE", "RESHAPE"]),
    "reshape_only": (_reshape_only, ["RESHAPE"]),
    "unused": (_unused, ["MAX_POOL_2D"]),
    "nothing_moves": (_nothing_moves, ["RESHAPE", "RESHAPE", "RELU"]),
    "moved_constants": (_moved_constants, ["ADD"]),
    "constants": (_constants, ["ADD"]),
    "float_and_back": (_float_and_back, ["RELU", "RELU6"]),
    "float_and_back_differs": (_float_and_back_differs, ["LOOKUP"]),
    "normalized_channels": (_normalized_channels, ["LOOKUP"]),
    "float_rounds": (_float_rounds, ["QUANTIZE", "DEQUANTIZE"]),
}


def _assert_same_bytes(model: ModelWriter, path: Path, graph: Graph) -> None:
    """Every tensor that a simplified graph still makes equals the oracle's of the same number."""
    samples = [sample_inputs(model, seed) for seed in range(3)]
    states: dict[int, np.ndarray] = {}
    for inputs, expected in zip(samples, run_reference(path, samples).tensors, strict=True):
        values = run_graph(graph, inputs, states)
        for operator in graph.operators:
            (number,) = operator.outputs
            tensor = graph.tensors[number]
            if tensor.source is None:  # made by a pass: what it leads to is compared
                continue
            wanted = expected[tensor.source]
            if tensor.channels is not None:
                wanted = np.ascontiguousarray(wanted[..., list(tensor.channels)])
            np.testing.assert_array_equal(values[number].view(np.uint8), wanted.view(np.uint8))


@pytest.mark.parametrize("name", CASES)
def test_pass_changes_operators_but_no_byte(name: str, tmp_path: Path) -> None:
    build, kinds = CASES[name]
    model = built(build)
    path = model.save(tmp_path / "model.tflite")
    graph = simplify(load_model(path))
    assert [op.kind for op in graph.operators] == kinds
    assert [graph.tensors[i].source for i in graph.inputs] == model.inputs
    assert [graph.tensors[i].source for i in graph.outputs] == model.outputs
    _assert_same_bytes(model, path, graph)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in RENAMED])
def test_simplify_keeps_models_that_have_nothing_to_simplify(name: str, tmp_path: Path) -> None:
    graph = load_model(build_model(name).save(tmp_path / "model.tflite"))
    assert simplify(graph) is graph


def test_a_conversion_to_float32_that_overflows_stays(tmp_path: Path) -> None:
    """Of this scale, only small values come back."""

    def build(m: ModelWriter, rng: Rng) -> None:
        x = m.dequantize(m.input((1, 256), 1e37, 9))
        m.output(m.relu(m.quantize(x, scale=1e37, zero_point=9), scale=1e37))

    graph = load_model(built(build).save(tmp_path / "model.tflite"))
    assert [op.kind for op in simplify(graph).operators] == ["DEQUANTIZE", "QUANTIZE", "RELU"]


def test_every_pass_is_needed(tmp_path: Path) -> None:
    """Each pass changes at least one of the cases by itself."""
    graphs = [load_model(built(b).save(tmp_path / f"{n}.tflite")) for n, (b, _) in CASES.items()]
    for name, run in PASSES:
        assert any(run(graph) is not graph for graph in graphs), name
        assert run.__name__ == name and run.__doc__


def test_fused_operators_name_all_their_sources(tmp_path: Path) -> None:
    graph = simplify(load_model(built(_pad_pad_depthwise).save(tmp_path / "model.tflite")))
    assert graph.operators[0].sources == (0, 1, 2)
    graph = simplify(load_model(built(_conv_relu).save(tmp_path / "model.tflite")))
    assert graph.operators[0].sources == (0, 1, 2)


def test_clamps_that_do_not_overlap_become_the_nearest_bound() -> None:
    assert passes._both_clamps((-128, -50), (-20, 100)) == (-20, -20)
    assert passes._both_clamps((110, 120), (-20, 100)) == (100, 100)
    assert passes._both_clamps((-30, 50), (-20, 100)) == (-20, 50)


@pytest.mark.parametrize(
    "name", ["ad01_int8", "kws_ref_model", "pretrainedResnet_quant", "vww_96_int8"]
)
def test_shared_models_stay_the_same(name: str, shared_models: Path) -> None:
    graph = simplify(load_model(shared_models / f"{name}.tflite"))
    golden = np.load(shared_models / f"{name}.golden.npz")
    values = run_graph(graph, [golden["inputs"][1]])
    np.testing.assert_array_equal(values[graph.outputs[0]], golden["outputs"][1])
