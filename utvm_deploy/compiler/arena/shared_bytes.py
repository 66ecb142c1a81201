"""Which tensors share bytes: a view and its source, and those of operators that work in place."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from utvm_deploy.base.errors import CompileError
from utvm_deploy.compiler.arena.overlap import overlap_of
from utvm_deploy.compiler.arena.placement import Block, Handover, Part
from utvm_deploy.compiler.arena.steps import Step, View
from utvm_deploy.graph.model import Graph, Operator

#: Every buffer in the arena starts at a multiple of this, so that every load instruction may start
#: there. That costs the four MLPerf Tiny models no memory.
BUFFER_ALIGNMENT = 16


class Groups:
    """Sets of tensors that share bytes, and each set's lifetime in steps."""

    def __init__(self, graph: Graph, sequence: Sequence[Step | View]) -> None:
        self._graph = graph
        self._parent: dict[int, int] = {}
        self._place: dict[int, int] = {}  # in bytes from the parent's start
        self._bounds: dict[int, tuple[int, int]] = {}  # of a set, from its root's start
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}
        # Tensor, step, and whether it is written: of a graph with layers in strips.
        self._accesses: list[tuple[int, int, bool]] = []
        self._has_strips = any(tensor.rows is not None for tensor in graph.tensors)
        for tensor in (*graph.inputs, *(found for found, _ in graph.states)):
            self._touch_all([tensor], -1, is_written=True)
        step = 0
        for item in sequence:
            if isinstance(item, View):
                self._touch(item.result, self._first[self.root(item.source)])
                self._join(item.source, item.result, item.offset)
                continue
            self._touch_all(item.operator.inputs, step)
            self._touch_all(item.operator.outputs, step, is_written=True)
            step += 1
        self._touch_all(graph.outputs, step)
        for found, left in graph.states:
            # Kept between runs: nothing else may ever be there.
            self._touch(found, step)
            self._touch(left, step)
            self._join(found, left)
        if graph.training is not None:
            self._join_blob([found for found, _ in graph.states[: graph.training.blob]])

    def _join_blob(self, states: Sequence[int]) -> None:
        """Put states one after the other, each of them aligned."""
        offset = 0
        for state in states:
            self._join(states[0], state, offset)
            size = self._graph.tensors[state].size_bytes
            offset += -(-size // BUFFER_ALIGNMENT) * BUFFER_ALIGNMENT

    def root(self, tensor: int) -> int:
        """The tensor that stands for the set."""
        while self._parent[tensor] != tensor:
            tensor = self._parent[tensor]
        return tensor

    def inside(self, tensor: int) -> int:
        """Where a tensor begins in its set's block."""
        return self._from_root(tensor) - self._bounds[self.root(tensor)][0]

    def members(self) -> list[int]:
        """All tensors that have a place in the arena."""
        return sorted(self._parent)

    def blocks(self) -> dict[int, Block]:
        """One block for each set, by its root."""
        roots = dict.fromkeys(self.root(tensor) for tensor in self.members())
        parts = self._parts()
        return {
            root: Block(
                self._graph.tensors[root].name,
                end - start,
                self._first[root],
                self._last[root],
                BUFFER_ALIGNMENT,
                parts.get(root, ()),
            )
            for root, (start, end) in ((i, self._bounds[i]) for i in roots)
        }

    def handover(self, position: int, step: Step, places: Mapping[int, int]) -> Handover | None:
        """Which block may replace which in a step; ``places`` are those of the roots."""
        overlap = overlap_of(self._graph, step.call)
        if overlap is None:
            return None
        source, result = self.root(overlap.source), self.root(overlap.result)
        if source == result or (self._last[source], self._first[result]) != (position,) * 2:
            return None
        inside = self.inside(overlap.result) - self.inside(overlap.source)
        grain = math.lcm(overlap.lag.unit_bytes, BUFFER_ALIGNMENT)
        is_exact = overlap.lag.unit_bytes > 1
        least = max(overlap.lag.least_bytes, 0) if is_exact else overlap.lag.least_bytes
        # Of the tensors, then of the blocks, whose tensors all begin aligned.
        lag = -(-least // grain) * grain + inside
        if lag % BUFFER_ALIGNMENT:
            return None
        return Handover(places[source], places[result], lag, is_exact)

    def merge_in_place(self, sequence: Iterable[Step | View]) -> bool:
        """Put outputs onto inputs that die there, wherever the kernel allows it.

        Returns whether there was any.
        """
        is_shared = False
        steps = (item for item in sequence if isinstance(item, Step))
        for position, step in enumerate(steps):
            merged: set[int] = set()
            for result, source in step.call.in_place:
                # Merging a result twice would put both sources into the same bytes.
                if result not in merged and self._may_overwrite(
                    step.operator, position, source, result
                ):
                    self._join(source, result)
                    merged.add(result)
                    is_shared = True
        return is_shared

    def _may_overwrite(self, operator: Operator, step: int, source: int, result: int) -> bool:
        if source not in self._parent:
            return False  # a constant
        root = self.root(source)
        others = [i for i in operator.inputs if i in self._parent and i != source]
        return (
            self._last[root] == step
            and self._first[root] < step
            and self.root(result) != root
            # The state that a run reads may be needed until the result is made.
            and all(self.root(found) != self.root(result) for found, _ in self._graph.states)
            and self._graph.tensors[result].size_bytes <= self._graph.tensors[source].size_bytes
            and self._fits(source, result, step)
            # A second input in the same bytes may be read in another order.
            and all(self.root(i) != root for i in others if i is not None)
            # A second output may have taken the same input.
            and all(i == result or self.root(i) != root for i in operator.outputs)
        )

    def _fits(self, source: int, result: int, step: int) -> bool:
        """Whether the tensors that share bytes with one of them never conflict with those of the
        other."""

        def is_within(tensor: int, other: int) -> bool:
            start, end = (end - self._from_root(tensor) for end in self._bounds[self.root(tensor)])
            return start >= 0 and end <= self._graph.tensors[other].size_bytes

        is_new = self._first[self.root(result)] >= step
        return (is_new and is_within(result, source)) or is_within(source, result)

    def _from_root(self, tensor: int) -> int:
        place = 0
        while self._parent[tensor] != tensor:
            place += self._place[tensor]
            tensor = self._parent[tensor]
        return place

    def _touch_all(
        self, tensors: Iterable[int | None], step: int, *, is_written: bool = False
    ) -> None:
        for tensor in tensors:
            if tensor is not None and self._graph.tensors[tensor].has_place:
                self._touch(tensor, step)
                if self._has_strips:
                    self._accesses.append((tensor, step, is_written))

    def _parts(self) -> dict[int, tuple[Part, ...]]:
        """Root -> the parts of its block, where rows are needed for different times."""
        if not self._has_strips:
            return {}
        accesses: dict[int, list[tuple[int, int, int, bool]]] = {}
        for tensor, step, is_written in self._accesses:
            start = self.inside(tensor)
            end = start + self._graph.tensors[tensor].size_bytes
            accesses.setdefault(self.root(tensor), []).append((start, end, step, is_written))
        kept = {self.root(tensor) for pair in self._graph.states for tensor in pair}
        return {root: _parts_of(some) for root, some in accesses.items() if root not in kept}

    def _touch(self, tensor: int, step: int) -> None:
        if tensor not in self._parent:
            self._parent[tensor] = tensor
            self._first[tensor] = self._last[tensor] = step
            self._bounds[tensor] = (0, self._graph.tensors[tensor].size_bytes)
        root = self.root(tensor)
        self._last[root] = max(self._last[root], step)

    def _join(self, source: int, result: int, offset: int = 0) -> None:
        one, other = self.root(source), self.root(result)
        place = self._from_root(source) + offset - self._from_root(result)
        if one == other:
            if place != 0:
                raise CompileError(
                    f"{self._graph.tensors[result].name} cannot be in two places; "
                    "this is a bug in the planner"
                )
            return
        self._parent[other] = one
        self._place[other] = place
        start, end = self._bounds[other]
        self._bounds[one] = (
            min(self._bounds[one][0], start + place),
            max(self._bounds[one][1], end + place),
        )
        self._first[one] = min(self._first[one], self._first[other])
        self._last[one] = max(self._last[one], self._last[other])


def _parts_of(accesses: Sequence[tuple[int, int, int, bool]]) -> tuple[Part, ...]:
    """A block's parts, from (start, end, step, is_written) of each access.

    Without any if all its bytes have one lifetime.
    """
    borders = sorted({border for start, end, _, _ in accesses for border in (start, end)})
    made: list[Part] = []
    for start, end in pairwise(borders):
        steps = [(step, new) for low, high, step, new in accesses if low <= start and end <= high]
        if not steps:
            continue
        first, last = min(step for step, new in steps if new), max(step for step, _ in steps)
        if made and (made[-1].end, made[-1].first, made[-1].last) == (start, first, last):
            start = made.pop().start
        made.append(Part(start, end, first, last))
    return tuple(made) if len(made) > 1 else ()
