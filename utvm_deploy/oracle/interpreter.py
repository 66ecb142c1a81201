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

import numpy as np

from utvm_deploy.base.errors import last_words
from utvm_deploy.frontend.files.tflite_cut import without_operators
from utvm_deploy.graph.element_type import element_type
from utvm_deploy.graph.model import Array
from utvm_deploy.oracle.micro_lstm import Gate, MicroLstm
from utvm_deploy.oracle.micro_svdf import MicroSvdf
from utvm_deploy.oracle.program import Program, Tensors, built, is_first
from utvm_deploy.oracle.shadow import Shadow
from utvm_deploy.oracle.truths import (
    AS_DENSE,
    AS_INT8,
    DEFAULT_KERNELS,
    OF_MICRO,
    REFERENCE_KERNELS,
    Node,
    Truth,
    truth_of,
)
from utvm_deploy.oracle.versions import LACKED, with_known_versions

# The first of FULLY_CONNECTED that takes int16 and a scale for each output.
_DENSE_VERSION = 12


def as_dense(data: bytes) -> bytes:
    """The file of one BATCH_MATMUL by a constant matrix, which becomes FULLY_CONNECTED."""
    from utvm_deploy.frontend.files import tflite_schema as schema  # only in the child process

    model = schema.read_model(data)
    graph = model.subgraphs[0]
    (operator,) = graph.operators
    weights = graph.tensors[operator.inputs[1]]
    matrix = schema.constant(model, weights)
    assert matrix is not None, "the importer asks for a constant"
    matrix = matrix.reshape(matrix.shape[-2:])
    rows = matrix if operator.builtinOptions.adjY else matrix.T
    schema.set_constant(model, weights, rows)
    weights.shape, weights.shapeSignature = list(rows.shape), None
    weights.quantization.quantizedDimension = 0
    schema.become(model, operator, "FULLY_CONNECTED", "FullyConnectedOptions", keepNumDims=True)
    code = model.operatorCodes[operator.opcodeIndex]
    # The reference may lack other operators of the file.
    model.operatorCodes, operator.opcodeIndex, code.version = [code], 0, _DENSE_VERSION
    model.subgraphs = [graph]
    return schema.model_bytes(model)


def with_int8_weights(data: bytes) -> tuple[bytes, list[Truth]]:
    """The file with weights of int8 for int4 where ``AS_INT8`` is right, and the rows that say so.

    Two readers of a tensor both get the new one: the reference computes the same with it.
    """
    from utvm_deploy.frontend.files import tflite_schema as schema  # only in the child process

    model = schema.read_model(data)
    found = []
    int4 = element_type("int4")
    for position, operator in enumerate(model.subgraphs[0].operators):
        tensors = model.subgraphs[0].tensors
        inputs = tuple(schema.numbers(operator.inputs))
        read = [tensors[number] if number >= 0 else None for number in inputs]
        dtypes = tuple("" if one is None else schema.name_of_type(one.type) for one in read)
        node = Node(position, schema.kind_of(model, operator), inputs, (), dtypes, ())
        truth = truth_of(node) if "int4" in dtypes else None
        if truth is None or truth.resolver != AS_INT8:
            continue
        found.append(truth)
        for one in read:
            if one is not None and one.type == schema.INT4:
                packed = np.asarray(model.buffers[one.buffer].data, np.uint8)
                schema.add_constant(model, one, int4.unpacked(packed, schema.numbers(one.shape)))
                one.type = schema.INT8
    return (schema.model_bytes(model) if found else data), found


#: How LiteRT's errors name an operator, behind the cause, which begins with a line of its source.
_PLACE = re.compile(r"Node number (\d+) \((\w+)\)")
_SOURCE = re.compile(r"^\S+\.(?:cc|h):\d+ ")


@dataclass(frozen=True)
class Interpreted:
    """What the interpreter computed."""

    outputs: list[int]
    tensors: Sequence[Tensors]  # of each sample
    truths: list[Truth]  # whose operators the model has
    shadow: Shadow | None = None


class Refused(Exception):
    """LiteRT does not start the file; a line says where it stops, or is empty, and one why."""


def interpret(
    model: Path,
    samples: Sequence[Sequence[Array]],
    *,
    outputs_only: bool = False,
    apart: int = 0,
    with_shadow: bool = False,
) -> Interpreted:
    """Run all samples; ``apart`` is as for ``is_first``.

    ``with_shadow`` compares what each operator made with its float computation.

    Raises Refused for a file that LiteRT does not start.
    """
    data = model.read_bytes()
    with _refusals():
        # LiteRT says what is wrong with a file before it is read here.
        known, lacking = with_known_versions(data, built)
        data, widened = with_int8_weights(data)
        if widened:
            known, lacking = with_known_versions(data, built)
        # Without a kernel of some operators, the reference cannot even list them.
        resolver = DEFAULT_KERNELS if lacking else REFERENCE_KERNELS
        program = Program(data if lacking else known, resolver, keeps_all=not outputs_only)
        others = {node: t for node in program.nodes if (t := truth_of(node))}
        for node in program.nodes:
            if node.kind in lacking and node not in others:
                raise RuntimeError(f"Node number {node.position} ({node.kind}) is unknown")
        split = _Split(data, known, program, others, outputs_only) if others else None
    run = program.run if split is None else split.run
    tensors = run(samples, apart=apart)
    shadow = None
    if with_shadow:
        from utvm_deploy.oracle.shadowing import shadow_of

        shadow = shadow_of(data, program.nodes, tensors)
    truths = list(dict.fromkeys((*widened, *others.values())))
    return Interpreted(program.outputs, tensors, truths, shadow)


