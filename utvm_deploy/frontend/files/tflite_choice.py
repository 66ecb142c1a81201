"""What a .tflite file leaves open, and what is chosen: its signature, shapes, states, image.

A habit of old converters is mended, too, because LiteRT refuses it: the axis of biases.

    bytes ──choice_of──▶ Choice ──tflite_chosen, in a child──▶ the file that everything else reads

A file that leaves nothing open stays as it is. A damaged one, too: its reader says what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import tflite

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.files.fields import READER_ERRORS, array_of, text_of
from utvm_deploy.frontend.files.given_shapes import States, Stream, chosen_now, shapes_for
from utvm_deploy.frontend.files.limits import MAX_OPERATORS, MAX_RANK, MAX_TENSORS
from utvm_deploy.graph.names import short_name

Shape = tuple[int, ...]
#: The names of two signatures that are taken together: a step, and a block of steps.
STEP, BLOCK = "decode", "prefill"
#: What an extent may be that the file does not know, in a message that asks for it.
_EXAMPLE = 32


@dataclass(frozen=True)
class Choice:
    """How a file is rewritten before it is read, and messages for the user.

    Of a file of another format, it has what the user gave.
    """

    subgraph: int | None = None  # the only one that stays, with those that it calls
    block: int | None = None  # this one stays, too: a block of steps of the other one
    # Of all inputs, by the number of the tensor; in other formats by name, of those that are given.
    shapes: Mapping[Any, Sequence[int]] | None = None
    mends_axes: bool = False  # quantized_dimension of rows is beyond their only dimension
    unsigned: frozenset[int] = frozenset()  # numbers of the uint8 tensors, if quantized
    notes: tuple[str, ...] = ()
    states: States = ()  # inputs and outputs, by name
    stream: Stream | None = None
    image: str | None = None  # words on what the caller gives
    weights: str | None = None  # the text of the file of trained weights
    is_signed: bool = False  # whether uint8 becomes int8
    prefill: Sequence[str] | None = None  # the path of a block of steps, and its SHA-256

    @property
    def rewrites(self) -> bool:
        """Whether the file changes at all."""
        return replace(self, unsigned=frozenset(), notes=()) != Choice()

    def to_json(self) -> str:
        """What the child learns of it."""
        return json.dumps(asdict(self), default=sorted)

    @classmethod
    def of_json(cls, text: str) -> Choice:
        """What ``to_json`` wrote."""
        found = json.loads(text)
        stream = found.pop("stream")
        return cls(**found, stream=None if stream is None else Stream(**stream))


def choice_of(data: bytes) -> Choice:
    """What is chosen of a file's bytes, by what the user gave.

    Raises ModelError where the user has to choose, and where the file has not what was given.
    """
    try:
        model = tflite.Model.GetRootAs(data, 0)
        # Objects of the schema's readers are made for each of these.
        if max(model.SignatureDefsLength(), model.SubgraphsLength()) > MAX_OPERATORS:
            return Choice()
        number, block, notes = _signature(model)
        subgraph = model.Subgraphs(number or 0)
        if subgraph is None or subgraph.InputsLength() > MAX_TENSORS:
            return Choice()
        inputs = [_Input.of(subgraph, int(one)) for one in array_of(subgraph.InputsAsNumpy())]
        aliases = _aliases(model, number or 0)
        tensors = [subgraph.Tensors(i) for i in range(min(subgraph.TensorsLength(), MAX_TENSORS))]
        axis = next(filter(None, map(_wrong_axis, tensors)), 0)
        unsigned = frozenset(i for i, tensor in enumerate(tensors) if _is_unsigned(tensor))
    except READER_ERRORS:
        return Choice()
    shapes, more = _shapes(inputs, aliases)
    if axis:
        more += (f"quantized_dimension {axis} of tensors with one dimension is read as 0",)
    given = chosen_now().states, chosen_now().stream, chosen_now().words
    return Choice(number, block, shapes, axis != 0, unsigned, (*notes, *more), *given)


def _wrong_axis(tensor: Any) -> int:
    """The quantized_dimension of a row, where it is not the only one that a row has; or 0.

    Old converters wrote the axis of the weights for a bias, too.
    """
    table = tensor.Quantization() if tensor.ShapeLength() == 1 else None
    return 0 if table is None or not table.ScaleLength() else int(table.QuantizedDimension())


def _is_unsigned(tensor: Any) -> bool:
    table = tensor.Quantization() if tensor.Type() == tflite.TensorType.UINT8 else None
    return table is not None and table.ScaleLength() == 1 == table.ZeroPointLength()


def _signature(model: Any) -> tuple[int | None, int | None, tuple[str, ...]]:
    """The subgraph that stays, None if all do, that of a block, and messages on variables."""
    found = {
        text_of(one.SignatureKey(), "a signature"): one.SubgraphIndex()
        for one in map(model.SignatureDefs, range(model.SignatureDefsLength()))
    }
    given = chosen_now().signature or ""
    # A name may have commas, too.
    name, comma, block = (given, "", "") if given in found else given.partition(",")
    if not name and sorted(found) == [STEP, BLOCK]:
        (name, block), comma = (STEP, BLOCK), ","
    for one in (name, block) if comma else ():
        if one not in found:
            name = one
    if (name or comma) and name not in found:
        raise ModelError(
            f"the file has no signature '{name}'; its signatures: {', '.join(found)}"
            if found
            else f"the file has no signatures, so there is no '{name}' to choose"
        )
    if comma:
        return found[name], found[block], ()
    numbers = set(found.values())
    if not name and len(numbers) > 1:
        names = ", ".join(f"'{one}'" for one in found)
        raise ModelError(
            f"the file has the signatures {names}; choose one, such as --signature {min(found)}"
        )
    if not numbers or numbers == {0}:
        return None, None, ()
    chosen = found[name] if name else numbers.pop()
    return chosen, None, _shared(model, chosen, found)


def _shared(model: Any, chosen: int, signatures: Mapping[str, int]) -> tuple[str, ...]:
    """Messages on variables that other signatures name, too."""
    own = set(_variables(model, chosen))
    return tuple(
        f"variable '{name}' is shared with signature '{other}', which is left out: what is "
        "compiled has a separate variable, which only this signature changes"
        for other, number in signatures.items()
        if number != chosen
        for name in sorted(own & set(_variables(model, number)))
    )


def _variables(model: Any, number: int) -> Iterator[str]:
    """The names of a subgraph's variables."""
    subgraph = model.Subgraphs(number)
    for operator in map(subgraph.Operators, range(subgraph.OperatorsLength())):
        code = model.OperatorCodes(operator.OpcodeIndex())
        if code.BuiltinCode() == tflite.BuiltinOperator.VAR_HANDLE:
            options, table = tflite.VarHandleOptions(), operator.BuiltinOptions()
            options.Init(table.Bytes, table.Pos)
            yield text_of(options.SharedName(), "a variable")


