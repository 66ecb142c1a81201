"""One operator as a model file states it: what the importers in ``operators.py`` read from.

Every number here has been bounds-checked by the reader; what the numbers mean has not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.graph.model import Operator, Prefill, Tensor
from utvm_deploy.graph.names import short_name

#: A field of an options table.
Option: TypeAlias = int | float | bool | str

#: What the kinds of operators begin with that the format does not have.
CUSTOM = "CUSTOM"
#: Outputs that a message names.
MAX_NAMED = 4


def custom_kind(name: str) -> str:
    """The kind of the custom operator of this name."""
    return f"{CUSTOM} '{short_name(name)}'"


def custom_name(kind: str) -> str:
    """The name in the kind of a custom operator; empty for the format's own operators."""
    return kind[len(CUSTOM) + 2 : -1] if kind.startswith(CUSTOM) else ""


@dataclass(frozen=True, eq=False)
class ModelFile:
    """Everything that the import needs of a file, bounds-checked."""

    tensors: tuple[Tensor, ...]
    operators: tuple[SourceOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    # Number of a subgraph -> its operators, for each one that a CALL_ONCE calls. Their tensors are
    # those of that subgraph.
    once: Mapping[int, tuple[SourceOperator, ...]] = field(default_factory=dict)
    subgraphs: int = 1
    # As ``Graph.states``: the tensor that a run finds, and the one that it writes.
    states: tuple[tuple[int, int], ...] = ()
    # Set if the operators are those of a step, and then those of a block of steps.
    prefill: Prefill | None = None


@dataclass(frozen=True, eq=False)
class Several:
    """An operator of the file that becomes several, with tensors between them.

    Those tensors count on from the file's.
    """

    operators: tuple[Operator, ...]
    between: tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class SourceOperator:
    """An operator of the file: its tensors by file position, and its undecoded options."""

    index: int  # position in the file
    kind: str  # TFLite's name, or CUSTOM 'name'
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    # Fields of the options table by their schema name, such as StrideH.
    options: Mapping[str, Option]
    tensors: tuple[Tensor, ...]  # all tensors of the file
    # Tensors that only say how something inside of the operator is quantized.
    intermediates: tuple[int, ...] = ()
    custom_options: bytes = b""  # of a custom operator, as the file has them
    lists: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # options that are lists

    @property
    def place(self) -> str:
        """Where we are, for messages: index, kind and what the operator makes."""
        made = ", ".join(f"'{short_name(self.tensors[i].name)}'" for i in self.outputs[:MAX_NAMED])
        if len(self.outputs) > MAX_NAMED:
            made += f" and {len(self.outputs) - MAX_NAMED} more"
        made = made or "nothing"
        return f"operator {self.index} ({self.kind}), which makes {made}"

    def damaged(self, why: str) -> ModelError:
        """The error for an operator that contradicts itself."""
        return ModelError(f"{self.place}: {why}")

    def unsupported(self, why: str) -> UnsupportedOperator:
        """The error for a variant of an operator that is not imported."""
        return UnsupportedOperator(f"{self.place}: {why}")

    def option(self, name: str) -> Option:
        """A field of the options table."""
        if name not in self.options:
            raise self.damaged(f"the file lacks its option {name}; convert the model again")
        return self.options[name]

    def integer(self, name: str) -> int:
        """An integer field of the options table."""
        return int(self.option(name))

    def numbers(self, name: str) -> tuple[int, ...]:
        """A list of the options table, empty where the file has none."""
        return self.lists.get(name, ())

    def text(self, name: str) -> str:
        """A field of the options table that is a name, empty where the file has none."""
        return str(self.options.get(name, ""))

    def positive(self, name: str) -> int:
        """An integer field that must be at least 1, such as a stride."""
        value = self.integer(name)
        if value < 1:
            raise self.damaged(f"its option {name} is {value}, which must be at least 1")
        return value

    def has_input(self, position: int) -> bool:
        """Whether an optional input is there."""
        return position < len(self.inputs) and self.inputs[position] is not None

    def input(self, position: int) -> Tensor:
        """An input that must be there."""
        number = self.inputs[position] if position < len(self.inputs) else None
        if number is None:
            raise self.damaged(f"input {position} is missing")
        return self.tensors[number]

    def output(self) -> Tensor:
        """The only output."""
        if len(self.outputs) != 1:
            raise self.damaged(f"it has {len(self.outputs)} outputs instead of 1")
        return self.tensors[self.outputs[0]]
