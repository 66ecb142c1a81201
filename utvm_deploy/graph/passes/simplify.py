"""The rewrites between import and lowering, each of which keeps every output byte.

``PASSES`` is the list; ``simplify`` runs it until nothing changes and verifies the graph after
every pass. A tensor that survives keeps its ``source``, so layers stay comparable with the
oracle; an operator that absorbs another lists both in its ``sources``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from utvm_deploy.graph.attribute_values import Clamp, Limits
from utvm_deploy.graph.attributes import (
    Add,
    Concatenation,
    Convolution,
    FullyConnected,
    Multiply,
    Pad,
    Pool,
    Rearrange,
    Relu,
    Reshape,
    Subtract,
)
from utvm_deploy.graph.check import check_graph, works_in_float
from utvm_deploy.graph.constant_folding import evaluate, fill_of, moves_nothing
from utvm_deploy.graph.model import Array, Graph, Operator, Quantization, Tensor
from utvm_deploy.graph.passes.byte_tables import tabulate_bytes
from utvm_deploy.graph.passes.dead_channels import drop_dead_channels
from utvm_deploy.graph.passes.dilation import fold_dilation, fuse_crop
from utvm_deploy.graph.passes.equal_operators import equal_operators
from utvm_deploy.graph.passes.parallel_dense import join_dense
from utvm_deploy.graph.passes.shifts import shift_states
from utvm_deploy.graph.passes.turned_products import fold_turn
from utvm_deploy.graph.rewrite import (
    changed_operators,
    compacted,
    only_pairs,
    producers,
    renumbered,
)

_log = logging.getLogger(__name__)

_CLAMPING = Convolution | FullyConnected | Pool | Add | Subtract | Multiply | Relu

#: Returns the same object if there is nothing to do.
Pass: TypeAlias = Callable[[Graph], Graph]
#: Gets a pass's name, the graph before it, and the graph after it.
Observer: TypeAlias = Callable[[str, Graph, Graph], None]


def drop_unused(graph: Graph) -> Graph:
    """Drop operators that no model output depends on."""
    needed = set(graph.outputs)
    count = -1
    # A state that a run writes is needed if the next run needs to read it; that may be found later.
    while count != len(needed):
        count = len(needed)
        kept: list[Operator] = []
        for operator in reversed(graph.operators):
            if needed.intersection(operator.outputs):
                needed.update(i for i in operator.inputs if i is not None)
                kept.append(operator)
        needed.update(left for found, left in graph.states if found in needed)
    if len(kept) == len(graph.operators):
        return graph
    return compacted(graph.replaced(operators=tuple(reversed(kept))))


def fold_constants(graph: Graph) -> Graph:
    """Move constants now that operators would move on every run."""
    folded: dict[int, Array] = {}
    gone: set[int] = set()
    for position, operator in enumerate(graph.operators):
        number = operator.outputs[0]
        if number in graph.outputs:
            continue
        found = [
            None if i is None else folded.get(i, graph.tensors[i].data) for i in operator.inputs
        ]
        arrays = [data for data in found if data is not None]
        data = evaluate(graph, operator, arrays) if len(arrays) == len(found) else None
        if data is None:
            continue
        data = np.ascontiguousarray(data)
        data.flags.writeable = False
        folded[number] = data
        gone.add(position)
    if not gone:
        return graph
    tensors = [
        replace(tensor, data=folded[number]) if number in folded else tensor
        for number, tensor in enumerate(graph.tensors)
    ]
    return compacted(changed_operators(graph.replaced(tensors=tuple(tensors)), {}, gone))


def cancel_quantize(graph: Graph) -> Graph:
    """Drop QUANTIZE to the quantization that the tensor has, also if DEQUANTIZE is in between."""
    made = producers(graph)
    bypasses = []
    for position, operator in enumerate(graph.operators):
        if operator.kind != "QUANTIZE" or operator.inputs[0] is None:
            continue
        source = operator.inputs[0]
        if graph.tensors[source].dtype == "float32":
            before = graph.operators[made[source]] if source in made else None
            if before is None or before.kind != "DEQUANTIZE" or before.inputs[0] is None:
                continue
            source = before.inputs[0]
        read, written = graph.tensors[source], graph.tensors[operator.outputs[0]]
        is_equal = (read.dtype, read.quantization) == (written.dtype, written.quantization)
        if is_equal and _survives_float(written):
            bypasses.append((position, source))
    return _bypassed(graph, bypasses)


def rename_reshape(graph: Graph) -> Graph:
    """Call RESHAPE what moves no element, such as a TRANSPOSE of a row to a column."""
    renamed = {}
    for position, operator in enumerate(graph.operators):
        a, source = operator.attributes, operator.inputs[0]
        nothing_moves = (
            (isinstance(a, Reshape) and operator.kind != "RESHAPE")
            or (isinstance(a, Rearrange) and moves_nothing(a))
            or (isinstance(a, Concatenation) and len(operator.inputs) == 1)
            or (isinstance(a, Pad) and not any(map(any, a.paddings)))
        )
        if nothing_moves:
            renamed[position] = replace(
                operator, kind="RESHAPE", inputs=(source,), attributes=Reshape()
            )
    return changed_operators(graph, renamed) if renamed else graph


def collapse_reshape(graph: Graph) -> Graph:
    """Let RESHAPE read what an earlier RESHAPE read, and drop one that changes nothing."""
    made = producers(graph)
    shorter: dict[int, Operator] = {}
    bypasses = []
    for position, operator in enumerate(graph.operators):
        source = operator.inputs[0]
        if operator.kind != "RESHAPE" or source is None:
            continue
        before = made.get(source)
        if before is not None and graph.operators[before].kind == "RESHAPE":
            # Operators are in order, so that one already reads what it will read.
            inputs = shorter.get(before, graph.operators[before]).inputs
            shorter[position] = replace(operator, inputs=inputs)
            continue
        one, other = graph.tensors[source], graph.tensors[operator.outputs[0]]
        if one.shape == other.shape and one.quantization == other.quantization:
            bypasses.append((position, source))
    if shorter:
        return drop_unused(changed_operators(graph, shorter))
    return _bypassed(graph, bypasses)


def share_equal(graph: Graph) -> Graph:
    """Let the readers of an operator's output read that of an earlier, equal operator."""
    return _bypassed(graph, list(equal_operators(graph)))


