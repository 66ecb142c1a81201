"""Dead channels: what the analysis says holds, they go, and all other bytes stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_interpreter import run_graph
from small_models import int8
from tflite_writer import ModelWriter

from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.check import check_graph
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.passes.dead_channels import drop_dead_channels
from utvm_deploy.graph.passes.intervals import intervals
from utvm_deploy.graph.passes.simplify import simplify

Rng = np.random.Generator
#: A bias that takes a sum to either end of the clamp, whatever the input is.
FAR = 1 << 22


def _bias(rng: Rng, channels: int, far: int) -> np.ndarray:
    """Biases of which the last ``far`` make their channels constant, at one end or the other."""
    bias = rng.integers(-200, 200, channels).astype(np.int32)
    bias[channels - far :] = FAR * rng.choice((-1, 1), far)
    return bias


def _chain(m: ModelWriter, rng: Rng, padding: str) -> None:
    x = m.conv2d(m.input((1, 6, 6, 3), 0.05, 9), int8(rng, 16, 1, 1, 3), _bias(rng, 16, 9))
    x = m.conv2d(x, int8(rng, 12, 3, 3, 16), _bias(rng, 12, 5), padding=padding)
    m.output(m.conv2d(x, int8(rng, 5, 1, 1, 12), _bias(rng, 5, 1)))


def _unpadded(m: ModelWriter, rng: Rng) -> None:
    _chain(m, rng, "VALID")


def _padded(m: ModelWriter, rng: Rng) -> None:
    _chain(m, rng, "SAME")


def _depthwise(m: ModelWriter, rng: Rng) -> None:
    x = m.conv2d(m.input((1, 6, 6, 3), 0.05, 9), int8(rng, 16, 1, 1, 3), _bias(rng, 16, 4))
    x = m.depthwise_conv2d(x, int8(rng, 1, 3, 3, 16), _bias(rng, 16, 9))
    x = m.max_pool(x, 2)
    m.output(m.conv2d(x, int8(rng, 5, 1, 1, 16), _bias(rng, 5, 0)))


def _mul(m: ModelWriter, a: int, b: int, scale: float, zero_point: int = 0) -> int:
    shape = np.broadcast_shapes(m.tensors[a].shape, m.tensors[b].shape)
    options = ("MulOptions", {"FusedActivationFunction": 0})
    return m.node("MUL", [a, b], shape, options, scale=scale, zero_point=zero_point)


def _joined(m: ModelWriter, rng: Rng) -> None:
    """ADD and MUL of two layers, and of constants; all have the same far channels."""
    x = m.input((1, 6, 6, 3), 0.05, 9)
    one = m.conv2d(x, int8(rng, 16, 1, 1, 3), _bias(rng, 16, 9))
    other = m.conv2d(x, int8(rng, 16, 1, 1, 3), _bias(rng, 16, 8), scale=0.07, zero_point=3)
    x = m.add(one, other, scale=0.15, zero_point=-4)
    x = _mul(m, x, m.constant(int8(rng, 16), 0.02, 5), 0.3, 7)
    x = m.add(m.constant(int8(rng, 1, 1, 1, 16), 0.02), x, activation="RELU", scale=0.2)
    x = _mul(m, x, m.constant(int8(rng, 1), 0.02, -60), 0.3)
    m.output(m.conv2d(x, int8(rng, 5, 1, 1, 16), _bias(rng, 5, 0)))


def _joined_in_part(m: ModelWriter, rng: Rng) -> None:
    """ADD of a layer with constant channels and of one without; of one with one channel."""
    x = m.input((1, 6, 6, 3), 0.05, 9)
    one = m.conv2d(x, int8(rng, 16, 1, 1, 3), _bias(rng, 16, 9))
    other = m.conv2d(x, int8(rng, 16, 1, 1, 3), _bias(rng, 16, 0))
    mask = m.conv2d(x, int8(rng, 1, 1, 1, 3), _bias(rng, 1, 0))
    masked = _mul(m, one, mask, 0.3)
    read = m.conv2d(masked, int8(rng, 4, 1, 1, 16), _bias(rng, 4, 0))
    m.output(m.conv2d(m.add(one, other), int8(rng, 5, 1, 1, 16), _bias(rng, 5, 0)), read)


def _bordered(m: ModelWriter, rng: Rng) -> None:
    """PAD, whose border is not the constant of each channel, in front of a pool."""
    weights = int8(rng, 5, 1, 1, 16)
    weights[..., 2:5] = 0
    bias = _bias(rng, 16, 9)
    bias[7:12] = -FAR
    x = m.conv2d(m.input((1, 6, 6, 3), 0.05, 9), int8(rng, 16, 1, 1, 3), bias, zero_point=-128)
    x = m.max_pool(m.pad(x, [[0, 0], [1, 1], [1, 0], [0, 0]]), 2)
    m.output(m.conv2d(x, weights, _bias(rng, 5, 0)))


def _padded_above(m: ModelWriter, rng: Rng) -> None:
    """An image far above its zero point, which stands at the edges of the next layer."""
    x = m.conv2d(m.input((1, 6, 6, 3), 0.05, 9), int8(rng, 16, 1, 1, 3), np.full(16, FAR, np.int32))
    weights = rng.integers(1, 4, (12, 3, 3, 16), np.int8)
    m.output(m.conv2d(x, weights, np.zeros(12, np.int32), scale=0.5, padding="SAME"))


def _bordered_above(m: ModelWriter, rng: Rng) -> None:
    """PAD, whose border is above a channel that is constant inside of it."""
    bias = _bias(rng, 16, 9)
    bias[7:12] = -FAR
    x = m.conv2d(m.input((1, 6, 6, 3), 0.05, 9), int8(rng, 16, 1, 1, 3), bias, zero_point=20)
    x = m.pad(x, [[0, 0], [1, 1], [1, 0], [0, 0]])
    m.output(m.conv2d(x, int8(rng, 5, 1, 1, 16), _bias(rng, 5, 0)))


def _without_bias(m: ModelWriter, rng: Rng) -> None:
    x = m.conv2d(m.input((1, 6, 6, 3), 0.05, 9), int8(rng, 16, 1, 1, 3), _bias(rng, 16, 9))
    m.output(m.conv2d(x, int8(rng, 5, 1, 1, 16), None))


def _unread(m: ModelWriter, rng: Rng) -> None:
    x = m.conv2d(m.input((1, 6, 6, 3), 0.05, 9), int8(rng, 16, 1, 1, 3), _bias(rng, 16, 0))
    weights = int8(rng, 4, 3, 3, 16)
    weights[..., 3:11] = 0
    m.output(m.conv2d(x, weights, _bias(rng, 4, 0)))


def _two_readers(m: ModelWriter, rng: Rng) -> None:
    x = m.conv2d(m.input((1, 6, 6, 3), 0.05, 9), int8(rng, 16, 1, 1, 3), _bias(rng, 16, 9))
    m.output(
        m.conv2d(x, int8(rng, 4, 1, 1, 16), _bias(rng, 4, 0)),
        m.conv2d(x, int8(rng, 4, 3, 3, 16), _bias(rng, 4, 0), padding="VALID"),
    )


def _output(m: ModelWriter, rng: Rng) -> None:
    x = m.conv2d(m.input((1, 6, 6, 3), 0.05, 9), int8(rng, 16, 1, 1, 3), _bias(rng, 16, 9))
    m.output(x, m.conv2d(x, int8(rng, 4, 1, 1, 16), None))


def _concat(m: ModelWriter, parts: list[int], axis: int = -1) -> int:
    shape = list(m.tensors[parts[0]].shape)
    shape[axis] = sum(m.tensors[part].shape[axis] for part in parts)
    spec = m.tensors[parts[0]]
    options = ("ConcatenationOptions", {"Axis": axis, "FusedActivationFunction": 0})
    ends = {"scale": spec.scales[0], "zero_point": spec.zero_points[0]}
    return m.node("CONCATENATION", parts, shape, options, **ends)


def _concatenated(m: ModelWriter, rng: Rng) -> None:
    """Parts with their own constant channels, one of them requantized; a pool."""
    x = m.input((1, 6, 6, 3), 0.05, 9)
    one = m.conv2d(x, int8(rng, 16, 1, 1, 3), _bias(rng, 16, 9), scale=0.08)
    other = m.conv2d(x, int8(rng, 12, 1, 1, 3), _bias(rng, 12, 5), scale=0.13, zero_point=-4)
    x = _concat(m, [m.quantize(other), m.relu(one)])
    weights = int8(rng, 1, 3, 3, 28)
    x = m.max_pool(m.depthwise_conv2d(x, weights, _bias(rng, 28, 0), padding="VALID"), 2)
    m.output(m.conv2d(x, int8(rng, 5, 1, 1, 28), _bias(rng, 5, 0)))


def _concatenated_often(m: ModelWriter, rng: Rng) -> None:
    """As DenseNet: each part is in several concatenations, and a layer reads each of them."""
    x = m.conv2d(m.input((1, 6, 6, 3), 0.05, 9), int8(rng, 16, 1, 1, 3), _bias(rng, 16, 9))
    for _ in range(2):
        depth = m.tensors[x].shape[-1]
        part = m.conv2d(x, int8(rng, 12, 1, 1, depth), _bias(rng, 12, 6))
        x = _concat(m, [part, x])
    m.output(m.conv2d(x, int8(rng, 5, 1, 1, m.tensors[x].shape[-1]), _bias(rng, 5, 0)))


def _concatenated_oddly(m: ModelWriter, rng: Rng) -> None:
    """Parts of any number of channels, a part that is the model's input, and a constant part."""
    x = m.input((1, 6, 6, 3))
    one = m.conv2d(x, int8(rng, 13, 1, 1, 3), _bias(rng, 13, 13))
    other = m.conv2d(x, int8(rng, 10, 1, 1, 3), _bias(rng, 10, 7))
    edge = np.broadcast_to(int8(rng, 6), (1, 6, 6, 6)).astype(np.int8)
    x = _concat(m, [one, x, m.constant(edge, 0.1), other])
    m.output(m.conv2d(x, int8(rng, 5, 1, 1, 32), _bias(rng, 5, 0)))


