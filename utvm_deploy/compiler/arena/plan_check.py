"""Whether a plan of the arena keeps every value as long as it is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from utvm_deploy.base.errors import CompileError
from utvm_deploy.compiler.arena.lifetimes import neighbours
from utvm_deploy.compiler.arena.overlap import overlap_of
from utvm_deploy.compiler.arena.steps import Step, View
from utvm_deploy.graph.model import Graph
from utvm_deploy.kernels.contract.lag import Lag


def verify_sharing(
    graph: Graph, sequence: Sequence[Step | View], offsets: Mapping[int, int]
) -> None:
    """Raise CompileError if a tensor overlaps one that is still needed.

    It checks tensors, not blocks, so it also finds errors in the sharing of bytes. Only a view may
    overlap another tensor, and an output the input that its kernel allows.
    """
    lags: dict[tuple[int, int], tuple[int, Lag]] = {}
    # A view holds no value, but those of its source or of its parts.
    values: dict[int, tuple[int, ...]] = {tensor: (tensor,) for tensor in offsets}
    there = (*graph.inputs, *(found for found, _ in graph.states))
    first = {tensor: -1 for tensor in there if graph.tensors[tensor].has_place}
    last = dict(first)
    # Tensor -> where reads of it begin and end, in bytes from its start, and the step.
    reads: dict[int, list[tuple[int, int, int]]] = {}
    allowed: set[tuple[int, int, int]] = set()
    step = 0
    for item in sequence:
        if isinstance(item, View):
            if offsets[item.result] != offsets[item.source] + item.offset:
                raise CompileError(
                    f"the arena plan puts {graph.tensors[item.result].name} at a wrong offset; "
                    "this is a bug in the planner"
                )
            others = values[item.result] if values[item.result] != (item.result,) else ()
            values[item.result] = (*others, *values[item.source])
            continue
        for tensor in item.operator.outputs:
            first[tensor] = last[tensor] = step
        for used in (number for number in item.operator.inputs if number is not None):
            for held in values.get(used, ()):
                last[held] = step
                start = offsets[used] - offsets[held]
                reads.setdefault(held, []).append(
                    (start, start + graph.tensors[used].size_bytes, step)
                )
        allowed |= {
            (result, held, offsets[source])
            for result, source in item.call.in_place
            for held in values.get(source, ())  # a constant is not in the arena
        }
        overlap = overlap_of(graph, item.call)
        if overlap is not None and overlap.source in values:
            place = offsets[overlap.source], overlap.lag
            lags |= {(overlap.result, held): place for held in values[overlap.source]}
        step += 1
    for tensor in (*graph.outputs, *(left for _, left in graph.states)):
        for held in values[tensor]:
            last[held] = step
            reads.setdefault(held, []).append((0, graph.tensors[held].size_bytes, step))
    sizes = {tensor: graph.tensors[tensor].size_bytes for tensor in first}
    tensors = list(first)
    alive_together = neighbours([(first[tensor], last[tensor]) for tensor in tensors])
    for later, positions in zip(tensors, alive_together, strict=True):
        for earlier in (tensors[position] for position in positions):
            if first[earlier] > first[later]:
                continue
            start, other = offsets[later], offsets[earlier]
            if start >= other + sizes[earlier] or other >= start + sizes[later]:
                continue
            low, high = start - other, start - other + sizes[later]
            read = [s for begin, end, s in reads.get(earlier, ()) if begin < high and low < end]
            if max(read, default=first[earlier]) < first[later]:
                continue  # nobody reads these bytes any more
            handed_over = last[earlier] == first[later]
            lag = lags.get((later, earlier))
            may_follow = lag is not None and _keeps(lag[0] - start, lag[1])
            if not (handed_over and (may_follow or (later, earlier, start) in allowed)):
                raise CompileError(
                    f"the arena plan puts {graph.tensors[later].name} onto "
                    f"{graph.tensors[earlier].name}, which is still needed; "
                    "this is a bug in the planner"
                )


def _keeps(distance: int, lag: Lag) -> bool:
    return distance >= lag.least_bytes and distance % lag.unit_bytes == 0
