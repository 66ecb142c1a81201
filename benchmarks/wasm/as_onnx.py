"""A quantized .tflite file as ONNX, with QuantizeLinear and DequantizeLinear around each operator.

That is what converters make, and what ONNX Runtime turns into its own int8 kernels. Without
quantization, the same net in float32.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.attributes import (
    Add,
    Convolution,
    FullyConnected,
    Pool,
    Reshape,
    Softmax,
)
from utvm_deploy.graph.model import Graph, Operator

_OPSET = 17
_FULL = (-128, 127)


class _Writer:
    """The nodes of one graph. Images are [batch, channel, row, column] within it."""

    def __init__(self, graph: Graph, is_quantized: bool) -> None:
        self.graph, self.is_quantized = graph, is_quantized
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.names: dict[int, str] = {}  # tensor -> the value with its elements

    def constant(self, value: Any, dtype: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def scale(self, tensor: int) -> tuple[str, str]:
        found = self.graph.tensors[tensor].quantization
        assert found is not None
        return self.constant(found.scale, np.float32), self.constant(found.zero_point, np.int8)

    def real(self, tensor: int) -> str:
        """A tensor's real numbers."""
        name = self.names[tensor]
        return (
            self.node("DequantizeLinear", name, *self.scale(tensor)) if self.is_quantized else name
        )

    def keep(self, tensor: int, name: str, clamp: tuple[int, int] = _FULL) -> None:
        """What a node computed is a tensor. The ends of int8 are the bounds of most."""
        found = self.graph.tensors[tensor].quantization
        assert found is not None
        if clamp != _FULL or not self.is_quantized:
            ends = [found.scale * (end - found.zero_point) for end in clamp]
            name = self.node("Clip", name, *(self.constant(end, np.float32) for end in ends))
        if self.is_quantized:
            name = self.node("QuantizeLinear", name, *self.scale(tensor))
        self.names[tensor] = name

    def weights(self, tensor: int, order: tuple[int, ...], channels: int) -> str:
        """Constant weights, as real numbers; ``channels`` is the axis of the outputs then."""
        found = self.graph.tensors[tensor]
        assert found.data is not None and found.quantization is not None
        scales = np.array(found.quantization.scales, np.float32)
        data = found.data.transpose(order)
        if self.is_quantized:
            is_one = len(scales) == 1
            given = scales[0] if is_one else scales
            zeros = np.zeros_like(given, np.int8)
            names = self.constant(data, np.int8), self.constant(given, np.float32)
            more = {} if is_one else {"axis": channels}
            return self.node("DequantizeLinear", *names, self.constant(zeros, np.int8), **more)
        shape = [-1 if axis == channels else 1 for axis in range(data.ndim)]
        return self.constant(data * scales.reshape(shape), np.float32)

    def bias(self, operator: Operator) -> str:
        source, weights, bias = (self.graph.tensors[one] for one in operator.inputs[:3])
        assert source.quantization and weights.quantization and bias.data is not None
        scales = np.float32(source.quantization.scale) * np.array(weights.quantization.scales)
        if not self.is_quantized:
            return self.constant(bias.data * scales, np.float32)
        given = np.broadcast_to(scales, bias.data.shape).astype(np.float32)
        names = self.constant(bias.data, np.int32), self.constant(given, np.float32)
        return self.node("DequantizeLinear", *names, axis=0)


def _pads(padding: tuple[int, int, int, int]) -> list[int]:
    top, bottom, left, right = padding
    return [top, left, bottom, right]


def _write(writer: _Writer, operator: Operator) -> None:
    what, output = operator.attributes, operator.outputs[0]
    first = operator.inputs[0]
    shape = writer.graph.tensors[first].shape
    match what:
        case Convolution():
            is_depthwise = operator.kind == "DEPTHWISE_CONV_2D"
            order = (3, 0, 1, 2) if is_depthwise else (0, 3, 1, 2)
            given = writer.real(first), writer.weights(operator.inputs[1], order, 0)
            found = writer.node(
                *("Conv", *given, writer.bias(operator)),
                pads=_pads(what.padding),
                strides=list(what.strides),
                dilations=list(what.dilations),
                group=shape[3] if is_depthwise else 1,
            )
            writer.keep(output, found, what.clamp)
        case FullyConnected():
            weights = writer.weights(operator.inputs[1], (0, 1), 0)
            found = writer.node(
                "Gemm", writer.real(first), weights, writer.bias(operator), transB=1
            )
            writer.keep(output, found, what.clamp)
        case Pool():
            kind = "MaxPool" if operator.kind == "MAX_POOL_2D" else "AveragePool"
            sizes = {"kernel_shape": list(what.window), "strides": list(what.strides)}
            found = writer.node(kind, writer.real(first), pads=_pads(what.padding), **sizes)
            writer.keep(output, found, what.clamp)
        case Add():
            found = writer.node("Add", *(writer.real(one) for one in operator.inputs))
            writer.keep(output, found, what.clamp)
        case Softmax():
            writer.keep(output, writer.node("Softmax", writer.real(first), axis=-1))
        case Reshape():
            name = writer.names[first]
            if len(shape) == 4 and shape[1] * shape[2] > 1:
                name = writer.node("Transpose", name, perm=[0, 2, 3, 1])
            to = writer.constant(writer.graph.tensors[output].shape, np.int64)
            writer.names[output] = writer.node("Reshape", name, to)
        case _:
            raise SystemExit(f"{operator.kind} has no form here; choose another model")


def as_onnx(path: Path, *, is_quantized: bool) -> bytes:
    """The file's net, with an input and an output as the file has them, or of float32."""
    graph = load_model(path, is_quiet=True)
    writer = _Writer(graph, is_quantized)
    kind = TensorProto.INT8 if is_quantized else TensorProto.FLOAT
    (source,), (result,) = graph.inputs, graph.outputs
    shape = graph.tensors[source].shape
    writer.names[source] = "input"
    if len(shape) == 4:
        writer.names[source] = writer.node("Transpose", "input", perm=[0, 3, 1, 2])
    for operator in graph.operators:
        _write(writer, operator)
    writer.nodes.append(helper.make_node("Identity", [writer.names[result]], ["output"]))
    made = helper.make_model(
        helper.make_graph(
            writer.nodes,
            path.stem,
            [helper.make_tensor_value_info("input", kind, shape)],
            [helper.make_tensor_value_info("output", kind, graph.tensors[result].shape)],
            writer.constants,
        ),
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=8,
    )
    onnx.checker.check_model(made)
    return bytes(made.SerializeToString())
