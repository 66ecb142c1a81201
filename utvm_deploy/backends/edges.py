"""Which operators run after which, and groups of them that one operator can replace."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property

from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.graph.rewrite import consumers, producers


class Edges:
    """Producers, readers and successors of a graph's operators, by their positions."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.makers = producers(graph)
        self.readers = consumers(graph)
        #: What must be there after a run.
        self.kept = frozenset((*graph.outputs, *(n for pair in graph.states for n in pair)))

    @cached_property
    def successors(self) -> tuple[frozenset[int], ...]:
        """For each operator, those that must run after it.

        They read what it makes, or write the state that it reads: both states share their bytes.
        """
        found: list[set[int]] = [set() for _ in self._graph.operators]
        for number, maker in self.makers.items():
            found[maker].update(self.readers.get(number, ()))
        for before, left in self._graph.states:
            writers = {self.makers[left]} if left in self.makers else set()
            for reader in self.readers.get(before, ()):
                found[reader] |= writers - {reader}
        return tuple(map(frozenset, found))

    def is_convex(self, group: Collection[int]) -> bool:
        """Whether no operator outside must run after one of the group and before another one."""
        inside = set(group)
        start = {n for one in inside for n in self.successors[one]} - inside
        return not self._reached(start, lambda one: (one,), max(inside)) & inside

    def outputs(self, group: Collection[int]) -> tuple[int, ...]:
        """What a group makes for others: all but the tensors that only its operators read."""
        inside = set(group)
        return tuple(
            number
            for position in sorted(inside)
            for number in self._graph.operators[position].outputs
            if number in self.kept
            or not self.readers.get(number)
            or not inside.issuperset(self.readers[number])
        )

    def merged(self, groups: Iterable[Collection[int]]) -> list[set[int]]:
        """The groups, with neighbours put together where all of them can still be replaced.

        Neighbours are groups of which one reads what the other one makes. Two of them stay apart if
        another operator or group has to run between them. The groups must be convex and disjoint,
        and there must be an order for all of them.
        """
        members = [set(group) for group in groups]
        owner = {position: group for group in members for position in group}
        # Nothing behind this and behind the groups that were merged leads back to one of them.
        last = max((max(group) for group in members if len(group) > 1), default=-1)

        def whole(position: int) -> Collection[int]:
            return owner.get(position, (position,))

        for position in sorted(owner):
            read = self._graph.operators[position].inputs
            sources = {self.makers.get(n, -1) for n in read if n is not None}
            for source in sorted(sources & owner.keys()):
                first, second = owner[source], owner[position]
                if first is second:
                    continue
                start = {n for one in first for n in self.successors[one]} - first - second
                if self._reached(start, whole, max(last, position)) & second:
                    continue
                first |= second
                owner.update(dict.fromkeys(second, first))
        return list({id(group): group for group in owner.values()}.values())

    def _reached(
        self, start: Iterable[int], whole: Callable[[int], Collection[int]], last: int
    ) -> set[int]:
        """All up to ``last`` that must run after ``start``; ``whole`` gives the group of each."""
        seen: set[int] = set()
        waiting = list(start)
        while waiting:
            one = waiting.pop()
            if one in seen or one > last:
                continue
            seen.update(group := whole(one))
            waiting += (n for member in group for n in self.successors[member] if n not in seen)
        return seen

    def replaced(self, groups: Sequence[tuple[Collection[int], Operator]]) -> Graph | None:
        """The graph with an operator for each group; None if there is no order for all of them.

        Operators stay in their order as far as possible; a group runs where its last one did.
        """
        owner = {position: i for i, (group, _) in enumerate(groups) for position in group}
        count = len(self._graph.operators)
        nodes = {p: count + owner[p] if p in owner else p for p in range(count)}
        after: dict[int, set[int]] = {node: set() for node in nodes.values()}
        rank = dict.fromkeys(after, 0)
        for position, node in nodes.items():
            rank[node] = position
            after[node] |= {nodes[one] for one in self.successors[position]} - {node}
        waits = dict.fromkeys(after, 0)
        for one in (one for several in after.values() for one in several):
            waits[one] += 1
        ready = [(rank[node], node) for node, number in waits.items() if not number]
        heapq.heapify(ready)
        order: list[int] = []
        while ready:
            _, node = heapq.heappop(ready)
            order.append(node)
            for one in after[node]:
                waits[one] -= 1
                if not waits[one]:
                    heapq.heappush(ready, (rank[one], one))
        if len(order) != len(after):
            return None
        own = self._graph.operators
        operators = (groups[n - count][1] if n >= count else own[n] for n in order)
        return self._graph.replaced(operators=tuple(operators))
