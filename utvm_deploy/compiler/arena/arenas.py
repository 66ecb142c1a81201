"""The sizes of arenas that a sequence takes, with one set of kernels after another.

Kernels differ in their scratch, and in how far an output may replace its input. Everything else
that a placement depends on is found once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from utvm_deploy.compiler.arena.placement import (
    Block,
    Handover,
    Pair,
    Placement,
    Placer,
    live_bytes,
)
from utvm_deploy.compiler.arena.shared_bytes import BUFFER_ALIGNMENT, Groups
from utvm_deploy.compiler.arena.steps import Step, View
from utvm_deploy.compiler.row_state import with_row_state
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.strips.input_rows import comes_in_rows


class Layout:
    """The blocks of a sequence's tensors. Those of operators in place are merged, if they may be.

    It is right for all kernels that may work in place in the same steps.
    """

    def __init__(
        self, graph: Graph, sequence: Sequence[Step | View], *, may_merge: bool = True
    ) -> None:
        self.graph = graph
        self.groups = Groups(graph, sequence)
        self.is_in_place = may_merge and self.groups.merge_in_place(sequence)
        blocks = self.groups.blocks()
        self.blocks = tuple(blocks.values())
        #: Root of a set of tensors -> the position of its block.
        self.places = {root: place for place, root in enumerate(blocks)}
        self._count = sum(isinstance(item, Step) for item in sequence)
        self._known: dict[int, tuple[Step, Handover | None]] = {}

    def handover(self, index: int, step: Step) -> Handover | None:
        """Which block may replace which in a step with this kernel."""
        # Steps are kept, so that no other one gets the identity of one of them.
        if id(step) not in self._known:
            self._known[id(step)] = step, self.groups.handover(index, step, self.places)
        return self._known[id(step)][1]

    def handovers(self, steps: Sequence[Step]) -> tuple[Handover, ...]:
        """Which blocks may replace which."""
        made = (self.handover(index, step) for index, step in enumerate(steps))
        return tuple(one for one in made if one is not None)

    def needed(self, index: int, step: Step) -> int:
        """The bytes that a step needs with this kernel, scratch aside."""
        handover = self.handover(index, step)
        if handover is None:
            return self._live[index]
        blocks = self.blocks[handover.source], self.blocks[handover.result]
        return self._live[index] - handover.saved_bytes(*blocks)

    def least_bytes(self, steps: Sequence[Step]) -> int:
        """The most bytes that are needed at once: no placement is smaller."""
        return max(
            (self.needed(i, step) + sum(step.scratch_bytes) for i, step in enumerate(steps)),
            default=0,
        )

    def place_below(
        self, steps: Sequence[Step], limit: int | None, enough: int = 0
    ) -> Placement | None:
        """A placement of these steps; None if none is found below ``limit`` bytes.

        The search ends at a placement of ``enough`` bytes.
        """
        least = self.least_bytes(steps)
        if limit is not None and least >= limit:
            return None
        scratch = scratch_blocks(steps)
        pairs = list(self._scratch_pairs(scratch))
        handovers = self.handovers(steps)
        return self._placer.below(scratch, pairs, handovers, limit, max(least, enough))

    @cached_property
    def _live(self) -> list[int]:
        """The bytes of tensors at each step."""
        return live_bytes(range(self._count), self.blocks)

    @cached_property
    def _placer(self) -> Placer:
        return Placer(self.blocks)

    @cached_property
    def _alive(self) -> list[list[tuple[int, int, int]]]:
        """Of each step, the blocks that are alive, and which of their bytes are needed."""
        found: list[list[tuple[int, int, int]]] = [[] for _ in range(self._count)]
        for place, block in enumerate(self.blocks):
            for step in range(max(block.first, 0), min(block.last + 1, self._count)):
                found[step].append((place, *block.needed(step, step)))
        return found

    def _scratch_pairs(self, scratch: Sequence[Block]) -> Iterator[Pair]:
        """The pairs of scratch with all that is alive in its step."""
        count = len(self.blocks)
        of_step: dict[int, list[int]] = {}
        for place, block in enumerate(scratch, count):
            for other, low, high in self._alive[block.first]:
                yield place, other, 0, block.size_bytes, low, high
            for other in of_step.get(block.first, ()):
                yield place, other, 0, block.size_bytes, 0, scratch[other - count].size_bytes
            of_step.setdefault(block.first, []).append(place)


def scratch_blocks(steps: Sequence[Step]) -> list[Block]:
    """A block for each piece of scratch."""
    return [
        Block(f"scratch {i}.{j} of {step.operator.kind}", size, i, i, BUFFER_ALIGNMENT)
        for i, step in enumerate(steps)
        for j, size in enumerate(step.scratch_bytes)
    ]


class Arenas:
    """How large the arena of a sequence is with one kernel or another.

    These placements are not verified; ``plan_arena`` makes the one that the model gets.
    """

    def __init__(self, graph: Graph, sequence: Sequence[Step | View]) -> None:
        self._graph, self._sequence = graph, sequence
        self._layouts: dict[tuple[object, ...], Layout] = {}
        self._steps = _steps_of(sequence)

    @cached_property
    def _own(self) -> Layout:
        return self._layout(self._steps)

    @cached_property
    def _apart(self) -> Layout:
        return Layout(self._graph, self._sequence, may_merge=False)

    def needed(self, index: int, step: Step) -> int:
        """The bytes that a step needs with this kernel, scratch aside.

        Others have the kernels of the sequence.
        """
        if step.call.in_place == self._steps[index].call.in_place:
            return self._own.needed(index, step)
        return self._layout([*self._steps[:index], step, *self._steps[index + 1 :]]).needed(
            index, step
        )

    def least_bytes(self, steps: Sequence[Step]) -> int:
        """The arena with these kernels has at least these bytes."""
        layouts = self._layout(steps), self._apart
        return min(layout.least_bytes(steps) for layout in layouts)

    def bytes(self, steps: Sequence[Step], enough: int = 0) -> int:
        """The arena with these kernels; one of ``enough`` bytes need not be the smallest."""
        size = self.bytes_below(None, steps, enough)
        assert size is not None, "without a limit, there is a placement"
        return size

    def bytes_below(self, limit: int | None, steps: Sequence[Step], enough: int = 0) -> int | None:
        """The same if it takes less than ``limit`` bytes, else None, which is found sooner."""
        layout, enough = self._layout(steps), enough - with_row_state(self._graph, 0)
        # The state of rows is added to a rounded size.
        most = None if comes_in_rows(self._graph) else limit
        found = layout.place_below(steps, most, enough)
        size = most if found is None else found.arena_bytes
        if layout.is_in_place and (size is None or size > enough):
            apart = self._apart.place_below(steps, size)
            found = found if apart is None else apart
        if found is None:
            return None
        size = with_row_state(self._graph, found.arena_bytes)
        return size if limit is None or size < limit else None

    def _layout(self, steps: Sequence[Step]) -> Layout:
        """The layout for kernels that may work in place in the same steps."""
        key = tuple(step.call.in_place for step in steps)
        if key not in self._layouts:
            self._layouts[key] = Layout(self._graph, refilled(self._sequence, steps))
        return self._layouts[key]


def arena_bytes(graph: Graph, sequence: Sequence[Step | View], enough: int = 0) -> int:
    """The arena that a sequence takes; one of ``enough`` bytes need not be the smallest."""
    return Arenas(graph, sequence).bytes(_steps_of(sequence), enough)


def least_bytes(graph: Graph, sequence: Sequence[Step | View]) -> int:
    """The arena that a sequence takes has at least these bytes."""
    return Arenas(graph, sequence).least_bytes(_steps_of(sequence))


def _steps_of(sequence: Sequence[Step | View]) -> list[Step]:
    return [item for item in sequence if isinstance(item, Step)]


def refilled(sequence: Sequence[Step | View], steps: Sequence[Step]) -> tuple[Step | View, ...]:
    """The sequence with other steps."""
    rest = iter(steps)
    return tuple(next(rest) if isinstance(item, Step) else item for item in sequence)
