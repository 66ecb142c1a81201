"""TFLite operator -> our operator, one short function per kind.

Each function checks that the operator is a variant that the kernels compute exactly (element types,
ranks, quantization), resolves its padding and turns its fused activation into a clamp. Shapes are
checked afterwards, by ``graph.check``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from utvm_deploy.frontend.source import SourceOperator
from utvm_deploy.graph.attributes import (
    Add,
    Attributes,
    Clamp,
    Convolution,
    Dequantize,
    FullyConnected,
    Mean,
    Pad,
    Padding,
    Pool,
    Quantize,
    Relu,
    Reshape,
    Softmax,
)
from utvm_deploy.graph.model import Operator, Tensor

Importer: TypeAlias = Callable[[SourceOperator], Operator]

_INT8: Clamp = (-128, 127)
# The schema's enumerations, whose numbers can never change.
_PADDING_SAME, _PADDING_VALID = 0, 1
_ACTIVATIONS: Mapping[int, tuple[str, float | None, float | None]] = {
    0: ("NONE", None, None),
    1: ("RELU", 0.0, None),
    2: ("RELU_N1_TO_1", -1.0, 1.0),
    3: ("RELU6", 0.0, 6.0),
}
# LiteRT refuses pooling whose input and output scales differ by more.
_POOL_SCALE_TOLERANCE = 1e-6
# The only output quantization that the int8 softmax of TFLite is defined for.
_SOFTMAX_SCALE, _SOFTMAX_ZERO_POINT = 1.0 / 256, -128


def _convolution(op: SourceOperator) -> Operator:
    x, weights, out = _int8(op, op.input(0), 4), _weights(op, 0), _int8(op, op.output(), 4)
    if weights.shape[3] != x.shape[3]:
        raise op.unsupported(
            f"it is a grouped convolution ({x.shape[3]} input channels, weights for "
            f"{weights.shape[3]}); only convolutions over all channels are supported"
        )
    bias = _bias(op, weights.shape[0])
    return _made(op, (op.inputs[0], op.inputs[1], bias), _geometry(op, x, weights, out, 1))


def _depthwise(op: SourceOperator) -> Operator:
    x, weights, out = _int8(op, op.input(0), 4), _weights(op, 3), _int8(op, op.output(), 4)
    multiplier, rest = divmod(weights.shape[3], x.shape[3])
    if rest or not multiplier or weights.shape[0] != 1:
        raise op.damaged(f"weights of shape {weights.shape} do not fit an input of shape {x.shape}")
    # The option is redundant, and LiteRT too goes by the shapes; 0 is what old converters wrote.
    stated = op.integer("DepthMultiplier")
    if stated not in (0, multiplier):
        raise op.damaged(f"its DepthMultiplier is {stated}, but its shapes say {multiplier}")
    bias = _bias(op, weights.shape[3])
    attributes = _geometry(op, x, weights, out, multiplier)
    return _made(op, (op.inputs[0], op.inputs[1], bias), attributes)


def _geometry(
    op: SourceOperator, x: Tensor, weights: Tensor, out: Tensor, depth_multiplier: int
) -> Convolution:
    strides = (op.positive("StrideH"), op.positive("StrideW"))
    dilations = (op.positive("DilationHFactor"), op.positive("DilationWFactor"))
    window = (
        (weights.shape[1] - 1) * dilations[0] + 1,
        (weights.shape[2] - 1) * dilations[1] + 1,
    )
    padding = _padding(op, x, window, strides)
    return Convolution(strides, dilations, padding, _clamp(op, out), depth_multiplier)


def _fully_connected(op: SourceOperator) -> Operator:
    _int8(op, op.input(0))
    weights, out = _weights(op, 0, rank=2), _int8(op, op.output())
    if op.integer("WeightsFormat") != 0:
        raise op.unsupported("its weights are shuffled; only the default format is supported")
    bias = _bias(op, weights.shape[0])
    return _made(op, (op.inputs[0], op.inputs[1], bias), FullyConnected(_clamp(op, out)))


def _add(op: SourceOperator) -> Operator:
    _int8(op, op.input(0))
    _int8(op, op.input(1))
    out = _int8(op, op.output())
    return _made(op, op.inputs[:2], Add(_clamp(op, out)))


def _pool(op: SourceOperator) -> Operator:
    x, out = _int8(op, op.input(0), 4), _int8(op, op.output(), 4)
    if _zero_point(x) != _zero_point(out) or abs(_scale(x) - _scale(out)) > _POOL_SCALE_TOLERANCE:
        raise op.unsupported("its input and output are quantized differently; they must be equal")
    window = (op.positive("FilterHeight"), op.positive("FilterWidth"))
    strides = (op.positive("StrideH"), op.positive("StrideW"))
    padding = _padding(op, x, window, strides)
    return _made(op, op.inputs[:1], Pool(window, strides, padding, _clamp(op, out)))


def _mean(op: SourceOperator) -> Operator:
    x = _int8(op, op.input(0))
    _int8(op, op.output())
    op.option("KeepDims")  # what it says is in the output's shape
    rank = len(x.shape)
    axes = _parameter(op, 1, "axes").reshape(-1)
    if axes.size == 0:
        raise op.unsupported("it has no axes to reduce")
    if any(not -rank <= axis < rank for axis in axes):
        raise op.damaged(f"its axes {axes.tolist()} are not dimensions of {x.shape}")
    return _made(op, op.inputs[:1], Mean(tuple(sorted({int(axis) % rank for axis in axes}))))


def _pad(op: SourceOperator) -> Operator:
    x, out = _int8(op, op.input(0)), _int8(op, op.output())
    if _zero_point(x) != _zero_point(out) or _scale(x) != _scale(out):
        raise op.unsupported("its input and output are quantized differently; they must be equal")
    paddings = _parameter(op, 1, "paddings")
    if paddings.shape != (len(x.shape), 2):
        raise op.damaged(f"its paddings have shape {paddings.shape} for an input {x.shape}")
    if (paddings < 0).any():
        raise op.damaged(f"its paddings {paddings.tolist()} must not be negative")
    pairs = tuple((int(before), int(after)) for before, after in paddings)
    return _made(op, op.inputs[:1], Pad(pairs))


def _reshape(op: SourceOperator) -> Operator:
    _int8(op, op.input(0))
    out = _int8(op, op.output())
    if op.has_input(1):
        shape = _parameter(op, 1, "shape").reshape(-1)
        # -1 stands for whatever is left, at most once, which the number of elements decides.
        fits = len(shape) == len(out.shape) and all(
            said in (-1, is_) for said, is_ in zip(shape, out.shape, strict=True)
        )
        if not fits or np.count_nonzero(shape == -1) > 1:
            raise op.damaged(f"it reshapes to {shape.tolist()}, but its output is {out.shape}")
    return _made(op, op.inputs[:1], Reshape())


def _softmax(op: SourceOperator) -> Operator:
    _int8(op, op.input(0))
    out = _int8(op, op.output())
    if (_scale(out), _zero_point(out)) != (_SOFTMAX_SCALE, _SOFTMAX_ZERO_POINT):
        raise op.unsupported(
            f"its output has scale {_scale(out)} and zero point {_zero_point(out)}; "
            f"int8 softmax is defined for 1/256 and {_SOFTMAX_ZERO_POINT}"
        )
    beta = float(op.option("Beta"))
    if not (np.isfinite(beta) and beta > 0):
        raise op.damaged(f"its beta is {beta}, which must be positive and finite")
    return _made(op, op.inputs[:1], Softmax(beta))


def _relu(op: SourceOperator) -> Operator:
    _int8(op, op.input(0))
    out = _int8(op, op.output())
    upper = 6.0 if op.kind == "RELU6" else None
    return _made(op, op.inputs[:1], Relu(_quantized_range(op, out, 0.0, upper)))


def _quantize(op: SourceOperator) -> Operator:
    x = op.input(0)
    if x.dtype != "float32":
        _int8(op, x, others="float32")
    _int8(op, op.output())
    return _made(op, op.inputs[:1], Quantize())


def _dequantize(op: SourceOperator) -> Operator:
    _int8(op, op.input(0))
    out = op.output()
    if out.dtype != "float32":
        raise op.unsupported(f"its output is {out.dtype}; only float32 is supported")
    return _made(op, op.inputs[:1], Dequantize())


#: Kind -> function that imports it; the list of what is supported.
IMPORTERS: Mapping[str, Importer] = {
    "ADD": _add,
    "AVERAGE_POOL_2D": _pool,
    "CONV_2D": _convolution,
    "DEPTHWISE_CONV_2D": _depthwise,
    "DEQUANTIZE": _dequantize,
    "FULLY_CONNECTED": _fully_connected,
    "MAX_POOL_2D": _pool,
    "MEAN": _mean,
    "PAD": _pad,
    "QUANTIZE": _quantize,
    "RELU": _relu,
    "RELU6": _relu,
    "RESHAPE": _reshape,
    "SOFTMAX": _softmax,
}


def _made(op: SourceOperator, inputs: tuple[int | None, ...], attributes: Attributes) -> Operator:
    return Operator(op.kind, inputs, op.outputs, attributes, (op.index,))


def _scale(tensor: Tensor) -> float:
    assert tensor.quantization is not None
    return tensor.quantization.scale


def _zero_point(tensor: Tensor) -> int:
    assert tensor.quantization is not None
    return tensor.quantization.zero_point


def _int8(op: SourceOperator, tensor: Tensor, rank: int | None = None, others: str = "") -> Tensor:
    """The tensor, if it is a per-tensor quantized int8 one of that rank."""
    if tensor.dtype != "int8":
        accepted = f"{others} and int8 are" if others else "int8 is"
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


def _weights(op: SourceOperator, axis: int, rank: int = 4) -> Tensor:
    """Constant int8 weights whose zero points are 0, per tensor or per output channel."""
    weights = op.input(1)
    if weights.dtype != "int8":
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


def _bias(op: SourceOperator, channels: int) -> int | None:
    """The bias's tensor, None if there is none."""
    if not op.has_input(2):
        return None
    bias = op.input(2)
    if bias.dtype != "int32" or bias.data is None:
        raise op.unsupported(f"bias '{bias.name}' must be a constant of int32, not {bias.dtype}")
    if bias.data.size != channels or len(bias.shape) != 1:
        raise op.damaged(f"bias '{bias.name}' has shape {bias.shape} for {channels} channels")
    return op.inputs[2]


