"""Argument lists of the programs that start or flash images; pure functions from facts to lists."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from utvm_deploy.base.errors import BoardError, ProbeError
from utvm_deploy.boards.facts import Board
from utvm_deploy.boards.probe_programs import LOOPBACK_ARGUMENTS, Action, fill_in

# A word that start-up leaves alone and the runtime's nonce is made from (template's main.c).
BOOT_SEED_SYMBOL = "utvm_boot_seed"
# The argument in whose place goes what chooses a probe.
SELECT = "{select}"
# The argument in whose place go the addresses and files of an ESP-IDF build.
PARTS = "{parts}"
# Where probe programs are started: in the user's folder, which may be somebody else's work, OpenOCD
# would find scripts, pyOCD Python code and west its own commands.
NEUTRAL_FOLDER = Path("/")
# Serial numbers come from USB devices, and appear within commands of Tcl.
_SERIAL = re.compile(r"\w[\w.:-]*", re.ASCII)
# What ends a quoted path in Tcl, or in a command file of J-Link Commander.
_BAD_IN_PATH = re.compile(r'[{}"\\\x00-\x1f]')
# TCP ports that a GDB server takes at most: its port, and up to two more.
SERVER_PORTS = 3


def emulator_argv(
    board: Board, elf: Path, seed_address: int | None, seed: int, gdb_fd: int | None = None
) -> list[str]:
    """The emulator running ``elf``, its first UART on standard input and output.

    ``gdb_fd`` is a connected socket for its debug stub, which has the core halted at first.

    An emulated board starts with the same RAM every time. So the host puts a random number at
    ``seed_address``, which distinguishes this run from the one before.
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


@dataclass(frozen=True)
class Wanted:
    """The values for the argument lists, in addition to the board file's."""

    image: str = ""
    build: str = ""
    serial: str | None = None
    # TCP ports: of a GDB server, and those that it opens in addition.
    ports: tuple[int, ...] = ()
    # Where the action's script will lie, if it has one.
    script: str = ""
    # The board's serial port, and what takes the place of PARTS.
    port: str = ""
    parts: tuple[str, ...] = ()


def probe_argv(name: str, action: Action, wanted: Wanted) -> list[str]:
    """One start of a probe's program; ``name`` is the probe's in its board file."""
    if wanted.serial is not None and not _SERIAL.fullmatch(wanted.serial):
        raise ProbeError(
            f"the probe's serial number {wanted.serial!r} has characters that {name} may take for "
            "commands; give --port and leave --serial out, or unplug the other probes"
        )
    for path in (wanted.image, wanted.build):
        if _BAD_IN_PATH.search(path):
            raise ProbeError(
                f"the path {path!r} has characters that {name} may take for commands; move it to "
                "a folder whose name is letters and digits"
            )
    if wanted.serial is not None and not action.select:
        raise BoardError(
            f"{name} cannot choose a probe by its serial number {wanted.serial!r} here: "
            f"the board file's list probe.commands.{name}.select is empty"
        )
    select = action.select if wanted.serial is not None else ()
    arguments: list[str] = []
    if SELECT not in action.arguments:
        arguments += select
    several = {SELECT: select, PARTS: wanted.parts}
    for argument in action.arguments:
        arguments += several.get(argument, (argument,))
    values = _values(wanted)
    return [action.program, *(fill_in(argument, values) for argument in arguments)]


def server_argv(name: str, action: Action, wanted: Wanted) -> list[str]:
    """One start of a probe's GDB server, which listens on this computer only if it can."""
    program, *arguments = probe_argv(name, action, wanted)
    return [program, *LOOPBACK_ARGUMENTS.get(Path(program).name, ()), *arguments]


def probe_script(action: Action, wanted: Wanted) -> str:
    """The command file of an action; empty if it takes none."""
    values = _values(wanted)
    return "".join(f"{fill_in(line, values)}\n" for line in action.script)


def _values(wanted: Wanted) -> dict[str, str]:
    names = ("gdb_port", "aux_port", "aux_port_2")
    return {
        "image": wanted.image,
        "build": wanted.build,
        "serial": wanted.serial or "",
        "port": wanted.port,
        "script": wanted.script,
        **{name: str(port) for name, port in zip(names, wanted.ports, strict=False)},
    }
