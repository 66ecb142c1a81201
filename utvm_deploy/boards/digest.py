"""A digest of a board's facts: two computers that have the same one mean the same board."""

from __future__ import annotations

import hashlib
from dataclasses import fields

from utvm_deploy.boards.facts import Board


def facts_digest(board: Board) -> str:
    """SHA-256 of all facts. Comments and order of the board file do not matter."""
    # The representation of a board is for people, and leaves most facts out. The text of the file
    # has comments.
    names = (one.name for one in fields(board) if one.name != "source")
    facts = (f"{name}={getattr(board, name)!r}" for name in names)
    return hashlib.sha256(f"Board({', '.join(facts)})".encode()).hexdigest()