def _parameter(
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


def _padding(
    op: SourceOperator, x: Tensor, window: tuple[int, int], strides: tuple[int, int]
) -> Padding:
    """Explicit padding; SAME puts the odd row or column below and to the right."""
    scheme = op.integer("Padding")
    if scheme not in (_PADDING_SAME, _PADDING_VALID):
        raise op.damaged(f"its padding scheme {scheme} is neither SAME (0) nor VALID (1)")
    if scheme == _PADDING_VALID:
        return (0, 0, 0, 0)
    rows = _same(x.shape[1], window[0], strides[0])
    columns = _same(x.shape[2], window[1], strides[1])
    return (*rows, *columns)


def _same(size: int, window: int, stride: int) -> tuple[int, int]:
    outputs = -(-size // stride)
    total = max((outputs - 1) * stride + window - size, 0)
    return total // 2, total - total // 2


def _clamp(op: SourceOperator, out: Tensor) -> Clamp:
    """The fused activation as a clamp of quantized outputs."""
    number = op.integer("FusedActivationFunction")
    if number not in _ACTIVATIONS:
        raise op.unsupported(
            f"its fused activation has number {number}; supported are "
            f"{', '.join(name for name, _, _ in _ACTIVATIONS.values())}"
        )
    _, lower, upper = _ACTIVATIONS[number]
    return _quantized_range(op, out, lower, upper)


def _quantized_range(
    op: SourceOperator, out: Tensor, lower: float | None, upper: float | None
) -> Clamp:
    """The int8 values between two real ones; None is no bound beside int8's own."""

    def quantized(real: float) -> int:
        # TFLite divides in float32 and rounds half away from zero.
        ratio = np.float32(real) / np.float32(_scale(out))
        steps = int(np.trunc(ratio + np.copysign(np.float32(0.5), ratio)))
        return _zero_point(out) + steps

    low = _INT8[0] if lower is None else max(_INT8[0], quantized(lower))
    high = _INT8[1] if upper is None else min(_INT8[1], quantized(upper))
    if low > high:
        raise op.damaged(f"its activation leaves no values: from {low} to {high}")
    return (low, high)
