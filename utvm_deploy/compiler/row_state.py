"""The bytes at the end of an arena that count which rows of the input were pushed."""

from __future__ import annotations

from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.strips.input_rows import comes_in_rows

#: A uint32_t: the rows so far.
ROW_STATE_BYTES = 4


def with_row_state(graph: Graph, arena_bytes: int) -> int:
    """The bytes of an arena, with that state if the graph's input comes in rows."""
    if not comes_in_rows(graph):
        return arena_bytes
    return -(-arena_bytes // ROW_STATE_BYTES) * ROW_STATE_BYTES + ROW_STATE_BYTES
