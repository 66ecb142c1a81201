"""What a model holds, for ``utvm inspect``: facts only; ``graph_picture`` draws them."""

from __future__ import annotations

from dataclasses import dataclass

from utvm_deploy.bench.graph_picture import describe, graph_svg
from utvm_deploy.graph.macs import macs
from utvm_deploy.graph.model import Graph, Operator, Tensor

__all__ = ["Inspection", "OperatorFacts", "TensorFacts", "graph_svg", "inspect_model"]


@dataclass(frozen=True)
class TensorFacts:
    """A tensor without its data."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
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
    macs: int
    weights_bytes: int
    live_bytes: int  # activations that must be in RAM while it runs


@dataclass(frozen=True)
class Inspection:
    """A model: what goes in and out, its operators in order, and its totals."""

    name: str
    digest: str  # SHA-256 of the file
    inputs: tuple[TensorFacts, ...]
    outputs: tuple[TensorFacts, ...]
    operators: tuple[OperatorFacts, ...]
    kinds: dict[str, int]  # operators of each kind
    macs: int
    weights_bytes: int  # all constants, each once
    # The most that is live at once, by lifetime: no arena can be smaller without in-place kernels.
    peak_activation_bytes: int
    peak_operator: int  # position in ``operators`` where that is


def inspect_model(graph: Graph) -> Inspection:
    """Collect the facts about a graph."""
    live = _live_bytes(graph)
    operators = tuple(
        _operator_facts(graph, operator, live[position])
        for position, operator in enumerate(graph.operators)
    )
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
        macs=sum(o.macs for o in operators),
        weights_bytes=sum(t.size_bytes for t in graph.tensors if t.data is not None),
        peak_activation_bytes=live[peak] if live else 0,
        peak_operator=peak,
    )


def _live_bytes(graph: Graph) -> list[int]:
    """For each operator, the bytes of all activations made by then and still needed."""
    first = dict.fromkeys(graph.inputs, 0)
    last = dict.fromkeys(graph.inputs, 0)
    for position, operator in enumerate(graph.operators):
        for number in operator.outputs:
            first[number] = last[number] = position
        for number in (i for i in operator.inputs if i in first):
            assert number is not None
            last[number] = position
    for number in graph.outputs:
        last[number] = len(graph.operators) - 1
    return [
        sum(graph.tensors[n].size_bytes for n in first if first[n] <= position <= last[n])
        for position in range(len(graph.operators))
    ]


def _operator_facts(graph: Graph, operator: Operator, live_bytes: int) -> OperatorFacts:
    inputs = [graph.tensors[i] for i in operator.inputs if i is not None]
    outputs = [graph.tensors[i] for i in operator.outputs]
    clamp = getattr(operator.attributes, "clamp", None)
    return OperatorFacts(
        index=operator.sources[0],
        kind=operator.kind,
        detail=describe(graph, operator),
        name=outputs[0].name,
        inputs=tuple(_tensor_facts(t) for t in inputs),
        outputs=tuple(_tensor_facts(t) for t in outputs),
        clamp=None if clamp == (-128, 127) else clamp,
        macs=macs(graph, operator),
        weights_bytes=sum(t.size_bytes for t in inputs if t.data is not None),
        live_bytes=live_bytes,
    )


def _tensor_facts(tensor: Tensor) -> TensorFacts:
    q = tensor.quantization
    return TensorFacts(
        name=tensor.name,
        shape=tensor.shape,
        dtype=tensor.dtype,
        bytes=tensor.size_bytes,
        is_constant=tensor.data is not None,
        scale=min(q.scales) if q else None,
        scale_max=max(q.scales) if q else None,
        zero_point=q.zero_points[0] if q else None,
        scales=len(q.scales) if q else 0,
        source=tensor.source,
    )
