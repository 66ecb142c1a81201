"""Reads a PyTorch export (.pt2) that was quantized by PT2E; the only module that imports ``torch``.

``torch.export.save`` writes such files. Each ATen operator is stated as the ONNX operator that does
the same, so that both formats share one conversion.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from utvm_deploy.errors import ModelError, UnsupportedOperator
from utvm_deploy.frontend.qdq import Array, Attribute, Node, QdqModel
from utvm_deploy.frontend.qdq_convert import convert
from utvm_deploy.frontend.qdq_job import all_at_once

_INSTALL = "pip install 'utvm-deploy[torch]'"
_RECIPE = "docs/other-formats.md shows how to quantize with PT2E"


def torch_to_tflite(path: Path) -> bytes:
    """The .tflite file that computes what a PT2E-quantized ``.pt2`` does, in integers.

    Raises ModelError if ``torch`` is missing or the file cannot be used, UnsupportedOperator for
    what cannot be imported.
    """
    try:
        import torch
    except ImportError as exc:
        raise ModelError(f"{path}: reading .pt2 files needs PyTorch: {_INSTALL}") from exc
    if not path.is_file():
        raise ModelError(f"cannot read the model {path}: there is no such file")
    register_quantizers()
    try:
        program = torch.export.load(path)
    except Exception as exc:  # whatever the many readers behind it raise
        first = " ".join(str(exc).split())[:300]
        raise ModelError(f"{path} is not a file that torch.export.save wrote: {first}") from exc
    try:
        return convert(_Reader(program, path.stem).read(), f"converted from {path.name}")
    except ModelError as exc:
        raise type(exc)(f"{path}: {exc}") from exc


def register_quantizers() -> None:
    """Import what tells torch of PT2E's operators, as far as it is installed."""
    import importlib

    for name in ("torch.ao.quantization.fx._decomposed", "torchao.quantization.pt2e"):
        try:
            importlib.import_module(name)
        except ImportError:
            continue


@dataclass(frozen=True, eq=False)
class _Call:
    """An ATen call: its arguments by their schema's names, tensors among them as names."""

    node: Any
    index: int
    arguments: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.node.name)

    def __getitem__(self, key: str) -> Any:
        return self.arguments.get(key)

    def integers(self, key: str, count: int, default: int) -> tuple[int, ...]:
        value = self.arguments.get(key)
        if value is None or (isinstance(value, Sequence) and not value):
            value = default
        values = [value] if isinstance(value, int) else list(value)
        return tuple(int(v) for v in (values * count if len(values) == 1 else values))