def fuse_pad(graph: Graph) -> Graph:
    """Let a convolution pad by itself; PAD fills with the zero point, as a convolution does."""
    fused: dict[int, Operator] = {}
    gone: set[int] = set()
    for before, after in only_pairs(graph):
        pad, convolution = graph.operators[before], graph.operators[after]
        a, c = pad.attributes, convolution.attributes
        if not (isinstance(a, Pad) and isinstance(c, Convolution)):
            continue
        (batch, rows, columns, channels) = a.paddings
        if (batch, channels) != ((0, 0), (0, 0)) or not _fills_alike(graph, pad, convolution):
            continue
        top, bottom, left, right = c.padding
        padding = (top + rows[0], bottom + rows[1], left + columns[0], right + columns[1])
        gone.add(before)
        fused[after] = replace(
            convolution,
            inputs=(pad.inputs[0], *convolution.inputs[1:]),
            attributes=replace(c, padding=padding),
            sources=pad.sources + convolution.sources,
        )
    return compacted(changed_operators(graph, fused, gone)) if gone else graph


def _fills_alike(graph: Graph, pad: Operator, convolution: Operator) -> bool:
    """Whether a convolution's own padding has the same result as the values that PAD puts there."""
    if works_in_float(graph, convolution):
        # A convolution skips its padding. That is the same as products with 0 that are all 0.
        assert convolution.inputs[1] is not None
        weights = graph.tensors[convolution.inputs[1]].data
        is_zero = isinstance(pad.attributes, Pad) and not pad.attributes.value
        return is_zero and weights is not None and bool(np.isfinite(weights).all())
    source = _quantization(graph, pad.inputs[0])
    is_kept = source == _quantization(graph, pad.outputs[0])
    return is_kept and fill_of(graph, pad) == source.zero_point


def fuse_relu(graph: Graph) -> Graph:
    """Merge RELU and similar operators that keep the quantization into the clamp of the operator
    before, those of float32 into its limits.

    Requantizing by a factor of exactly one changes no value, so only the clamp remains.
    """
    fused: dict[int, Operator] = {}
    gone: set[int] = set()
    for before, after in only_pairs(graph):
        producer, relu = graph.operators[before], graph.operators[after]
        a, r = producer.attributes, relu.attributes
        # Of several in a row, the next run of the pass fuses the others.
        if before in gone or not isinstance(r, Relu) or not isinstance(a, _CLAMPING):
            continue
        if works_in_float(graph, relu):
            attributes = replace(a, limits=_both_limits(a.limits, r.limits))
        elif _quantization(graph, relu.inputs[0]) != _quantization(graph, relu.outputs[0]):
            continue
        else:
            limits = _both_limits(a.limits, r.limits)
            attributes = replace(a, clamp=_both_clamps(a.clamp, r.clamp), limits=limits)
        gone.add(after)
        fused[before] = replace(
            producer,
            outputs=relu.outputs,
            attributes=attributes,
            sources=producer.sources + relu.sources,
        )
    return compacted(changed_operators(graph, fused, gone)) if gone else graph


