"""In a child process: a .tflite file whose model becomes a stream.

data ──time axis──▶ rules, operator by operator ──▶ states ──▶ data
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.frontend.files.given_shapes import MOST_EXTENT
from utvm_deploy.frontend.files.tflite_states import keep
from utvm_deploy.frontend.streams.flow import Flow
from utvm_deploy.frontend.streams.recurrent import STATEFUL
from utvm_deploy.frontend.streams.rules import OF_ANY_INPUT, RULES, Place, as_it_is
from utvm_deploy.frontend.streams.writer import Refusal, Writer
from utvm_deploy.graph.stream import METADATA, StreamFacts

#: Formats hold twice of it, which leaves room for what a state keeps.
_MOST_EXTENT = MOST_EXTENT // 2


def with_stream(data: bytes, hop: int, axis: int | None, end_input: bool = False) -> bytes:
    """The file of a model that takes ``hop`` columns a run, along this axis of its input.

    Without an axis, it is the first one along which the model is a stream. With ``end_input``, it
    also takes the number of a run's columns that are behind the end of the recording. Raises
    ModelError where there is none, with the reason.
    """
    model = schema.read_model(data)
    graph = model.subgraphs[0]
    stateful = [one for one in graph.operators if schema.kind_of(model, one) in STATEFUL]
    known = {int(number) for one in stateful for number in one.inputs}
    variables = {number for number, one in enumerate(graph.tensors) if one.isVariable}
    if len(model.subgraphs) > 1 or variables - known:
        raise ModelError(
            "a model that keeps states, other than those of LSTM and SVDF, or that has control "
            "flow, becomes no stream"
        )
    if len(graph.inputs) != 1:
        raise ModelError(f"the model has {len(graph.inputs)} inputs, and a stream has one")
    shape = schema.numbers(graph.tensors[int(graph.inputs[0])].shape)
    axes = [one for one in range(1, len(shape)) if shape[one] > 1] if axis is None else [axis]
    if axis is not None and not 0 < axis < len(shape):
        raise ModelError(f"the time axis {axis} is not one of an input of shape {tuple(shape)}")
    refusals: list[Refusal] = []
    for one in axes:
        try:
            return _along(data, hop, one, end_input)
        except Refusal as error:
            refusals.append(error)
    if not refusals:
        raise ModelError(f"an input of shape {tuple(shape)} has no axis of time")
    # The axis that is meant is probably the one along which most operators were understood.
    raise UnsupportedOperator(str(max(refusals, key=lambda one: one.position)))


def _along(data: bytes, hop: int, axis: int, end_input: bool) -> bytes:
    late, longest = 0, dict[tuple[str, float], int]()
    while True:
        w = Writer(schema.read_model(data), hop, end_input)
        w.most_late, w.known_longest = late, longest
        flow = _input_flow(w, hop, axis)
        _walk(w, flow)
        newest = max((one.delay * one.stride for one, _ in w.windows), default=0)
        if newest <= late and w.longest == longest:
            break
        # Pools that are earlier wait for the others.
        late, longest = max(newest, late), w.longest
    w.finish()
    if not w.states and not w.has_states:
        if hop >= flow.window > 1:
            raise ModelError(
                f"a hop of {hop} columns has the whole window of {flow.window}, so a stream would "
                "keep nothing; give a smaller hop, or leave --stream out"
            )
        raise ModelError(
            f"the model computes each column along axis {axis} of its input alone, so a "
            "stream would keep nothing; give --time-axis, or --shape for columns"
        )
    if w.states:
        keep(w.model, w.states)
    facts = _facts(w, hop, axis)
    if end_input and (len(w.graph.inputs) == 1 or facts.behind <= 0):
        raise ModelError(
            "no answer of this stream reads padding at the end of a recording, so none depends on "
            "what --end-input adds; leave --end-input out"
        )
    schema.add_metadata(w.model, METADATA, facts.to_json())
    return schema.model_bytes(w.model)


def _input_flow(w: Writer, hop: int, axis: int) -> Flow:
    """The columns of the input; a flat one has the columns of its RESHAPE."""
    number = int(w.graph.inputs[0])
    extent, unit = w.shapes[number][axis], 1
    readers = [one for one in w.source if number in schema.numbers(one.inputs)]
    if len(readers) == 1 and schema.kind_of(w.model, readers[0]) == "RESHAPE":
        made = w.shapes[int(readers[0].outputs[0])]
        long = [one for one in made if one > 1]
        if len(long) > 1 and extent == int(np.prod(made)):
            unit = extent // long[0]
    if hop < 1:
        raise ModelError(f"a hop of {hop} columns is none; give 1 or more")
    if hop * unit > _MOST_EXTENT:
        raise ModelError(
            f"a hop of {hop:,} columns is too large; give {_MOST_EXTENT // unit:,} or less"
        )
    return Flow(axis, unit, hop, 1, extent // unit)


def _walk(w: Writer, flow: Flow) -> None:
    w.begin(int(w.graph.inputs[0]), flow)
    for place in _places(w):
        flows = [w.flows[one] for one in place.inputs if one in w.flows]
        if place.kind in STATEFUL:
            STATEFUL[place.kind][0 if place.inputs[0] in w.flows else 1](w, place)
        elif not flows:
            as_it_is(w, place)
        elif place.kind in RULES and (place.kind in OF_ANY_INPUT or place.inputs[0] in w.flows):
            RULES[place.kind](w, place)
        else:
            raise w.refusal(place.position, "has no form in a stream")


def _places(w: Writer) -> Iterator[Place]:
    for position, operator in enumerate(w.source):
        inputs, outputs = (schema.numbers(one) for one in (operator.inputs, operator.outputs))
        kind = schema.custom_kind(w.model, operator) or schema.kind_of(w.model, operator)
        yield Place(position, operator, kind, tuple(inputs), tuple(outputs))


def _facts(w: Writer, hop: int, axis: int) -> StreamFacts:
    outputs = [int(one) for one in w.graph.outputs]
    flows = [w.flows[one] for one in outputs if one in w.flows]
    ends = [*((one, 1) for one in flows), *w.windows]
    needed = [one.stride * (one.first + count - 1) + 1 for one, count in ends]
    number = int(w.graph.inputs[0])
    window = w.shapes[number][axis] // w.flows[number].unit
    return StreamFacts(
        hop=hop,
        axis=axis,
        window=window,
        delay=max((_delay(window, one) for one, _ in ends), default=0),
        shift=max((one.delay * one.stride for one, _ in ends), default=0),
        runs=max(-(-max(needed, default=1) // hop), 1) + w.filling,
        answers=max((one.columns for one in flows), default=1),
        padded=len(w.padding),
        behind=max((one.behind for one, _ in ends), default=0) if w.ends else -1,
    )


def _delay(window: int, flow: Flow) -> int:
    """The columns that a stream waits for, where a window pads itself at its end."""
    shrinks = (
        -(-window // flow.stride) - flow.window
    )  # as VALID convolutions do, which wait for none
    return max(flow.delay - shrinks, 0) * flow.stride
