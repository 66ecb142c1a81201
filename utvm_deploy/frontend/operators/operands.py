"""What the importers ask of an operator's operands: types, quantization, weights, clamps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from utvm_deploy.frontend.files.source import SourceOperator
from utvm_deploy.graph.attribute_values import Clamp, Padding
from utvm_deploy.graph.attributes import Attributes
from utvm_deploy.graph.element_type import element_type
from utvm_deploy.graph.model import Operator, Tensor
from utvm_deploy.graph.quantize_hint import quantize_command

#: Element types of activations that operators may compute on.
COMPUTED = ("int8", "int16")
#: Element types that operators may move that do not compute.
MOVABLE = ("int8", "int16", "uint8", "int32", "int64", "float32")
#: Operators that move booleans and int16 without a scale, too.
MOVING_BOOLEANS = (
    *("ASSIGN_VARIABLE", "BROADCAST_TO", "CONCATENATION", "EXPAND_DIMS", "FILL", "GATHER"),
    "READ_VARIABLE",
    *("RESHAPE", "SLICE", "SQUEEZE", "STRIDED_SLICE", "TILE", "TRANSPOSE"),
)
#: The largest stride, dilation and padding of a convolution in the reference.
INT16_MAX = 2**15 - 1
# The reference refuses what it cannot quantize to an int32.
_INT32_OVERFLOW = 2.0**31
# The schema's enumerations, whose numbers can never change.
_PADDING_SAME, _PADDING_VALID = 0, 1
_ACTIVATIONS: Mapping[int, tuple[str, float | None, float | None]] = {
    0: ("NONE", None, None),
    1: ("RELU", 0.0, None),
    2: ("RELU_N1_TO_1", -1.0, 1.0),
    3: ("RELU6", 0.0, 6.0),
}


def made(op: SourceOperator, inputs: tuple[int | None, ...], attributes: Attributes) -> Operator:
    """The graph's operator for one of the file, of the same kind."""
    return Operator(op.kind, inputs, op.outputs, attributes, (op.index,))


def scale_of(tensor: Tensor) -> float:
    """The scale of a tensor that ``quantized`` has checked."""
    assert tensor.quantization is not None
    return tensor.quantization.scale


def zero_point_of(tensor: Tensor) -> int:
    """The zero point of a tensor that ``quantized`` has checked."""
    assert tensor.quantization is not None
    return tensor.quantization.zero_point


def quantized(
    op: SourceOperator, tensor: Tensor, rank: int | None = None, types: Sequence[str] = ("int8",)
) -> Tensor:
    """The tensor, if it is a per-tensor quantized one of those types and that rank."""
    if tensor.dtype == "uint8" and "uint8" not in types:
        raise op.unsupported(
            f"tensor '{tensor.name}' is uint8, as in legacy quantized models, which no kernel "
            f"computes on; utvm convert may make int8 of it, or quantize the float model: "
            f"{quantize_command()}"
        )
    if tensor.dtype not in types:
        accepted = f"{' and '.join(types)} {'is' if len(types) == 1 else 'are'}"
        raise op.unsupported(f"tensor '{tensor.name}' is {tensor.dtype}; only {accepted} supported")
    if tensor.quantization is None:
        raise op.damaged(f"tensor '{tensor.name}' has no scale and zero point; convert it again")
    if tensor.quantization.axis is not None:
        raise op.unsupported(
            f"tensor '{tensor.name}' has one scale per channel; only weights may have that"
        )
    if rank is not None and len(tensor.shape) != rank:
        raise op.unsupported(
            f"tensor '{tensor.name}' has shape {tensor.shape}; only {rank} dimensions are supported"
        )
    return tensor


def weights_of(
    op: SourceOperator, axis: int, rank: int = 4, types: Sequence[str] = ("int8",)
) -> Tensor:
    """Constant weights whose zero points are 0, per tensor or per output channel."""
    weights = op.input(1)
    if weights.dtype not in types:
        raise op.unsupported(
            f"weights '{weights.name}' are {weights.dtype}; only int8 is supported"
        )
    if weights.data is None:
        raise op.unsupported(
            f"weights '{weights.name}' are computed; only constant ones are supported"
        )
    if len(weights.shape) != rank:
        raise op.damaged(f"weights '{weights.name}' have shape {weights.shape}, not {rank} numbers")
    quantization = weights.quantization
    if quantization is None:
        raise op.damaged(f"weights '{weights.name}' have no scale; convert the model again")
    if any(quantization.zero_points):
        raise op.unsupported(
            f"weights '{weights.name}' have a zero point other than 0; "
            "only symmetric weights are supported"
        )
    if quantization.axis not in (None, axis):
        raise op.unsupported(
            f"weights '{weights.name}' have scales along dimension {quantization.axis}; "
            f"only dimension {axis}, the output channels, is supported"
        )
    return weights


def bias_of(
    op: SourceOperator, channels: int, position: int = 2, dtype: str = "int32"
) -> int | None:
    """The bias's tensor, None if there is none."""
    if not op.has_input(position):
        return None
    bias = op.input(position)
    if bias.dtype != dtype or bias.data is None:
        raise op.unsupported(f"bias '{bias.name}' must be a constant of {dtype}, not {bias.dtype}")
    if bias.data.size != channels or len(bias.shape) != 1:
        raise op.damaged(f"bias '{bias.name}' has shape {bias.shape} for {channels} channels")
    if bias.quantization is not None and any(bias.quantization.zero_points):
        raise op.damaged(f"bias '{bias.name}' has a zero point other than 0")
    return op.inputs[position]


