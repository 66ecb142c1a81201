"""Flashing and restarting real boards with the programs that their board files name."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from utvm_deploy.base import process
from utvm_deploy.base.errors import BoardError, ProbeError
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.base.toml_table import did_you_mean
from utvm_deploy.boards.facts import CHILD_PROBE, EMULATOR_PROBE, Board
from utvm_deploy.boards.probe_programs import ESP_IDF_BUILD, Action, ProbeCommands
from utvm_deploy.device.link.deadlines import flash_s
from utvm_deploy.device.probe.argv import (
    NEUTRAL_FOLDER,
    PARTS,
    Wanted,
    probe_argv,
    probe_script,
)
from utvm_deploy.device.probe.detect import check_port_there, locate
from utvm_deploy.device.probe.failures import failure
from utvm_deploy.project import Image
from utvm_deploy.project.esp_idf import read_esp_idf

logger = logging.getLogger("utvm_deploy.device.probe")

# Until a probe's program found its probe and its chip; what the image's bytes take comes on top.
FLASH_FLOOR_S = 90.0
RESET_TIMEOUT_S = 20.0
OBJCOPY_TIMEOUT_S = 30.0

# What objcopy calls the formats; an ELF file is taken as it is.
_OBJCOPY_FORMATS = {"bin": "binary", "hex": "ihex"}


def flash_image(
    image: Image,
    *,
    probe: str | None = None,
    serial: str | None = None,
    port: str | None = None,
) -> None:
    """Write the image to the board's flash and start it.

    ``probe`` is one of the board file's flashing programs: by default that of bench.toml, then the
    first. ``serial`` distinguishes several debug probes: by default that of bench.toml, then of
    USB. ``port`` is for programs that flash through the board's serial port.
    """
    place = locate(image.board, port=port, serial=serial, needs_port=False)
    commands = probe_commands(image.board, probe or place.entry.probe)
    takes_port = "{port}" in commands.flash.arguments
    if takes_port and not process.is_dry_run():
        place = locate(image.board, port=port, serial=serial)
        check_port_there(image.board, place.port or "")
    _check_in_one_piece(image, commands)
    build = _build_folder(image, commands)
    wanted = Wanted(
        # The program runs in another folder.
        image=str(_in_format(image, commands.image_format).absolute()),
        build=build,
        serial=None if takes_port else place.serial,
        port=place.port or "PORT",
        parts=_parts(Path(build), image.board) if PARTS in commands.flash.arguments else (),
    )
    # An ELF file holds at least the bytes that go to flash.
    size = image.elf.stat().st_size if image.elf.exists() else 0
    timeout_s = flash_s(min(size, image.board.flash_bytes), FLASH_FLOOR_S)
    _run_action(commands.name, commands.flash, wanted, timeout_s, f"flashing {image.board.name}")


def reset_board(
    board: Board,
    *,
    probe: str | None = None,
    serial: str | None = None,
    port: str | None = None,
) -> None:
    """Restart the board through its debug probe, or through its serial port."""
    place = locate(board, port=port, serial=serial, needs_port=False)
    name = probe or place.entry.probe
    commands = probe_commands(board, name)
    if name is None and any(one.reset for one in board.probe.commands):
        commands = first_installed(board.probe.commands, lambda one: one.reset)
    if commands.reset is None:
        raise ProbeError(
            f"{commands.name} cannot reset {board.name}; press its reset button, or name another "
            f"probe ({', '.join(one.name for one in board.probe.commands if one.reset)})"
        )
    takes_port = "{port}" in commands.reset.arguments
    wanted = Wanted(serial=None if takes_port else place.serial, port=place.port or "PORT")
    _run_action(commands.name, commands.reset, wanted, RESET_TIMEOUT_S, f"resetting {board.name}")


def probe_commands(board: Board, probe: str | None) -> ProbeCommands:
    """The board's probe of that name, by default the first whose program is installed."""
    name = probe or board.probe.kinds[0]
    if name in (CHILD_PROBE, EMULATOR_PROBE) and name in board.probe.kinds:
        raise ProbeError(
            f"{board.name} is started on this computer, not flashed; use utvm run, or "
            f"utvm_deploy.connect({board.name!r})"
        )
    if probe is None:
        return first_installed(board.probe.commands, lambda one: one.flash)
    for commands in board.probe.commands:
        if commands.name == name:
            return commands
    hint = did_you_mean(name, board.probe.kinds)
    raise BoardError(
        f"{board.name} has no probe {name!r}{hint} (it has {', '.join(board.probe.kinds)})"
    )


