"""What a model holds, for ``utvm inspect``: facts only; ``graph_picture`` draws them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.base.readable import counted
from utvm_deploy.base.results import one_line
from utvm_deploy.frontend.survey import Survey
from utvm_deploy.graph.attribute_values import NO_CLAMP
from utvm_deploy.graph.element_type import ELEMENT_TYPES
from utvm_deploy.graph.liveness import live_bytes
from utvm_deploy.graph.macs import macs
from utvm_deploy.graph.model import Array, Graph, Operator, Tensor
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.contract.call import ConstantArgument
from utvm_deploy.kernels.contract.format_kernel import format_kernel_of
from utvm_deploy.kernels.native.sparse.layer import packable
from utvm_deploy.kernels.native.sparse.packing import LEAST_SAVED, pruned_bytes, smallest
from utvm_deploy.results.inspecting.graph_picture import describe, graph_svg
from utvm_deploy.results.inspecting.islands import (
    FloatIsland,
    float_islands,
    float_operations,
    island_numbers,
)
from utvm_deploy.results.inspecting.quantizable import Quantizable

__all__ = [
    "Inspection",
    "OperatorFacts",
    "TensorFacts",
    "graph_svg",
    "inspect_model",
    "inspect_refused",
    "with_problems",
]

#: The share of zeros that ``Pruning`` speaks of.
PRUNED = 0.9


@dataclass(frozen=True)
class TensorFacts:
    """A tensor without its data."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int | None  # None of a type without a fixed size
    is_constant: bool
    # The quantization; of per-channel scales the smallest and the largest.
    scale: float | None
    scale_max: float | None
    zero_point: int | None
    scales: int  # 0: not quantized, 1: per tensor, more: per channel
    source: int | None  # position in the file


@dataclass(frozen=True)
class OperatorFacts:
    """An operator, its tensors and its cost."""

    index: int  # position in the file
    kind: str
    detail: str  # window, stride, padding... in a phrase
    name: str  # of the first output
    inputs: tuple[TensorFacts, ...]  # weights and biases too
    outputs: tuple[TensorFacts, ...]
    clamp: tuple[int, int] | None  # of the quantized output; None if there is no activation
    macs: int | None = None  # None, as all that follows, where the model cannot be imported
    weights_bytes: int | None = None
    #: Of an int8 layer whose zeros may be left out: the share of zeros, and the bytes of its packed
    #: weights, or None if they are not packed.
    zeros: float | None = None
    packed_bytes: int | None = None
    live_bytes: int | None = None  # activations that must be in RAM while it runs
    # Of what computes in float32: the number of its island, from 1 on, and its operations.
    float_island: int | None = None
    float_operations: int | None = None
    problem: str | None = None  # why it cannot be compiled, and what to do


@dataclass(frozen=True)
class Pruning:
    """What pruning would bring the layers whose zeros may be left out."""

    layers: int
    weights_bytes: int  # without biases, as they are in the file
    packed_bytes: int  # as they would be compiled today
    zeros: float  # the share of zeros, in blocks of 1x4, after pruning
    pruned_bytes: int  # and what all would take then


@dataclass(frozen=True, repr=False)
class Inspection:
    """A model: what goes in and out, its operators in order, and its totals."""

    name: str
    digest: str  # SHA-256 of the file
    inputs: tuple[TensorFacts, ...]
    outputs: tuple[TensorFacts, ...]
    operators: tuple[OperatorFacts, ...]
    kinds: dict[str, int]  # operators of each kind
    macs: int | None = None  # None, as all that follows, where the model cannot be imported
    weights_bytes: int | None = None  # all constants, each once
    # The most that is live at once, by lifetime: no arena can be smaller without in-place kernels.
    peak_activation_bytes: int | None = None
    peak_operator: int | None = None  # position in ``operators`` where that is
    problems: tuple[str, ...] = ()  # of the model as a whole
    float_islands: tuple[FloatIsland, ...] = ()
    pruning: Pruning | None = None  # None if no weights could be packed
    quantizable: Quantizable | None = None  # of a float model, if somebody asks for it

    __repr__ = one_line

    @property
    def headline(self) -> str:
        """Size and memory, or that it cannot be compiled."""
        count = f"{self.name}: {counted(len(self.operators), 'operator')}"
        if self.peak_activation_bytes is None or not self.ok:
            return f"{count}, cannot be compiled"
        return (
            f"{count}, {self.macs:,} MACs, constants {self.weights_bytes:,} bytes, activations "
            f"{self.peak_activation_bytes:,} bytes live at most"
        )

    @property
    def ok(self) -> bool:
        """Whether nothing is known to be wrong."""
        return not self.problems and not any(o.problem for o in self.operators)


