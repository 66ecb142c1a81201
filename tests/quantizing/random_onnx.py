"""Random float ONNX networks: a seed draws shapes, operators and how they are joined."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper
from other_formats.onnx_writer import OnnxWriter

#: Most elements of a tensor, so that no network takes long.
MOST_ELEMENTS = 1_000
MOST_CHANNELS = 12
_STEPS = (2, 7)
_RECURRENT = {"GRU": 3, "LSTM": 4}


class Unfit(Exception):
    """An operator that the drawn tensor cannot have."""


@dataclass
class Network:
    """A network under construction, with the shape of each of its values."""

    seed: int
    chance: random.Random
    writer: OnnxWriter
    values: list[str] = field(default_factory=list)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def add(self, kind: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        """An operator whose first result is named."""
        made = self.writer.add(kind, *inputs, outputs=outputs, **attributes)
        return str(made if outputs == 1 else made[0])

    def integers(self, *values: int) -> str:
        """A constant of int64."""
        return self.writer.constant(np.array(values, np.int64))

    def number(self, value: float) -> str:
        """A constant float32 without dimensions."""
        return self.writer.constant(np.float32(value))

    def operand(self, x: str) -> str:
        """A value of the same shape, or a constant that broadcasts to it."""
        shape = self.shapes[x]
        equals = [one for one in self.values if self.shapes[one] == shape and one != x]
        if equals and self.chance.random() < 0.6:
            return self.chance.choice(equals)
        extents = [1 if self.chance.random() < 0.4 else extent for extent in shape]
        return self.writer.normal(*extents[self.chance.randrange(len(extents)) :], scale=1.0)

    def axis(self, x: str) -> int:
        """Any axis but the batch, if there are others."""
        rank = len(self.shapes[x])
        return self.chance.randrange(1, rank) if rank > 1 else 0

    def shape_of(self, name: str) -> tuple[int, ...]:
        """What ONNX infers for the newest value."""
        value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)]
        given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.writer.shape)]
        graph = helper.make_graph(self.writer.nodes, "g", given, value, self.writer.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        return tuple(d.dim_value for d in inferred.graph.output[0].type.tensor_type.shape.dim)


Make = Callable[[Network, str], str]


def _convolution(net: Network, x: str) -> str:
    _, channels, height, width = net.shapes[x]
    is_depthwise = net.chance.random() < 0.35
    side = net.chance.choice([1, 2, 3, 3, 5])
    pads = net.chance.choice([(0, 0), (side // 2, side // 2), (side // 2, 0)])
    if side > min(height, width) + sum(pads):
        raise Unfit
    return net.writer.conv(
        x,
        channels,
        channels if is_depthwise else net.chance.randint(1, MOST_CHANNELS),
        side,
        side,
        group=channels if is_depthwise else 1,
        pads=[pads[0], pads[0], pads[1], pads[1]],
        strides=[net.chance.choice([1, 1, 2])] * 2,
    )


def _transposed_convolution(net: Network, x: str) -> str:
    channels = net.shapes[x][1]
    side, outputs = net.chance.choice([2, 3]), net.chance.randint(1, MOST_CHANNELS)
    return net.add(
        "ConvTranspose",
        x,
        net.writer.normal(channels, outputs, side, side),
        net.writer.normal(outputs, scale=0.1),
        strides=[net.chance.choice([1, 2])] * 2,
    )


def _pool(net: Network, x: str) -> str:
    _, _, height, width = net.shapes[x]
    side = net.chance.choice([2, 3])
    if side > min(height, width):
        raise Unfit
    kind = net.chance.choice(["MaxPool", "AveragePool"])
    pad = net.chance.choice([0, 0, 1])
    return net.add(
        kind,
        x,
        kernel_shape=[side] * 2,
        strides=[net.chance.choice([1, 2])] * 2,
        pads=[pad] * 4,
        **({"count_include_pad": net.chance.randrange(2)} if kind == "AveragePool" else {}),
    )


def _resized(net: Network, x: str) -> str:
    kind = net.chance.choice(["nearest", "linear"])
    attributes: dict[str, str] = {"mode": kind, "coordinate_transformation_mode": "half_pixel"}
    if kind == "nearest":
        attributes |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    scales = net.writer.constant(np.array([1, 1, 2, 2], np.float32))
    return net.add("Resize", x, "", scales, **attributes)


def _flat_product(net: Network, x: str) -> str:
    flat = net.add("Flatten", x)
    rows = net.shapes[x][0] if len(net.shapes[x]) > 1 else 1
    width, outputs = math.prod(net.shapes[x]) // rows, net.chance.randint(1, 16)
    bias = net.writer.normal(outputs, scale=0.1)
    scale = 1.0 / math.sqrt(width)
    if net.chance.random() < 0.5:
        return net.add("Gemm", flat, net.writer.normal(width, outputs, scale=scale), bias)
    weights = net.writer.normal(outputs, width, scale=scale)
    return net.add("Gemm", flat, weights, bias, transB=1)


def _product(net: Network, x: str) -> str:
    width = net.shapes[x][-1]
    weights = net.writer.normal(width, net.chance.randint(1, 12), scale=1.0 / math.sqrt(width))
    return net.add("MatMul", x, weights)


def _attention(net: Network, x: str) -> str:
    """The product of a value with itself."""
    axes = list(range(len(net.shapes[x])))
    turned = net.add("Transpose", x, perm=[*axes[:-2], axes[-1], axes[-2]])
    scores = net.add("MatMul", x, turned)
    return net.add("Mul", scores, net.number(1.0 / math.sqrt(net.shapes[x][-1])))


def _joined(net: Network, x: str) -> str:
    return net.add(net.chance.choice(["Add", "Add", "Sub", "Mul"]), x, net.operand(x))


def _extremes(net: Network, x: str) -> str:
    return net.add(net.chance.choice(["Max", "Min"]), x, net.operand(x))


def _divided(net: Network, x: str) -> str:
    return net.add("Div", x, net.number(net.chance.choice([0.7, 2.0, 5.0])))


def _chosen(net: Network, x: str) -> str:
    kind = net.chance.choice(["Greater", "Less", "GreaterOrEqual", "LessOrEqual"])
    condition = net.add(kind, x, net.number(net.chance.choice([0.0, 0.3])))
    return net.add("Where", condition, x, net.operand(x))


def _concatenated(net: Network, x: str) -> str:
    axis, shape = net.axis(x), net.shapes[x]
    others = [
        one
        for one in net.values
        if len(net.shapes[one]) == len(shape)
        and all(net.shapes[one][i] == shape[i] for i in range(len(shape)) if i != axis)
    ]
    return net.add("Concat", x, net.chance.choice(others), axis=axis)


def _halves(net: Network, x: str) -> str:
    axis = net.axis(x)
    extent = net.shapes[x][axis]
    if extent < 2:
        raise Unfit
    sizes = net.integers(extent // 2, extent - extent // 2)
    first, second = net.writer.add("Split", x, sizes, outputs=2, axis=axis)
    return net.add("Concat", net.add("Relu", second), first, axis=axis)


def _sliced(net: Network, x: str) -> str:
    axis = net.axis(x)
    extent = net.shapes[x][axis]
    begin = net.chance.randrange(extent)
    end = net.chance.randint(begin + 1, extent)
    bounds = (begin, end, axis, net.chance.choice([1, 1, 2]))
    return net.add("Slice", x, *map(net.integers, bounds))


def _reshaped(net: Network, x: str) -> str:
    shape = list(net.shapes[x])
    axis = net.axis(x)
    if net.chance.random() < 0.5 or len(shape) < 3:
        extents = [shape[0], -1, *shape[3:]] if len(shape) > 2 else [shape[0], -1, 1]
    else:
        divisor = next((d for d in (2, 3, 5) if shape[axis] % d == 0), 1)
        extents = [*shape[:axis], shape[axis] // divisor, divisor * math.prod(shape[axis + 1 :])]
    return net.add("Reshape", x, net.integers(*extents))


def _transposed(net: Network, x: str) -> str:
    axes = list(range(1, len(net.shapes[x])))
    net.chance.shuffle(axes)
    return net.add("Transpose", x, perm=[0, *axes])


def _padded(net: Network, x: str) -> str:
    rank = len(net.shapes[x])
    widths = [net.chance.choice([0, 1, 2]) if i % rank else 0 for i in range(2 * rank)]
    inner = [widths[i] if i % rank >= max(1, rank - 2) else 0 for i in range(2 * rank)]
    return net.add("Pad", x, net.integers(*inner), net.number(0.0), mode="constant")


def _normalized(net: Network, x: str) -> str:
    width = net.shapes[x][-1]
    if width < 2:
        raise Unfit
    scale = net.writer.constant(net.writer.rng.uniform(0.5, 1.5, width).astype(np.float32))
    return net.add("LayerNormalization", x, scale, net.writer.normal(width), axis=-1)


def _batch_normalized(net: Network, x: str) -> str:
    count, rng = net.shapes[x][1], net.writer.rng
    scale, variance = (
        net.writer.constant(rng.uniform(0.5, 1.5, count).astype(np.float32)) for _ in range(2)
    )
    bias, mean = net.writer.normal(count), net.writer.normal(count)
    return net.add("BatchNormalization", x, scale, bias, mean, variance)


def _instance_normalized(net: Network, x: str) -> str:
    if math.prod(net.shapes[x][2:]) < 4:
        raise Unfit
    count = net.shapes[x][1]
    scale = net.writer.constant(net.writer.rng.uniform(0.5, 1.5, count).astype(np.float32))
    return net.add("InstanceNormalization", x, scale, net.writer.normal(count))


def _reduced(net: Network, x: str) -> str:
    kind = net.chance.choice(["ReduceMean", "ReduceMean", "ReduceMax", "ReduceMin"])
    axes = [net.axis(x)]
    if len(net.shapes[x]) == 4 and net.chance.random() < 0.5:
        axes = [2, 3]
    keeps = net.chance.randrange(2) if len(net.shapes[x]) > 2 else 1
    return net.add(kind, x, axes=axes, keepdims=keeps)


def _gathered(net: Network, x: str) -> str:
    axis = net.axis(x)
    extent = net.shapes[x][axis]
    picked = [net.chance.randrange(extent) for _ in range(net.chance.randint(1, 4))]
    return net.add("Gather", x, net.integers(*picked), axis=axis)


def _recurrent(net: Network, x: str) -> str:
    """GRU or LSTM over the first axes, of few steps."""
    shape = net.shapes[x]
    kind, size = net.chance.choice(list(_RECURRENT)), net.chance.randint(2, 6)
    steps, features = math.prod(shape[:-1]), shape[-1]
    if not _STEPS[0] <= steps <= _STEPS[1]:
        raise Unfit
    gates = _RECURRENT[kind] * size
    directions = net.chance.choice([1, 1, 2])
    attributes: dict[str, object] = {"hidden_size": size}
    if directions == 2:
        attributes["direction"] = "bidirectional"
    if kind == "GRU":
        attributes["linear_before_reset"] = net.chance.randrange(2)
    sequence = net.add("Reshape", x, net.integers(steps, 1, features))
    weights = (
        net.writer.normal(directions, gates, features),
        net.writer.normal(directions, gates, size),
        net.writer.normal(directions, 2 * gates),
    )
    made = net.add(kind, sequence, *weights, **attributes)
    return net.add("Reshape", made, net.integers(1, steps, directions * size))


def _softmax(net: Network, x: str) -> str:
    return net.add("Softmax", x, axis=net.chance.choice([-1, net.axis(x)]))


def _clipped(net: Network, x: str) -> str:
    low, high = net.chance.choice([(0.0, 6.0), (-1.0, 1.0), (-0.3, 0.9), (0.2, 1.0)])
    return net.add("Clip", x, net.number(low), net.number(high))


def _gelu(net: Network, x: str) -> str:
    error = net.add("Erf", net.add("Div", x, net.number(math.sqrt(2.0))))
    factor = net.add("Add", error, net.number(1.0))
    return net.add("Mul", net.add("Mul", x, factor), net.number(0.5))


def _leaky(net: Network, x: str) -> str:
    return net.add("LeakyRelu", x, alpha=net.chance.choice([0.01, 0.1, 0.3]))


def _sloped(net: Network, x: str) -> str:
    channels = net.shapes[x][1]
    slopes = net.writer.rng.uniform(0.0, 0.4, (channels, 1, 1)).astype(np.float32)
    return net.add("PRelu", x, net.writer.constant(slopes))


def _root(net: Network, x: str) -> str:
    return net.add("Sqrt", net.add("Abs", x))


def _exponential(net: Network, x: str) -> str:
    return net.add("Exp", net.add("Min", x, net.number(1.5)))


def _same(kind: str) -> Make:
    return lambda net, x: net.add(kind, x)


@dataclass(frozen=True)
class Step:
    """An operator, or a few, for values of some ranks; drawn more often with a larger weight."""

    make: Make
    ranks: tuple[int, ...] = (2, 3, 4)
    weight: int = 1


STEPS = (
    Step(_convolution, (4,), 4),
    Step(_transposed_convolution, (4,)),
    Step(_pool, (4,), 2),
    Step(_same("GlobalAveragePool"), (4,)),
    Step(_resized, (4,)),
    Step(_batch_normalized, (4,)),
    Step(_instance_normalized, (4,)),
    Step(_sloped, (4,)),
    Step(_flat_product, weight=2),
    Step(_product, weight=2),
    Step(_attention, (3, 4)),
    Step(_recurrent, (2, 3), 2),
    Step(_joined, weight=3),
    Step(_extremes),
    Step(_divided),
    Step(_chosen),
    Step(_concatenated),
    Step(_halves),
    Step(_sliced),
    Step(_reshaped),
    Step(_transposed),
    Step(_padded),
    Step(_normalized),
    Step(_reduced, weight=2),
    Step(_gathered),
    Step(_softmax),
    Step(_clipped),
    Step(_gelu),
    Step(_leaky),
    Step(_root),
    Step(_exponential),
    *(Step(_same(kind)) for kind in ("Relu", "Sigmoid", "Tanh", "HardSwish", "Abs", "Neg")),
)
_WEIGHTS = tuple(step.weight for step in STEPS)


def random_network(seed: int) -> Network:
    """A network of one input, three to nine steps, and one or two outputs."""
    chance = random.Random(seed)
    shape = [1, *(chance.randint(2, 10) for _ in range(chance.choice([1, 2, 3, 3, 3])))]
    if len(shape) == 4:
        shape[1] = chance.randint(1, 6)
    while math.prod(shape) > MOST_ELEMENTS:
        shape[shape.index(max(shape))] -= 1
    net = Network(seed, chance, OnnxWriter(shape, seed))
    net.values.append("x")
    net.shapes["x"] = tuple(shape)
    wanted = chance.randint(3, 9)
    while len(net.values) <= wanted:
        _step(net)
    return net


def _step(net: Network) -> None:
    """One more value, unless what is drawn does not fit."""
    x = net.values[-1] if net.chance.random() < 0.75 else net.chance.choice(net.values)
    (step,) = net.chance.choices(STEPS, _WEIGHTS)
    if len(net.shapes[x]) not in step.ranks:
        return
    before = len(net.writer.nodes)
    try:
        made = step.make(net, x)
    except Unfit:
        del net.writer.nodes[before:]
        return
    shape = net.shape_of(made)
    if math.prod(shape) > MOST_ELEMENTS or 0 in shape:
        del net.writer.nodes[before:]
        return
    net.values.append(made)
    net.shapes[made] = shape


def outputs_of(net: Network) -> list[str]:
    """The last value, and every other one that nothing reads: at most three."""
    read = {name for node in net.writer.nodes for name in node.input}
    loose = [name for name in net.values if name not in read and name != "x"]
    return loose[-3:]


def save(net: Network, folder: Path) -> tuple[Path, np.ndarray]:
    """Write the file; its path, and samples to calibrate with."""
    path = net.writer.save(folder / f"onnx_{net.seed}.onnx", *outputs_of(net))
    # Exporters write the shapes of outputs.
    onnx.save(onnx.shape_inference.infer_shapes(onnx.load(path), data_prop=True), path)
    rng = np.random.default_rng(net.seed)
    return path, rng.normal(size=(32, *net.writer.shape[1:])).astype(np.float32)
