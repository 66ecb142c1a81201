"""ATen operators in ONNX's terms: one short function per kind."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from utvm_deploy.frontend.qdq.operators import Attribute, Node
from utvm_deploy.frontend.torch.calls import Call, Stated, Statement, Tensors, aten_name
from utvm_deploy.frontend.torch.moving import MOVING


def _quantizer(tensors: Tensors, call: Call) -> Stated:
    is_quantize = str(call.node.target).split(".")[1].startswith("quantize")
    dtype = str(call["dtype"] or "torch.int8").removeprefix("torch.")
    if dtype not in ("int8", "uint8", "int16", "int32"):
        raise Node(call.index, aten_name(call.node.target), (), (call.name,)).unsupported(
            f"it is of {dtype}; only int8, uint8 and int16 are supported"
        )
    scale, zero = call["scale"], call["zero_point"]
    if "scales" in call.arguments:
        scale, zero = call["scales"], call["zero_points"]
    scales = tensors.constants[scale] if isinstance(scale, str) else np.float32(scale)
    if zero is None:
        zero = 0
    zeros = tensors.constants[zero] if isinstance(zero, str) else zero
    zeros = np.broadcast_to(np.asarray(zeros), np.shape(scales))
    inputs = (
        str(call["input"]),
        tensors.constant(scales, np.float32, f"{call.name}_scale"),
        tensors.constant(zeros, dtype, f"{call.name}_zero_point"),
    )
    axis = call["axis"]
    attributes = {"axis": int(axis)} if axis is not None else {}
    return Stated("QuantizeLinear" if is_quantize else "DequantizeLinear", inputs, attributes)


def _convolution(tensors: Tensors, call: Call) -> Stated:
    spatial = tensors.rank(str(call["weight"])) - 2
    is_transposed = bool(call["transposed"]) or "transpose" in aten_name(call.node.target)
    padding: Any = call["padding"]
    attributes: dict[str, Attribute] = {
        "strides": call.integers("stride", spatial, 1),
        "dilations": call.integers("dilation", spatial, 1),
        "group": int(call["groups"] or 1),
    }
    if isinstance(padding, str):
        attributes["auto_pad"] = {"same": "SAME_UPPER", "valid": "VALID"}[padding]
    else:
        attributes["pads"] = call.integers("padding", spatial, 0) * 2
    inputs = [str(call["input"]), str(call["weight"])]
    if call["bias"]:
        inputs.append(str(call["bias"]))
    return Stated("ConvTranspose" if is_transposed else "Conv", tuple(inputs), attributes)


def _linear(tensors: Tensors, call: Call) -> Stated:
    inputs = [str(call["input"]), str(call["weight"])]
    if call["bias"]:
        inputs.append(str(call["bias"]))
    return Stated("Gemm", tuple(inputs), {"transB": 1})


def _addmm(tensors: Tensors, call: Call) -> Stated:
    inputs = (str(call["mat1"]), str(call["mat2"]), str(call["self"]))
    factors = {"alpha": float(call["alpha"] or 1), "beta": float(call["beta"] or 1)}
    return Stated("Gemm", inputs, factors)


def _matmul(tensors: Tensors, call: Call) -> Stated:
    return Stated("MatMul", (str(call["self"]), str(call["other"] or call["mat2"])))


def _binary(kind: str) -> Statement:
    def state(tensors: Tensors, call: Call) -> Stated:
        if call["alpha"] not in (None, 1):
            raise Node(call.index, kind, (), (call.name,)).unsupported("it has a factor, alpha")
        names = [tensors.operand(call[key], f"{call.name}_{key}") for key in ("self", "other")]
        return Stated(kind, tuple(names))

    return state


def _unary(kind: str, **attributes: str) -> Statement:
    """``attributes``: ONNX's name -> the argument's."""

    def state(tensors: Tensors, call: Call) -> Stated:
        found = {name: call[key] for name, key in attributes.items() if call[key] is not None}
        return Stated(kind, (str(call["self"] or call["input"]),), found)

    return state


def _clamp(low: str, high: str) -> Statement:
    def state(tensors: Tensors, call: Call) -> Stated:
        lowest = call[low] if low in call.arguments else (-1 if low == "min_val" else None)
        highest = call[high] if high in call.arguments else (1 if high == "max_val" else None)
        limits = [-math.inf if lowest is None else lowest, math.inf if highest is None else highest]
        names = (tensors.constant(limit, np.float32, f"{call.name}_limit") for limit in limits)
        return Stated("Clip", (str(call["self"]), *names))

    return state


def _relu6(tensors: Tensors, call: Call) -> Stated:
    names = (tensors.constant(limit, np.float32, f"{call.name}_limit") for limit in (0, 6))
    return Stated("Clip", (str(call["self"]), *names))


def _pool(kind: str) -> Statement:
    def state(tensors: Tensors, call: Call) -> Stated:
        spatial = tensors.rank(str(call["self"])) - 2
        kernel = call.integers("kernel_size", spatial, 1)
        strides = call.integers("stride", spatial, 0)
        attributes: dict[str, Attribute] = {
            "kernel_shape": kernel,
            "strides": strides if any(strides) else kernel,
            "pads": call.integers("padding", spatial, 0) * 2,
            "ceil_mode": int(bool(call["ceil_mode"])),
        }
        if kind == "MaxPool":
            attributes["dilations"] = call.integers("dilation", spatial, 1)
        else:
            counted = call.arguments.get("count_include_pad", True)
            attributes["count_include_pad"] = int(bool(counted))
        return Stated(kind, (str(call["self"]),), attributes)

    return state


def _leaky(tensors: Tensors, call: Call) -> Stated:
    slope = call["negative_slope"]
    return Stated("LeakyRelu", (str(call["self"]),), {"alpha": 0.01 if slope is None else slope})


def _elu(tensors: Tensors, call: Call) -> Stated:
    kind = aten_name(call.node.target)
    alpha = call["alpha"]
    attributes: dict[str, Attribute] = {} if alpha is None else {"alpha": float(alpha)}
    return Stated(kind.capitalize(), (str(call["self"]),), attributes)


def _hard_sigmoid(tensors: Tensors, call: Call) -> Stated:
    return Stated("HardSigmoid", (str(call["self"]),), {"alpha": 1 / 6, "beta": 0.5})


def _gelu(tensors: Tensors, call: Call) -> Stated:
    return Stated("Gelu", (str(call["self"]),), {"approximate": call["approximate"] or "none"})


def _softplus(tensors: Tensors, call: Call) -> Stated:
    if call["beta"] not in (None, 1, 1.0):
        raise Node(call.index, "softplus", (), (call.name,)).unsupported("its beta is not 1")
    return Stated("Softplus", (str(call["self"]),))


def _layer_norm(tensors: Tensors, call: Call) -> Stated:
    shape = tuple(call["normalized_shape"])
    epsilon = call["eps"] if call["eps"] is not None else 1e-5
    attributes: dict[str, Attribute] = {"axis": -len(shape), "epsilon": float(epsilon)}
    kind = "RMSNormalization" if "rms" in aten_name(call.node.target) else "LayerNormalization"
    return Stated(kind, _with_parameters(call, str(call["input"])), attributes)


def _group_norm(tensors: Tensors, call: Call) -> Stated:
    epsilon = call["eps"] if call["eps"] is not None else 1e-5
    groups = {"num_groups": int(call["num_groups"]), "epsilon": float(epsilon)}
    return Stated("GroupNormalization", _with_parameters(call, str(call["input"])), groups)


def _instance_norm(tensors: Tensors, call: Call) -> Stated:
    if call["running_mean"] and not call["use_input_stats"]:
        return _batch_norm(tensors, call)
    epsilon = {"epsilon": float(call["eps"])}
    return Stated("InstanceNormalization", _with_parameters(call, str(call["input"])), epsilon)


def _with_parameters(call: Call, source: str) -> tuple[str, ...]:
    """The source, and weight and bias where there are any; an absent one is ''."""
    names = [str(call[key]) if call[key] else "" for key in ("weight", "bias")]
    while names and not names[-1]:
        names.pop()
    return (source, *names)


def _batch_norm(tensors: Tensors, call: Call) -> Stated:
    channels = tensors.shape(str(call["input"]))[1]
    default = {"weight": 1.0, "bias": 0.0, "running_mean": 0.0, "running_var": 1.0}
    names = [
        str(call[key])
        if call[key]
        else tensors.constant(np.full(channels, value), np.float32, f"{call.name}_{key}")
        for key, value in default.items()
    ]
    return Stated(
        "BatchNormalization", (str(call["input"]), *names), {"epsilon": float(call["eps"])}
    )


def _power(tensors: Tensors, call: Call) -> Stated:
    names = [tensors.operand(call[key], f"{call.name}_{key}") for key in ("self", "exponent")]
    return Stated("Pow", tuple(names))


def _division(tensors: Tensors, call: Call) -> Stated:
    if call["rounding_mode"] is not None:
        raise Node(call.index, "div", (), (call.name,)).unsupported("it rounds its quotients")
    return _binary("Div")(tensors, call)


def _where(tensors: Tensors, call: Call) -> Stated:
    choices = [tensors.operand(call[key], f"{call.name}_{key}") for key in ("self", "other")]
    return Stated("Where", (str(call["condition"]), *choices))


def _masked_fill(tensors: Tensors, call: Call) -> Stated:
    fill = tensors.operand(call["value"], f"{call.name}_value")
    return Stated("Where", (str(call["mask"]), fill, str(call["self"])))


def _place(kind: str) -> Statement:
    def state(tensors: Tensors, call: Call) -> Stated:
        if call["dim"] is None:
            raise Node(call.index, kind, (), (call.name,)).unsupported("it names no dimension")
        attributes = {"axis": int(call["dim"]), "keepdims": int(bool(call["keepdim"]))}
        return Stated(kind, (str(call["self"]),), attributes)

    return state


def _running_sum(tensors: Tensors, call: Call) -> Stated:
    axis = tensors.constant(int(call["dim"]), np.int64, f"{call.name}_axis")
    return Stated("CumSum", (str(call["self"]), axis))


def _cast(tensors: Tensors, call: Call) -> Stated:
    numbers = {"float32": 1, "int32": 6, "int64": 7, "bool": 9}
    dtype = str(call["dtype"] or "torch.float32").removeprefix("torch.")
    return Stated("Cast", (str(call["self"]),), {"to": numbers.get(dtype, 0)})


def _adaptive_pool(tensors: Tensors, call: Call) -> Stated:
    source = str(call["self"])
    sizes, wanted = tensors.shape(source)[2:], tensors.shapes[call.name][2:]
    if all(size == 1 for size in wanted):
        return Stated("GlobalAveragePool", (source,))
    if any(size % out for size, out in zip(sizes, wanted, strict=True)):
        raise Node(call.index, "adaptive_avg_pool2d", (), (call.name,)).unsupported(
            f"it makes {wanted} of {sizes}, whose windows are not all equal"
        )
    window = tuple(size // out for size, out in zip(sizes, wanted, strict=True))
    return Stated("AveragePool", (source,), {"kernel_shape": window, "strides": window})


def _reduction(kind: str) -> Statement:
    def state(tensors: Tensors, call: Call) -> Stated:
        source = str(call["self"])
        axes = call["dim"]
        axes = [axes] if isinstance(axes, int) else (axes or range(tensors.rank(source)))
        attributes: dict[str, Attribute] = {
            "axes": tuple(int(axis) for axis in axes),
            "keepdims": int(bool(call["keepdim"])),
        }
        return Stated(kind, (source,), attributes)

    return state


def _upsample(mode: str) -> Statement:
    def state(tensors: Tensors, call: Call) -> Stated:
        how = "asymmetric" if mode == "nearest" else "half_pixel"
        if call["align_corners"]:
            how = "align_corners"
        attributes: dict[str, Attribute] = {
            "mode": mode,
            "coordinate_transformation_mode": how,
            "nearest_mode": "floor",
        }
        return Stated("Resize", (str(call["input"] or call["self"]),), attributes)

    return state


def _prelu(tensors: Tensors, call: Call) -> Stated:
    weight = str(call["weight"])
    rank = tensors.rank(str(call["self"]))
    if tensors.rank(weight) == 1 and rank > 2 and weight in tensors.constants:
        slopes = tensors.constants[weight].reshape(-1, *[1] * (rank - 2))
        weight = tensors.constant(slopes, np.float32, f"{call.name}_slopes")
    return Stated("PRelu", (str(call["self"]), weight))


#: Functions of one element that ONNX has by the same name.
_UNARY = (
    *("abs", "atan", "ceil", "cos", "erf", "exp", "exp2", "expm1", "floor", "log", "log1p"),
    *("mish", "neg", "reciprocal", "relu", "rsqrt", "sigmoid", "sign", "silu", "sin", "sqrt"),
    *("tan", "tanh", "trunc"),
)
STATEMENTS: Mapping[str, Statement] = {
    **MOVING,
    **{name: _unary(name.capitalize()) for name in _UNARY},
    **dict.fromkeys(
        (
            "quantize_per_tensor",
            "dequantize_per_tensor",
            "quantize_per_channel",
            "dequantize_per_channel",
        ),
        _quantizer,
    ),
    **dict.fromkeys(
        ("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d", "convolution"), _convolution
    ),
    **dict.fromkeys(("matmul", "mm", "bmm"), _matmul),
    **dict.fromkeys(
        ("dropout", "clone", "contiguous", "alias", "detach", "feature_dropout"), _unary("Identity")
    ),
    **dict.fromkeys(("softmax", "_softmax"), _unary("Softmax", axis="dim")),
    **dict.fromkeys(("log_softmax", "_log_softmax"), _unary("LogSoftmax", axis="dim")),
    **dict.fromkeys(("elu", "selu", "celu"), _elu),
    **dict.fromkeys(("layer_norm", "native_layer_norm", "rms_norm"), _layer_norm),
    **dict.fromkeys(("group_norm", "native_group_norm"), _group_norm),
    **dict.fromkeys(("batch_norm", "_native_batch_norm_legit_no_training"), _batch_norm),
    **dict.fromkeys(("to", "_to_copy"), _cast),
    "amin": _reduction("ReduceMin"),
    "argmax": _place("ArgMax"),
    "argmin": _place("ArgMin"),
    "bitwise_and": _binary("And"),
    "bitwise_not": _unary("Not"),
    "bitwise_or": _binary("Or"),
    "cumsum": _running_sum,
    "div": _division,
    "eq": _binary("Equal"),
    "round": _unary("Round", decimals="decimals"),
    "ge": _binary("GreaterOrEqual"),
    "gelu": _gelu,
    "gt": _binary("Greater"),
    "hardsigmoid": _hard_sigmoid,
    "instance_norm": _instance_norm,
    "le": _binary("LessOrEqual"),
    "logical_and": _binary("And"),
    "logical_not": _unary("Not"),
    "logical_or": _binary("Or"),
    "lt": _binary("Less"),
    "masked_fill": _masked_fill,
    "ne": _binary("NotEqual"),
    "pow": _power,
    "prod": _reduction("ReduceProd"),
    "softplus": _softplus,
    "where": _where,
    "adaptive_avg_pool2d": _adaptive_pool,
    "add": _binary("Add"),
    "addmm": _addmm,
    "amax": _reduction("ReduceMax"),
    "avg_pool2d": _pool("AveragePool"),
    "clamp": _clamp("min", "max"),
    "hardswish": _unary("HardSwish"),
    "hardtanh": _clamp("min_val", "max_val"),
    "leaky_relu": _leaky,
    "linear": _linear,
    "max_pool1d": _pool("MaxPool"),
    "max_pool2d": _pool("MaxPool"),
    "maximum": _binary("Max"),
    "mean": _reduction("ReduceMean"),
    "minimum": _binary("Min"),
    "mul": _binary("Mul"),
    "prelu": _prelu,
    "relu6": _relu6,
    "sub": _binary("Sub"),
    "sum": _reduction("ReduceSum"),
    "upsample_bilinear2d": _upsample("linear"),
    "upsample_nearest2d": _upsample("nearest"),
}
