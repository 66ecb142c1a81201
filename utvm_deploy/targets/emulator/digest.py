"""A digest of everything that decides the modelled cycles of a board; different models differ in
it.

It includes the plugin's C code without comments and layout, with the decoder of the core's target.
It includes the core's timing table as the plugin gets it (no source text), and the board's caches,
miss cycles and kinds of memory. It leaves out facts that cycles do not depend on: the clock, QEMU's
version and its plugin interface. It also leaves out addresses and sizes of memory regions. They
move single misses, and boards that differ in nothing else may share records.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from utvm_deploy.boards.board import Board
from utvm_deploy.targets.emulator.model import CycleModel
from utvm_deploy.targets.emulator.plugin import SOURCES
from utvm_deploy.targets.emulator.table import timing_text
from utvm_deploy.targets.table import TIMINGS, target_of

DIGITS = 12
#: QEMU's interface, declared for each of its versions.
_INTERFACE = re.compile(r"(qemu_plugin_abi|abi_\d+)\.h")
_STRING_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)


def cycle_model_digest(board: Board) -> str:
    """Twelve hexadecimal digits; BoardError for a core without a cycle model."""
    model = CycleModel.for_board(board)
    found = hashlib.sha256()
    code = _plugin_code(SOURCES, target_of(model.core).name)
    for part in (*code, _core_timing(model.core), *_memory(model)):
        found.update(part.encode())
        found.update(b"\0")
    return found.hexdigest()[:DIGITS]


@cache
def _core_timing(core: str) -> str:
    return timing_text(TIMINGS[core])


def without_comments(code: str) -> str:
    """C code with comments gone and every stretch of white space made one blank."""
    bare = _STRING_OR_COMMENT.sub(lambda match: match.group(1) or " ", code)
    return " ".join(bare.split())


@cache
def _plugin_code(folder: Path, target: str) -> tuple[str, ...]:
    found = (*folder.glob("*.[ch]"), *(folder / target).glob("*.[ch]"))
    paths = sorted(path for path in found if not _INTERFACE.fullmatch(path.name))
    return tuple(without_comments(path.read_text(encoding="utf-8")) for path in paths)


def _memory(model: CycleModel) -> Iterator[str]:
    kinds = sorted({one.kind for one in model.cached})
    bare = replace(model, cached=(), tightly_coupled=None)
    yield repr(bare)
    yield f"{kinds}, tightly coupled: {model.tightly_coupled is not None}"