#: Name and pass, in the order they run.
PASSES: tuple[tuple[str, Pass], ...] = (
    ("drop_unused", drop_unused),
    ("fold_constants", fold_constants),
    ("cancel_quantize", cancel_quantize),
    ("tabulate_bytes", tabulate_bytes),
    ("rename_reshape", rename_reshape),
    ("collapse_reshape", collapse_reshape),
    ("share_equal", share_equal),
    ("fold_dilation", fold_dilation),
    ("fuse_pad", fuse_pad),
    ("fuse_crop", fuse_crop),
    ("fuse_relu", fuse_relu),
    ("drop_dead_channels", drop_dead_channels),
    ("join_dense", join_dense),
    ("fold_turn", fold_turn),
    ("shift_states", shift_states),
)

#: The passes without the one that joins layers of the file: for libraries, and to compare with them
#: layer by layer.
UNJOINED = tuple(one for one in PASSES if one[1] is not join_dense)
#: Those of them after which each layer has all channels of the file.
CHANNEL_KEEPING = tuple(one for one in UNJOINED if one[1] is not drop_dead_channels)


def simplify(
    graph: Graph,
    passes: Sequence[tuple[str, Pass]] = PASSES,
    *,
    observe: Observer | None = None,
) -> Graph:
    """Run every pass until none changes the graph any more; all output bytes stay the same.

    ``observe`` is called after each run of a pass that changed the graph.
    """
    changed = True
    while changed:
        changed = False
        for name, run in passes:
            simpler, before = run(graph), graph
            while simpler is not graph:
                graph, simpler = simpler, run(simpler)
            if graph is not before:
                # Once for a pass, not for each of its changes: there may be one for each layer.
                check_graph(graph)
                changed = True
                if observe is not None:
                    observe(name, before, graph)
                _log.debug(
                    "%s: %d -> %d operators", name, len(before.operators), len(graph.operators)
                )
    return graph


def _quantization(graph: Graph, number: int | None) -> Quantization:
    assert number is not None
    quantization = graph.tensors[number].quantization
    assert quantization is not None, "check_graph demands it"
    return quantization


def _both_clamps(first: Clamp, second: Clamp) -> Clamp:
    """One clamp that does what two in a row do, also where they do not overlap."""
    low, high = second
    return (min(max(first[0], low), high), min(max(first[1], low), high))


def _both_limits(first: Limits, second: Limits) -> Limits:
    """As ``_both_clamps``, for float32: what is not a number passes both, and -0 passes 0."""
    if first is None or second is None:
        return first or second
    low, high = second
    return (min(max(first[0], low), high), min(max(first[1], low), high))


def _survives_float(tensor: Tensor) -> bool:
    """Whether DEQUANTIZE and then QUANTIZE give every value back; all values are tried."""
    quantization, (low, high) = tensor.quantization, tensor.element.limits
    assert quantization is not None, "check_graph demands it"
    values = np.arange(low, high + 1)
    with np.errstate(over="ignore", invalid="ignore"):
        reals = (quantization.scale * (values - quantization.zero_point)).astype(np.float32)
        steps = reals / np.float32(quantization.scale)
        rounded = np.trunc(steps + np.copysign(np.float32(0.5), steps))
    back = np.clip(rounded + quantization.zero_point, low, high)
    return bool(np.array_equal(back, values))


def _bypassed(graph: Graph, bypasses: Sequence[tuple[int, int]]) -> Graph:
    """The graph without operators (position, source) whose outputs hold the bytes of ``source``.

    An operator stays if both tensors must stay, because both are inputs or outputs of the model. It
    also stays for now if another operator must be bypassed first.
    """
    numbers: dict[int, int] = {}
    kept: set[int] = set()
    gone: set[int] = set()
    border = {*graph.inputs, *graph.outputs}
    for position, source in bypasses:
        output = graph.operators[position].outputs[0]
        if output not in graph.outputs:
            old, new = output, source
        elif source in border or graph.tensors[source].data is not None:
            continue
        else:
            old, new = source, output
        if old in numbers or old in kept or new in numbers:
            continue
        numbers[old] = new
        kept.add(new)
        gone.add(position)
    if not gone:
        return graph
    shorter = changed_operators(graph, {}, gone)
    operators = tuple(renumbered(operator, numbers) for operator in shorter.operators)
    return compacted(drop_unused(shorter.replaced(operators=operators)))