def _concatenated_constant(m: ModelWriter, rng: Rng) -> None:
    """A constant part whose channels all go, beside one with constant channels."""
    x = m.input((1, 6, 6, 3))
    one = m.conv2d(x, int8(rng, 16, 1, 1, 3), _bias(rng, 16, 5))
    edge = np.broadcast_to(int8(rng, 4), (1, 6, 6, 4)).astype(np.int8)
    x = _concat(m, [m.constant(edge, 0.1), one])
    m.output(m.conv2d(x, int8(rng, 5, 1, 1, 20), _bias(rng, 5, 0)))


def _concatenated_rows(m: ModelWriter, rng: Rng) -> None:
    """Parts beside each other have the same channels left, those that all may lose."""
    x = m.input((1, 6, 6, 3), 0.05, 9)
    bias = _bias(rng, 16, 9)
    one, other = (m.conv2d(x, int8(rng, 16, 1, 1, 3), bias) for _ in range(2))
    stacked = m.constant(np.full((1, 2, 6, 16), -7, np.int8), 0.1)
    x = _concat(m, [one, stacked, other], axis=1)
    weights = int8(rng, 5, 1, 1, 16)
    weights[..., 9:] = 0
    m.output(m.conv2d(x, weights, _bias(rng, 5, 0)))


