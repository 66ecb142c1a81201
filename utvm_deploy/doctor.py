"""What work on a board needs, what is installed of it, and what installs the rest."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from utvm_deploy import process
from utvm_deploy.board import Board

#: How long a program may take to tell its version.
VERSION_TIMEOUT_S = 10.0
#: Every Python package that utvm_deploy itself needs; versions are those that it was built with.
_DISTRIBUTION = "utvm-deploy"


@dataclass(frozen=True)
class Check:
    """One thing that was looked for."""

    what: str
    purpose: str
    found: str | None  # version, or None where it is missing
    fix: str  # the command that installs it
    needed: bool  # False: only some boards, or some verbs, need it

    @property
    def ok(self) -> bool:
        """Whether nothing must be done about it."""
        return self.found is not None or not self.needed


def examine(board: Board | None) -> list[Check]:
    """Check for what ``board`` needs, or for everything that any board needs."""
    return [_python(), *_packages(), *_programs(board)]


def _python() -> Check:
    version = ".".join(str(part) for part in sys.version_info[:3])
    good = sys.version_info >= (3, 10)
    return Check("Python", "run utvm", version if good else None, "install Python 3.10", True)


def _packages() -> list[Check]:
    """The pinned dependencies: pip lets a later install move them, and then TVM crashes."""
    checks = []
    for requirement in importlib.metadata.requires(_DISTRIBUTION) or []:
        specification, _, marker = requirement.partition(";")
        if marker:
            continue
        match = re.match(r"[A-Za-z0-9._-]+", specification)
        assert match is not None
        name, exact = match.group(), specification.partition("==")[2].strip()
        try:
            found: str | None = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found = None
        if exact and found != exact:
            found = None
        checks.append(
            Check(name, "Python package", found, f"pip install '{specification.strip()}'", True)
        )
    return checks


def _programs(board: Board | None) -> list[Check]:
    wanted = _programs_of(board) if board else tuple(process.TOOLS)
    checks = []
    for program in wanted:
        purpose, install = process.TOOLS.get(program, ("reach this board", f"install {program}"))
        checks.append(Check(program, purpose, _version(program), install, board is not None))
    return checks


def _programs_of(board: Board) -> Sequence[str]:
    programs = ["cmake", board.cpu.facts.compiler]
    # CMake drives whichever of the two is there.
    programs.append("ninja" if shutil.which("ninja") or not shutil.which("make") else "make")
    if board.emulator is not None:
        programs.append(board.emulator.program)
    programs += [command.program for command in board.probe.commands]
    return list(dict.fromkeys(programs))


def _version(program: str) -> str | None:
    path = shutil.which(program)
    if path is None:
        return None
    completed = process.run([path, "--version"], timeout_s=VERSION_TIMEOUT_S)
    match = re.search(r"\d+(\.\d+)+", completed.output)
    return match.group() if match else "present"
