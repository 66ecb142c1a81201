"""Tensors and operators as plain records, and the .tflite file that states them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import flatbuffers
import numpy as np
import tflite
from flatbuffers import flexbuffers

from utvm_deploy.frontend.qdq.operators import Array

# The versions that introduced int8; the newest where there is a choice.
_OF_VERSION_2 = (
    *("ADD", "AVERAGE_POOL_2D", "BATCH_MATMUL", "BROADCAST_TO", "CONCATENATION"),
    *("DEQUANTIZE", "GATHER", "LEAKY_RELU", "LOGISTIC", "MAXIMUM", "MAX_POOL_2D", "MEAN"),
    *("MINIMUM", "MUL", "PAD", "PADV2", "QUANTIZE", "REDUCE_MAX", "RELU", "RELU6"),
    *("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "SLICE", "SOFTMAX", "SPLIT"),
    *("STRIDED_SLICE", "SUB", "SUM", "TANH", "TRANSPOSE"),
)
_VERSIONS: Mapping[str, int] = {
    **dict.fromkeys(_OF_VERSION_2, 2),
    "CONV_2D": 3,
    "DEPTHWISE_CONV_2D": 3,
    "FULLY_CONNECTED": 4,
    "TRANSPOSE_CONV": 3,
}
#: The schema's names of options that are not the operator's own name, and operators without any.
_TABLES: Mapping[str, str | None] = {
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D"), "Pool2DOptions"),
    **dict.fromkeys(("BROADCAST_TO", "TILE"), None),
    **dict.fromkeys(("MAXIMUM", "MINIMUM"), "MaximumMinimumOptions"),
    **dict.fromkeys(("MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "SUM"), "ReducerOptions"),
    "BATCH_MATMUL": "BatchMatMulOptions",
    "PADV2": "PadV2Options",
}
#: The schema forces this alignment on buffers.
BUFFER_ALIGNMENT = 16

#: The schema's name of an options table, and its fields.
Options: TypeAlias = tuple[str, Mapping[str, Any]]


def options_of(kind: str, fields: Mapping[str, Any]) -> Options | None:
    """The options of an operator; a field that is left out has the schema's default."""
    if is_custom(kind):
        return (kind, fields)
    own_name = "".join(part.title() for part in kind.split("_")) + "Options"
    name = _TABLES.get(kind, own_name)
    return (name, fields) if name is not None and hasattr(tflite.BuiltinOptions, name) else None


def is_custom(kind: str) -> bool:
    """Whether an operator is not of the schema, but one of signals."""
    return kind.startswith("Signal")