def _concatenated_and_read(m: ModelWriter, rng: Rng) -> None:
    """Parts that must stay: one is twice in it, one is an output, one is read by TANH."""
    x = m.input((1, 6, 6, 3), 0.05, 9)
    twice, output, read = (m.conv2d(x, int8(rng, 8, 1, 1, 3), _bias(rng, 8, 8)) for _ in range(3))
    x = _concat(m, [twice, output, twice, read])
    shape = m.tensors[read].shape
    other = m.node("TANH", [read], shape, None, scale=1 / 128, zero_point=0)
    m.output(m.conv2d(x, int8(rng, 5, 1, 1, 32), _bias(rng, 5, 0)), output, other)


def _mean(m: ModelWriter, rng: Rng) -> None:
    """MEAN of images that are no square, with another scale, with and without dimensions of 1."""
    x = m.conv2d(m.input((1, 6, 5, 3), 0.05, 9), int8(rng, 16, 1, 1, 3), _bias(rng, 16, 9))
    one = m.mean(x, (1, 2), scale=0.083, zero_point=-5)
    other = m.mean(x, (2,), keep_dims=True, scale=0.07)
    m.output(
        m.fully_connected(one, int8(rng, 5, 16), _bias(rng, 5, 0)),
        m.conv2d(other, int8(rng, 5, 1, 1, 16), _bias(rng, 5, 0)),
    )


