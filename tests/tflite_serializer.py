"""Tensors and operators as plain records, and the .tflite file that states them.

It writes whatever it is told, also what no converter would: ``tflite_writer`` makes sense of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import tflite
from sparse_writer import Sparsity

from utvm_deploy.frontend.qdq.tflite_write import Options, Serializer

__all__ = ["CODE_FIELDS", "Model", "OperatorSpec", "Options", "TensorSpec", "serialize"]

#: Where an operator's number may stand. TFLite's converter writes both, old converters only the
#: last, ai-edge-quantizer only the first.
CODE_FIELDS = ("BuiltinCode", "DeprecatedBuiltinCode")


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
    signature: tuple[int, ...] = ()  # the shape with -1 for what is only known at runtime
    sparsity: Sparsity | None = None  # how ``data`` leaves out zeros


@dataclass
class OperatorSpec:
    """An operator to be written: inputs may be -1 (absent), options are schema fields."""

    kind: str
    inputs: list[int]
    outputs: list[int]
    options: Options | None = None
    intermediates: Sequence[int] = ()
    custom_options: bytes = b""


class Model(Protocol):
    """What is written."""

    description: str
    tensors: list[TensorSpec]
    operators: list[OperatorSpec]
    inputs: list[int]
    outputs: list[int]
    once: Model | None
    further: list[Any]
    operator_codes: Sequence[str]


def serialize(model: Model) -> bytes:
    """The .tflite file."""
    return _AnythingGoes(model).finish()


class _AnythingGoes(Serializer):
    """Also variables, intermediates, custom operators (names that are not builtin), further
    subgraphs."""

    def __init__(self, model: Model) -> None:
        self.others = [*([model.once] if model.once else []), *model.further]
        self.written_codes = model.operator_codes
        super().__init__(model)

    def all_subgraphs(self) -> list[Any]:
        return [self.model, *self.others]

    def tensor_fields(self, spec: TensorSpec, buffer: int) -> dict[str, Any]:
        fields = {**super().tensor_fields(spec, buffer), "IsVariable": spec.is_variable}
        if spec.signature:
            fields["ShapeSignature"] = self.numbers(spec.signature, np.int32)
        if spec.sparsity:
            fields["Sparsity"] = spec.sparsity.written(self)
        return fields

    def operator_fields(self, spec: OperatorSpec) -> dict[str, Any]:
        fields = super().operator_fields(spec)
        if spec.intermediates:
            fields["Intermediates"] = self.numbers(spec.intermediates, np.int32)
        if spec.custom_options:
            raw = np.frombuffer(spec.custom_options, np.uint8)
            fields["CustomOptions"] = self.numbers(raw, np.uint8)
        return fields

    def code_fields(self, kind: str) -> dict[str, Any]:
        if hasattr(tflite.BuiltinOperator, kind):
            fields = super().code_fields(kind)
        else:
            custom = tflite.BuiltinOperator.CUSTOM
            fields = {"Version": 1, "CustomCode": kind}
            fields |= dict.fromkeys(CODE_FIELDS, custom)
        left_out = set(CODE_FIELDS) - set(self.written_codes)
        return {name: value for name, value in fields.items() if name not in left_out}