@dataclass(frozen=True)
class FileTensor:
    """A tensor to be written."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    scales: tuple[float, ...] = ()
    zero_points: tuple[int, ...] = ()
    axis: int = 0
    data: bytes | None = None


@dataclass(frozen=True)
class FileOperator:
    """An operator to be written; an absent input is -1."""

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Options | None = None


@dataclass
class ModelFile:
    """A file under construction."""

    description: str
    tensors: list[FileTensor] = field(default_factory=list)
    operators: list[FileOperator] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)

    def tensor(self, tensor: FileTensor) -> int:
        """Add a tensor; its number."""
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def operator(
        self, kind: str, inputs: Sequence[int], outputs: Sequence[int], options: Options | None
    ) -> None:
        """Add an operator."""
        self.operators.append(FileOperator(kind, tuple(inputs), tuple(outputs), options))

    def to_bytes(self) -> bytes:
        """The .tflite file."""
        return Serializer(self).finish()


class Serializer:
    """Builds the flatbuffer: leaves first, because a flatbuffer is written back to front.

    The ``*_fields`` say what is written of each part, by the schema's names of fields.
    """

    def __init__(self, model: ModelFile) -> None:
        self.model = model
        self.builder = flatbuffers.Builder(1024)
        self.subgraphs = self.all_subgraphs()
        self.kinds = list(
            dict.fromkeys(op.kind for subgraph in self.subgraphs for op in subgraph.operators)
        )

    def all_subgraphs(self) -> list[ModelFile]:
        """What is written one after the other; only the first one's description counts."""
        return [self.model]

    def finish(self) -> bytes:
        """The whole file."""
        buffers = [self._table("Buffer", {})]  # buffer 0 is the empty one
        subgraphs = [self._subgraph(subgraph, buffers) for subgraph in self.subgraphs]
        codes = [self._table("OperatorCode", self.code_fields(kind)) for kind in self.kinds]
        root = self._table(
            "Model",
            {
                "Version": 3,
                "OperatorCodes": self._offsets(codes),
                "Subgraphs": self._offsets(subgraphs),
                "Description": self.model.description,
                "Buffers": self._offsets(buffers),
            },
        )
        self.builder.Finish(root, b"TFL3")
        return bytes(self.builder.Output())

    def _subgraph(self, model: ModelFile, buffers: list[int]) -> int:
        """A subgraph, whose constants become further buffers."""
        tensors = []
        for spec in model.tensors:
            number = 0
            if spec.data is not None:
                number = len(buffers)
                buffers.append(self._table("Buffer", {"Data": self._raw(spec.data)}))
            tensors.append(self._table("Tensor", self.tensor_fields(spec, number)))
        operators = [self._table("Operator", self.operator_fields(s)) for s in model.operators]
        return self._table(
            "SubGraph",
            {
                "Tensors": self._offsets(tensors),
                "Inputs": self.numbers(model.inputs, np.int32),
                "Outputs": self.numbers(model.outputs, np.int32),
                "Operators": self._offsets(operators),
                "Name": "main",
            },
        )

    def _table(self, name: str, fields: Mapping[str, Any]) -> int:
        # Vectors come before the table that holds them.
        ready = {key: self._ready(value) for key, value in fields.items()}
        getattr(tflite, f"{name}Start")(self.builder)
        for key, value in ready.items():
            adder = f"{name}Add"
            if not hasattr(tflite, adder + key):
                known = [n.removeprefix(adder) for n in dir(tflite) if n.startswith(adder)]
                raise AttributeError(f"{name} has no field {key}, only: {', '.join(known)}")
            getattr(tflite, adder + key)(self.builder, value)
        return int(getattr(tflite, f"{name}End")(self.builder))

    def _ready(self, value: Any) -> Any:
        """A field in the form that the schema's writers take; anything but a number is written
        before."""
        if isinstance(value, list | tuple):
            return self.numbers(value, np.int32)
        return self.builder.CreateString(value) if isinstance(value, str) else value

    def _offsets(self, offsets: Sequence[int]) -> int:
        self.builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.builder.PrependUOffsetTRelative(offset)
        return int(self.builder.EndVector())

    def numbers(self, values: Sequence[float], dtype: type) -> int:
        """Offset of a vector of numbers; it comes before the table that refers to it."""
        array: Array = np.array(list(values), dtype)
        self.builder.StartVector(array.itemsize, array.size, array.itemsize)
        return self._filled(array.tobytes())

    def _raw(self, data: bytes) -> int:
        self.builder.StartVector(1, len(data), BUFFER_ALIGNMENT)
        return self._filled(data)

    def _filled(self, data: bytes) -> int:
        """The body of the vector just started, in one copy."""
        head = self.builder.Head() - len(data)
        self.builder.head = head
        self.builder.Bytes[head : head + len(data)] = data
        return int(self.builder.EndVector())

    def tensor_fields(self, spec: FileTensor, buffer: int) -> dict[str, Any]:
        """A tensor whose data are in that buffer."""
        fields: dict[str, Any] = {
            "Shape": self.numbers(spec.shape, np.int32),
            "Type": getattr(tflite.TensorType, spec.dtype.upper()),
            "Buffer": buffer,
            "Name": spec.name,
        }
        if spec.scales or spec.zero_points:
            fields["Quantization"] = self._table(
                "QuantizationParameters",
                {
                    "Scale": self.numbers(spec.scales, np.float32),
                    "ZeroPoint": self.numbers(spec.zero_points, np.int64),
                    "QuantizedDimension": spec.axis,
                },
            )
        return fields

    def operator_fields(self, spec: FileOperator) -> dict[str, Any]:
        """An operator, its options included."""
        fields: dict[str, Any] = {
            "OpcodeIndex": self.kinds.index(spec.kind),
            "Inputs": self.numbers(spec.inputs, np.int32),
            "Outputs": self.numbers(spec.outputs, np.int32),
        }
        if spec.options is not None:
            fields |= self.options_fields(spec.options)
        return fields

    def options_fields(self, options: Options) -> dict[str, Any]:
        """An operator's options."""
        name, fields = options
        if is_custom(name):
            builder = flexbuffers.Builder()
            with builder.Map():
                for key, value in fields.items():
                    builder.Int(key, value)
            return {"CustomOptions": self.numbers(bytes(builder.Finish()), np.uint8)}
        return {
            "BuiltinOptionsType": getattr(tflite.BuiltinOptions, name),
            "BuiltinOptions": self._table(name, fields),
        }

    def code_fields(self, kind: str) -> dict[str, Any]:
        """An operator's name, as the schema's number for it."""
        number = getattr(tflite.BuiltinOperator, "CUSTOM" if is_custom(kind) else kind)
        return {
            **({"CustomCode": kind} if is_custom(kind) else {}),
            "Version": _VERSIONS.get(kind, 1),
            "BuiltinCode": number,
            "DeprecatedBuiltinCode": min(number, 127),
        }