def first_installed(
    commands: Sequence[ProbeCommands], action: Callable[[ProbeCommands], Action | None]
) -> ProbeCommands:
    """The first that can do it here; else the first that could, so that its program is missed."""
    able = [one for one in commands if action(one) is not None]
    if process.is_dry_run():
        return able[0]
    here = (one for one in able if process.which(_program(action(one))))
    return next(here, able[0])


def _program(action: Action | None) -> str:
    assert action is not None
    return action.program


@contextlib.contextmanager
def with_script(action: Action, wanted: Wanted) -> Iterator[Wanted]:
    """``wanted`` with the action's command file, which is there within the block."""
    if not action.script:
        yield wanted
        return
    text = probe_script(action, wanted)
    logger.info("commands for %s: %s", action.program, text.strip().replace("\n", "; "))
    if process.is_dry_run():
        yield replace(wanted, script="COMMANDS")
        return
    with TemporaryFolder("utvm-probe") as folder:
        path = Path(folder) / "commands"
        path.write_text(text, encoding="utf-8")
        yield replace(wanted, script=str(path))


def _check_in_one_piece(image: Image, commands: ProbeCommands) -> None:
    """A raw file has no addresses: it would have to fill what is between two regions."""
    if commands.image_format != "bin" or process.is_dry_run():
        return
    board = image.board
    used = [
        region.name
        for region in board.memory
        if any(region.address <= at < region.end for at, _ in image.load_segments)
    ]
    if len(used) > 1:
        others = [one.name for one in board.probe.commands if one.image_format != "bin"]
        raise ProbeError(
            f"{commands.name} writes one piece of flash, and the image is in {' and '.join(used)}; "
            f"take another probe ({', '.join(others) or 'its board file has none'})"
        )


def _in_format(image: Image, image_format: str) -> Path:
    if image_format == "elf":
        return image.elf
    target = image.elf.with_suffix(f".{image_format}")
    # Renamed into place, because two processes may flash one cached image.
    fresh = target.with_name(f"{target.name}.{os.getpid()}")
    if process.is_dry_run():
        fresh = target
    objcopy = f"{image.board.cpu.toolchain.prefix}objcopy"
    argv = [objcopy, "-O", _OBJCOPY_FORMATS[image_format], str(image.elf), str(fresh)]
    what = f"converting {image.elf.name} to {image_format}"
    done = process.run(argv, timeout_s=OBJCOPY_TIMEOUT_S)
    if not done.is_ok:
        reason = done.output.strip() or "no answer"
        raise ProbeError(f"{what} with {objcopy} failed: {reason}; build the image again")
    if fresh != target:
        fresh.rename(target)
    return target


def _build_folder(image: Image, commands: ProbeCommands) -> str:
    """The build that the image came from, where the program needs to know it."""
    builder = commands.builder
    if builder is None:
        return ""
    for folder in image.elf.absolute().parents:
        if (folder / builder.file).is_file() or process.is_dry_run():
            return str(folder)
    others = [one.name for one in image.board.probe.commands if one.builder != builder]
    another = f"take another probe ({', '.join(others)}), or " if others else ""
    raise ProbeError(
        f"{commands.name} flashes what {builder.name} built, and {image.elf} is not part of such a "
        f"build; {another}{builder.advice}"
    )


def _parts(build: Path, board: Board) -> tuple[str, ...]:
    """What to flash; a dry run has built nothing."""
    if process.is_dry_run() and not (build / ESP_IDF_BUILD.file).exists():
        return ("PARTS",)
    return read_esp_idf(build, board).parts


def _run_action(name: str, action: Action, wanted: Wanted, timeout_s: float, what: str) -> None:
    with with_script(action, wanted) as wanted:
        argv = probe_argv(name, action, wanted)
        done = process.run(argv, timeout_s=timeout_s, cwd=NEUTRAL_FOLDER)
    if done.timed_out:
        raise ProbeError(
            f"{what} with {action.program} took longer than {timeout_s:g} s; replug the board"
        )
    if not done.is_ok:
        raise failure(what, action.program, done.output, done.returncode)
    logger.info("%s: done", what)
