"""A digest of a board's facts: two computers that have the same one mean the same board."""

from __future__ import annotations

import hashlib

from utvm_deploy.boards.facts import Board


def facts_digest(board: Board) -> str:
    """SHA-256 of all facts. Comments and order of the board file do not matter."""
    # The representation does not contain the text of the file.
    return hashlib.sha256(repr(board).encode()).hexdigest()
