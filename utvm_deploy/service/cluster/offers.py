"""The boards that this machine offers to a cluster, and what they are called there.

A board of the desk is offered once for each entry of ``bench.toml``. The host and each emulated
board are offered once for each core, because that many can run at a time. A board whose programs
are not installed is not offered.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from utvm_deploy.base import process
from utvm_deploy.base.errors import UtvmError
from utvm_deploy.boards.board import Board, board_names, load_board
from utvm_deploy.boards.desk_file import load_bench
from utvm_deploy.boards.facts import ESP_IDF
from utvm_deploy.device.doctor.installed import needed_programs
from utvm_deploy.project.esp_idf_build import find_esp_idf
from utvm_deploy.project.zephyr_build import find_zephyr

EMULATOR = "emulator"
HOST = "host"
DESK = "desk"

#: The resource of which each job takes one, so that no machine runs more jobs than it has cores.
CORE = "core"


@dataclass(frozen=True)
class Offer:
    """A kind of board, and how many jobs may use it at a time."""

    board: str
    count: int
    kind: str


@dataclass(frozen=True)
class Inventory:
    """The boards that a machine offers, and why it does not offer the others."""

    offers: tuple[Offer, ...]
    missing: Mapping[str, str]  # a board's name -> one sentence


def offers() -> tuple[Offer, ...]:
    """The boards that this machine offers."""
    return inventory().offers


def inventory() -> Inventory:
    """Look at ``bench.toml`` and the installed programs; no board is touched."""
    desk = load_bench()
    found: list[Offer] = []
    missing: dict[str, str] = {}
    for name in sorted({*board_names(), *desk}):
        try:
            board = load_board(name)
            if not board.runs_here and name not in desk:
                continue  # no board of this kind is connected
            _check_programs(board)
        except UtvmError as error:
            missing[name] = str(error)
            continue
        if board.runs_here:
            # A machine within a process keeps its images from the computer, as an emulator does.
            is_process = board.is_host and board.cpu.target.machine is None
            found.append(Offer(name, usable_cores(), HOST if is_process else EMULATOR))
        else:
            found.append(Offer(name, len(desk[name]), DESK))
    return Inventory(tuple(found), missing)


def resources(offered: Iterable[Offer], cores: int) -> dict[str, float]:
    """The resources of a Dask worker: its cores, and its boards."""
    found = {board_resource(offer.board): float(offer.count) for offer in offered}
    return {CORE: float(cores), **found}


def board_resource(name: str) -> str:
    """The resource of which a job on a board takes one."""
    return f"board:{name}"


def usable_cores() -> int:
    """The cores that this process may use; a container may have fewer than the machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _check_programs(board: Board) -> None:
    """Raise UtvmError if a program is missing that every job on the board needs."""
    board.cpu.toolchain.prepare()
    absent = [program for program in needed_programs(board) if process.which(program) is None]
    if absent:
        raise UtvmError(
            f"{', '.join(absent)} is not installed; utvm doctor --board {board.name} says how to "
            "install it"
        )
    if board.cpu.target.machine is not None:
        board.cpu.target.machine.check()
    if board.template == "zephyr":
        find_zephyr()
    if board.template == ESP_IDF:
        find_esp_idf()
