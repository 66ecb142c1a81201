"""Tensors and operators as plain records, and the .tflite file that states them.

It writes whatever it is told, also what no converter would: ``tflite_writer`` makes sense of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import flatbuffers
import numpy as np
import tflite

# The operator versions that introduced int8; the newest where there is a choice.
_VERSIONS = {
    "ADD": 2,
    "AVERAGE_POOL_2D": 2,
    "BROADCAST_TO": 2,
    "CONV_2D": 3,
    "DEPTHWISE_CONV_2D": 3,
    "DEQUANTIZE": 2,
    "FULLY_CONNECTED": 4,
    "MAX_POOL_2D": 2,
    "MEAN": 2,
    "PAD": 2,
    "QUANTIZE": 2,
    "RELU": 2,
    "RELU6": 2,
    "SOFTMAX": 2,
}
# The schema forces this alignment on buffers.
_BUFFER_ALIGNMENT = 16

Options = tuple[str, Mapping[str, Any]]


@dataclass
class TensorSpec:
    """A tensor to be written; tests may change it before ``save``."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    scales: tuple[float, ...] = ()
    zero_points: tuple[int, ...] = ()
    axis: int = 0
    data: bytes | None = None
    is_variable: bool = False


@dataclass
class OperatorSpec:
    """An operator to be written: inputs may be -1 (absent), options are schema fields."""

    kind: str
    inputs: list[int]
    outputs: list[int]
    options: Options | None = None
    intermediates: Sequence[int] = ()


class Model(Protocol):
    """What is written."""

    description: str
    tensors: list[TensorSpec]
    operators: list[OperatorSpec]
    inputs: list[int]
    outputs: list[int]


def serialize(model: Model) -> bytes:
    """The .tflite file."""
    return _Serializer(model).finish()


class _Serializer:
    """Builds the flatbuffer: leaves first, because a flatbuffer is written back to front."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.builder = flatbuffers.Builder(1024)
        # Each operator name is one code; a name that is not builtin becomes a custom operator.
        self.codes = list(dict.fromkeys(op.kind for op in model.operators))

    def finish(self) -> bytes:
        buffers = self._tables("Buffer", [{}])  # buffer 0 is the empty one
        tensors = []
        for spec in self.model.tensors:
            number = 0
            if spec.data is not None:
                number = len(buffers)
                buffers += self._tables("Buffer", [{"Data": self._raw(spec.data)}])
            tensors.append(self._tensor(spec, number))
        operators = [self._operator(spec) for spec in self.model.operators]
        codes = [self._code(kind) for kind in self.codes]
        subgraph = self._table(
            "SubGraph",
            {
                "Tensors": self._offsets(tensors),
                "Inputs": self._numbers(self.model.inputs, np.int32),
                "Outputs": self._numbers(self.model.outputs, np.int32),
                "Operators": self._offsets(operators),
                "Name": self.builder.CreateString("main"),
            },
        )
        root = self._table(
            "Model",
            {
                "Version": 3,
                "OperatorCodes": self._offsets(codes),
                "Subgraphs": self._offsets([subgraph]),
                "Description": self.builder.CreateString(self.model.description),
                "Buffers": self._offsets(buffers),
            },
        )
        self.builder.Finish(root, b"TFL3")
        return bytes(self.builder.Output())

    def _table(self, name: str, fields: Mapping[str, Any]) -> int:
        getattr(tflite, f"{name}Start")(self.builder)
        for key, value in fields.items():
            getattr(tflite, f"{name}Add{key}")(self.builder, value)
        return int(getattr(tflite, f"{name}End")(self.builder))

    def _tables(self, name: str, tables: Sequence[Mapping[str, Any]]) -> list[int]:
        return [self._table(name, fields) for fields in tables]

    def _offsets(self, offsets: Sequence[int]) -> int:
        self.builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.builder.PrependUOffsetTRelative(offset)
        return int(self.builder.EndVector())

    def _numbers(self, values: Sequence[float], dtype: type) -> int:
        array: np.ndarray = np.array(values, dtype)
        self.builder.StartVector(array.itemsize, array.size, array.itemsize)
        return self._filled(array.tobytes())

    def _raw(self, data: bytes) -> int:
        self.builder.StartVector(1, len(data), _BUFFER_ALIGNMENT)
        return self._filled(data)

    def _filled(self, data: bytes) -> int:
        """The body of the vector just started, in one copy."""
        head = self.builder.Head() - len(data)
        self.builder.head = head
        self.builder.Bytes[head : head + len(data)] = data
        return int(self.builder.EndVector())

    def _tensor(self, spec: TensorSpec, buffer: int) -> int:
        fields: dict[str, Any] = {
            "Shape": self._numbers(spec.shape, np.int32),
            "Type": getattr(tflite.TensorType, spec.dtype.upper()),
            "Buffer": buffer,
            "Name": self.builder.CreateString(spec.name),
            "IsVariable": spec.is_variable,
        }
        if spec.scales or spec.zero_points:
            fields["Quantization"] = self._table(
                "QuantizationParameters",
                {
                    "Scale": self._numbers(spec.scales, np.float32),
                    "ZeroPoint": self._numbers(spec.zero_points, np.int64),
                    "QuantizedDimension": spec.axis,
                },
            )
        return self._table("Tensor", fields)

    def _operator(self, spec: OperatorSpec) -> int:
        fields: dict[str, Any] = {
            "OpcodeIndex": self.codes.index(spec.kind),
            "Inputs": self._numbers(spec.inputs, np.int32),
            "Outputs": self._numbers(spec.outputs, np.int32),
        }
        if spec.options is not None:
            name, options = spec.options
            # Lists first: a vector cannot be written inside the table that refers to it.
            options = {
                key: self._numbers(value, np.int32) if isinstance(value, list | tuple) else value
                for key, value in options.items()
            }
            fields["BuiltinOptionsType"] = getattr(tflite.BuiltinOptions, name)
            fields["BuiltinOptions"] = self._table(name, options)
        if spec.intermediates:
            fields["Intermediates"] = self._numbers(spec.intermediates, np.int32)
        return self._table("Operator", fields)

    def _code(self, kind: str) -> int:
        number = getattr(tflite.BuiltinOperator, kind, None)
        fields: dict[str, Any] = {"Version": _VERSIONS.get(kind, 1)}
        if number is None:
            fields["CustomCode"] = self.builder.CreateString(kind)
            number = tflite.BuiltinOperator.CUSTOM
        fields["BuiltinCode"] = number
        fields["DeprecatedBuiltinCode"] = min(number, 127)
        return self._table("OperatorCode", fields)