@contextmanager
def _refusals() -> Iterator[None]:
    """Refused, with the operator that LiteRT names, for its errors in the block."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if not str(error):
            raise MemoryError("LiteRT says no reason; it may need more memory") from error
        where, why = "", str(error)
        if found := _PLACE.search(why):
            where, why = f"operator {found[1]} ({found[2]})", why[: found.start()]
        elif found := LACKED.search(why):
            where, why = f"{found[1]} of version {found[2]}", ""
        why = last_words(RuntimeError(_SOURCE.sub("", why)))
        raise Refused(f"{where}\n{why}") from error


class _Split:
    """A model whose operators ``others`` are computed by other kernels.

    ``known`` is the file of which the reference runs the rest.
    """

    def __init__(
        self,
        data: bytes,
        known: bytes,
        program: Program,
        others: Mapping[Node, Truth],
        outputs_only: bool,
    ) -> None:
        self._program = program
        self._made = [number for node in others for number in node.outputs]
        self._alone = [_Alone(data, program, node, truth) for node, truth in others.items()]
        read = [n for node in others for n in node.inputs if n in program.computed]
        only = [*program.inputs, *program.outputs, *read] if outputs_only else None
        rest = without_operators(known, {node.position for node in others}, self._made)
        self._rest = Program(rest, only=only)

    def run(self, samples: Sequence[Sequence[Array]], *, apart: int) -> list[Tensors]:
        """As ``Program.run``."""
        found = [[self._program.empty(number) for number in self._made] for _ in samples]
        while True:
            given = [[*sample, *arrays] for sample, arrays in zip(samples, found, strict=True)]
            tensors = self._rest.run(given, apart=apart)
            before, found = found, self._computed(tensors, apart=apart)
            if all(map(_are_equal, before, found)):
                return tensors

    def _computed(self, tensors: Sequence[Tensors], *, apart: int) -> list[list[Array]]:
        """The outputs of the others for each sample."""
        made = []
        for position, sample in enumerate(tensors):
            if is_first(position, apart):
                for one in self._alone:
                    one.restart()
            made.append([array for one in self._alone for array in one.run(sample)])
        return made


class _Alone:
    """An operator by the kernels that are right."""

    def __init__(self, data: bytes, program: Program, node: Node, truth: Truth) -> None:
        self._node = node
        self._micro = (
            _MICRO[truth.kind](data, program, node) if truth.resolver == OF_MICRO else None
        )
        if self._micro is not None:
            return
        rest = {one.position for one in program.nodes} - {node.position}
        further = [n for n in node.inputs if n in program.computed and n not in program.inputs]
        cut, resolver = without_operators(data, rest, further), truth.resolver
        if resolver == AS_DENSE:
            cut, resolver = as_dense(cut), REFERENCE_KERNELS
        self._single = Program(cut, resolver, only=node.outputs)

    def restart(self) -> None:
        """Begin with an empty state."""
        if self._micro is not None:
            self._micro.restart()

    def run(self, tensors: Tensors) -> list[Array]:
        """Its outputs, given what the reference computed."""
        if self._micro is not None:
            return [self._micro.step(tensors[self._node.inputs[0]])]
        made = self._single.one([tensors[number] for number in self._single.inputs])
        return [made[number] for number in self._node.outputs]


def _svdf(data: bytes, program: Program, node: Node) -> MicroSvdf:
    x, features, times, bias, state = node.inputs
    known = program.quantized
    return MicroSvdf(
        x=known(x),
        features=program.constant(features),
        times=program.constant(times),
        bias=program.value(bias) if bias >= 0 else None,
        state=known(state),
        output=known(node.outputs[0]),
    )


def _lstm(data: bytes, program: Program, node: Node) -> MicroLstm:
    from utvm_deploy.frontend.files import tflite_schema as schema  # only in the child process

    known, inputs = program.quantized, node.inputs
    options = schema.read_model(data).subgraphs[0].operators[node.position].builtinOptions
    constant = program.constant
    gates = [
        Gate(constant(inputs[1 + g]), constant(inputs[5 + g]), program.value(inputs[12 + g]))
        for g in range(4)
    ]
    return MicroLstm(
        known(inputs[0]),
        gates,
        known(inputs[18]),
        known(inputs[19]),
        time_major=options.timeMajor,
        cell_clip=options.cellClip,
    )


#: The operators whose right bytes TFLite Micro's formula makes.
_MICRO: Mapping[str, Callable[[bytes, Program, Node], MicroSvdf | MicroLstm]] = {
    "SVDF": _svdf,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
}


def _are_equal(left: Sequence[Array], right: Sequence[Array]) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(left, right, strict=True))
