"""Whether a plan of the arena keeps every value as long as it is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

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
    values = _Values(graph, offsets)
    for item in sequence:
        if isinstance(item, View):
            values.view(item)
        else:
            values.compute(item)
    values.end()
    for later, earlier in values.overlaps():
        if not values.may_overlap(later, earlier):
            raise CompileError(
                f"the arena plan puts {graph.tensors[later].name} onto "
                f"{graph.tensors[earlier].name}, which is still needed; "
                "this is a bug in the planner"
            )


class _Values:
    """When each tensor's bytes are written and read, by the steps that were seen."""

    def __init__(self, graph: Graph, offsets: Mapping[int, int]) -> None:
        self.graph, self.offsets = graph, offsets
        self.step = 0
        # A view holds no value, but those of its source or of its parts.
        self.held: dict[int, tuple[int, ...]] = {tensor: (tensor,) for tensor in offsets}
        there = (*graph.inputs, *graph.found_states)
        self.first = {tensor: -1 for tensor in there if graph.tensors[tensor].has_place}
        self.last = dict(self.first)
        # Tensor -> where reads of it begin and end, in bytes from its start, and the step.
        self.reads: dict[int, list[tuple[int, int, int]]] = {}
        # Output, input, and where the output may begin.
        self.in_place: set[tuple[int, int, int]] = set()
        self.lags: dict[tuple[int, int], tuple[int, Lag]] = {}

    def view(self, item: View) -> None:
        """Let a tensor hold the values of another. Raises CompileError if it is not there."""
        if self.offsets[item.result] != self.offsets[item.source] + item.offset:
            raise CompileError(
                f"the arena plan puts {self.graph.tensors[item.result].name} at a wrong offset; "
                "this is a bug in the planner"
            )
        before = self.held[item.result]
        others = before if before != (item.result,) else ()
        self.held[item.result] = (*others, *self.held[item.source])

    def compute(self, item: Step) -> None:
        """Write the outputs of an operator, and read its inputs."""
        for tensor in item.operator.outputs:
            self.first[tensor] = self.last[tensor] = self.step
        for used in (number for number in item.operator.inputs if number is not None):
            for held in self.held.get(used, ()):
                start = self.offsets[used] - self.offsets[held]
                self._read(held, start, start + self.graph.tensors[used].size_bytes)
        self.in_place |= {
            (result, held, self.offsets[source])
            for result, source in item.call.in_place
            for held in self.held.get(source, ())  # a constant is not in the arena
        }
        overlap = overlap_of(self.graph, item.call)
        if overlap is not None and overlap.source in self.held:
            place = self.offsets[overlap.source], overlap.lag
            self.lags |= {(overlap.result, held): place for held in self.held[overlap.source]}
        self.step += 1

    def end(self) -> None:
        """Read the outputs of the graph, and the states that the next run needs."""
        for tensor in (*self.graph.outputs, *self.graph.left_states):
            for held in self.held[tensor]:
                self._read(held, 0, self._size(held))

    def _read(self, tensor: int, begin: int, end: int) -> None:
        self.last[tensor] = self.step
        self.reads.setdefault(tensor, []).append((begin, end, self.step))

    def _size(self, tensor: int) -> int:
        return self.graph.tensors[tensor].size_bytes

    def overlaps(self) -> Iterator[tuple[int, int]]:
        """The tensors that are there at one time and share bytes, the one that is written later
        first.
        """
        tensors = list(self.first)
        alive_together = neighbours([(self.first[one], self.last[one]) for one in tensors])
        for later, positions in zip(tensors, alive_together, strict=True):
            start = self.offsets[later]
            for earlier in (tensors[position] for position in positions):
                other = self.offsets[earlier]
                is_apart = start >= other + self._size(earlier) or other >= start + self._size(
                    later
                )
                if self.first[earlier] <= self.first[later] and not is_apart:
                    yield later, earlier

    def may_overlap(self, later: int, earlier: int) -> bool:
        """Whether nobody reads the shared bytes any more, or the kernel allows it."""
        start, written = self.offsets[later], self.first[later]
        low = start - self.offsets[earlier]
        high = low + self._size(later)
        read = [s for begin, end, s in self.reads.get(earlier, ()) if begin < high and low < end]
        if max(read, default=self.first[earlier]) < written:
            return True
        lag = self.lags.get((later, earlier))
        may_follow = lag is not None and _keeps(lag[0] - start, lag[1])
        is_handed_over = self.last[earlier] == written
        return is_handed_over and (may_follow or (later, earlier, start) in self.in_place)


def _keeps(distance: int, lag: Lag) -> bool:
    return distance >= lag.least_bytes and distance % lag.unit_bytes == 0
