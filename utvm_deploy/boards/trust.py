"""Which parts of a board file could run programs or write files on the user's computer.

``load_board`` refuses such a file unless the user trusts it. The list of harmless values is data,
in boards/safe_arguments.py. Facts of the board itself (memory, clocks, drivers) need no trust.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from utvm_deploy.base.errors import BoardError
from utvm_deploy.base.toml_table import shown
from utvm_deploy.boards.facts import Board
from utvm_deploy.boards.probe_programs import Action
from utvm_deploy.boards.safe_arguments import (
    COMPILER_FLAG,
    DEVICE_TREE_LINE,
    EMULATOR_ARGUMENTS,
    EMULATOR_MACHINE,
    EMULATORS,
    KCONFIG_LINE,
    PROBE_ARGUMENTS,
)

# In an argument list: where the choice of a probe goes.
_SELECT = "{select}"


def check_harmless(board: Board, file: Path) -> None:
    """BoardError that names the first key whose value could do more than drive a board."""
    for key, value in _doubtful(board):
        raise BoardError(
            f"{file}: {key}: {shown(value)} could run a program or touch files on this computer; "
            "if you trust the file, give --trust-board (in Python: "
            "load_board(..., trust=True); see utvm docs security)"
        )


def _doubtful(board: Board) -> Iterator[tuple[str, str]]:
    """Key and value of everything that is not on the lists."""
    project = board.project
    yield from _others("project.compiler_flags", project.compiler_flags, COMPILER_FLAG)
    if project.zephyr is not None:
        yield from _others("project.zephyr.config", project.zephyr.config, KCONFIG_LINE)
        yield from _others("project.zephyr.overlay", project.zephyr.overlay, DEVICE_TREE_LINE)
        yield from _refused_of_emulator(
            "project.zephyr.emulator_arguments", project.zephyr.emulator_arguments or ()
        )
    if project.esp_idf is not None:
        yield from _others("project.esp_idf.config", project.esp_idf.config, KCONFIG_LINE)
    emulator = board.emulator
    if emulator is not None:
        if emulator.program not in EMULATORS:
            yield "emulator.program", emulator.program
        yield from _others("emulator.machine", [emulator.machine], EMULATOR_MACHINE)
        yield from _refused_of_emulator("emulator.arguments", emulator.arguments)
    for commands in board.probe.commands:
        for action in (commands.flash, commands.reset, commands.server):
            if action is not None:
                yield from _refused_of_probe(f"probe {commands.name}", action)


def _others(key: str, values: Sequence[str], expression: str) -> Iterator[tuple[str, str]]:
    for value in values:
        if not re.fullmatch(expression, value, re.ASCII):
            yield key, value


def _refused_of_emulator(key: str, arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    refused = EMULATOR_ARGUMENTS.first_refused(arguments)
    if refused is not None:
        yield key, refused


def _refused_of_probe(key: str, action: Action) -> Iterator[tuple[str, str]]:
    known = PROBE_ARGUMENTS.get(action.program)
    if known is None:
        yield key, action.program
        return
    # The arguments that select a probe may be the last words of an option before them.
    arguments = [one for one in action.arguments if one != _SELECT]
    for refused in (
        known.first_refused(arguments),
        known.first_refused(action.select),
        known.first_refused_line(action.script),
    ):
        if refused is not None:
            yield key, refused