def inspect_model(graph: Graph) -> Inspection:
    """Collect the facts about a graph."""
    live = live_bytes(graph)
    islands = float_islands(graph)
    numbers = island_numbers(islands)
    operators = tuple(
        _operator_facts(graph, operator, live[position], numbers)
        for position, operator in enumerate(graph.operators)
    )
    saved = dict[bytes, int]()
    for operator in graph.operators:
        saved |= _saved_bytes(graph, operator)
    peak = max(range(len(live)), key=live.__getitem__, default=0)
    kinds: dict[str, int] = {}
    for operator in graph.operators:
        kinds[operator.kind] = kinds.get(operator.kind, 0) + 1
    return Inspection(
        name=graph.name,
        digest=graph.digest,
        inputs=tuple(_tensor_facts(graph.tensors[i]) for i in graph.inputs),
        outputs=tuple(_tensor_facts(graph.tensors[i]) for i in graph.outputs),
        operators=operators,
        kinds=kinds,
        macs=sum(o.macs or 0 for o in operators),
        weights_bytes=graph.constants_bytes - sum(saved.values()),
        peak_activation_bytes=live[peak] if live else 0,
        peak_operator=peak,
        float_islands=islands,
        pruning=_pruning(graph),
    )


def _pruning(graph: Graph) -> Pruning | None:
    matrices = [packable(graph, operator) for operator in graph.operators]
    found = [one for one in matrices if one is not None and one.nbytes > LEAST_SAVED]
    if not found:
        return None
    sizes = [_packed_bytes(one) or one.nbytes for one in found]
    pruned = (
        min(size, pruned_bytes(len(one), one.shape[1], PRUNED))
        for one, size in zip(found, sizes, strict=True)
    )
    whole = sum(one.nbytes for one in found)
    return Pruning(len(found), whole, sum(sizes), PRUNED, sum(pruned))


def _packed_bytes(weights: Array) -> int | None:
    found = smallest(weights)
    return None if found is None else found.table_bytes


def inspect_refused(name: str, digest: str, found: Survey) -> Inspection:
    """The facts about a file that cannot be imported."""
    operators = tuple(
        OperatorFacts(
            index=operator.index,
            kind=operator.kind,
            detail="",
            name=operator.outputs[0].name if operator.outputs else "",
            inputs=tuple(map(_tensor_facts, operator.inputs)),
            outputs=tuple(map(_tensor_facts, operator.outputs)),
            clamp=None,
            problem=operator.problem or None,
        )
        for operator in found.operators
    )
    return Inspection(
        name=name,
        digest=digest,
        inputs=tuple(map(_tensor_facts, found.inputs)),
        outputs=tuple(map(_tensor_facts, found.outputs)),
        operators=operators,
        kinds=dict(Counter(operator.kind for operator in operators)),
        problems=found.problems,
    )


def with_problems(found: Inspection, problems: Mapping[int, str]) -> Inspection:
    """The same, with why some operators cannot be compiled, by their position in the file."""
    operators = tuple(
        replace(operator, problem=problems.get(operator.index)) for operator in found.operators
    )
    return replace(found, operators=operators)


def _operator_facts(
    graph: Graph, operator: Operator, live_bytes: int, islands: Mapping[int, int]
) -> OperatorFacts:
    inputs = [graph.tensors[i] for i in operator.inputs if i is not None]
    outputs = [graph.tensors[i] for i in operator.outputs]
    clamp = getattr(operator.attributes, "clamp", None)
    if clamp == NO_CLAMP:
        clamp = None
    weights = packable(graph, operator)
    return OperatorFacts(
        index=operator.sources[0],
        kind=operator.kind,
        detail=describe(graph, operator),
        name=outputs[0].name,
        inputs=tuple(_tensor_facts(t) for t in inputs),
        outputs=tuple(_tensor_facts(t) for t in outputs),
        clamp=None if clamp in ((-128, 127), (-32768, 32767)) else clamp,
        macs=macs(graph, operator),
        weights_bytes=sum(t.size_bytes for t in inputs if t.data is not None)
        - sum(_saved_bytes(graph, operator).values()),
        zeros=None if weights is None else float(np.mean(weights == 0)),
        packed_bytes=None if weights is None else _packed_bytes(weights),
        live_bytes=live_bytes,
        float_island=islands.get(operator.sources[0]),
        float_operations=float_operations(graph, operator)
        if operator.sources[0] in islands
        else None,
    )


def _saved_bytes(graph: Graph, operator: Operator) -> Mapping[bytes, int]:
    """How much smaller tables are as numbers of a format, by their bytes."""
    own, tables = graph.number_format, list[Array]()
    if own is not None and own.computes:
        constants = (graph.tensors[i] for i in operator.inputs if i is not None)
        tables = [
            own.encoded(one.data)
            for one in constants
            if one.data is not None and one.dtype == "float32"
        ]
    elif own is not None:
        with suppress(UtvmError):  # the operator's ``problem`` says why
            call = lower(graph, operator)
            kernel = format_kernel_of(call.kernel)
            numbers = [] if kernel is None else [call.arguments[n] for n in kernel.numbers]
            tables = [one.data for one in numbers if isinstance(one, ConstantArgument)]
    return {one.tobytes(): 4 * one.size - one.nbytes for one in tables}


def _tensor_facts(tensor: Tensor) -> TensorFacts:
    q = tensor.quantization
    return TensorFacts(
        name=tensor.name,
        shape=tensor.shape,
        dtype=tensor.dtype,
        bytes=tensor.size_bytes if tensor.dtype in ELEMENT_TYPES else None,
        is_constant=tensor.data is not None,
        scale=min(q.scales) if q else None,
        scale_max=max(q.scales) if q else None,
        zero_point=q.zero_points[0] if q else None,
        scales=len(q.scales) if q else 0,
        source=tensor.source,
    )
