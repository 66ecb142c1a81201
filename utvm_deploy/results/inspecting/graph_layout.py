"""Places the nodes of a directed acyclic graph in rows, top to bottom.

This is the layered method in its simplest form. A node's row is its longest path from a source. An
edge over several rows gets an invisible waypoint in each row that it crosses. Rows are sorted by
the positions of their neighbours. Columns are then pulled to their neighbours as far as the row
allows.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# More sweeps change nothing that the eye sees.
_ORDER_SWEEPS = 8
_COLUMN_SWEEPS = 24
_STRAIGHTEN_SWEEPS = 16
# Waypoints take less room than nodes.
_WAYPOINT_WIDTH = 0.35
# An edge into a waypoint bends anyway; one between nodes should be straight.
_STRAIGHT_WEIGHT = 8.0


@dataclass(frozen=True)
class Layout:
    """Places in units of one node's width and one row."""

    columns: tuple[float, ...]  # of each node's middle
    rows: tuple[int, ...]
    # (column, row) of the waypoints of each edge, top to bottom.
    waypoints: Mapping[tuple[int, int], tuple[tuple[float, int], ...]]
    width: float
    height: int


def lay_out(count: int, edges: Sequence[tuple[int, int]]) -> Layout:
    """Place nodes 0 to ``count`` - 1; an edge goes from a lower number to a higher one."""
    rows = [0] * count
    for start, end in sorted(edges, key=lambda edge: edge[1]):
        rows[end] = max(rows[end], rows[start] + 1)
    links, chains, all_rows = _with_waypoints(rows, sorted(set(edges)))
    neighbours = _neighbours(len(all_rows), links)
    order = _ordered(all_rows, neighbours)
    columns = _columns(order, neighbours, count)
    left = min((c - _half(n, count) for n, c in enumerate(columns)), default=0.0)
    right = max((c + _half(n, count) for n, c in enumerate(columns)), default=0.0)
    columns = [c - left for c in columns]
    return Layout(
        columns=tuple(columns[:count]),
        rows=tuple(rows),
        waypoints={
            edge: tuple((columns[n], all_rows[n]) for n in chain) for edge, chain in chains.items()
        },
        width=right - left,
        height=max(rows, default=-1) + 1,
    )


def _half(node: int, count: int) -> float:
    return 0.5 if node < count else _WAYPOINT_WIDTH / 2


def _with_waypoints(
    rows: Sequence[int], edges: Sequence[tuple[int, int]]
) -> tuple[list[tuple[int, int]], dict[tuple[int, int], list[int]], list[int]]:
    """Links between adjacent rows, the waypoints of every edge, and the rows of all of them."""
    all_rows = list(rows)
    links: list[tuple[int, int]] = []
    chains: dict[tuple[int, int], list[int]] = {}
    for start, end in edges:
        chain = []
        for row in range(rows[start] + 1, rows[end]):
            chain.append(len(all_rows))
            all_rows.append(row)
        stops = [start, *chain, end]
        links += itertools.pairwise(stops)
        chains[start, end] = chain
    return links, chains, all_rows


def _neighbours(count: int, links: Sequence[tuple[int, int]]) -> list[tuple[list[int], list[int]]]:
    """(above, below) of every node."""
    found: list[tuple[list[int], list[int]]] = [([], []) for _ in range(count)]
    for start, end in links:
        found[start][1].append(end)
        found[end][0].append(start)
    return found


def _ordered(
    rows: Sequence[int], neighbours: Sequence[tuple[list[int], list[int]]]
) -> list[list[int]]:
    """The nodes of each row from left to right, with few crossings."""
    order: list[list[int]] = [[] for _ in range(max(rows, default=-1) + 1)]
    for node, row in enumerate(rows):
        order[row].append(node)
    place = {node: float(i) for nodes in order for i, node in enumerate(nodes)}
    for sweep in range(_ORDER_SWEEPS):
        side = sweep % 2  # down by what is above, then up by what is below
        for nodes in order if side == 0 else reversed(order):
            middle = {n: _mean([place[m] for m in neighbours[n][side]], place[n]) for n in nodes}
            nodes.sort(key=lambda n: (middle[n], place[n]))
            place.update((node, float(i)) for i, node in enumerate(nodes))
    return order


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _columns(
    order: Sequence[list[int]], neighbours: Sequence[tuple[list[int], list[int]]], count: int
) -> list[float]:
    columns = [0.0] * len(neighbours)
    chains = _chains(neighbours)
    for nodes in order:
        _spread(nodes, [float(i) for i in range(len(nodes))], columns, count)
    for sweep in range(_COLUMN_SWEEPS):
        for nodes in order if sweep % 2 == 0 else reversed(order):
            wanted = [_wanted(chains[n], neighbours, columns, count) for n in nodes]
            _spread(nodes, wanted, columns, count)
    for sweep in range(_STRAIGHTEN_SWEEPS):
        # What the rows' crowding has bent is straightened: all of a chain meet in the middle.
        for nodes in order if sweep % 2 == 0 else reversed(order):
            wanted = [_mean([columns[m] for m in chains[n]], 0.0) for n in nodes]
            _spread(nodes, wanted, columns, count)
    return columns


def _chains(neighbours: Sequence[tuple[list[int], list[int]]]) -> list[list[int]]:
    """For every node its chain: nodes that are each other's only way, which should be in one
    column."""
    chains: list[list[int]] = [[] for _ in neighbours]
    for node, (above, _) in enumerate(neighbours):
        if len(above) == 1 and len(neighbours[above[0]][1]) == 1:
            continue  # not the head of its chain
        chain, tail = [node], node
        while len(below := neighbours[tail][1]) == 1 and len(neighbours[below[0]][0]) == 1:
            tail = below[0]
            chain.append(tail)
        for member in chain:
            chains[member] = chain
    return chains


def _wanted(
    chain: Sequence[int],
    neighbours: Sequence[tuple[list[int], list[int]]],
    columns: Sequence[float],
    count: int,
) -> float:
    """Where a chain should be: between what it comes from and what it leads to."""
    total = weight = 0.0
    ends = [(chain[0], n) for n in neighbours[chain[0]][0]]
    ends += [(chain[-1], n) for n in neighbours[chain[-1]][1]]
    for node, other in ends:
        w = _STRAIGHT_WEIGHT if (node < count) == (other < count) else 1.0
        total, weight = total + w * columns[other], weight + w
    return total / weight if weight else _mean([columns[n] for n in chain], 0.0)


def _spread(
    nodes: Sequence[int], wanted: Sequence[float], columns: list[float], count: int
) -> None:
    """Place one row as near to ``wanted`` as order and room allow.

    Pool-adjacent-violators: nodes that would overlap form a block at the mean of its members'
    positions.
    """
    offsets = [0.0]
    for left, right in itertools.pairwise(nodes):
        offsets.append(offsets[-1] + _half(left, count) + _half(right, count))
    blocks: list[list[float]] = []  # sum of wishes, members
    for want, offset in zip(wanted, offsets, strict=True):
        blocks.append([want - offset, 1.0])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, members = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += members
    position = 0
    for total, members in blocks:
        for _ in range(int(members)):
            columns[nodes[position]] = total / members + offsets[position]
            position += 1
