"""A board file made from another one of the same chip, or from facts.

What belongs to one chip alone is right for that chip only: clock tree, UART, timers, caches, the
addresses of memory. So a file is made from another one only if both have the same chip.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomlkit

from utvm_deploy.base.errors import BoardError
from utvm_deploy.base.files import write_text
from utvm_deploy.boards.board import (
    Board,
    board_names,
    board_of_device,
    check_name,
    known_devices,
    load_board,
)
from utvm_deploy.boards.facts import ESP_IDF
from utvm_deploy.boards.new_boards.description import (
    Description,
    Fact,
    Memory,
    board_text,
    check_core,
    check_memories,
    check_part,
    merged,
)
from utvm_deploy.targets.contract.core import Core
from utvm_deploy.targets.unsupported import PAGE, unsupported


@dataclass(frozen=True)
class Place:
    """The size of a memory, and its address if that is known."""

    size: int
    address: int | None = None


@dataclass(frozen=True)
class Chip:
    """What somebody says of a chip; None: nothing."""

    device: str | None = None
    core: str | None = None
    clock_hz: int | None = None
    flash: Place | None = None
    ram: Place | None = None

    @property
    def missing(self) -> list[str]:
        """What a file for a chip that no board file knows needs in addition."""
        wanted = {
            "--core CORE": self.core,
            "--clock HZ": self.clock_hz,
            "--flash SIZE@ADDRESS": self.flash and self.flash.address is not None,
            "--ram SIZE@ADDRESS": self.ram and self.ram.address is not None,
        }
        return [option for option, value in wanted.items() if value is None or value is False]


def donor_of(chip: Chip) -> Board | None:
    """The board whose chip it is. BoardError of a part that nobody knows and nothing is said of."""
    assert chip.device is not None
    donor = board_of_device(chip.device)
    if donor is not None:
        return donor
    _check_device(chip.device)
    if chip.core is not None:
        _check_timer(check_core(chip.core, f"--core {chip.core}"))
    if chip.missing:
        raise BoardError(
            f"no board file knows the device {chip.device} (they know "
            f"{', '.join(known_devices())}); "
            f"give {', '.join(chip.missing)}, too (utvm docs {PAGE})"
        )
    return None


def check_same_chip(base: Board, chip: Chip) -> None:
    """BoardError if the chip is another one than the board's: its file would be wrong for it."""
    remedy = "name the chip by --device PART and leave --from out"
    if (
        chip.core is not None
        and chip.core != base.cpu.core
        and not check_core(chip.core, f"--core {chip.core}").timers
    ):
        remedy = _start_with(chip.core)
    if chip.device is not None and base.fits_device(chip.device):
        remedy = "leave --core and --clock out"
    if chip.device is not None and not base.fits_device(chip.device):
        _check_device(chip.device)
        has = f"has the chip {' or '.join(base.devices)}" if base.devices else "names no chip"
        raise BoardError(f"{base.name} {has}, not {chip.device}; {remedy}")
    cpu = base.cpu
    if chip.core not in (None, cpu.core):
        raise BoardError(f"{base.name} has the core {cpu.core}, not {chip.core}; {remedy}")
    # An emulated machine may stand for a chip with any clock.
    if base.emulator is None and chip.clock_hz not in (None, cpu.clock_hz):
        raise BoardError(
            f"the clock tree of {base.name} makes {cpu.clock_hz / 1e6:g} MHz, not "
            f"{(chip.clock_hz or 0) / 1e6:g}; {remedy}, or edit [project.clock]"
        )


def _boards_with(core: str, template: str) -> list[Board]:
    boards = (load_board(name, trust=True) for name in board_names())
    return [one for one in boards if (one.cpu.core, one.template) == (core, template)]


def _check_device(part: str) -> None:
    """BoardError of a chip that no image is made for, with the board whose bundles run there."""
    kind = unsupported(part)
    if kind is None:
        return
    command = ""
    for board in _boards_with(*kind.bundles)[:1] if kind.bundles else ():
        form = f" --format {board.template}" if board.template == ESP_IDF else ""
        command = f": utvm bundle MODEL --board {board.name}{form}"
        if board.project.esp_idf is not None:
            command += f", or: utvm boards --new NAME --from {board.name}"
            command += f" --core {board.cpu.core} --clock {board.cpu.clock_hz}"
    raise BoardError(f"{part}: {kind.sentence}{command}")


def _check_timer(core: Core) -> None:
    """A file from facts alone has a timer that all silicon with the core has."""
    if not core.timers:
        raise BoardError(
            f"chips with the core {core.name} have no timer in common; leave --device out, "
            f"{_start_with(core.name)}, and edit the file (utvm docs {PAGE})"
        )


