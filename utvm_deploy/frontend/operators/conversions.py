"""Importing conversions between types and scales."""

from __future__ import annotations

import math
from collections.abc import Mapping

from utvm_deploy.frontend.files.source import SourceOperator
from utvm_deploy.frontend.files.supported_operator import CONVERTED, SupportedOperator
from utvm_deploy.frontend.operators.operands import made, quantized, scale_of, zero_point_of
from utvm_deploy.graph.attributes import Dequantize, Quantize
from utvm_deploy.graph.model import Operator, Tensor

#: What the reference's QUANTIZE makes of each type.
_QUANTIZED_TO = {
    "float32": ("int8", "uint8", "int16"),
    "int8": ("int8", "uint8", "int16"),
    "uint8": ("int8", "uint8", "int16"),
    "int16": ("int8", "int16", "int32"),
    "int32": ("int8", "int16"),
}
#: From here on a ratio of scales shifts values by more than 30 bits.
_MOST_RATIO = 2.0**30
_LEAST_INT32, _MOST_INT32 = -(2**31), 2**31 - 1


def import_quantize(op: SourceOperator) -> Operator:
    """QUANTIZE of float32, or of integers with another type or scale."""
    x = op.input(0)
    if x.dtype not in _QUANTIZED_TO:
        known = ", ".join(_QUANTIZED_TO)
        raise op.unsupported(f"tensor '{x.name}' is {x.dtype}; it takes only {known}")
    out, results = op.output(), _QUANTIZED_TO[x.dtype]
    if out.dtype not in results:
        raise op.unsupported(
            f"it makes {out.dtype} of {x.dtype}, which the reference cannot; "
            f"it makes only {', '.join(results)} of that"
        )
    quantized(op, out, types=results)
    if x.dtype == "float32":
        return made(op, op.inputs[:1], Quantize())
    quantized(op, x, types=(x.dtype,))
    for tensor in (x, out):
        _check_scale(op, tensor)
        if x.dtype == out.dtype == "int16" and zero_point_of(tensor) != 0:
            raise op.unsupported(
                f"tensor '{tensor.name}' has the zero point {zero_point_of(tensor)}; from int16 to "
                "int16 the reference takes only 0"
            )
    if scale_of(x) / scale_of(out) >= _MOST_RATIO:
        raise op.unsupported(
            f"its input's scale {scale_of(x):g} is 2**30 times that of its output, "
            f"{scale_of(out):g}, or more, where the reference is undefined"
        )
    return made(op, op.inputs[:1], Quantize())


def _check_scale(op: SourceOperator, tensor: Tensor) -> None:
    """What the reader does not ask of an int32, because it may be a bias."""
    if not (math.isfinite(scale_of(tensor)) and scale_of(tensor) > 0):
        raise op.damaged(
            f"tensor '{tensor.name}' has the scale {scale_of(tensor)}, which must be positive and "
            "finite; convert the model again"
        )
    if not _LEAST_INT32 <= zero_point_of(tensor) <= _MOST_INT32:
        raise op.damaged(
            f"tensor '{tensor.name}' has the zero point {zero_point_of(tensor)}, which is not an "
            "int32; convert the model again"
        )


def import_dequantize(op: SourceOperator) -> Operator:
    """DEQUANTIZE of a type of 8 or 16 bits."""
    x, out = op.input(0), op.output()
    if x.dtype == "float16":
        raise op.unsupported(
            f"tensor '{x.name}' is float16, and only constants may be; convert the model again "
            "with float32 activations"
        )
    quantized(op, x, types=("int8", "uint8", "int16"))
    if out.dtype != "float32":
        raise op.unsupported(f"its output is {out.dtype}; only float32 is supported")
    return made(op, op.inputs[:1], Dequantize())


#: What this module imports.
OPERATORS: Mapping[str, SupportedOperator] = {
    "DEQUANTIZE": SupportedOperator(import_dequantize, CONVERTED, "to float32"),
    "QUANTIZE": SupportedOperator(
        import_quantize,
        (*CONVERTED, "int32", "float32"),
        "to int8, uint8 or int16; int16 to int8, int16 or int32; int32 to int8 or int16",
    ),
}
