"""LiteRT's interpreter in the child process of ``reference.py``.

The reference kernels run the whole model. The table of truth (``truths.py``) may have one of its
operators. Then they run the model without it, and what it makes is an input of that model. Other
kernels compute this of what the reference made before, round after round, until nothing changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from utvm_deploy.frontend.tflite_cut import without_operators
from utvm_deploy.graph.model import Array
from utvm_deploy.oracle.truths import DEFAULT_KERNELS, REFERENCE_KERNELS, Truth, truth_of
from utvm_deploy.oracle.versions import LACKED, with_known_versions

#: Operators whose state ``Interpreter.reset_all_variables`` leaves as it is.
_KEEPING = frozenset({"VAR_HANDLE", "CALL_ONCE"})
#: How LiteRT's errors name an operator.
_PLACE = re.compile(r"Node number (\d+) \((\w+)\)")

#: Of one sample, the tensors by their numbers.
Tensors = dict[int, Array]


@dataclass(frozen=True)
class Interpreted:
    """What the interpreter computed."""

    outputs: list[int]
    tensors: list[Tensors]  # of each sample
    truths: list[Truth]  # whose operators the model has


@dataclass(frozen=True)
class Node:
    """An operator of a model, by the numbers of its tensors."""

    position: int
    kind: str
    dtype: str  # of its first input
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Refused(Exception):
    """LiteRT does not start the file; the text says where it stops, or is empty."""


class Program:
    """A model in an interpreter; it keeps ``only`` these tensors of a run, or the outputs.

    ``keeps_all`` keeps what its operators make for each other, too.
    """

    def __init__(
        self,
        data: bytes,
        resolver: str = REFERENCE_KERNELS,
        *,
        keeps_all: bool = True,
        only: Sequence[int] | None = None,
    ) -> None:
        self._data, self._resolver, self._keeps_all = data, resolver, keeps_all
        self._interpreter = self._started()
        self.inputs = [int(one["index"]) for one in self._interpreter.get_input_details()]
        self.outputs = [int(one["index"]) for one in self._interpreter.get_output_details()]
        # Private, but the version is pinned; nothing else lists the operators.
        self.nodes = [self._node(one) for one in self._interpreter._get_ops_details()]
        made = [number for node in self.nodes for number in node.outputs if number >= 0]
        if only is None:
            only = [*self.inputs, *made, *self.outputs] if keeps_all else self.outputs
        self.computed = frozenset([*self.inputs, *made])
        # A variable's handle has no bytes, and LiteRT crashes when it is asked for them.
        self._kept = [n for n in dict.fromkeys(only) if self._details(n)["dtype"] is not np.object_]

    def run(self, samples: Sequence[Sequence[Array]], *, apart: bool) -> list[Tensors]:
        """The tensors that are kept, of each sample; ``apart``: none follows another one."""
        return [self.one(sample, is_first=apart) for sample in samples]

    def one(self, sample: Sequence[Array], *, is_first: bool = False) -> Tensors:
        """The tensors of one more sample, or of the first one after a start."""
        if len(sample) != len(self.inputs):
            raise ValueError(f"it has {len(self.inputs)} inputs, but {len(sample)} were given")
        if is_first:
            self._restart()
        for number, array in zip(self.inputs, sample, strict=True):
            self._interpreter.set_tensor(number, array)
        self._interpreter.invoke()
        return {number: self._interpreter.get_tensor(number) for number in self._kept}

    def empty(self, number: int) -> Array:
        """Zeros in the form of a tensor."""
        details = self._details(number)
        return np.zeros(details["shape"], details["dtype"])

    def _restart(self) -> None:
        if any(node.kind in _KEEPING for node in self.nodes):
            self._interpreter = self._started()
        self._interpreter.reset_all_variables()

    def _started(self) -> Any:
        interpreter = _built(self._data, self._resolver, keeps_all=self._keeps_all)
        interpreter.allocate_tensors()
        return interpreter

    def _node(self, details: Mapping[str, Any]) -> Node:
        inputs, outputs = (tuple(int(n) for n in details[key]) for key in ("inputs", "outputs"))
        dtype = np.dtype(self._details(inputs[0])["dtype"]).name if inputs else ""
        return Node(int(details["index"]), str(details["op_name"]), dtype, inputs, outputs)

    def _details(self, number: int) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._interpreter._get_tensor_details(number, 0)
        return found


def _built(data: bytes, resolver: str, *, keeps_all: bool = False) -> Any:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    return Interpreter(
        model_content=data,
        experimental_op_resolver_type=OpResolverType[resolver],
        experimental_preserve_all_tensors=keeps_all,
    )


def interpret(
    model: Path, samples: Sequence[Sequence[Array]], *, outputs_only: bool = False
) -> Interpreted:
    """Run all samples; with ``outputs_only``, each finds the state before a model's first run.

    Raises Refused for a file that LiteRT does not start.
    """
    data = model.read_bytes()
    with _refusals():
        known, lacking = with_known_versions(data, _built)
        # Without a kernel of some operators, the reference cannot even list them.
        resolver = DEFAULT_KERNELS if lacking else REFERENCE_KERNELS
        program = Program(data if lacking else known, resolver, keeps_all=not outputs_only)
        others = {node: t for node in program.nodes if (t := truth_of(node.kind, node.dtype))}
        for node in program.nodes:
            if node.kind in lacking and node not in others:
                raise RuntimeError(f"Node number {node.position} ({node.kind}) is unknown")
        split = _Split(data, known, program, others) if others else None
    run = program.run if split is None else split.run
    tensors = run(samples, apart=outputs_only)
    return Interpreted(program.outputs, tensors, list(dict.fromkeys(others.values())))


@contextmanager
def _refusals() -> Iterator[None]:
    """Refused, with the operator that LiteRT names, for its errors in the block."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if not str(error):
            raise MemoryError("LiteRT says no reason; it may need more memory") from error
        where = ""
        if found := _PLACE.search(str(error)):
            where = f"operator {found[1]} ({found[2]})"
        elif found := LACKED.search(str(error)):
            where = f"{found[1]} of version {found[2]}"
        raise Refused(where) from error


