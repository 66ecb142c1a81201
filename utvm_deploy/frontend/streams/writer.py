"""Writes the operators of a stream: columns of earlier runs, and padding before the recording.

before:            x ──▶ CONV_2D (3 columns, padded)
after:   state, x ──▶ CONCATENATION ──▶ CONV_2D (VALID)
                                   └──▶ SLICE ──▶ the next state
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.frontend.streams.flow import Flow
from utvm_deploy.graph.model import Array
from utvm_deploy.graph.names import short_name
from utvm_deploy.graph.stream import END_INPUT

Shape = tuple[int, ...]


class Refusal(UnsupportedOperator):
    """An operator that has no form in a stream, and its position."""

    def __init__(self, position: int, text: str) -> None:
        super().__init__(f"operator {position} {text}")
        self.position = position


class Writer:
    """The main subgraph, while its operators become those of a stream."""

    def __init__(self, model: Any, hop: int, ends: bool) -> None:
        self.model, self.graph = model, model.subgraphs[0]
        self.hop, self.ends = hop, ends  # with ``ends``, a second input says where that is
        self.source = list(self.graph.operators)
        #: Shapes in the file.
        self.shapes = [tuple(schema.numbers(one.shape)) for one in self.graph.tensors]
        self.flows: dict[int, Flow] = {}
        #: Of the tensors behind a pool over time: how many columns of the input they are late.
        self.late: dict[int, int] = {}
        self.operators: list[Any] = []
        self.states: list[tuple[int, int, Array]] = []
        self.padding: set[int] = set()  # positions of operators that pad along time
        #: Of each place where the last columns are taken at once: the tensor's flow, how many.
        self.windows: list[tuple[Flow, int]] = []
        self.has_states = False  # operators of the file keep some
        self.filling = 0  # runs until these know nothing of columns before the recording
        self.most_late = 0  # what all of these wait for
        #: Of earlier columns, the most that anything reads: by the tensor's name, and their fill.
        self.longest: dict[tuple[str, float], int] = {}
        self.known_longest: Mapping[tuple[str, float], int] = {}  # of the walk before
        self._made: dict[tuple[object, ...], int] = {}
        self._latest = 0  # of the columns that the counter distinguishes
        self._counter: int | None = None
        self._behind: int | None = None
        self._last = 0  # of the columns behind the end that it distinguishes

    def begin(self, number: int, flow: Flow) -> None:
        """Let a tensor be columns over time."""
        self.flows[number] = flow
        self._reshape(number, self.extended(number, flow, flow.extent))

    def extended(self, number: int, flow: Flow, extent: int) -> Shape:
        """The shape of a tensor with another extent along time."""
        shape = list(self.shapes[number])
        shape[flow.axis] = extent
        return tuple(shape)

    def put(
        self, kind: str, inputs: Sequence[int], output: int, options: str = "", **fields: Any
    ) -> int:
        """Write a new operator; the number of its output."""
        made = schema.new_operator(self.model, kind, 1, inputs, [output])
        if options:
            schema.set_options(made, options, **fields)
        self.operators.append(made)
        return output

    def tensor(self, like: int, shape: Shape, what: str, dtype: int | None = None) -> int:
        """A new tensor, quantized as another one unless it has another type."""
        source = self.graph.tensors[like]
        name = f"{schema.name_of(self.model, like)} ({what})".encode()
        is_same = dtype in (None, source.type)
        params = source.quantization if is_same else None
        kind = source.type if dtype is None else dtype
        number = schema.new_tensor(self.model, self.graph, source, name, kind, params)
        self.shapes.append(shape)
        self._reshape(number, shape)
        return number

    def constant(self, array: Array) -> int:
        """A new constant of int32."""
        number = schema.new_constant(self.model, "stream", array.astype(np.int32))
        self.shapes.append(array.shape)
        return int(number)

    def scalar(self, like: int, value: float) -> int:
        """A new constant without dimensions, in the form of a tensor."""
        number = self.tensor(like, (), "value")
        self._set(number, np.full((), value))
        return number

    def value(self, number: int) -> Array | None:
        """What a constant holds."""
        return schema.constant(self.model, self.graph.tensors[number])

    def zero(self, number: int) -> float:
        """What stands for zero in a tensor."""
        return schema.steps_of(self.graph.tensors[number])[1]

    def span(self, number: int, before: int, length: int, fill: float) -> int:
        """Columns of a tensor, of which ``before`` come before this run's first.

        In the first run these are ``fill``. A negative number leaves some of this run's out.
        """
        flow = self.flows[number]
        if (before, length) == (0, flow.columns):
            return number
        key = (number, before, length, fill)
        if key not in self._made:
            kept, begin, extent = number, -before, flow.columns
            if before > 0:
                # One state for all that read earlier columns of the tensor.
                name = schema.name_of(self.model, number), fill
                self.longest[name] = max(self.longest.get(name, 0), before)
                most = max(before, self.known_longest.get(name, 0))
                kept, begin = self._kept(number, most, fill), most - before
                extent += most
            is_all = not begin and length == extent
            self._made[key] = kept if is_all else self._part(kept, flow, begin, length)
        return self._made[key]

    def masked(self, number: int, fill: float) -> int:
        """A tensor with ``fill`` in the place of columns that are not of the recording."""
        flow = self.flows[number]
        if not flow.first and not self.ends:
            return number
        key = (number, fill, "masked")
        if key not in self._made:
            shape = [1] * len(self.shapes[number])
            one = self.tensor(number, tuple(shape), "padding")
            self._set(one, np.full(shape, fill))
            shape[flow.axis] = flow.extent
            steps = np.repeat(flow.stride * (flow.first - np.arange(flow.columns)), flow.unit)
            is_real = self._is_recorded(flow, steps.reshape(shape))
            made = self.tensor(number, self.extended(number, flow, flow.extent), "from the first")
            self.put("SELECT_V2", [is_real, number, one], made, "SelectV2Options")
            self.flows[made] = flow
            self._made[key] = made
        return self._made[key]

    def settled(self, number: int, at_least: int = 0) -> int:
        """A tensor whose padding by PAD is in it, and whose delay is at least this."""
        flow = self.flows[number]
        if flow.padded is None and flow.delay >= at_least:
            return number
        fill = self.zero(number) if flow.padded is None else flow.padded
        source = number if flow.padded is None else self.masked(number, fill)
        delay = max(flow.delay, at_least, 0)
        made = self.span(source, delay - flow.delay, flow.columns, fill)
        self.flows[made] = replace(flow, delay=delay, pads=0, after=0, padded=None, lost=flow.own)
        return made

    def last_window(self, number: int, columns: int | None = None) -> int:
        """The last columns over time, as many as the file has; the tensor has no flow."""
        source = self.settled(number)
        flow = self.flows[source]
        columns = flow.window if columns is None else columns
        waits = (self.most_late - flow.delay * flow.stride) // flow.stride
        waits = max(waits, 0)
        made = self.span(source, columns - flow.columns + waits, columns, self.zero(number))
        if made in self.flows:  # the tensor behind it has no flow
            made = self._part(made, flow, 0, columns)
        self.windows.append((replace(flow, delay=flow.delay + waits), columns))
        self.late[made] = (flow.delay + waits) * flow.stride
        return made

    def finish(self) -> None:
        """Put the new operators in the place of the old ones; the states are not yet variables."""
        if self._counter is not None:
            hop = self.constant(np.array([self.hop]))
            left = self._at_most(self._sum(self._counter, hop), self._latest)
            self.states.append((self._counter, left, np.zeros(1, np.int32)))
        if self._behind is not None:
            left = self._at_most(self._behind, self._last)
            self.states.append((self._before_end, left, np.zeros(1, np.int32)))
        self.graph.operators = self.operators

    def refusal(self, position: int, why: str) -> Refusal:
        """An operator that has no form in a stream."""
        operator = self.source[position]
        kind = schema.custom_kind(self.model, operator) or schema.kind_of(self.model, operator)
        return Refusal(position, f"({kind}) {why}")

    def called(self, number: int) -> str:
        """A tensor, for messages."""
        return f"'{short_name(schema.name_of(self.model, number) or f'tensor_{number}')}'"

    def _kept(self, number: int, before: int, fill: float) -> int:
        """Columns of earlier runs, and behind them those of this run; the state is updated."""
        key = (number, before, fill, "kept")
        if key not in self._made:
            flow = self.flows[number]
            extents = [before * flow.unit, (before + flow.columns) * flow.unit]
            shapes = [self.extended(number, flow, extent) for extent in extents]
            found = self.tensor(number, shapes[0], f"state {len(self.states)}")
            joined = self.tensor(number, shapes[1], "with earlier ones")
            self.put(
                "CONCATENATION", [found, number], joined, "ConcatenationOptions", axis=flow.axis
            )
            left = self._part(joined, flow, flow.columns, before)
            dtype = schema.STORED[self.graph.tensors[number].type]
            self.states.append((found, left, np.full(shapes[0], fill, dtype)))
            self._made[key] = joined
        return self._made[key]

    def _part(self, number: int, flow: Flow, begin: int, length: int) -> int:
        shape = self.extended(number, flow, length * flow.unit)
        begins = np.zeros(len(shape))
        begins[flow.axis] = begin * flow.unit
        made = self.tensor(number, shape, "part")
        inputs = [number, self.constant(begins), self.constant(np.array(shape))]
        return self.put("SLICE", inputs, made, "SliceOptions")

    def _is_recorded(self, flow: Flow, steps: Array) -> int:
        """Whether each column is of the recording; ``steps`` of the input's are before it."""
        tests = []
        if flow.first:
            self._latest = max(self._latest, flow.stride * flow.first)
            tests.append(("GREATER_EQUAL", self._count(), steps, "GreaterEqualOptions"))
        if self.ends:
            most = self.hop + steps - flow.lost
            self._last = max(self._last, int(most.max()))
            tests.append(("LESS", self._count_behind(), most, "LessOptions"))
        found = []
        for kind, count, bounds, options in tests:
            bound = self.constant(bounds)
            found.append(self.tensor(bound, bounds.shape, "recorded", schema.BOOL))
            self.put(kind, [count, bound], found[-1], options)
        if len(found) == 1:
            return found[0]
        both = self.tensor(found[0], steps.shape, "both")
        return self.put("LOGICAL_AND", found, both, "LogicalAndOptions")

    def _count_behind(self) -> int:
        """The columns behind the recording's end up to this run's last one, or enough of them."""
        if self._behind is None:
            given, self._before_end = self.constant(np.zeros(1)), self.constant(np.zeros(1))
            # States of equal names would be one.
            for number, name in ((given, END_INPUT), (self._before_end, f"{END_INPUT} so far")):
                self.graph.tensors[number].name = name.encode()
                self.graph.tensors[number].buffer = 0
            self.graph.inputs = [int(self.graph.inputs[0]), given]
            schema.write_signature(self.model)
            counted = self.tensor(given, (1,), "or none")
            zero = self.constant(np.zeros(1))
            self.put("MAXIMUM", [given, zero], counted, "MaximumMinimumOptions")
            self._behind = self._sum(self._before_end, self._at_most(counted, self.hop))
        return self._behind

    def _sum(self, one: int, other: int) -> int:
        return self.put("ADD", [one, other], self.tensor(one, (1,), "later"), "AddOptions")

    def _at_most(self, number: int, most: int) -> int:
        made, limit = self.tensor(number, (1,), "at most"), self.constant(np.array([most]))
        return self.put("MINIMUM", [number, limit], made, "MaximumMinimumOptions")

    def _count(self) -> int:
        """The columns of the input that came before this run, or enough of them."""
        if self._counter is None:
            self._counter = self.constant(np.zeros(1))
            self.graph.tensors[self._counter].buffer = 0
        return self._counter

    def _set(self, number: int, array: Array) -> None:
        tensor = self.graph.tensors[number]
        schema.add_constant(self.model, tensor, array.astype(schema.STORED[tensor.type]))

    def _reshape(self, number: int, shape: Shape) -> None:
        tensor = self.graph.tensors[number]
        tensor.shape, tensor.shapeSignature = np.array(shape, np.int32), None


def same_block(shape: Shape, flow: Flow, result: Shape) -> tuple[int, int] | None:
    """The time axis of a tensor in another shape, and the elements that are one column there.

    None if the columns are not in one axis of it.
    """
    before, after = math.prod(shape[: flow.axis]), math.prod(shape[flow.axis + 1 :])
    found = []
    for axis, extent in enumerate(result):
        unit, left = divmod(extent, flow.window)
        is_same = math.prod(result[:axis]) == before and unit * math.prod(result[axis + 1 :])
        if not left and is_same == flow.unit * after:
            found.append((unit > 1, axis != flow.axis, axis == 0, axis, unit))
    return min(found)[3:] if found else None
