"""What the table of supported operators says of each: importer, element types, constraints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from utvm_deploy.frontend.files.source import Several, SourceOperator
from utvm_deploy.graph.model import Operator

#: Several operators for one of the file: one for each output of a SPLIT.
Importer: TypeAlias = Callable[[SourceOperator], Operator | tuple[Operator, ...] | Several]


@dataclass(frozen=True)
class SupportedOperator:
    """How an operator is imported, and what the file may say of it."""

    importer: Importer
    types: tuple[str, ...]  # element types of what it computes on
    constraints: str  # one line for the user, empty where there are none


#: Groups of element types.
INT8 = ("int8",)
COMPUTED = ("int8", "int16")
MOVED = ("int8", "int16", "uint8", "int32", "int64", "float32")
MOVED_OR_TRUE = (*MOVED, "bool")
CONVERTED = ("int8", "uint8", "int16")
BOOL = ("bool",)
COMPARED = ("int8", "int16", "int32", "int64", "float32")

#: Constraints that several operators have.
FUSED = "fused NONE, RELU, RELU6 or RELU_N1_TO_1"
EQUALS = "inputs and output with equal quantization"
EQUAL = "input and output with equal quantization"