def _aliases(model: Any, number: int) -> Mapping[str, int]:
    """The signature's own names of inputs: name -> number of the tensor."""
    return {
        text_of(one.Name(), "an input"): one.TensorIndex()
        for signature in map(model.SignatureDefs, range(model.SignatureDefsLength()))
        if signature.SubgraphIndex() == number
        for one in map(signature.Inputs, range(signature.InputsLength()))
    }


@dataclass(frozen=True)
class _Input:
    """An input of the subgraph; an extent of -1 is one that the file does not know."""

    number: int
    name: str
    stored: Shape  # the shape that is in the file
    extents: Shape

    @classmethod
    def of(cls, subgraph: Any, number: int) -> _Input:
        tensor = subgraph.Tensors(number)
        if max(tensor.ShapeLength(), tensor.ShapeSignatureLength()) > MAX_RANK:
            raise ValueError("no kernel takes that; the reader says so")
        stored = tuple(map(int, array_of(tensor.ShapeAsNumpy())))
        known = tuple(map(int, array_of(tensor.ShapeSignatureAsNumpy())))
        open_ones = known if len(known) == len(stored) else stored
        extents = tuple(
            -1 if -1 in (one, other) else other
            for one, other in zip(open_ones, stored, strict=True)
        )
        name = text_of(tensor.Name(), f"tensor {number}") or f"tensor_{number}"
        return cls(number, name, stored, extents)

    @property
    def shown(self) -> str:
        return "(" + ", ".join("?" if one < 0 else str(one) for one in self.extents) + ")"


def _shapes(
    inputs: Sequence[_Input], aliases: Mapping[str, int]
) -> tuple[Mapping[int, Shape] | None, tuple[str, ...]]:
    """The shapes of all inputs, None if they are those of the file, and messages."""
    given = _given(inputs, aliases)
    is_alone = len(inputs) == 1
    shapes: dict[int, Shape] = {}
    notes: list[str] = []
    for one in inputs:
        if one.number in given:
            shapes[one.number] = _fitting(one, given[one.number])
        elif -1 not in one.extents:
            shapes[one.number] = one.stored
        elif -1 in one.extents[1:] or len(one.extents) == 1:
            raise ModelError(_question(one, is_alone))
        else:
            batch = max(one.stored[0], 1)
            shapes[one.number] = (batch, *one.extents[1:])
            notes.append(f"the batch of input '{short_name(one.name)}' is bound to {batch}")
    is_same = all(shapes[one.number] == one.stored for one in inputs)
    return (None if is_same else shapes), tuple(notes)


def _given(inputs: Sequence[_Input], aliases: Mapping[str, int]) -> Mapping[int, Shape]:
    """The shapes that the user gave, by the number of the tensor."""
    if not chosen_now().shapes:
        return {}
    numbers = {one.name: one.number for one in inputs}
    own = {name: number for name, number in aliases.items() if number in numbers.values()}
    known: Collection[str] = numbers
    if not set(chosen_now().shapes) - {""} <= set(numbers):
        known, numbers = own or numbers, numbers | own
    return {numbers[name]: shape for name, shape in shapes_for(known).items()}


def _fitting(one: _Input, shape: Shape) -> Shape:
    told = ",".join(map(str, shape))
    if len(shape) != len(one.extents):
        raise ModelError(
            f"input '{short_name(one.name)}' has {len(one.extents)} dimensions {one.shown}, but "
            f"the given shape {told} has {len(shape)}"
        )
    if any(own not in (-1, given) for own, given in zip(one.extents, shape, strict=True)):
        fixed = "" if -1 in one.extents else "fixed "
        raise ModelError(
            f"input '{short_name(one.name)}' has the {fixed}shape {one.shown}, which {told} does "
            "not fit"
        )
    return shape


def _question(one: _Input, is_alone: bool) -> str:
    example = [_EXAMPLE if extent < 0 else extent for extent in one.extents]
    if one.extents[0] < 0 and len(example) > 1:
        example[0] = 1
    name = "" if is_alone else f"{short_name(one.name)}="
    return (
        f"input '{short_name(one.name)}' has the shape {one.shown}, which the "
        f"file leaves open; give it, such as --shape {name}{','.join(map(str, example))}"
    )
