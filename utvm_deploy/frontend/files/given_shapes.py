"""What the user chooses of a model: shapes of inputs, signature, states, a stream, an image, the
format of its numbers, and trained weights.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import Any, TypeAlias

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.files.image_input import ImageInput, image_of_words
from utvm_deploy.frontend.training.stored import TrainedWeights
from utvm_deploy.graph.number_formats import NumberFormat, format_of

#: Name of an input -> its shape. The name is empty where a model has only one input.
Shapes: TypeAlias = Mapping[str, tuple[int, ...]]

#: Pairs of an input and the output that it has in the next run, by name.
States: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Stream:
    """That a run takes some columns over time, and keeps what it needs of earlier ones."""

    hop: int
    axis: int | None = None  # of the input; None: the first one that can be time
    end_input: bool = False  # whether an input says where a recording ends


#: Formats and TVM hold no larger extents.
MOST_EXTENT = 2**31 - 1

#: Stands for the only input, where a shape is given without a name.
ONLY = ""


@dataclass(frozen=True)
class Chosen:
    """What is chosen of a model that is imported now."""

    shapes: Shapes = field(default_factory=dict)  # empty if the user gave none
    signature: str | None = None
    states: States = ()
    stream: Stream | None = None  # None if the model takes whole windows
    image: ImageInput | None = None  # which the caller gives
    number_format: NumberFormat | None = None  # None for the numbers of the file
    weights: TrainedWeights | None = None  # None for the weights of the file
    tied: States = ()  # inputs and outputs that get one range

    @property
    def words(self) -> str | None:
        """The words that describe the image."""
        return None if self.image is None else self.image.words


_chosen: ContextVar[Chosen] = ContextVar("chosen", default=Chosen())  # noqa: B039


def chosen_now() -> Chosen:
    """What the user chose."""
    return _chosen.get()


@contextmanager
def given_only(chosen: Chosen) -> Iterator[None]:
    """In the block, models are imported with what is chosen. Ranges stay tied."""
    with given(**vars(chosen) | {"tied": _chosen.get().tied}):
        yield


@contextmanager
def given(**changes: Any) -> Iterator[None]:
    """In the block, fields of ``Chosen`` have these values."""
    token = _chosen.set(replace(_chosen.get(), **changes))
    try:
        yield
    finally:
        _chosen.reset(token)


def with_chosen(
    inputs: Any = None,
    signature: str | None = None,
    states: Mapping[str, str] | None = None,
    stream: Any = None,
    image_input: str | None = None,
    number_format: str | Path | NumberFormat | None = None,
    weights: str | Path | TrainedWeights | None = None,
) -> AbstractContextManager[None]:
    """The same of what keywords of functions say. Where they say nothing, an outer block counts.

    Raises ModelError for what is of another kind, and PluginError for an unknown number format.
    """
    others = (signature, stream, image_input, number_format, weights)
    if not inputs and not states and all(one is None for one in others):
        return nullcontext()
    chosen = shapes_of_inputs(inputs or {}), signature, states_of_outputs(states or {})
    own = None if number_format is None else format_of(number_format)
    trained = TrainedWeights.read(weights) if isinstance(weights, str | Path) else weights
    return given_only(Chosen(*chosen, stream_of(stream), image_of_words(image_input), own, trained))


def stream_of(given: Any) -> Stream | None:
    """A hop, or a dict of a hop, an axis and ``end_input``; ModelError for anything else."""
    if given is None or isinstance(given, Stream):
        return given
    found = given if isinstance(given, Mapping) else {"hop": given}
    hop, axis, ends = found.get("hop"), found.get("axis"), found.get("end_input", False)
    unknown = [one for one in found if one not in ("hop", "axis", "end_input")]
    if unknown:
        wrong = f"has the unknown key {unknown[0]!r}"
    elif hop is None:
        wrong = 'has no "hop"'
    elif not _is_integer(hop):
        wrong = (
            "is neither a hop nor a dict"
            if found is not given
            else 'has a "hop" that is not an integer'
        )
    elif axis is not None and not _is_integer(axis):
        wrong = 'has an "axis" that is not an integer'
    elif not isinstance(ends, bool):
        wrong = 'has an "end_input" that is neither True nor False'
    else:
        return Stream(int(hop), None if axis is None else int(axis), ends)
    raise ModelError(
        f"stream={given!r} {wrong}; give a hop, such as 2, or a dict, such as "
        '{"hop": 2, "axis": 1, "end_input": True}'
    )


def _is_integer(given: Any) -> bool:
    return isinstance(given, Integral) and not isinstance(given, bool)


def states_of_outputs(states: Any) -> States:
    """Pairs of a dict from names of inputs to names of outputs; ModelError for anything else."""
    is_text = isinstance(states, Mapping) and all(
        isinstance(one, str) for pair in states.items() for one in pair
    )
    if not is_text:
        raise ModelError(
            f"states={states!r} is not a dict from names of inputs to names of outputs, such as "
            '{"h0": "hn"}'
        )
    return tuple(states.items())


def shapes_for(names: Collection[str]) -> Shapes:
    """The given shapes, by the names of a model's inputs.

    Raises ModelError for an unknown name, and for none where there are several inputs.
    """
    given = dict(_chosen.get().shapes)
    if ONLY in given and len(names) == 1:
        given = dict.fromkeys(names, given.pop(ONLY)) | given
    for name in given:
        if name not in names:
            known = ", ".join(names)
            raise ModelError(
                f"the model has no input '{name}'; its inputs: {known}"
                if name
                else f"the model has several inputs, so a shape needs a name: {known}"
            )
    return given


def shapes_of_inputs(inputs: Any) -> Shapes:
    """Shapes of inputs by name, each from a shape or from an example array.

    A shape alone is that of the only input. Raises ModelError for what is neither.
    """
    if isinstance(inputs, list | tuple) and all(isinstance(one, Integral) for one in inputs):
        inputs = {ONLY: inputs}
    if not isinstance(inputs, Mapping):
        raise ModelError(
            f"inputs is of type {type(inputs).__name__}; give a dict from the names of inputs to "
            "shapes or arrays"
        )
    return {name: _shape(name, given) for name, given in inputs.items()}


def _shape(name: str, given: Any) -> tuple[int, ...]:
    shape = getattr(given, "shape", given)
    try:
        if any(isinstance(extent, bool) for extent in shape):
            raise TypeError
        extents = tuple(operator.index(extent) for extent in shape)
    except TypeError:
        raise ModelError(
            f"{_called(name)} has neither a shape, such as (1, 64), nor an array: {given!r}"
        ) from None
    if any(extent < 1 for extent in extents):
        raise ModelError(f"{_called(name)} has the shape {extents}; extents are at least 1")
    if any(extent > MOST_EXTENT for extent in extents):
        raise ModelError(
            f"{_called(name)} has the shape {extents}; extents are at most {MOST_EXTENT:,}"
        )
    return extents


def _called(name: str) -> str:
    return f"input '{name}'" if name else "the input"


def parsed_state(text: str) -> tuple[str, str]:
    """The names in a text such as ``h0=hn``; ValueError if it has not both."""
    name, _, output = text.partition("=")
    if not name or not output:
        raise ValueError(f"{text!r} is not IN=OUT, such as h0=hn")
    return name, output


def parsed_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """The name and the shape in a text such as ``x=1,64`` or ``1,64``; ValueError if it is none."""
    name, equals, numbers = text.rpartition("=")
    if equals and not name:
        raise ValueError(f"{text!r} is not NAME=SHAPE, such as x=1,64")
    try:
        shape = tuple(int(number) for number in numbers.split(","))
    except ValueError:
        raise ValueError(f"{numbers!r} is not a shape, such as 1,64") from None
    if any(extent < 1 for extent in shape):
        raise ValueError(f"{numbers!r} has an extent below 1")
    if any(extent > MOST_EXTENT for extent in shape):
        raise ValueError(f"{numbers!r} has an extent above {MOST_EXTENT:,}")
    return name, shape