def _mean_of_channels(m: ModelWriter, rng: Rng) -> None:
    x = m.conv2d(m.input((1, 6, 5, 3), 0.05, 9), int8(rng, 16, 1, 1, 3), _bias(rng, 16, 9))
    x = m.mean(x, (1, 3))
    m.output(m.fully_connected(x, int8(rng, 4, 5), _bias(rng, 4, 0)))


def _grouped(m: ModelWriter, rng: Rng) -> None:
    """Two groups of six outputs, four of which nothing reads, all in the first group."""
    x = m.conv2d(m.input((1, 6, 6, 4), 0.05, 9), int8(rng, 12, 3, 3, 2), _bias(rng, 12, 0))
    weights = int8(rng, 5, 1, 1, 12)
    weights[..., 1:5] = 0
    m.output(m.conv2d(x, weights, _bias(rng, 5, 0)))


def _wide(m: ModelWriter, rng: Rng) -> None:
    """Of int16: constants at the clamp's ends; at 0, behind RELU, a layer that pads loses them."""
    x = m.tensor((1, 6, 6, 3), "int16", 0.001)
    m.inputs.append(x)

    def conv(x: int, weights: np.ndarray, far: int, **options: Any) -> int:
        bias = _bias(rng, len(weights), far).astype(np.int64) << 10
        return m.conv2d(x, weights, bias, scale=0.001, zero_point=0, **options)

    x = conv(x, int8(rng, 16, 1, 1, 3), 9)
    x = conv(x, int8(rng, 16, 1, 1, 16), 0, activation="RELU")
    bias = np.where(np.arange(16) < 6, -(FAR << 10), 50).astype(np.int64)
    x = m.conv2d(x, int8(rng, 16, 1, 1, 16), bias, scale=0.001, activation="RELU")
    m.output(conv(x, int8(rng, 5, 3, 3, 16), 0, padding="SAME"))


def _wide_joined(m: ModelWriter, rng: Rng) -> None:
    """Of int16: ADD, MUL, QUANTIZE and RELU pass on what is left."""
    x = m.tensor((1, 6, 6, 3), "int16", 0.001)
    m.inputs.append(x)

    def conv(x: int, outputs: int, far: int) -> int:
        bias = _bias(rng, outputs, far).astype(np.int64) << 10
        weights = int8(rng, outputs, 1, 1, m.tensors[x].shape[-1])
        return m.conv2d(x, weights, bias, scale=0.0013, zero_point=0)

    def wide(made: int) -> int:
        m.tensors[made].dtype = "int16"
        return made

    one, other = conv(x, 16, 9), wide(m.relu(conv(x, 16, 8), scale=0.0011))
    both = wide(m.add(one, other, scale=0.0023))
    both = _mul(m, both, m.constant(rng.integers(-30000, 30000, 16, np.int16), 0.0005), 0.002)
    m.output(conv(wide(m.quantize(both, scale=0.0017)), 5, 0))


