"""Calls of ATen operators, and what is known of the tensors of a program."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.qdq.operators import Array, Attribute


@dataclass(frozen=True, eq=False)
class Call:
    """An ATen call: its arguments by their schema's names, tensors among them as names."""

    node: Any
    index: int
    arguments: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Its own name, and that of what it makes."""
        return str(self.node.name)

    def __getitem__(self, key: str) -> Any:
        """An argument; None if it is not given."""
        return self.arguments.get(key)

    def integers(self, key: str, count: int, default: int) -> tuple[int, ...]:
        """An argument of ``count`` numbers, or of one for all."""
        value = self.arguments.get(key)
        if value is None or (isinstance(value, Sequence) and not value):
            value = default
        values = [value] if isinstance(value, int) else list(value)
        return tuple(int(v) for v in (values * count if len(values) == 1 else values))


@dataclass(frozen=True)
class Stated:
    """What a call is in ONNX's terms."""

    kind: str
    inputs: tuple[str, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


class Tensors:
    """What is known of a program's tensors so far."""

    def __init__(self) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.constants: dict[str, Array] = {}

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


Statement: TypeAlias = Callable[[Tensors, Call], Stated]


#: Calls that check a tensor while the program is exported; they compute nothing.
ASSERTIONS = frozenset(("_assert_tensor_metadata",))


def operator_kinds(program: Any) -> tuple[str, ...]:
    """The operators of a float ``ExportedProgram``, by ATen's names and in their order.

    Two names depend on an argument: x / y is "reciprocal" if y is computed, and
    x ** 2 is "square".
    """
    inputs = set(program.graph_signature.user_inputs)
    kinds = []
    for node in program.graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        kind = aten_name(node.target)
        other: Any = node.args[1] if len(node.args) > 1 else None
        is_computed = hasattr(other, "op") and (other.op == "call_function" or other.name in inputs)
        if kind == "div" and is_computed:
            kind = "reciprocal"
        elif kind == "pow" and other == 2:
            kind = "square"
        if kind not in ASSERTIONS:
            kinds.append(kind)
    return tuple(kinds)


def aten_name(target: Any) -> str:
    """``aten.relu_.default`` -> ``relu``: in a program nothing is done in place."""
    parts = str(target).split(".")
    name = parts[1] if len(parts) > 1 else parts[0]
    return name.rstrip("_") if parts[0] == "aten" else name
