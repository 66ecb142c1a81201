"""What the importers ask of the operands of operators that compute in float32."""

from __future__ import annotations

from collections.abc import Mapping

from utvm_deploy.frontend.files.source import SourceOperator
from utvm_deploy.frontend.operators.operands import bias_of
from utvm_deploy.graph.attribute_values import FLOAT_MAX, Limits
from utvm_deploy.graph.model import Tensor
from utvm_deploy.graph.quantize_hint import quantize_command

# The schema's numbers of fused activations, which never change. The reference also limits NONE and
# RELU: infinities become the largest finite numbers.
_ACTIVATIONS: Mapping[int, Limits] = {
    0: (-FLOAT_MAX, FLOAT_MAX),
    1: (0.0, FLOAT_MAX),
    2: (-1.0, 1.0),
    3: (0.0, 6.0),
}


def floats(op: SourceOperator, *tensors: Tensor, rank: int | None = None) -> None:
    """Check that tensors are float32."""
    for tensor in tensors:
        if rank is not None and len(tensor.shape) != rank:
            raise op.unsupported(
                f"tensor '{tensor.name}' has shape {tensor.shape}; only {rank} dimensions are "
                "supported"
            )
        if tensor.dtype != "float32":
            raise op.unsupported(
                f"tensor '{tensor.name}' is {tensor.dtype}, but others of this operator are "
                "float32; convert the model again, to float32 or to int8 as a whole"
            )


def float_weights_of(
    op: SourceOperator, rank: int = 4, position: int = 1, *, computed: bool = False
) -> Tensor:
    """Weights of float32; ``computed`` says that they need not be constant."""
    weights = op.input(position)
    if weights.dtype in ("int8", "uint8", "int4"):
        or_this = ", or take this file" if weights.dtype == "int8" else ""
        raise op.unsupported(
            f"the weights are {weights.dtype}, but activations are float32, as in models with "
            f"dynamic range quantization; start from the float model{or_this}: "
            f"{quantize_command()}"
        )
    floats(op, weights)
    if weights.data is None and not computed:
        raise op.unsupported(
            f"weights '{weights.name}' are computed; only constant ones are supported"
        )
    if len(weights.shape) != rank:
        raise op.damaged(f"weights '{weights.name}' have shape {weights.shape}, not {rank} numbers")
    return weights


def float_bias_of(op: SourceOperator, channels: int, position: int = 2) -> int | None:
    """The bias's tensor, None if there is none."""
    return bias_of(op, channels, position, "float32")


def limits_of(op: SourceOperator, number: int | None = None) -> Limits:
    """The fused activation, or the one of that number, as the least and the largest output."""
    if number is None:
        number = op.integer("FusedActivationFunction")
    if number not in _ACTIVATIONS:
        raise op.unsupported(
            f"its fused activation has number {number}; supported are NONE, RELU, RELU_N1_TO_1 "
            "and RELU6"
        )
    return _ACTIVATIONS[number]
