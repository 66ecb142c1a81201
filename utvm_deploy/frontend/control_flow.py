"""Writes out WHILE and IF: their subgraphs become operators of the main one, step after step.

    subgraphs ──unrolled──▶ FlatModel ──tflite_flat──▶ a .tflite file without control flow

Whether a step follows must be known now. So everything that depends only on constants and shapes
is computed here: counters, conditions, and the positions that a step reads or writes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.files.source import ModelFile, SourceOperator
from utvm_deploy.frontend.files.suggestions import suggestion
from utvm_deploy.frontend.flat_model import (
    FlatModel,
    FlatOperator,
    FlatTensor,
    frozen,
    is_empty,
    local_operator,
)
from utvm_deploy.frontend.joined_parts import JoinedParts
from utvm_deploy.frontend.operators.importers import importer_of
from utvm_deploy.frontend.shape_arithmetic import computed, counted
from utvm_deploy.graph.attribute_values import Shape
from utvm_deploy.graph.attributes import Rearrange
from utvm_deploy.graph.model import Array, Graph, Operator, Tensor
from utvm_deploy.graph.names import short_name
from utvm_deploy.graph.shapes import shapes_of

WHILE, IF = "WHILE", "IF"
#: The options that name the subgraphs of an operator.
CALLED: Mapping[str, tuple[str, str]] = {
    WHILE: ("CondSubgraphIndex", "BodySubgraphIndex"),
    IF: ("ThenSubgraphIndex", "ElseSubgraphIndex"),
}
#: Subgraphs that call each other.
_MOST_NESTED = 16
_NOTE = (
    "WHILE of {} steps, which makes '{}', is unrolled into %s operators; their weights are in "
    "flash once, and equal steps become a loop in C, but time grows with the steps"
)


def subgraphs_called(operators: Sequence[SourceOperator]) -> list[int]:
    """The numbers of the subgraphs that WHILE and IF call."""
    return [op.integer(name) for op in operators for name in CALLED.get(op.kind, ())]


@dataclass(frozen=True)
class Unrolled:
    """The main subgraph without control flow, and what each loop costs."""

    model: FlatModel
    notes: tuple[str, ...]


def unrolled(subgraphs: Mapping[int, ModelFile]) -> Unrolled:
    """The main subgraph with everything that its WHILE and IF call.

    Raises ModelError where the number of steps or a condition depends on data, and where too many
    operators would come of it.
    """
    return _Unrolling(subgraphs).whole()


class _Unrolling:
    def __init__(self, subgraphs: Mapping[int, ModelFile]) -> None:
        self.subgraphs = subgraphs
        self.model = FlatModel()
        self.parts = JoinedParts(self.model)
        self.constants: dict[tuple[int, int], int] = {}
        self.open: list[int] = []  # the subgraphs that we are in
        self.steps: tuple[int, ...] = ()  # of the loops that we are in
        self.loops: list[str] = []  # the notes on the outermost loops
        self.loop: int | None = None

    def whole(self) -> Unrolled:
        """The main subgraph."""
        main = self.subgraphs[0]
        inputs = [
            self.model.add(FlatTensor(main.tensors[one], (0, one), is_unchanged=True))
            for one in main.inputs
        ]
        self.model.inputs = tuple(inputs)
        model = self.model.finished(self._run(0, inputs))
        counts = [sum(op.loop == one for op in model.operators) for one in range(len(self.loops))]
        notes = (text % f"{count:,}" for text, count in zip(self.loops, counts, strict=True))
        return Unrolled(model, tuple(notes))

    def _run(self, number: int, inputs: Sequence[int]) -> list[int]:
        """Write out a subgraph; its outputs."""
        source = self.subgraphs.get(number)
        if source is None or number in self.open or len(self.open) >= _MOST_NESTED:
            raise ModelError(f"the file is damaged: subgraph {number} is missing, or calls itself")
        if len(inputs) != len(source.inputs):
            raise ModelError(
                f"the file is damaged: subgraph {number} has {len(source.inputs)} inputs, but "
                f"{len(inputs)} are given"
            )
        self.open.append(number)
        known = dict(zip(source.inputs, inputs, strict=True))
        for op in source.operators:
            read = [None if one is None else self._at(number, one, known) for one in op.inputs]
            made = self._called(op, read)
            if made is None:
                made = self._operator(number, op, read, known)
            known |= zip(op.outputs, made, strict=True)
        self.open.pop()
        return [self._at(number, one, known) for one in source.outputs]

    def _at(self, number: int, tensor: int, known: Mapping[int, int]) -> int:
        """The tensor of a subgraph; constants and variables are the same in all steps."""
        if tensor in known:
            return known[tensor]
        place = (number, tensor)
        if place not in self.constants:
            found = self.subgraphs[number].tensors[tensor]
            self.constants[place] = self.model.add(FlatTensor(found, place, is_unchanged=True))
        return self.constants[place]

    # What calls subgraphs

    def _called(self, op: SourceOperator, read: Sequence[int | None]) -> list[int] | None:
        """What a WHILE or an IF makes; None for other operators."""
        if op.kind not in CALLED:
            return None
        given = [one for one in read if one is not None]
        if len(given) != len(read):
            raise op.damaged("it lacks an input")
        first, second = (op.integer(option) for option in CALLED[op.kind])
        try:
            if op.kind == WHILE:
                found = self._loop(op, first, second, given)
            else:
                found = self._run(first if self._decided(op, given[:1]) else second, given[1:])
        except ModelError as exc:
            told = str(exc)
            if not told.startswith(op.place):
                told = f"{op.place}: in the subgraph that it calls, {told}"
            raise type(exc)(told) from exc
        if len(found) != len(op.outputs):
            raise op.damaged(f"it has {len(op.outputs)} outputs, but its subgraph {len(found)}")
        return found

    def _loop(self, op: SourceOperator, cond: int, body: int, state: list[int]) -> list[int]:
        outer, is_outermost = self.steps, self.loop is None
        if is_outermost:
            self.loop = len(self.loops)
            self.loops.append("")
        self.steps = (*outer, 0)
        while self._decided(op, self._run(cond, state)):
            state = self._run(body, state)
            self._check_passing(op, self.subgraphs[body])
            self.steps = (*outer, self.steps[-1] + 1)
        count, self.steps = self.steps[-1], outer
        if is_outermost and self.loop is not None:
            name = short_name(op.tensors[op.outputs[0]].name) if op.outputs else "nothing"
            self.loops[self.loop] = _NOTE.format(count, name)
            self.loop = None
        return state

    def _check_passing(self, op: SourceOperator, body: ModelFile) -> None:
        """Raise where LiteRT overwrites an input of a body before it becomes another input.

        It copies the outputs of a step over the inputs one after the other.
        """
        for position, number in enumerate(body.outputs):
            if number in body.inputs[:position]:
                earlier = body.inputs.index(number)
                if body.outputs[earlier] != number:
                    raise op.unsupported(
                        f"its step passes input {earlier} on as output {position}, but LiteRT "
                        "has overwritten it by then: there is no right reference; pass on the "
                        "input plus 0"
                    )

    def _decided(self, op: SourceOperator, condition: Sequence[int]) -> bool:
        """Whether a condition holds; ModelError where it depends on data."""
        tensor = self.model.tensor(condition[0]) if condition else None
        if tensor is None or tensor.data is None or tensor.data.size != 1:
            name = "" if tensor is None else f" ('{short_name(tensor.name.partition(_STEP)[0])}')"
            what = "how many steps it takes" if op.kind == WHILE else "which branch it takes"
            raise op.unsupported(
                f"{what} depends on data{name}, so it cannot be unrolled; {suggestion(op.kind)}"
            )
        return bool(tensor.data.reshape(-1)[0])

    # Other operators

    def _operator(
        self, number: int, op: SourceOperator, read: Sequence[int | None], known: Mapping[int, int]
    ) -> list[int]:
        """What another operator makes: known now, a part of something, or written out."""
        declared = [self._named(op.tensors[one]) for one in op.outputs]
        places = [(number, one) for one in op.outputs]
        local = local_operator(self.model, op, read, declared)
        self.model.spend(*local.tensors)
        shapes = self._shapes(op, local)
        outs = [replace(t, shape=shape) for t, shape in zip(declared, shapes, strict=True)]
        local = replace(local, tensors=(*local.tensors[: -len(outs) or None], *outs))
        found = self._known_now(local)
        if found is not None:
            return [
                self.model.add(FlatTensor(replace(out, data=array, source=None), place))
                for out, place, array in zip(outs, places, found, strict=True)
            ]
        moved = self._moved(local, read, outs)
        if moved is not None:
            return [moved]
        is_main = len(self.open) == 1  # there, tensors keep their names and tables
        made = [
            self.model.add(FlatTensor(out, place, is_main and out.shape == told.shape))
            for out, place, told in zip(outs, places, declared, strict=True)
        ]
        inputs, axis = list(read), _joins(local)
        if axis is not None and axis < len(outs[0].shape):
            inputs = list(self.parts.flattened([one for one in read if one is not None], axis))
            if len(inputs) == 1:
                return [one for one in inputs if one is not None]
            self.parts.keep(made[0], axis, [one for one in inputs if one is not None])
        inside = tuple(self._at(number, one, known) for one in op.intermediates)
        self.model.emit(
            FlatOperator(
                op.kind, tuple(inputs), tuple(made), inside, (number, op.index), loop=self.loop
            )
        )
        return made

    def _named(self, tensor: Tensor) -> Tensor:
        if not self.steps:
            return tensor
        step = ".".join(map(str, self.steps))
        return replace(tensor, name=f"{tensor.name}{_STEP}{step})")

    def _shapes(self, op: SourceOperator, local: SourceOperator) -> list[tuple[int, ...]]:
        """The shapes of what an operator makes: as declared, if its inputs are as declared."""
        declared = [op.tensors[one].shape for one in op.outputs]
        expected = [op.tensors[one].shape for one in op.inputs if one is not None]
        given = [local.tensors[one].shape for one in local.inputs if one is not None]
        if given == expected and all(min(shape, default=1) >= 0 for shape in declared):
            return declared
        return _inferred(local) or declared

    def _known_now(self, local: SourceOperator) -> Sequence[Array] | None:
        """The values of an operator's outputs, where they are known."""
        outs = [local.tensors[one] for one in local.outputs]
        if len(outs) == 1 and is_empty(outs[0]) and outs[0].dtype in _NUMPY:
            return [frozen(np.zeros(outs[0].shape, outs[0].dtype))]
        made = computed(local) or counted(local)
        return None if made is None else [made[one] for one in local.outputs]

    def _moved(
        self, local: SourceOperator, read: Sequence[int | None], outs: Sequence[Tensor]
    ) -> int | None:
        """The tensor that holds a part of a concatenation or of a constant."""
        if local.kind not in _TAKING or read[0] is None:
            return None
        imported = _imported(local)
        a = imported[0].attributes if imported is not None else None
        return self.parts.taken(read[0], a, outs[0]) if isinstance(a, Rearrange) else None