@dataclass(frozen=True)
class _Stated:
    """What a call is in ONNX's terms."""

    kind: str
    inputs: tuple[str, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


_Statement: TypeAlias = Callable[["_Reader", _Call], _Stated]


class _Reader:
    """Walks an exported program."""

    def __init__(self, program: Any, name: str) -> None:
        self.program = program
        self.name = name
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.constants: dict[str, Array] = {}
        self.nodes: list[Node] = []
        # What a call that makes several tensors made, by its name.
        self.parts: dict[str, tuple[str, ...]] = {}

    def read(self) -> QdqModel:
        """The whole program."""
        signature = self.program.graph_signature
        self._read_constants(signature)
        inputs = [str(name) for name in signature.user_inputs if isinstance(name, str)]
        problems: list[UnsupportedOperator] = []
        types = {}
        for index, node in enumerate(self.program.graph.nodes):
            self._note_shape(node)
            if node.op == "placeholder" and node.name in inputs:
                types[node.name] = str(node.meta["val"].dtype).removeprefix("torch.")
            elif node.op == "call_function":
                try:
                    self._call(node, index)
                except UnsupportedOperator as exc:
                    problems.append(exc)
        if problems:
            raise all_at_once(problems)
        if not any(node.kind == "QuantizeLinear" for node in self.nodes):
            raise ModelError(f"the model is not quantized; {_RECIPE}")
        for name in inputs:
            if name not in self.shapes:
                raise ModelError(
                    f"input '{name}' has no fixed shape; export without dynamic shapes"
                )
        return QdqModel(
            self.name,
            tuple(self.nodes),
            self.shapes,
            self.constants,
            tuple(inputs),
            tuple(str(name) for name in signature.user_outputs),
            tuple(types[name] for name in inputs),
        )

    def constant(self, data: Any, dtype: Any, name: str) -> str:
        """A new constant's name."""
        unused = f"{name}_{len(self.constants)}"
        self.constants[unused] = np.asarray(data, dtype)
        return unused

    def operand(self, value: Any, name: str) -> str:
        """The name of a tensor, or of a constant made of a number."""
        if isinstance(value, str):
            return value
        return self.constant(value, np.float32, name)

    def rank(self, name: str) -> int:
        """How many dimensions a tensor has."""
        return len(self.shape(name))

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of an activation or a constant."""
        if name in self.constants:
            return tuple(self.constants[name].shape)
        if name not in self.shapes:
            raise ModelError(f"'{name}' has no fixed shape; export without dynamic shapes")
        return self.shapes[name]

    def _read_constants(self, signature: Any) -> None:
        program = self.program
        stored = {**program.state_dict, **program.constants}
        for table in (
            signature.inputs_to_parameters,
            signature.inputs_to_buffers,
            signature.inputs_to_lifted_tensor_constants,
        ):
            for name, target in table.items():
                tensor = stored.get(target)
                if tensor is not None:
                    self.constants[str(name)] = tensor.detach().cpu().numpy()

    def _note_shape(self, node: Any) -> None:
        value = node.meta.get("val")
        if hasattr(value, "shape") and all(isinstance(d, int) for d in value.shape):
            self.shapes[str(node.name)] = tuple(int(d) for d in value.shape)
        elif isinstance(value, list | tuple):
            names = tuple(f"{node.name}_{i}" for i in range(len(value)))
            for name, part in zip(names, value, strict=True):
                if hasattr(part, "shape"):
                    self.shapes[name] = tuple(int(d) for d in part.shape)
            self.parts[str(node.name)] = names

    def _call(self, node: Any, index: int) -> None:
        if node.target is operator.getitem:
            source, part = node.args
            inputs = (self.parts[str(source.name)][int(part)],)
            self.nodes.append(Node(index, "Identity", inputs, (str(node.name),)))
            return
        kind = _name(node.target)
        outputs = self.parts.get(str(node.name), (str(node.name),))
        statement = STATEMENTS.get(kind)
        if statement is None:
            raise Node(index, kind, (), outputs).unsupported(
                f"there is no such operator here; there are {', '.join(sorted(STATEMENTS))}"
            )
        stated = statement(self, _Call(node, index, self._arguments(node)))
        made = Node(index, stated.kind, stated.inputs, outputs, stated.attributes)
        self.nodes.append(made)

    def _arguments(self, node: Any) -> dict[str, Any]:
        """By the names of the operator's schema, which every ATen operator has."""
        names = [argument.name for argument in node.target._schema.arguments]
        given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
        return {name: _plain(value) for name, value in given.items()}


def _plain(value: Any) -> Any:
    """Nodes as their names, through lists."""
    if hasattr(value, "op") and hasattr(value, "name"):
        return str(value.name)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _name(target: Any) -> str:
    """``aten.relu_.default`` -> ``relu``: in a program nothing is done in place."""
    parts = str(target).split(".")
    name = parts[1] if len(parts) > 1 else parts[0]
    return name.rstrip("_") if parts[0] == "aten" else name


# Statements


def _quantizer(reader: _Reader, call: _Call) -> _Stated:
    is_quantize = str(call.node.target).split(".")[1].startswith("quantize")
    dtype = str(call["dtype"] or "torch.int8").removeprefix("torch.")
    if dtype not in ("int8", "uint8", "int32"):
        raise Node(call.index, _name(call.node.target), (), (call.name,)).unsupported(
            f"it is of {dtype}; only int8 and uint8 are supported"
        )
    scale, zero = call["scale"], call["zero_point"]
    if "scales" in call.arguments:
        scale, zero = call["scales"], call["zero_points"]
    scales = reader.constants[scale] if isinstance(scale, str) else np.float32(scale)
    if zero is None:
        zero = 0
    zeros = reader.constants[zero] if isinstance(zero, str) else zero
    zeros = np.broadcast_to(np.asarray(zeros), np.shape(scales))
    inputs = (
        str(call["input"]),
        reader.constant(scales, np.float32, f"{call.name}_scale"),
        reader.constant(zeros, dtype, f"{call.name}_zero_point"),
    )
    axis = call["axis"]
    attributes = {"axis": int(axis)} if axis is not None else {}
    return _Stated("QuantizeLinear" if is_quantize else "DequantizeLinear", inputs, attributes)


def _convolution(reader: _Reader, call: _Call) -> _Stated:
    spatial = reader.rank(str(call["weight"])) - 2
    if call["transposed"]:
        raise Node(call.index, "convolution", (), (call.name,)).unsupported("it is transposed")
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
    return _Stated(
        "Conv", (*inputs, str(call["bias"])) if call["bias"] else tuple(inputs), attributes
    )


def _linear(reader: _Reader, call: _Call) -> _Stated:
    inputs = [str(call["input"]), str(call["weight"])]
    if call["bias"]:
        inputs.append(str(call["bias"]))
    return _Stated("Gemm", tuple(inputs), {"transB": 1})


def _addmm(reader: _Reader, call: _Call) -> _Stated:
    inputs = (str(call["mat1"]), str(call["mat2"]), str(call["self"]))
    factors = {"alpha": float(call["alpha"] or 1), "beta": float(call["beta"] or 1)}
    return _Stated("Gemm", inputs, factors)


def _matmul(reader: _Reader, call: _Call) -> _Stated:
    return _Stated("MatMul", (str(call["self"]), str(call["other"] or call["mat2"])))


def _binary(kind: str) -> _Statement:
    def state(reader: _Reader, call: _Call) -> _Stated:
        if call["alpha"] not in (None, 1):
            raise Node(call.index, kind, (), (call.name,)).unsupported("it has a factor, alpha")
        names = [reader.operand(call[key], f"{call.name}_{key}") for key in ("self", "other")]
        return _Stated(kind, tuple(names))

    return state


def _unary(kind: str, **attributes: str) -> _Statement:
    """``attributes``: ONNX's name -> the argument's."""

    def state(reader: _Reader, call: _Call) -> _Stated:
        found = {name: call[key] for name, key in attributes.items() if call[key] is not None}
        return _Stated(kind, (str(call["self"] or call["input"]),), found)

    return state


def _clamp(low: str, high: str) -> _Statement:
    def state(reader: _Reader, call: _Call) -> _Stated:
        lowest = call[low] if low in call.arguments else (-1 if low == "min_val" else None)
        highest = call[high] if high in call.arguments else (1 if high == "max_val" else None)
        limits = [-math.inf if lowest is None else lowest, math.inf if highest is None else highest]
        names = (reader.constant(limit, np.float32, f"{call.name}_limit") for limit in limits)
        return _Stated("Clip", (str(call["self"]), *names))

    return state


def _relu6(reader: _Reader, call: _Call) -> _Stated:
    names = (reader.constant(limit, np.float32, f"{call.name}_limit") for limit in (0, 6))
    return _Stated("Clip", (str(call["self"]), *names))


def _pool(kind: str) -> _Statement:
    def state(reader: _Reader, call: _Call) -> _Stated:
        spatial = reader.rank(str(call["self"])) - 2
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
        return _Stated(kind, (str(call["self"]),), attributes)

    return state


def _adaptive_pool(reader: _Reader, call: _Call) -> _Stated:
    source = str(call["self"])
    sizes, wanted = reader.shape(source)[2:], reader.shapes[call.name][2:]
    if all(size == 1 for size in wanted):
        return _Stated("GlobalAveragePool", (source,))
    if any(size % out for size, out in zip(sizes, wanted, strict=True)):
        raise Node(call.index, "adaptive_avg_pool2d", (), (call.name,)).unsupported(
            f"it makes {wanted} of {sizes}, whose windows are not all alike"
        )
    window = tuple(size // out for size, out in zip(sizes, wanted, strict=True))
    return _Stated("AveragePool", (source,), {"kernel_shape": window, "strides": window})


def _reduction(kind: str) -> _Statement:
    def state(reader: _Reader, call: _Call) -> _Stated:
        source = str(call["self"])
        axes = call["dim"]
        axes = [axes] if isinstance(axes, int) else (axes or range(reader.rank(source)))
        attributes: dict[str, Attribute] = {
            "axes": tuple(int(axis) for axis in axes),
            "keepdims": int(bool(call["keepdim"])),
        }
        return _Stated(kind, (source,), attributes)

    return state


def _view(reader: _Reader, call: _Call) -> _Stated:
    return _Stated("Reshape", (str(call["self"]),))


def _permute(reader: _Reader, call: _Call) -> _Stated:
    rank = reader.rank(str(call["self"]))
    return _Stated(
        "Transpose", (str(call["self"]),), {"perm": tuple(d % rank for d in call["dims"])}
    )


def _transpose(reader: _Reader, call: _Call) -> _Stated:
    order = list(range(reader.rank(str(call["self"]))))
    first, second = (call["dim0"], call["dim1"]) if "dim0" in call.arguments else (0, -1)
    order[first], order[second] = order[second], order[first]
    return _Stated("Transpose", (str(call["self"]),), {"perm": tuple(order)})


def _concatenation(reader: _Reader, call: _Call) -> _Stated:
    return _Stated("Concat", tuple(map(str, call["tensors"])), {"axis": int(call["dim"] or 0)})


def _slice(reader: _Reader, call: _Call) -> _Stated:
    axis = int(call["dim"] or 0)
    size = reader.shape(str(call["self"]))[axis]
    end = size if call["end"] is None else min(int(call["end"]), size)
    attributes: dict[str, Attribute] = {
        "starts": (int(call["start"] or 0),),
        "ends": (end,),
        "axes": (axis,),
        "steps": (int(call["step"] or 1),),
    }
    return _Stated("Slice", (str(call["self"]),), attributes)


def _split(reader: _Reader, call: _Call) -> _Stated:
    return _Stated("Split", (str(call["self"]),), {"axis": int(call["dim"] or 0)})


def _pad(reader: _Reader, call: _Call) -> _Stated:
    rank = reader.rank(str(call["self"]))
    pairs = [(0, 0)] * rank
    flat = [int(v) for v in call["pad"]]
    for place in range(len(flat) // 2):
        pairs[rank - 1 - place] = flat[2 * place], flat[2 * place + 1]
    pads = (*(before for before, _ in pairs), *(behind for _, behind in pairs))
    mode = "constant" if call["mode"] in (None, "constant") else str(call["mode"])
    attributes: dict[str, Attribute] = {
        "pads": pads,
        "mode": mode,
        "value": float(call["value"] or 0),
    }
    return _Stated("Pad", (str(call["self"]),), attributes)


def _upsample(mode: str) -> _Statement:
    def state(reader: _Reader, call: _Call) -> _Stated:
        how = "asymmetric" if mode == "nearest" else "half_pixel"
        if call["align_corners"]:
            how = "align_corners"
        attributes: dict[str, Attribute] = {
            "mode": mode,
            "coordinate_transformation_mode": how,
            "nearest_mode": "floor",
        }
        return _Stated("Resize", (str(call["input"] or call["self"]),), attributes)

    return state


def _prelu(reader: _Reader, call: _Call) -> _Stated:
    weight = str(call["weight"])
    rank = reader.rank(str(call["self"]))
    if reader.rank(weight) == 1 and rank > 2 and weight in reader.constants:
        slopes = reader.constants[weight].reshape(-1, *[1] * (rank - 2))
        weight = reader.constant(slopes, np.float32, f"{call.name}_slopes")
    return _Stated("PRelu", (str(call["self"]), weight))


STATEMENTS: Mapping[str, _Statement] = {
    **dict.fromkeys(
        (
            "quantize_per_tensor",
            "dequantize_per_tensor",
            "quantize_per_channel",
            "dequantize_per_channel",
        ),
        _quantizer,
    ),
    **dict.fromkeys(("conv1d", "conv2d", "convolution"), _convolution),
    **dict.fromkeys(("matmul", "mm", "bmm"), _matmul),
    **dict.fromkeys(
        ("view", "reshape", "flatten", "squeeze", "unsqueeze", "_unsafe_view", "unflatten"), _view
    ),
    **dict.fromkeys(
        ("dropout", "clone", "contiguous", "alias", "detach", "feature_dropout"), _unary("Identity")
    ),
    **dict.fromkeys(("softmax", "_softmax"), _unary("Softmax", axis="dim")),
    **dict.fromkeys(("split", "split_with_sizes", "chunk"), _split),
    **dict.fromkeys(("constant_pad_nd", "pad"), _pad),
    **dict.fromkeys(("transpose", "t"), _transpose),
    "abs": _unary("Abs"),
    "adaptive_avg_pool2d": _adaptive_pool,
    "add": _binary("Add"),
    "addmm": _addmm,
    "amax": _reduction("ReduceMax"),
    "avg_pool2d": _pool("AveragePool"),
    "cat": _concatenation,
    "clamp": _clamp("min", "max"),
    "hardswish": _unary("HardSwish"),
    "hardtanh": _clamp("min_val", "max_val"),
    "leaky_relu": _unary("LeakyRelu", alpha="negative_slope"),
    "linear": _linear,
    "max_pool1d": _pool("MaxPool"),
    "max_pool2d": _pool("MaxPool"),
    "maximum": _binary("Max"),
    "mean": _reduction("ReduceMean"),
    "minimum": _binary("Min"),
    "mul": _binary("Mul"),
    "neg": _unary("Neg"),
    "permute": _permute,
    "prelu": _prelu,
    "relu": _unary("Relu"),
    "relu6": _relu6,
    "sigmoid": _unary("Sigmoid"),
    "slice": _slice,
    "sub": _binary("Sub"),
    "sum": _reduction("ReduceSum"),
    "tanh": _unary("Tanh"),
    "upsample_bilinear2d": _upsample("linear"),
    "upsample_nearest2d": _upsample("nearest"),
}
