"""Importing what computes each output element from one element of each input."""

from __future__ import annotations

from utvm_deploy.frontend.operands import (
    clamp_of,
    made,
    quantized,
    quantized_range,
)
from utvm_deploy.frontend.source import SourceOperator
from utvm_deploy.graph.attributes import Add, Dequantize, Quantize, Relu
from utvm_deploy.graph.model import Operator


def import_add(op: SourceOperator) -> Operator:
    quantized(op, op.input(0))
    quantized(op, op.input(1))
    out = quantized(op, op.output())
    return made(op, op.inputs[:2], Add(clamp_of(op, out)))


def import_relu(op: SourceOperator) -> Operator:
    quantized(op, op.input(0))
    out = quantized(op, op.output())
    upper = 6.0 if op.kind == "RELU6" else None
    return made(op, op.inputs[:1], Relu(quantized_range(op, out, 0.0, upper)))


def import_quantize(op: SourceOperator) -> Operator:
    x = op.input(0)
    if x.dtype != "float32":
        quantized(op, x, types=("int8", "float32"))
    quantized(op, op.output())
    return made(op, op.inputs[:1], Quantize())


def import_dequantize(op: SourceOperator) -> Operator:
    quantized(op, op.input(0))
    out = op.output()
    if out.dtype != "float32":
        raise op.unsupported(f"its output is {out.dtype}; only float32 is supported")
    return made(op, op.inputs[:1], Dequantize())