_STEP = " (step "
_NUMPY = ("int8", "uint8", "int16", "int32", "int64", "float32")
_TAKING = ("GATHER", "SLICE", "STRIDED_SLICE")


def _joins(local: SourceOperator) -> int | None:
    """The axis of a plain CONCATENATION."""
    if local.kind != "CONCATENATION" or local.integer("FusedActivationFunction"):
        return None
    axis = local.integer("Axis")
    return axis + len(local.output().shape) if axis < 0 else axis


def _imported(local: SourceOperator) -> tuple[Operator, ...] | None:
    row = importer_of(local)
    try:
        made = row.importer(local) if row is not None else None
    except ModelError:
        return None
    if isinstance(made, Operator):
        return (made,)
    return made if isinstance(made, tuple) else None


def _inferred(local: SourceOperator) -> list[tuple[int, ...]] | None:
    """The shapes of an operator's outputs, by its operands alone."""
    if local.kind in _BY_VALUES:
        known = [local.tensors[one].data for one in local.inputs[1:] if one is not None]
        bounds = [one.reshape(-1).tolist() for one in known if one is not None]
        shape = _BY_VALUES[local.kind](local.input(0).shape, bounds)
        return None if shape is None else [shape]
    parts = _imported(local)
    if parts is None:
        return None
    graph = Graph("", local.tensors, parts, (), (), "")
    try:
        made = {part.outputs[0]: shapes_of(graph, part)[0] for part in parts}
    except ModelError:
        return None
    return [made[one] for one in local.outputs]


def _sliced(shape: Shape, bounds: Sequence[Sequence[int]]) -> Shape | None:
    """The shape of a SLICE, which may take nothing."""
    if len(bounds) != 2 or any(len(bound) != len(shape) for bound in bounds):
        return None
    places = zip(shape, *bounds, strict=True)
    return tuple(extent - begin if size == -1 else size for extent, begin, size in places)


def _reshaped(shape: Shape, bounds: Sequence[Sequence[int]]) -> Shape | None:
    """The shape of a RESHAPE; -1 stands for the rest."""
    if len(bounds) != 1:
        return None
    rest = math.prod(extent for extent in bounds[0] if extent != -1)
    return tuple(math.prod(shape) // max(rest, 1) if one == -1 else one for one in bounds[0])


#: Operators whose importers demand the shape that they are asked for.
_BY_VALUES = {"RESHAPE": _reshaped, "SLICE": _sliced}