def _start_with(core: str) -> str:
    """What to do about a chip whose core has no timer that all such chips have."""
    bare = [board.name for board in _boards_with(core, "baremetal")]
    return f"start with --from {' or --from '.join(bare)}"


def of_the_chip(board: Board) -> Iterator[str]:
    """The parts of a file that are right for one chip only."""
    project = board.project
    if board.emulator is not None:
        yield f"emulated machine {board.emulator.machine}"
        return
    for what, driver in (
        ("clock tree", project.clock),
        ("UART", project.uart),
        ("timer", project.timer.driver if project.timer else None),
    ):
        if driver is not None and driver.name != "none":
            yield f"{what} ({driver.name})"
    if board.cpu.icache_bytes or board.cpu.dcache_bytes:
        yield "caches"
    if project.esp_idf is not None:
        yield f"the chip's name ({project.esp_idf.target})"
    if project.boot_block != "none":
        yield f"boot block ({project.boot_block})"
    yield "addresses of memory"


def write_new_board(
    name: str,
    base: Board | Description | None,
    chip: Chip,
    *,
    folder: Path = Path(),
    dry_run: bool = False,
) -> tuple[Path, Board]:
    """Write ``NAME.toml``: from the file of ``base``, whose comments stay, or from facts.

    Of a board's file, ``chip.flash`` is the new size of the region of code. ``chip.ram`` is that
    of the largest region of kind ram, or of kind tcm on boards without such. The facts are those of
    a description, and what ``chip`` says instead. Returns the file and the board that it describes.
    Raises BoardError if the name is none for a board, if there is such a file, if the chip is not
    that of ``base``, or if the regions would overlap.
    """
    check_name(name)
    path = folder / f"{name}.toml"
    if path.exists() or path.is_symlink():
        raise BoardError(f"{path} exists; give another name, or remove it first")
    if isinstance(base, Board):
        check_same_chip(base, chip)
        text = _text(name, base, chip)
    else:
        text = board_text(name, _described(chip) if base is None else with_said(base, chip))
    with tempfile.TemporaryDirectory() as temporary:
        trial = Path(temporary) / path.name
        trial.write_text(text, encoding="utf-8")
        try:
            board = load_board(trial, trust=True)
        except BoardError as error:
            raise BoardError(str(error).replace(str(trial), str(path))) from error
    if not dry_run:
        write_text(path, text)
    return path, board


def _text(name: str, base: Board, chip: Chip) -> str:
    document = tomlkit.parse(base.source)
    regions: Any = document["memory"]
    data = "ram" if any(one["kind"] == "ram" for one in regions) else "tcm"
    for kind, place in (("flash", chip.flash), (data, chip.ram)):
        if place is not None:
            region = max(
                (one for one in regions if one["kind"] == kind), key=lambda one: int(one["size"])
            )
            region["size"] = place.size
            if place.address not in (None, int(region["address"])):
                raise BoardError(
                    f"the {kind} of {base.name} is at 0x{int(region['address']):08x}; leave the "
                    "address out"
                )
    flash = sum(int(one["size"]) for one in regions if one["kind"] == "flash")
    ram = sum(int(one["size"]) for one in regions if one["kind"] != "flash")
    document["name"] = name
    document["description"] = (
        f"{chip.device or base.cpu.core} with {flash / 1024:g} KiB flash and {ram / 1024:g} KiB RAM"
    )
    cpu: Any = document["cpu"]
    if chip.clock_hz is not None and base.emulator is not None:
        cpu["clock_hz"] = chip.clock_hz
    return (
        f"# Made from the file of the board {base.name}. Check each line against the datasheet.\n"
        f"# Right for that chip only: {', '.join(of_the_chip(base))}.\n"
        f"{tomlkit.dumps(document)}"
    )


def _described(chip: Chip) -> Description:
    """What the command line says, which is right for any chip with this core."""
    assert chip.device and chip.core and chip.clock_hz and chip.flash and chip.ram
    check_part(chip.device, "--device")
    return with_said(
        Description(
            device=chip.device,
            source=f"what was said of {chip.device}",
            core=Fact(chip.core, ""),
            memories=(),
        ),
        chip,
    )


def with_said(it: Description, chip: Chip) -> Description:
    """The description with what the command line says instead: clock, flash and RAM."""
    clock_hz = it.clock_hz
    if chip.clock_hz is not None:
        clock_hz = Fact(chip.clock_hz, "as after reset, or as your boot loader sets it")
    said = []
    for kind, place in (("flash", chip.flash), ("ram", chip.ram)):
        if place is not None:
            if place.address is None:
                raise BoardError(f"give --{kind} {place.size}@ADDRESS: {it.source} has no address")
            said.append(Memory(kind, place.address, place.size, kind, True, f"--{kind}"))
    memories = merged((*said, *it.memories))
    check_memories(memories, it.source)
    return replace(it, clock_hz=clock_hz, memories=memories)
