"""Whether a static library of the user's was built for a board."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from utvm_deploy.base.errors import BuildError
from utvm_deploy.boards.board import Board
from utvm_deploy.project.static_library import LibraryFacts, rank_of


def check_machine(facts: LibraryFacts, board: Board, advice: str) -> None:
    """BuildError if it is for another kind of machine; ``advice`` says what to do."""
    if (facts.machine == "EM_ARM") != board.cpu.facts.is_arm:
        raise BuildError(
            f"{facts.path} was built for another machine ({facts.machine}) than {board.name}, "
            f"which is a {board.cpu.core}; {advice}"
        )


def check_architecture(facts: LibraryFacts, board: Board, advice: str) -> None:
    """BuildError if an Arm board cannot run it, or if it passes float values elsewhere."""
    cpu = board.cpu
    wanted = cpu.facts.architecture
    if facts.rank > rank_of(wanted):
        raise BuildError(
            f"{facts.path} was built for {facts.architecture}, and {board.name}'s {cpu.core} is "
            f"{wanted}, which cannot run it; {advice}"
        )
    is_hard_float = "-mfloat-abi=hard" in cpu.compiler_flags
    if facts.is_hard_float != is_hard_float:
        has, needs = ("hard", "soft") if facts.is_hard_float else ("soft", "hard")
        raise BuildError(
            f"{facts.path} was built with -mfloat-abi={has}, and images for {board.name} need "
            f"-mfloat-abi={needs}; {advice}"
        )


def digest_of(folders: Iterable[Path], files: Iterable[Path]) -> str:
    """SHA-256 over the bytes of all headers in the folders and of the files."""
    digest = hashlib.sha256()
    headers = (path for folder in folders for path in sorted(folder.rglob("*.h")))
    for path in [*headers, *sorted(files)]:
        data = path.read_bytes()
        digest.update(f"{path.name}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()
