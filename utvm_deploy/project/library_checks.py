"""Whether a static library of the user's was built for a board."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from utvm_deploy.base.errors import BuildError
from utvm_deploy.boards.board import Board
from utvm_deploy.project.static_library import LibraryFacts


def check_machine(facts: LibraryFacts, board: Board, advice: str) -> None:
    """BuildError if it is for another kind of machine; ``advice`` says what to do."""
    if facts.machine not in board.cpu.toolchain.machines:
        raise BuildError(
            f"{facts.path} was built for another machine ({facts.machine}) than {board.name}, "
            f"whose core is {board.cpu.core}; {advice}"
        )


def check_architecture(facts: LibraryFacts, board: Board, advice: str) -> None:
    """BuildError if the board's core cannot run it, as far as its target knows."""
    cpu, reader = board.cpu, board.cpu.target.libraries
    if reader is None:
        return
    if why := reader.why_not(facts.built, cpu.facts, cpu.compiler_flags, board.name):
        raise BuildError(f"{facts.path} {why}; {advice}")


def digest_of(folders: Iterable[Path], files: Iterable[Path]) -> str:
    """SHA-256 over the bytes of all headers in the folders and of the files."""
    digest = hashlib.sha256()
    headers = (path for folder in folders for path in sorted(folder.rglob("*.h")))
    for path in [*headers, *sorted(files)]:
        data = path.read_bytes()
        digest.update(f"{path.name}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()