class _Split:
    """A model whose operators ``others`` are computed by other kernels.

    ``known`` is the file of which the reference runs the rest.
    """

    def __init__(
        self, data: bytes, known: bytes, program: Program, others: Mapping[Node, Truth]
    ) -> None:
        self._program, self._others = program, others
        self._made = [number for node in others for number in node.outputs]
        self._rest = without_operators(known, {node.position for node in others}, self._made)
        self._alone = [_alone(data, program, node, truth) for node, truth in others.items()]
        Program(self._rest)

    def run(self, samples: Sequence[Sequence[Array]], *, apart: bool) -> list[Tensors]:
        """As ``Program.run``."""
        program = self._program
        read = [n for node in self._others for n in node.inputs if n in program.computed]
        only = [*program.inputs, *program.outputs, *read] if apart else None
        found = [[program.empty(number) for number in self._made] for _ in samples]
        while True:
            given = [[*sample, *arrays] for sample, arrays in zip(samples, found, strict=True)]
            tensors = Program(self._rest, only=only).run(given, apart=apart)
            before, found = (
                found,
                [[made for one in self._alone for made in one(t)] for t in tensors],
            )
            if all(map(_are_equal, before, found)):
                return tensors

    def _computed(self, tensors: Tensors) -> list[Array]:
        return [made for one in self._alone for made in one(tensors)]


def _alone(
    data: bytes, program: Program, node: Node, truth: Truth
) -> Callable[[Tensors], list[Array]]:
    """An operator by the kernels that are right."""
    rest = {one.position for one in program.nodes} - {node.position}
    further = [n for n in node.inputs if n in program.computed and n not in program.inputs]
    cut = without_operators(data, rest, further)
    single = Program(cut, truth.resolver, only=node.outputs)

    def run(tensors: Tensors) -> list[Array]:
        made = single.one([tensors[number] for number in single.inputs])
        return [made[number] for number in node.outputs]

    return run


def _are_equal(left: Sequence[Array], right: Sequence[Array]) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(left, right, strict=True))
