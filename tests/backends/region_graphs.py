"""Graphs of few operators by hand, random ones, and what they compute, with NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from utvm_deploy.graph.attributes import Concatenation, Extremum
from utvm_deploy.graph.model import Array, Graph, Operator, Quantization, Tensor

SHAPE = (1, 4, 6)
_ONE = Quantization((0.05,), (-7,))


class GraphWriter:
    """A graph of int8 tensors that are all quantized alike."""

    def __init__(self, inputs: int = 2) -> None:
        self.tensors: list[Tensor] = []
        self.operators: list[Operator] = []
        self.inputs = tuple(self.tensor() for _ in range(inputs))
        self.states: tuple[tuple[int, int], ...] = ()

    def tensor(self, data: Array | None = None, shape: tuple[int, ...] = SHAPE) -> int:
        number = len(self.tensors)
        name = f"t{number}"
        self.tensors.append(Tensor(name, shape, "int8", _ONE, data, source=number))
        return number

    def add(self, kind: str, *inputs: int) -> int:
        """MAXIMUM and MINIMUM, or CONCATENATION along the last axis."""
        shape, attributes = SHAPE, Extremum()
        if kind == "CONCATENATION":
            channels = sum(self.tensors[one].shape[-1] for one in inputs)
            shape, attributes = (*SHAPE[:2], channels), Concatenation(2)  # type: ignore[assignment]
        output = self.tensor(shape=shape)
        position = len(self.operators)
        self.operators.append(Operator(kind, inputs, (output,), attributes, (position,)))
        return output

    def made(self, *outputs: int, name: str = "net") -> Graph:
        return Graph(
            name,
            tuple(self.tensors),
            tuple(self.operators),
            self.inputs,
            outputs,
            "0" * 64,
            states=self.states,
        )


def random_graph(seed: int) -> Graph:
    """A graph of up to 14 operators, with diamonds, constants, a state, and many outputs."""
    random = np.random.default_rng(seed)
    writer = GraphWriter(int(random.integers(1, 4)))
    values = [*writer.inputs]
    constant = writer.tensor(random.integers(-128, 128, SHAPE).astype(np.int8))
    state = writer.tensor() if random.random() < 0.3 else None
    values += [constant, *([] if state is None else [state])]
    for _ in range(int(random.integers(2, 15))):
        # Mostly of the newest tensors, so that there are long paths.
        first, second = (
            values[-1 - min(int(n), len(values) - 1)] for n in random.geometric(0.4, 2)
        )
        kind = "MAXIMUM" if random.random() < 0.5 else "MINIMUM"
        both_constant = first == second == constant
        values.append(writer.add(kind, writer.inputs[0] if both_constant else first, second))
    made = [one.outputs[0] for one in writer.operators]
    unread = {*made} - {n for one in writer.operators for n in one.inputs}
    outputs = [n for n in made if n in unread or random.random() < 0.15]
    if state is not None:
        # The last operator that reads the state must be no later than the one that writes it.
        last = max((i for i, one in enumerate(writer.operators) if state in one.inputs), default=0)
        left = int(random.choice(made[last:]))
        writer.states = ((state, left),)
    return writer.made(*outputs, name=f"g{seed}")


def computed(graph: Graph, inputs: Sequence[Array], states: Sequence[Array]) -> Mapping[int, Array]:
    """All tensors of a run."""
    found = dict(zip(graph.inputs, inputs, strict=True))
    found |= {pair[0]: value for pair, value in zip(graph.states, states, strict=True)}
    found |= {i: one.data for i, one in enumerate(graph.tensors) if one.data is not None}
    for one in graph.operators:
        values = [found[n] for n in one.inputs if n is not None]
        function = np.maximum if one.kind == "MAXIMUM" else np.minimum
        if one.kind == "CONCATENATION":
            found[one.outputs[0]] = np.concatenate(values, 2)
        else:
            found[one.outputs[0]] = function(*values)
    return found