LOSING = (
    *(_unpadded, _depthwise, _unread, _two_readers, _joined, _bordered),
    *(_concatenated, _concatenated_often, _concatenated_oddly, _concatenated_constant),
    *(_concatenated_rows, _mean, _wide, _wide_joined),
)
KEEPING = (
    _padded,
    _padded_above,
    _bordered_above,
    _without_bias,
    _output,
    _joined_in_part,
    _concatenated_and_read,
    _mean_of_channels,
    _grouped,
)


def _graph(
    tmp_path: Path, build: Callable[[ModelWriter, Rng], None], seed: int
) -> tuple[Graph, Rng]:
    rng = np.random.default_rng(seed)
    writer = ModelWriter()
    build(writer, rng)
    path = tmp_path / "model.tflite"
    writer.save(path)
    return load_model(path), rng


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("build", (*LOSING, *KEEPING))
def test_every_channel_that_is_left_keeps_its_bytes(
    tmp_path: Path, build: Callable[[ModelWriter, Rng], None], seed: int
) -> None:
    graph, rng = _graph(tmp_path, build, seed)
    less = drop_dead_channels(graph)
    check_graph(less)
    assert (less is not graph) or build not in LOSING
    known = intervals(graph)
    for _ in range(3):
        source = graph.tensors[graph.inputs[0]]
        limits = np.iinfo(source.dtype)
        image = rng.integers(limits.min, limits.max, source.shape, source.dtype, endpoint=True)
        values, fewer = run_graph(graph, [image]), run_graph(less, [image])
        for number, interval in known.items():
            assert (values[number] >= interval.low).all()
            assert (values[number] <= interval.high).all()
        by_source = {graph.tensors[number].source: values[number] for number in known}
        for number, tensor in enumerate(less.tensors):
            if tensor.data is None:
                expected = by_source[tensor.source]
                if tensor.channels is not None:
                    expected = expected[..., list(tensor.channels)]
                np.testing.assert_array_equal(fewer[number], expected)


def test_a_multiple_of_four_channels_is_left(tmp_path: Path) -> None:
    graph, _ = _graph(tmp_path, _unpadded, 0)
    less = simplify(graph)
    # 7 of 16 and 7 of 12 channels vary.
    assert [t.shape[-1] for t in less.tensors if t.channels is not None] == [8, 8]


@pytest.mark.parametrize(("build", "left"), [(_joined, 8), (_bordered, 8)])
def test_tensors_that_agree_lose_the_same(
    tmp_path: Path, build: Callable[[ModelWriter, Rng], None], left: int
) -> None:
    less = simplify(_graph(tmp_path, build, 0)[0])
    fewer = [t for t in less.tensors if t.data is None and t.channels is not None]
    assert len(fewer) >= 3 and len({t.channels for t in fewer}) == 1
    assert {t.shape[-1] for t in fewer} == {left}


def _channels_left(graph: Graph) -> dict[str, list[int]]:
    """Operator -> how many channels each output has that lost some."""
    found: dict[str, list[int]] = {}
    for operator in graph.operators:
        tensor = graph.tensors[operator.outputs[0]]
        if tensor.channels is not None:
            found.setdefault(operator.kind, []).append(tensor.shape[-1])
    return found


def test_each_part_of_a_concatenation_keeps_its_own_channels(tmp_path: Path) -> None:
    less = simplify(_graph(tmp_path, _concatenated, 0)[0])
    # 7 of 12 and 7 of 16 channels vary.
    assert _channels_left(less) == {
        "CONV_2D": [8, 8],
        "QUANTIZE": [8],
        "RELU": [8],
        "CONCATENATION": [16],
        "DEPTHWISE_CONV_2D": [16],
        "MAX_POOL_2D": [16],
    }


def test_parts_of_an_odd_number_of_channels_keep_one(tmp_path: Path) -> None:
    less = simplify(_graph(tmp_path, _concatenated_oddly, 0)[0])
    # The output has 32 channels in the file, so a multiple of four is left: 1 + 3 + 3, and one.
    (joined,) = _channels_left(less)["CONCATENATION"]
    assert joined == 8


