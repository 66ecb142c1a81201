"""Argument lists of the programs that start or flash images; pure functions from facts to lists."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from utvm_deploy.board_facts import Board, ProbeCommands
from utvm_deploy.errors import BoardError

# A word that start-up leaves alone and the runtime's nonce is made from (template's main.c).
BOOT_SEED_SYMBOL = "utvm_boot_seed"


def emulator_argv(
    board: Board, elf: Path, seed_address: int | None, seed: int, gdb_fd: int | None = None
) -> list[str]:
    """The emulator running ``elf``, its first UART on standard input and output.

    ``gdb_fd`` is a connected socket for its debug stub, which has the core halted at first.

    An emulated board wakes up with the same RAM every time, so the host puts a number of its own
    at ``seed_address``: it is what tells this run from the one before.
    """
    emulator = board.emulator
    if emulator is None:
        raise BoardError(f"{board.name} is not an emulated board: its file has no [emulator]")
    argv = [emulator.program, "-machine", emulator.machine, *emulator.arguments]
    # signal=off: Ctrl-C as a byte is data. -nodefaults: nothing else speaks on our pipes.
    argv += ["-nodefaults", "-display", "none", "-monitor", "none"]
    argv += ["-chardev", "stdio,id=link,signal=off", "-serial", "chardev:link"]
    if gdb_fd is not None:
        argv += ["-S", "-chardev", f"socket,id=gdb,fd={gdb_fd}", "-gdb", "chardev:gdb"]
    argv += ["-kernel", str(elf)]
    if seed_address is not None:
        loader = f"loader,addr=0x{seed_address:08x},data=0x{seed:08x},data-len=4"
        argv += ["-device", loader]
    return argv


def flash_argv(commands: ProbeCommands, image: Path, serial: str | None) -> list[str]:
    """The flashing program's arguments to write ``image`` and start it."""
    return _fill(commands, commands.flash, str(image), serial)


def reset_argv(commands: ProbeCommands, serial: str | None) -> list[str]:
    """The flashing program's arguments to restart the board."""
    return _fill(commands, commands.reset, "", serial)


def _fill(
    commands: ProbeCommands, arguments: Sequence[str], image: str, serial: str | None
) -> list[str]:
    if serial is not None and not commands.select:
        raise BoardError(
            f"{commands.name} cannot choose a probe by its serial number {serial!r} here: "
            f"the board file's list probe.commands.{commands.name}.select is empty"
        )
    chosen = [*(commands.select if serial is not None else ()), *arguments]
    # Not str.format: OpenOCD's Tcl has braces of its own.
    filled = [a.replace("{image}", image).replace("{serial}", serial or "") for a in chosen]
    return [commands.program, *filled]
