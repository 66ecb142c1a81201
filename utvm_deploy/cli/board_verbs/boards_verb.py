"""utvm boards: what can be deployed to, and what is plugged in."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, replace

from utvm_deploy.base.errors import UsageError
from utvm_deploy.base.toml_table import did_you_mean
from utvm_deploy.boards.board import Board, board_names, board_of_device, load_board
from utvm_deploy.boards.desk_file import bench_path, load_bench
from utvm_deploy.boards.new_boards.description import Description
from utvm_deploy.boards.new_boards.pack import read_pack
from utvm_deploy.boards.new_boards.pyocd import read_pyocd
from utvm_deploy.boards.new_boards.write import Chip, Place, donor_of, of_the_chip, write_new_board
from utvm_deploy.boards.new_boards.zephyr import read_zephyr
from utvm_deploy.boards.regions import dead_places
from utvm_deploy.cli.options.kinds import clock
from utvm_deploy.cli.output import Output
from utvm_deploy.device.probe import connected_boards
from utvm_deploy.targets.unsupported import PAGE

#: Where a new file may come from; one of them at most.
_SOURCES = ("from", "from-pack", "from-pyocd", "from-zephyr")


def run(args: argparse.Namespace, out: Output) -> int:
    """List all, print one resolved, look at USB, or write a new file."""
    if args.new is not None:
        return _run_new(args, out)
    for option in (*_SOURCES, "device", "core", "clock", "flash", "ram"):
        if _given(args, option) is not None:
            raise UsageError(f"--{option} goes with --new NEW; give that, too")
    if args.connected:
        return _run_connected(args.name, out)
    # This verb prints what the files say, and starts nothing that they name.
    if args.name:
        board = load_board(args.name, trust=True)
        _print_board(board, out)
        out.result("utvm.board/1", asdict(board))
        return 0
    boards = [load_board(name, trust=True) for name in board_names()]
    out.table(
        ["board", "core", ">MHz", ">flash KiB", ">RAM KiB", "description", "how it runs"],
        [
            (
                board.name,
                board.cpu.core,
                None if board.is_host else round(board.cpu.clock_hz / 1e6),
                None if board.is_host else board.flash_bytes // 1024,
                None if board.is_host else board.ram_bytes // 1024,
                board.description,
                ", ".join(board.probe.kinds),
            )
            for board in boards
        ],
    )
    out.result(
        "utvm.boards/1",
        {
            "boards": [
                {
                    "name": board.name,
                    "core": board.cpu.core,
                    "clock_hz": board.cpu.clock_hz,
                    "flash_bytes": board.flash_bytes,
                    "ram_bytes": board.ram_bytes,
                    "probes": board.probe.kinds,
                    "description": board.description,
                }
                for board in boards
            ]
        },
    )
    return 0


def _run_new(args: argparse.Namespace, out: Output) -> int:
    if args.name or args.connected:
        raise UsageError("--new goes without NAME and --connected")
    sources = [option for option in _SOURCES if _given(args, option) is not None]
    if len(sources) > 1:
        raise UsageError(f"--{sources[0]} and --{sources[1]} exclude each other; give one")
    described = _described(args, sources[0]) if sources and sources[0] != "from" else None
    base = load_board(args.base, trust=True) if args.base is not None else None
    chip = _chip(args, base, described)
    if base is None and described is None:
        base = donor_of(chip)
    path, board = write_new_board(args.new, described or base, chip, dry_run=args.dry_run)
    source = f"the file of {base.name}" if base else "what was said"
    source = described.source if described else source
    out.line(f"{'would write' if args.dry_run else 'wrote'} {path}, from {source}:")
    _print_board(board, out)
    if base is not None:
        out.line(f"  right for the chip of {base.name} only: {', '.join(of_the_chip(base))}")
    elif not board.is_application:
        out.line(
            "  it has no UART and no clock tree: the link is a debugger's, clocks are as given"
        )
    known = board_of_device(described.device) if described else None
    if described is not None and known is not None and not board.is_application:
        out.line(f"  {known.name} has that chip with clocks: --device {described.device} copies it")
    for sentence in dead_places(board):
        out.line(f"  {sentence}")
    out.line(f"check each line against the datasheet, then: utvm doctor --board {path}")
    out.result(
        "utvm.boards.new/1",
        {
            "file": str(path),
            "from": base.name if base else None,
            "source": described.source if described else None,
            "board": asdict(board),
        },
    )
    return 0


def _given(args: argparse.Namespace, option: str) -> object:
    return getattr(args, "base" if option == "from" else option.replace("-", "_"))


def _described(args: argparse.Namespace, source: str) -> Description:
    """What somebody else says; an option that the source has no use for is refused."""
    if source != "from-pack" and args.device is not None:
        raise UsageError(f"--device goes without --{source}, which names the chip or board")
    if source == "from-pack" and args.core is not None:
        raise UsageError(f"--core goes without --{source}, which says it")
    if source == "from-pack":
        return read_pack(args.from_pack, args.device)
    if source == "from-pyocd":
        return read_pyocd(args.from_pyocd, args.core)
    return read_zephyr(args.from_zephyr, args.core)


def _chip(args: argparse.Namespace, base: Board | None, described: Description | None) -> Chip:
    """What the command line says of the chip; in a terminal, what is missing is asked for."""
    flash, ram = (None if one is None else Place(*one) for one in (args.flash, args.ram))
    chip = Chip(args.device, args.core, args.clock, flash, ram)
    if described is not None:
        return chip
    asks = sys.stdin.isatty() and sys.stderr.isatty() and not args.json
    if base is None:
        if chip.device is None and asks:
            chip = replace(chip, device=_answer("the chip's name, such as STM32H743ZI: "))
        if not chip.device:
            raise UsageError(
                "--new needs --device PART, such as STM32H743ZI, or --from B: a board with the "
                f"same chip (utvm boards; utvm docs {PAGE})"
            )
        return chip
    if chip.device is None and asks:
        if chip.core is None:
            chip = replace(chip, core=_answer(f"the core of your chip (utvm docs {PAGE}): "))
        if chip.clock_hz is None:
            chip = replace(chip, clock_hz=_asked_clock())
    if chip.device is None and not (chip.core and chip.clock_hz):
        raise UsageError(
            f"--from {args.base} copies what is right for its chip only; confirm that "
            "yours is the same by --device PART, or by --core CORE and --clock HZ "
            f"(utvm docs {PAGE})"
        )
    return chip


def _asked_clock() -> int | None:
    try:
        return clock(_answer("its clock, such as 216M: "))
    except ValueError as error:
        raise UsageError(str(error)) from error


def _answer(question: str) -> str:
    sys.stderr.write(question)
    sys.stderr.flush()
    return sys.stdin.readline().strip()


def _run_connected(name: str | None, out: Output) -> int:
    boards = [load_board(one, trust=True) for one in ([name] if name else board_names())]
    found = connected_boards(boards)
    if name:
        found = [one for one in found if boards[0].name in one.boards]
    if found:
        out.table(
            ["port", "board", "USB id", "serial number", "product", "known from"],
            [
                (
                    one.port,
                    " or ".join(one.boards),
                    one.usb,
                    one.serial,
                    one.product_name,
                    "bench file" if one.is_known else "USB",
                )
                for one in found
            ],
        )
    else:
        out.line(f"no serial port of {name or 'a board that is known here'} is connected")
    for note in [one.note for one in found if one.note]:
        out.line(note)
    names = board_names()
    for unknown in sorted(load_bench().keys() - {*names, *(board.name for board in boards)}):
        hint = did_you_mean(unknown, names)
        out.line(f"{bench_path()} names {unknown!r}, which no board file describes{hint}")
    out.result(
        "utvm.connected/1", {"connected": [{**asdict(one), "note": one.note} for one in found]}
    )
    return 0


def _print_board(board: Board, out: Output) -> None:
    cpu = board.cpu
    features = [name for name in ("dsp", "mve") if getattr(cpu, name)]
    if cpu.facts.vectors:
        features.append("vectors")
    if cpu.fpu != "none":
        features.append(f"{cpu.fpu}-precision floating point")
    out.line(f"{board.name}: {board.description} ({board.vendor})")
    out.line(
        f"  core      {cpu.core}, {cpu.clock_hz / 1e6:g} MHz, {', '.join(features) or 'plain'}"
    )
    out.line(f"  caches    {cpu.icache_bytes} bytes for code, {cpu.dcache_bytes} for data")
    for region in board.memory:
        rights = ", code can run there" if region.executable else ""
        out.line(
            f"  {region.name:<9} {region.kind} at 0x{region.address:08x}, "
            f"{region.size / 1024:g} KiB{rights}"
        )
    out.line(f"  templates {', '.join(board.project.templates)}")
    out.line(f"  probes    {', '.join(board.probe.kinds)}")
    out.line(f"  links     {', '.join(board.link.kinds)}")
    for caution in board.cautions:
        out.line(f"  take care {caution}")
    if board.emulator:
        emulator = board.emulator
        out.line(
            f"  emulator  {emulator.program} -machine {emulator.machine} "
            f"{' '.join(emulator.arguments)}"
        )