def alike(op: SourceOperator, *tensors: Tensor, rank: int | None = None) -> None:
    """Check that all are int8, or all int16, whose zero points are 0 then."""
    for tensor in tensors:
        quantized(op, tensor, rank, COMPUTED)
        if tensor.dtype != tensors[0].dtype:
            raise op.unsupported(
                f"tensor '{tensor.name}' is {tensor.dtype}, but '{tensors[0].name}' is "
                f"{tensors[0].dtype}; they must be equal"
            )
        if tensor.dtype == "int16" and zero_point_of(tensor) != 0:
            raise op.unsupported(
                f"tensor '{tensor.name}' is int16 with the zero point {zero_point_of(tensor)}; "
                "only 0 is supported"
            )


def movable(op: SourceOperator, tensor: Tensor) -> Tensor:
    """The tensor, if its elements are of a type that can be moved around."""
    if tensor.dtype == "bool" and op.kind in MOVING_BOOLEANS:
        return tensor
    if tensor.dtype not in MOVABLE:
        raise op.unsupported(
            f"tensor '{tensor.name}' is {tensor.dtype}; only {', '.join(MOVABLE)} are supported"
        )
    is_plain = tensor.dtype == "int16" and tensor.quantization is None  # such as samples of sound
    if tensor.dtype in ("int8", "int16") and not (is_plain and op.kind in MOVING_BOOLEANS):
        quantized(op, tensor, types=MOVABLE)
    return tensor


def boolean(op: SourceOperator, tensor: Tensor) -> Tensor:
    """The tensor, if its elements are booleans."""
    if tensor.dtype != "bool":
        raise op.unsupported(f"tensor '{tensor.name}' is {tensor.dtype}; only bool is supported")
    return tensor


def axis_of(op: SourceOperator, axis: int, rank: int) -> int:
    """An axis that may be negative, counted from the front."""
    if not -rank <= axis < rank:
        raise op.damaged(f"its axis {axis} is not one of {rank} dimensions")
    return axis % rank


def scalar_parameter(op: SourceOperator, position: int, what: str) -> int:
    """A constant that is a single integer."""
    values = parameter(op, position, what).reshape(-1)
    if values.size != 1:
        raise op.damaged(f"its {what} has {values.size} numbers instead of 1")
    return int(values[0])


def parameter(
    op: SourceOperator, position: int, what: str
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """A constant that is part of the operator's meaning."""
    tensor = op.input(position)
    if tensor.data is None or tensor.dtype not in ("int32", "int64"):
        raise op.unsupported(
            f"its {what} '{tensor.name}' must be a constant of int32 or int64; "
            "convert the model with a fixed input shape"
        )
    return tensor.data.astype(np.int64)


def is_padded(op: SourceOperator) -> bool:
    """Whether the padding is SAME; otherwise it is VALID, which is none."""
    scheme = op.integer("Padding")
    if scheme not in (_PADDING_SAME, _PADDING_VALID):
        raise op.damaged(f"its padding scheme {scheme} is neither SAME (0) nor VALID (1)")
    return scheme == _PADDING_SAME


def padding_of(
    op: SourceOperator, x: Tensor, window: tuple[int, int], strides: tuple[int, int]
) -> Padding:
    """Explicit padding; SAME puts the odd row or column below and to the right."""
    if not is_padded(op):
        return (0, 0, 0, 0)
    rows = same_padding(x.shape[1], window[0], strides[0])
    columns = same_padding(x.shape[2], window[1], strides[1])
    for padding in (rows[0], columns[0]):
        if padding > INT16_MAX:
            raise op.unsupported(
                f"its padding is {padding}; the reference takes {INT16_MAX:,} at most"
            )
    return (*rows, *columns)


def steps_of(op: SourceOperator, *options: str) -> tuple[int, int]:
    """Strides or dilations, for which the reference has 16 bits."""
    height, width = (op.positive(option) for option in options)
    for option, value in zip(options, (height, width), strict=True):
        if value > INT16_MAX:
            raise op.unsupported(
                f"its option {option} is {value}; the reference takes {INT16_MAX:,} at most"
            )
    return height, width


def same_padding(size: int, window: int, stride: int) -> tuple[int, int]:
    """The padding of SAME in front of one dimension and behind it."""
    outputs = -(-size // stride)
    total = max((outputs - 1) * stride + window - size, 0)
    return total // 2, total - total // 2


def clamp_of(op: SourceOperator, out: Tensor, number: int | None = None) -> Clamp:
    """The fused activation, or the one of that number, as a clamp of quantized outputs."""
    if number is None:
        number = op.integer("FusedActivationFunction")
    if number not in _ACTIVATIONS:
        raise op.unsupported(
            f"its fused activation has number {number}; supported are "
            f"{', '.join(name for name, _, _ in _ACTIVATIONS.values())}"
        )
    _, lower, upper = _ACTIVATIONS[number]
    return quantized_range(op, out, lower, upper)


def quantized_range(
    op: SourceOperator, out: Tensor, lower: float | None, upper: float | None
) -> Clamp:
    """The values between two real ones; None means that only the type bounds them."""

    def steps(real: float) -> int:
        # TFLite divides in float32 and rounds half away from zero.
        with np.errstate(over="ignore"):
            ratio = np.float32(real) / np.float32(scale_of(out))
            rounded = np.trunc(ratio + np.copysign(np.float32(0.5), ratio))
        if not abs(rounded) < _INT32_OVERFLOW:
            raise op.damaged(
                f"its activation's {real:g} is more than 2**31 steps of its output's scale "
                f"{scale_of(out):g}"
            )
        return zero_point_of(out) + int(rounded)

    least, most = element_type(out.dtype if out.dtype in COMPUTED else "int8").limits
    low = least if lower is None else max(least, steps(lower))
    high = most if upper is None else min(most, steps(upper))
    if low > high:
        raise op.damaged(f"its activation leaves no values: from {low} to {high}")
    return (low, high)
