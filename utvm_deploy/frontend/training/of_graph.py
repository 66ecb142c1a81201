"""A .tflite file that trains: its first operators as they are, and the rest in Relax.

    before:  x ──▶ body ──▶ head ──▶ y        int8 or float32
    after:   x ──▶ body ──▶ DEQUANTIZE ──▶ train step of the head, in float32

The body has the operators that no weight that trains is in front of. It keeps its kernels, and so
each of its bytes. The weights of a quantized head are those that its integers stand for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tvm import relax
from tvm.relax import op

from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.frontend.relax.operators import scalar, shape_of
from utvm_deploy.frontend.training.graph import step_graph
from utvm_deploy.frontend.training.recipe import Recipe, positions_of
from utvm_deploy.frontend.training.step import train_step
from utvm_deploy.frontend.training.stored import digest_of
from utvm_deploy.graph.attribute_values import FLOAT_MAX, Clamp, Limits
from utvm_deploy.graph.attributes import Dequantize
from utvm_deploy.graph.check import place_of
from utvm_deploy.graph.model import Graph, Operator, Tensor
from utvm_deploy.graph.names import short_name
from utvm_deploy.graph.rewrite import compacted, renumbered

_Floats: TypeAlias = NDArray[np.float32]
#: Of an operator's attributes and its operands, what it becomes.
_Maker: TypeAlias = Callable[..., Any]

#: The layers that train, and the axes of a file's weights in the order of those in Relax.
ORDERS = {
    "CONV_2D": (0, 1, 2, 3),
    "DEPTHWISE_CONV_2D": (3, 1, 2, 0),
    "FULLY_CONNECTED": (1, 0),
}
CONVERSIONS = ("QUANTIZE", "DEQUANTIZE")


def graph_that_trains(graph: Graph, recipe: Recipe) -> tuple[Graph, tuple[str, ...]]:
    """The graph of a train step of a file's graph, and the names of the weights that train.

    Raises ModelError, UnsupportedOperator or UsageError if it cannot train so.
    """
    chosen, head = head_of(graph, recipe)
    if graph.states or len(graph.outputs) != 1:
        raise ModelError("only a model with one output and without states can train")
    ends = _ends(graph, head)
    within = [i for i, one in enumerate(graph.operators) if one.kind in ORDERS and i in head]
    maker = _Head(graph, ends)
    own = replace(recipe, layers=tuple(within.index(i) for i in chosen))
    step = train_step(maker.module(sorted(head)), own, maker.names)
    weights = tuple(label for label, _ in step.states[: step.weights])
    digest = digest_of(graph.digest, weights)
    return _joined(graph, head, ends, step_graph(step, graph.name, digest)), weights


def head_of(graph: Graph, recipe: Recipe) -> tuple[list[int], set[int]]:
    """The positions of the layers that train, and of all operators behind their weights.

    Raises UsageError for layers that there are not.
    """
    layers = [i for i, one in enumerate(graph.operators) if one.kind in ORDERS]
    names = [short_name(graph.tensors[graph.operators[i].outputs[0]].name) for i in layers]
    weights = [graph.operators[i].inputs[1] for i in layers]
    shapes = ["" if n is None else "x".join(map(str, graph.tensors[n].shape)) for n in weights]
    kinds = (graph.operators[i].kind for i in layers)
    told = [
        f"{name} ({kind} {shape})" for name, kind, shape in zip(names, kinds, shapes, strict=True)
    ]
    chosen = [layers[position] for position in positions_of(names, told, recipe.layers)]
    head, made = set[int](), set[int | None]()
    for position, one in enumerate(graph.operators):
        if position in chosen or made & {*one.inputs}:
            head.add(position)
            made |= {*one.outputs}
    return chosen, head


def _ends(graph: Graph, head: set[int]) -> list[int]:
    """The activations that the head reads, and does not make."""
    operators = [graph.operators[position] for position in sorted(head)]
    made = {None, *(number for one in operators for number in one.outputs)}
    read = dict.fromkeys(number for one in operators for number in one.inputs)
    return [n for n in read if n is not None and n not in made and graph.tensors[n].data is None]


def _joined(graph: Graph, head: set[int], ends: Sequence[int], step: Graph) -> Graph:
    """The body of a graph, and the step behind it."""
    tensors = list(graph.tensors)
    operators = [one for i, one in enumerate(graph.operators) if i not in head]
    numbers: dict[int, int] = {}
    for end, given in zip(ends, step.inputs[:-1], strict=True):
        numbers[given] = end
        if graph.tensors[end].dtype != "float32":
            numbers[given] = len(tensors)
            name, shape = graph.tensors[end].name, graph.tensors[end].shape
            tensors.append(Tensor(f"{name}_float", shape, "float32"))
            made = (numbers[given],)
            operators.append(Operator("DEQUANTIZE", (end,), made, Dequantize(), ()))
    first = len(tensors)
    numbers = {i: numbers.get(i, first + i) for i in range(len(step.tensors))}
    tensors += (replace(tensor, source=None) for tensor in step.tensors)
    operators += (replace(renumbered(one, numbers), sources=()) for one in step.operators)
    return compacted(
        step.replaced(
            tensors=tuple(tensors),
            operators=tuple(operators),
            inputs=(*graph.inputs, numbers[step.inputs[-1]]),
            outputs=tuple(numbers[i] for i in step.outputs),
            states=tuple((numbers[found], numbers[left]) for found, left in step.states),
        )
    )


class _Head:
    """Makes the Relax module of the head, operator by operator."""

    def __init__(self, graph: Graph, ends: Sequence[int]) -> None:
        self.graph = graph
        self.names: dict[bytes, list[str]] = {}
        self._builder = relax.BlockBuilder()
        self._inputs = [
            relax.Var(f"end_{i}", relax.TensorType(graph.tensors[i].shape, "float32")) for i in ends
        ]
        self._made = dict[int | None, Any](zip(ends, self._inputs, strict=True))

    def module(self, positions: Sequence[int]) -> Any:
        """The module of these operators: the ends in, the graph's output out.

        Raises UnsupportedOperator for an operator that cannot train.
        """
        operators = [self.graph.operators[position] for position in positions]
        for operator in operators:
            if operator.kind not in (*_HEADS, *CONVERSIONS):
                raise UnsupportedOperator(
                    f"{place_of(self.graph, operator)}, has no gradient; train only layers behind "
                    "it"
                )
        with self._builder.function("main", self._inputs):
            with self._builder.dataflow():
                for operator in operators:
                    self._emit(operator)
                output = self._builder.emit_output(self._made[self.graph.outputs[0]])
            self._builder.emit_func_output(output)
        return self._builder.get()

    def _emit(self, operator: Operator) -> None:
        (number,) = operator.outputs
        output = self.graph.tensors[number]
        places = [i for i, one in enumerate(operator.inputs) if one is not None]
        made, *_ = operands = [self._operand(operator, place) for place in places]
        if operator.kind not in CONVERSIONS:
            make = self._builder.emit
            made = make(_HEADS[operator.kind](operator.attributes, *operands))
            if shape_of(made) != tuple(output.shape):
                made = make(op.reshape(made, output.shape))
            least, most = bounds_of(operator.attributes, output)
            if least > -math.inf or most < math.inf:
                made = make(op.clip(made, least, most))
        self._made[number] = made

    def _operand(self, operator: Operator, place: int) -> Any:
        """An input in Relax: what was made, or a constant of float32.

        By its weights, a layer gets the name of its output.
        """
        number = operator.inputs[place]
        is_weights = operator.kind in ORDERS and place == 1
        if number in self._made and not is_weights:
            return self._made[number]
        tensor = None if number is None else self.graph.tensors[number]
        if tensor is None or tensor.data is None:
            raise UnsupportedOperator(
                f"{place_of(self.graph, operator)}, has no constant weights; train only layers "
                "behind it"
            )
        values = floats_of(tensor)
        if is_weights:
            values = np.ascontiguousarray(values.transpose(ORDERS[operator.kind]))
            name = short_name(self.graph.tensors[operator.outputs[0]].name)
            key = values if values.ndim == 2 else np.moveaxis(values, -1, 1)
            self.names.setdefault(key.tobytes(), []).append(name)
        return relax.const(values)


def floats_of(tensor: Tensor) -> _Floats:
    """The numbers that a constant stands for."""
    assert tensor.data is not None
    data, q = tensor.data, tensor.quantization
    if q is None or tensor.dtype == "float32":
        return np.ascontiguousarray(data, np.float32)
    shape = [1] * data.ndim
    if q.axis is not None:
        shape[q.axis] = -1
    scales, zeros = np.asarray(q.scales), np.asarray(q.zero_points)
    real = (data.astype(np.float64) - zeros.reshape(shape)) * scales.reshape(shape)
    return np.ascontiguousarray(real, np.float32)


def bounds_of(attributes: Any, output: Tensor) -> tuple[float, float]:
    """The activation of an operator: the least and the largest output, or infinities.

    A quantized tensor whose least number is 0 is behind a ReLU, even if the file does not say so.
    Another end of its range bounds integers only.
    """
    limits: Limits = getattr(attributes, "limits", None)
    clamp: Clamp | None = getattr(attributes, "clamp", None)
    least, most = limits or (-math.inf, math.inf)
    q = output.quantization
    if least <= -FLOAT_MAX:
        is_relu = q is not None and clamp is not None and clamp[0] == q.zero_point
        least = 0.0 if is_relu else -math.inf
    return least, most if most < FLOAT_MAX else math.inf


def _with_bias(made: Any, bias: Sequence[Any]) -> Any:
    """The product plus its bias, if it has one."""
    return op.add(made, bias[0]) if bias else made


def _dense(_attributes: Any, x: Any, weights: Any, *bias: Any) -> Any:
    rows = op.reshape(x, (-1, shape_of(weights)[0]))
    return _with_bias(op.matmul(rows, weights), bias)


def _convolution(a: Any, x: Any, weights: Any, *bias: Any) -> Any:
    given = {"strides": a.strides, "padding": _padding(a), "dilation": a.dilations}
    groups = shape_of(x)[3] // shape_of(weights)[3]
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    return _with_bias(op.nn.conv2d(x, weights, **given, groups=groups, **layouts), bias)


def _padding(attributes: Any) -> tuple[int, ...]:
    """As Relax has it: top, left, bottom, right."""
    top, bottom, left, right = attributes.padding
    return top, left, bottom, right


def _pool(function: Any) -> _Maker:
    return lambda a, x: function(x, a.window, a.strides, _padding(a), layout="NHWC")


def _softmax(a: Any, x: Any) -> Any:
    return op.nn.softmax(x if a.beta == 1.0 else op.multiply(x, scalar(a.beta)), -1)


def _hard_swish(_attributes: Any, x: Any) -> Any:
    """x relu6(x + 3) / 6 (Howard et al., "Searching for MobileNetV3", 2019)."""
    gate = op.clip(op.add(x, scalar(3.0)), 0, 6)
    return op.multiply(op.multiply(x, gate), scalar(1 / 6))


def _rearranged(a: Any, x: Any) -> Any:
    made = op.reshape(x, a.view)
    for axis, (extent, indices) in enumerate(zip(a.view, a.indices, strict=True)):
        if list(indices) != list(range(extent)):
            made = op.take(made, relax.const(np.asarray(indices, np.int32)), axis)
    return op.permute_dims(made, list(a.order))


#: What operators of the head become, before they get the shape and the activation of the output.
_HEADS: Mapping[str, _Maker] = {
    "ADD": lambda _, x, y: op.add(x, y),
    "AVERAGE_POOL_2D": _pool(op.nn.avg_pool2d),
    "CONCATENATION": lambda a, *parts: op.concat(parts, a.axis),
    "CONV_2D": _convolution,
    "DEPTHWISE_CONV_2D": _convolution,
    "FULLY_CONNECTED": _dense,
    "GELU": lambda a, x: (op.nn.gelu_tanh if a.approximates else op.nn.gelu)(x),
    "HARD_SWISH": _hard_swish,
    "LEAKY_RELU": lambda a, x: op.nn.leakyrelu(x, a.alpha),
    "LOGISTIC": lambda _, x: op.sigmoid(x),
    "MAX_POOL_2D": _pool(op.nn.max_pool2d),
    "MEAN": lambda a, x: op.mean(x, list(a.axes)),
    "MUL": lambda _, x, y: op.multiply(x, y),
    "PAD": lambda a, x: op.nn.pad(x, [n for pair in a.paddings for n in pair]),
    **dict.fromkeys(("RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "RESHAPE"), lambda _, x: x),
    "SLICE": _rearranged,
    "SOFTMAX": _softmax,
    "STRIDED_SLICE": _rearranged,
    "SUB": lambda _, x, y: op.subtract(x, y),
    "TANH": lambda _, x: op.tanh(x),
    "TRANSPOSE": _rearranged,
}
