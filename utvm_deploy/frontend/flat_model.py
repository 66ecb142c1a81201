"""A file's main subgraph as one list of operators, while what it calls is written out.

An operator is one of the file's with other operands, or a new one. Operators that are known now
become constants. Operators that no output depends on are left out at the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.files.limits import MAX_EXTENTS, MAX_OPERATORS
from utvm_deploy.frontend.files.source import SourceOperator
from utvm_deploy.frontend.qdq.tflite_write import Options
from utvm_deploy.graph.model import Array, Tensor

#: What an operator counts for, in addition to the extents of its tensors.
_OPERATOR = 512
#: A subgraph of the file, and a position in its list of tensors or of operators.
Place = tuple[int, int]


@dataclass(frozen=True, eq=False)
class FlatTensor:
    """A tensor and where the file has the one that it is made after."""

    tensor: Tensor
    place: Place | None = None
    is_unchanged: bool = False  # the file's own, with its name, shape and data


@dataclass(frozen=True, eq=False)
class FlatOperator:
    """An operator, by the numbers of flat tensors."""

    kind: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...] = ()
    place: Place | None = None  # of the file's operator; None for a new one
    options: Options | None = None  # of a new one
    loop: int | None = None  # the position in ``FlatModel.notes`` of what it was written out for


@dataclass
class FlatModel:
    """The operators so far."""

    tensors: list[FlatTensor] = field(default_factory=list)
    operators: list[FlatOperator] = field(default_factory=list)
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    _left: int = MAX_EXTENTS

    def spend(self, *tensors: Tensor) -> None:
        """Count an operator on these tensors, also one that is computed now.

        Raises ModelError where that is more than what a file without loops may hold.
        """
        self._left -= _OPERATOR + sum(max(extent, 0) for one in tensors for extent in one.shape)
        if self._left < 0:
            raise too_large()

    def tensor(self, number: int) -> Tensor:
        """A tensor."""
        return self.tensors[number].tensor

    def add(self, tensor: FlatTensor) -> int:
        """A further tensor; its number."""
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def constant(self, name: str, array: Array) -> int:
        """A new constant that is not quantized; its number."""
        return self.add(FlatTensor(Tensor(name, array.shape, str(array.dtype), data=array)))

    def like(self, number: int, name: str, shape: Sequence[int], data: Array | None = None) -> int:
        """A tensor of the type and quantization of another one; its number."""
        model = self.tensors[number]
        tensor = replace(model.tensor, name=name, shape=tuple(shape), data=data, source=None)
        return self.add(FlatTensor(tensor, model.place))

    def emit(self, operator: FlatOperator) -> None:
        """A further operator."""
        if len(self.operators) >= MAX_OPERATORS:
            raise too_large()
        self.operators.append(operator)

    def finished(self, outputs: Sequence[int]) -> FlatModel:
        """The model with these outputs, without what no output depends on."""
        needed, kept = set(outputs), list[FlatOperator]()
        for operator in reversed(self.operators):
            # What makes no tensor assigns a variable, or calls what initializes one.
            if not operator.outputs or needed.intersection(operator.outputs):
                needed.update(operator.intermediates, operator.outputs)
                needed.update(one for one in operator.inputs if one is not None)
                kept.append(operator)
        used = [*self.inputs, *sorted(needed - {*self.inputs})]
        numbers = {old: new for new, old in enumerate(used)}
        return FlatModel(
            [self.tensors[old] for old in used],
            [_renumbered(operator, numbers) for operator in reversed(kept)],
            tuple(numbers[one] for one in self.inputs),
            tuple(numbers[one] for one in outputs),
        )


def local_operator(
    model: FlatModel, op: SourceOperator, inputs: Sequence[int | None], outputs: Sequence[Tensor]
) -> SourceOperator:
    """The operator as one of a file that has only its own operands."""
    read = [None if one is None else model.tensor(one) for one in inputs]
    present = [one for one in read if one is not None]
    places = iter(range(len(present)))
    return replace(
        op,
        inputs=tuple(None if one is None else next(places) for one in read),
        outputs=tuple(range(len(present), len(present) + len(outputs))),
        tensors=(*present, *outputs),
        intermediates=(),
    )


def is_empty(tensor: Tensor) -> bool:
    """Whether it has no element."""
    return math.prod(tensor.shape) == 0


def frozen(array: Array) -> Array:
    """The array, which nobody may write."""
    fixed: Array = np.ascontiguousarray(array).reshape(array.shape)
    fixed.flags.writeable = False
    return fixed


def too_large() -> ModelError:
    """What to say where too much is written out."""
    return ModelError(
        f"unrolled, its loops are larger than a model may be ({MAX_OPERATORS:,} operators); export "
        "fewer steps, or one step whose state is an input and an output"
    )


def _renumbered(operator: FlatOperator, numbers: dict[int, int]) -> FlatOperator:
    return replace(
        operator,
        inputs=tuple(None if one is None else numbers[one] for one in operator.inputs),
        outputs=tuple(numbers[one] for one in operator.outputs),
        intermediates=tuple(numbers[one] for one in operator.intermediates),
    )
