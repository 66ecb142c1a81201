"""QLinear operators of ONNX files (QOperator form) as the same operators in QDQ form.

``QLinearConv(x, w)`` becomes ``QuantizeLinear(Conv(DequantizeLinear(x), DequantizeLinear(w)))``.
ONNX has QLinearConv and QLinearMatMul; the others are onnxruntime's (domain com.microsoft).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from utvm_deploy.base.errors import ModelError


class _Expansion:
    """The nodes that one operator becomes."""

    def __init__(self, onnx: Any, constants: dict[str, Any], node: Any) -> None:
        self.onnx, self.constants, self.node = onnx, constants, node
        self.nodes: list[Any] = []

    def real(self, position: int, axis: int | None = None) -> str:
        """The reals behind a quantized input, whose scale and zero point follow it."""
        x, scale, zero = self.node.input[position : position + 3]
        return self.dequantized(x, scale, zero, axis)

    def dequantized(self, x: str, scale: str, zero: str, axis: int | None = None) -> str:
        """DequantizeLinear, with scales along ``axis`` if there are several."""
        name = f"{self.node.output[0]}_real_{len(self.nodes)}"
        is_by_axis = axis is not None and self.constant(scale).size > 1
        attributes = {"axis": axis} if is_by_axis else {}
        inputs = [x, scale, zero] if zero else [x, scale]
        self.add("DequantizeLinear", inputs, name, attributes)
        return name

    def constant(self, name: str) -> Any:
        """The value of an initializer; ModelError if it is computed."""
        if name not in self.constants:
            raise ModelError(
                f"operator {self.node.op_type}, which makes '{self.node.output[0]}': '{name}' is "
                "computed; only constant scales and weights are supported"
            )
        return self.onnx.numpy_helper.to_array(self.constants[name])

    def new(self, data: Any, what: str) -> str:
        """A new initializer's name."""
        name = f"{self.node.output[0]}_{what}"
        self.constants[name] = self.onnx.numpy_helper.from_array(np.asarray(data), name)
        return name

    def bias(self, x_scale: str, w_scale: str, bias: str) -> str:
        """A bias of int32, in steps of the product of both scales."""
        steps = self.constant(x_scale).reshape(-1) * self.constant(w_scale).reshape(-1)
        real = self.constant(bias).astype(np.float64) * steps
        return self.new(real.astype(np.float32), "bias")

    def add(self, kind: str, inputs: list[str], output: str, attributes: Any) -> None:
        """A node of ONNX's domain."""
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, [output], **attributes))

    def finish(self, kind: str, inputs: list[str], scale: str, zero: str, **more: Any) -> None:
        """The operator on reals, with the node's attributes, and its QuantizeLinear."""
        given = {
            a.name: self.onnx.helper.get_attribute_value(a)
            for a in self.node.attribute
            if a.name not in ("channels_last", "opset")
        }
        if any(a.name == "channels_last" and a.i for a in self.node.attribute):
            raise ModelError(
                f"operator {self.node.op_type}, which makes '{self.node.output[0]}': it has its "
                "channels last; only channels after the batch are supported"
            )
        name = f"{self.node.output[0]}_result"
        self.add(kind, inputs, name, {**given, **more})
        ends = [name, scale, zero] if zero else [name, scale]
        self.add("QuantizeLinear", ends, self.node.output[0], {})


def _convolution(e: _Expansion) -> None:
    i = e.node.input
    inputs = [e.real(0), e.real(3, 0)]
    if len(i) > 8 and i[8]:
        inputs.append(e.bias(i[1], i[4], i[8]))
    e.finish("Conv", inputs, i[6], i[7])


def _product(e: _Expansion) -> None:
    e.finish("MatMul", [e.real(0), e.real(3, 1)], e.node.input[6], e.node.input[7])


def _gemm(e: _Expansion) -> None:
    i = list(e.node.input) + [""] * 9
    turned = any(a.name == "transB" and a.i for a in e.node.attribute)
    inputs = [e.real(0), e.real(3, 0 if turned else 1)]
    if i[6]:
        inputs.append(e.bias(i[1], i[4], i[6]))
    e.finish("Gemm", inputs, i[7], i[8])


def _binary(kind: str) -> Callable[[_Expansion], None]:
    return lambda e: e.finish(kind, [e.real(0), e.real(3)], *_ends(e, 6))


def _unary(kind: str) -> Callable[[_Expansion], None]:
    return lambda e: e.finish(kind, [e.real(0)], *_ends(e, 3))


def _concatenation(e: _Expansion) -> None:
    parts = [e.real(position) for position in range(2, len(e.node.input), 3)]
    e.finish("Concat", parts, e.node.input[0], e.node.input[1])


def _choice(e: _Expansion) -> None:
    e.finish("Where", [e.node.input[0], e.real(1), e.real(4)], *_ends(e, 7))


def _ends(e: _Expansion, position: int) -> tuple[str, str]:
    scale, zero = (*e.node.input[position : position + 2], "", "")[:2]
    return scale, zero


_RULES: Mapping[str, Callable[[_Expansion], None]] = {
    "QGemm": _gemm,
    "QLinearAdd": _binary("Add"),
    "QLinearAveragePool": _unary("AveragePool"),
    "QLinearConcat": _concatenation,
    "QLinearConv": _convolution,
    "QLinearGlobalAveragePool": _unary("GlobalAveragePool"),
    "QLinearLeakyRelu": _unary("LeakyRelu"),
    "QLinearMatMul": _product,
    "QLinearMul": _binary("Mul"),
    "QLinearReduceMean": _unary("ReduceMean"),
    "QLinearSigmoid": _unary("Sigmoid"),
    "QLinearSoftmax": _unary("Softmax"),
    "QLinearWhere": _choice,
}


def without_qlinear(onnx: Any, proto: Any) -> Any:
    """The model with its QLinear operators in QDQ form; the same object if it has none.

    Raises ModelError if a scale is computed.
    """
    if not any(node.op_type in _RULES for node in proto.graph.node):
        return proto
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    constants = {tensor.name: tensor for tensor in copy.graph.initializer}
    nodes = []
    for node in proto.graph.node:
        rule = _RULES.get(node.op_type)
        if rule is None:
            nodes.append(node)
            continue
        expansion = _Expansion(onnx, constants, node)
        rule(expansion)
        nodes.extend(expansion.nodes)
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    del copy.graph.initializer[:]
    copy.graph.initializer.extend(constants.values())
    # Types that other people's tools wrote for tensors between operators hold no longer.
    del copy.graph.value_info[:]
    return copy
