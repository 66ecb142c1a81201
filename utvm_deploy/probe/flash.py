"""Flashing real boards with the programs that their board files name."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from utvm_deploy import process
from utvm_deploy.bench_file import load_bench_entry
from utvm_deploy.board_facts import CHILD_PROBE, EMULATOR_PROBE, Board, ProbeCommands
from utvm_deploy.errors import BoardError, ProbeError
from utvm_deploy.probe.argv import flash_argv, reset_argv
from utvm_deploy.project import Image
from utvm_deploy.toml_table import did_you_mean

logger = logging.getLogger("utvm_deploy.probe")

# Erasing and writing 1 MiB of internal flash takes up to 30 s.
FLASH_TIMEOUT_S = 120.0
RESET_TIMEOUT_S = 20.0
OBJCOPY_TIMEOUT_S = 30.0

# What objcopy calls the formats; an ELF file is taken as it is.
_OBJCOPY_FORMATS = {"bin": "binary", "hex": "ihex"}


def flash_image(image: Image, *, probe: str | None = None, serial: str | None = None) -> None:
    """Write the image to the board's flash and start it.

    ``probe`` is one of the board file's flashing programs, by default the first; ``serial`` tells
    several debug probes apart, by default as bench.toml says.
    """
    commands = probe_commands(image.board, probe)
    serial = serial or load_bench_entry(image.board.name).probe_serial
    argv = flash_argv(commands, _in_format(image, commands.image_format), serial)
    _run(argv, FLASH_TIMEOUT_S, f"flashing {image.board.name}")


def reset_board(board: Board, *, serial: str | None = None) -> None:
    """Restart the board through its debug probe."""
    serial = serial or load_bench_entry(board.name).probe_serial
    argv = reset_argv(probe_commands(board, None), serial)
    _run(argv, RESET_TIMEOUT_S, f"resetting {board.name}")


def probe_commands(board: Board, probe: str | None) -> ProbeCommands:
    """The board's flashing program of that name, by default its first probe."""
    name = probe or board.probe.kinds[0]
    if name in (CHILD_PROBE, EMULATOR_PROBE) and name in board.probe.kinds:
        raise ProbeError(
            f"{board.name} is started on this computer, not flashed; use utvm run, or "
            f"utvm_deploy.connect({board.name!r})"
        )
    for commands in board.probe.commands:
        if commands.name == name:
            return commands
    hint = did_you_mean(name, board.probe.kinds)
    raise BoardError(
        f"{board.name} has no probe {name!r}{hint} (it has {', '.join(board.probe.kinds)})"
    )


def _in_format(image: Image, image_format: str) -> Path:
    if image_format == "elf":
        return image.elf
    target = image.elf.with_suffix(f".{image_format}")
    # Renamed into place, because two processes may flash one cached image.
    fresh = target.with_name(f"{target.name}.{os.getpid()}")
    compiler = image.board.cpu.facts.compiler
    objcopy = compiler.removesuffix("gcc") + "objcopy"
    argv = [objcopy, "-O", _OBJCOPY_FORMATS[image_format], str(image.elf), str(fresh)]
    _run(argv, OBJCOPY_TIMEOUT_S, f"converting {image.elf.name} to {image_format}")
    if not process.is_dry_run():
        fresh.rename(target)
    return target


def _run(argv: list[str], timeout_s: float, what: str) -> None:
    done = process.run(argv, timeout_s=timeout_s)
    if done.timed_out:
        raise ProbeError(
            f"{what} with {argv[0]} took longer than {timeout_s:g} s; replug the board"
        )
    if not done.is_ok:
        lines = done.output.strip().splitlines() or [f"status {done.returncode}"]
        errors = [line for line in lines if "error" in line.lower()] or lines[-1:]
        raise ProbeError(
            f"{what} with {argv[0]} failed: {errors[0].strip()}; is the board plugged in, and is "
            f"no other program using its probe?"
        )
    logger.info("%s: done", what)