def test_a_constant_part_goes(tmp_path: Path) -> None:
    less = simplify(_graph(tmp_path, _concatenated_constant, 0)[0])
    assert [operator.kind for operator in less.operators] == ["CONV_2D", "CONV_2D"]
    assert _channels_left(less)["CONV_2D"] == [12]


def test_means_keep_the_channels_of_their_image(tmp_path: Path) -> None:
    less = simplify(_graph(tmp_path, _mean, 0)[0])
    assert _channels_left(less) == {"CONV_2D": [8], "MEAN": [8, 8]}


@pytest.mark.parametrize("seed", range(8))
def test_means_of_the_ends_are_the_ends_of_the_interval(tmp_path: Path, seed: int) -> None:
    """What MEAN makes of images of -128 and of 127 is what the interval ends with."""

    def build(m: ModelWriter, rng: Rng) -> None:
        shape = (1, int(rng.integers(1, 30)), int(rng.integers(1, 30)), 2)
        x = m.input(shape, float(rng.uniform(0.01, 0.3)), int(rng.integers(-128, 128)))
        ends = {"scale": float(rng.uniform(0.01, 0.3)), "zero_point": int(rng.integers(-128, 128))}
        m.output(m.mean(x, (1, 2), **ends))

    graph, _ = _graph(tmp_path, build, seed)
    (image,), (output,) = graph.inputs, graph.outputs
    found = intervals(graph)[output]
    for value, end in ((-128, found.low), (127, found.high)):
        full = np.full(graph.tensors[image].shape, value, np.int8)
        np.testing.assert_array_equal(run_graph(graph, [full])[output].reshape(-1), end)


def test_int16_loses_channels(tmp_path: Path) -> None:
    less = simplify(_graph(tmp_path, _wide, 0)[0])
    # 7 and 10 of 16 channels vary.
    assert _channels_left(less) == {"CONV_2D": [8, 12]}


def test_parts_that_something_else_reads_stay(tmp_path: Path) -> None:
    graph, _ = _graph(tmp_path, _concatenated_and_read, 0)
    assert drop_dead_channels(graph) is graph


def test_nothing_is_left_to_do(tmp_path: Path) -> None:
    less = simplify(_graph(tmp_path, _depthwise, 0)[0])
    assert drop_dead_channels(less) is less


def test_an_output_of_the_model_keeps_its_channels(tmp_path: Path) -> None:
    graph, _ = _graph(tmp_path, _output, 0)
    assert drop_dead_channels(graph) is graph


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", ["ADD", "MUL"])
def test_all_pairs_of_values_are_within_the_interval(tmp_path: Path, kind: str, seed: int) -> None:
    """The ends are values of the output, too, for operands with any value."""

    def build(m: ModelWriter, rng: Rng) -> None:
        scales = rng.uniform(0.01, 0.3, 3)
        zero_points = rng.integers(-128, 128, 3)
        one = m.input((1, 256, 1, 1), scales[0], zero_points[0])
        other = m.input((1, 1, 256, 1), scales[1], zero_points[1])
        ends = {"scale": float(scales[2] * 2), "zero_point": int(zero_points[2])}
        if kind == "ADD":
            m.output(m.add(one, other, activation="RELU6", **ends))
        else:
            m.output(_mul(m, one, other, ends["scale"], ends["zero_point"]))

    graph, _ = _graph(tmp_path, build, seed)
    values = np.arange(-128, 128, dtype=np.int8)
    (output,) = graph.outputs
    made = run_graph(graph, [values.reshape(1, 256, 1, 1), values.reshape(1, 1, 256, 1)])[output]
    found = intervals(graph)[output]
    assert (made.min(), made.max()) == (found.low[0], found.high[0])


def test_channels_of_int16_go_through_each_operator(tmp_path: Path) -> None:
    graph, _ = _graph(tmp_path, _wide_joined, 0)
    less = drop_dead_channels(graph)
    fewer = {
        operator.kind
        for operator in less.operators
        if less.tensors[operator.outputs[0]].channels is not None
    }
    assert fewer == {"CONV_2D", "RELU", "ADD", "MUL", "QUANTIZE"}
