"""A model in QDQ form: operators on real numbers between QuantizeLinear and DequantizeLinear.

It is the common form of ONNX files and PyTorch exports, independent of both packages. It has ONNX's
names and conventions (channels after the batch). ``qdq_convert.py`` converts it to integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from numpy.typing import NDArray

from utvm_deploy.base.errors import ModelError, UnsupportedOperator

Array: TypeAlias = NDArray[Any]
#: What an ONNX attribute can be, as far as operators here have any.
Attribute: TypeAlias = int | float | str | tuple[int, ...] | tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Node:
    """An operator; an input that is absent is ''."""

    index: int  # position in the file
    kind: str  # ONNX's name
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Where we are, for messages."""
        made = ", ".join(f"'{name}'" for name in self.outputs if name) or "nothing"
        return f"operator {self.index} ({self.kind}), which makes {made}"

    def damaged(self, why: str) -> ModelError:
        """The error for an operator that contradicts itself."""
        return ModelError(f"{self.place}: {why}")

    def unsupported(self, why: str) -> UnsupportedOperator:
        """The error for an operator, or a variant of one, that is not imported."""
        return UnsupportedOperator(f"{self.place}: {why}")

    def integer(self, name: str, default: int) -> int:
        """An integer among the attributes."""
        value = self.attributes.get(name, default)
        if not isinstance(value, int):
            raise self.damaged(f"its {name} is {value!r}, not an integer")
        return value

    def number(self, name: str, default: float) -> float:
        """A real number among the attributes."""
        value = self.attributes.get(name, default)
        if not isinstance(value, int | float):
            raise self.damaged(f"its {name} is {value!r}, not a number")
        return float(value)

    def text(self, name: str, default: str) -> str:
        """A word among the attributes."""
        value = self.attributes.get(name, default)
        if not isinstance(value, str):
            raise self.damaged(f"its {name} is {value!r}, not a word")
        return value

    def integers(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """Integers among the attributes."""
        value = self.attributes.get(name, default)
        if not isinstance(value, tuple) or not all(isinstance(v, int) for v in value):
            raise self.damaged(f"its {name} is {value!r}, not a list of integers")
        return tuple(int(v) for v in value)


@dataclass(frozen=True, eq=False)
class QdqModel:
    """Nodes in order of execution, every activation's static shape, and the constants."""

    name: str
    nodes: tuple[Node, ...]
    shapes: Mapping[str, tuple[int, ...]]
    constants: Mapping[str, Array]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    # Element types of the inputs, numpy's names.
    input_types: tuple[str, ...]
