"""Refuses ONNX's dynamic quantization where it has operators that nothing here computes."""

from __future__ import annotations

from typing import Any

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.graph.names import short_name

#: What ``quantize_dynamic`` of onnxruntime writes, other than MatMulInteger, which TVM computes.
_KINDS = ("ConvInteger", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulIntegerToFloat")


def refuse_dynamic_quantization(proto: Any) -> None:
    """Raise UnsupportedOperator, which names the first of these operators."""
    for index, node in enumerate(proto.graph.node):
        if node.op_type in _KINDS:
            raise UnsupportedOperator(
                f"operator {index} ({node.op_type}), which makes '{short_name(node.output[0])}', "
                "is of dynamic quantization, whose scales each run computes; quantize the float "
                "model by onnxruntime's quantize_static (utvm docs other-formats)"
            )
