"""The programs that reach a debug probe, as data: their arguments for each action.

A board file names those that know the board. For each it gives what only it can know, such as the
OpenOCD script or the J-Link device name (``facts``). Placeholders in braces are filled in later:

    {image} {build}        the image to write; the build folder it came from
    {parts}                addresses and files that an ESP-IDF build has, several arguments
    {port}                 the board's serial port
    {serial}               the serial number of the wanted probe, in ``select`` only
    {select}               where ``select`` goes if a serial number is wanted; without it: in front
    {flash_address}        where the board's flash begins
    {gdb_port} {aux_port}  TCP ports of a GDB server
    {script}               a file that holds the action's ``script``

``probe`` runs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

#: The formats that {image} can have.
IMAGE_FORMATS = ("elf", "hex", "bin")


@dataclass(frozen=True)
class Action:
    """One start of a program."""

    program: str
    arguments: tuple[str, ...]
    # What chooses one of several probes.
    select: tuple[str, ...] = ()
    # Lines of a command file, for programs that take no commands as arguments.
    script: tuple[str, ...] = ()

    def filled(self, values: Mapping[str, str]) -> Action:
        """With those placeholders replaced; the others stay."""

        def fill(texts: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(fill_in(text, values) for text in texts)

        return Action(self.program, fill(self.arguments), fill(self.select), fill(self.script))


@dataclass(frozen=True)
class Builder:
    """A build system whose folders a program flashes."""

    name: str
    file: str  # by which its build folder is known
    advice: str


ZEPHYR_BUILD = Builder("Zephyr", "zephyr/runners.yaml", "make the project with --template zephyr")
ESP_IDF_BUILD = Builder("ESP-IDF", "flasher_args.json", "name the folder that idf.py built")


@dataclass(frozen=True)
class ProbeCommands:
    """The commands of one program for one board; None for actions that it lacks."""

    name: str
    image_format: str  # one of IMAGE_FORMATS
    flash: Action
    reset: Action | None
    # A GDB server that stays until it is ended.
    server: Action | None = None
    # Whose build folder it takes instead of an image.
    builder: Builder | None = None
    # What installs its programs, where another maker has one of the same name.
    install: str = ""

    @property
    def program(self) -> str:
        """The program that flashes."""
        return self.flash.program

    @property
    def programs(self) -> tuple[str, ...]:
        """All programs that it uses, each once."""
        actions = (self.flash, self.reset, self.server)
        return tuple(dict.fromkeys(action.program for action in actions if action))


@dataclass(frozen=True)
class ProbeProgram:
    """A program that any board file may name; ``facts`` are the keys that the file must have for
    it."""

    commands: ProbeCommands
    facts: tuple[str, ...] = ()

    def for_board(self, facts: Mapping[str, str]) -> ProbeCommands:
        """Its commands for the board that has these facts."""
        commands = self.commands
        return replace(
            commands,
            flash=commands.flash.filled(facts),
            reset=commands.reset.filled(facts) if commands.reset else None,
            server=commands.server.filled(facts) if commands.server else None,
        )


def fill_in(text: str, values: Mapping[str, str]) -> str:
    """``text`` with ``{key}`` replaced for every key of ``values``."""
    # Not str.format: OpenOCD's Tcl uses braces, too.
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", value)
    return text


def _openocd() -> ProbeProgram:
    def action(*commands: str) -> Action:
        arguments = ["-f", "{config}"]
        for command in commands:
            arguments += ["-c", command]
        return Action("openocd", tuple(arguments), ("-c", "adapter serial {serial}"))

    # Anyone who reaches a port of OpenOCD can run commands with the user's rights.
    closed = "tcl_port disabled; telnet_port disabled"
    return ProbeProgram(
        ProbeCommands(
            name="openocd",
            image_format="elf",
            # Tcl's own braces keep a path with spaces together.
            flash=action(f"gdb_port disabled; {closed}", "program {{image}} verify reset exit"),
            reset=action(f"gdb_port disabled; {closed}", "init; reset run; shutdown"),
            server=action(f"gdb_port {{gdb_port}}; {closed}"),
        ),
        facts=("config",),
    )


def _pyocd() -> ProbeProgram:
    def action(subcommand: str, *arguments: str) -> Action:
        # Without --no-wait it waits forever for a probe to be plugged in.
        fixed = (subcommand, "--no-wait", "--target", "{target}", "{select}")
        return Action("pyocd", (*fixed, *arguments), ("--uid", "{serial}"))

    return ProbeProgram(
        ProbeCommands(
            name="pyocd",
            image_format="elf",
            flash=action("flash", "{image}"),
            reset=action("reset"),
            server=action(
                "gdbserver", "--persist", "--port", "{gdb_port}", "--telnet-port", "{aux_port}"
            ),
        ),
        facts=("target",),
    )


def _stm32cubeprogrammer() -> ProbeProgram:
    def action(*arguments: str) -> Action:
        # sn= belongs to the words after -c.
        fixed = ("-c", "port=SWD", "{select}")
        return Action("STM32_Programmer_CLI", (*fixed, *arguments), ("sn={serial}",))

    return ProbeProgram(
        ProbeCommands(
            name="stm32cubeprogrammer",
            image_format="elf",
            flash=action("mode=UR", "-w", "{image}", "-v", "-rst"),
            reset=action("-rst"),
        )
    )


def _jlink() -> ProbeProgram:
    device = ("-device", "{device}", "-if", "SWD", "-speed", "4000")
    quiet = ("-autoconnect", "1", "-ExitOnError", "1", "-NoGui", "1")

    def commander(*script: str) -> Action:
        arguments = (*device, *quiet, "-CommandFile", "{script}")
        # r resets and halts, g lets go, q leaves.
        return Action("JLinkExe", arguments, ("-USB", "{serial}"), script)

    server = ("-port", "{gdb_port}", "-telnetport", "{aux_port}", "-swoport", "{aux_port_2}")
    return ProbeProgram(
        ProbeCommands(
            name="jlink",
            image_format="hex",
            flash=commander("r", 'loadfile "{image}"', "r", "g", "q"),
            reset=commander("r", "g", "q"),
            server=Action(
                "JLinkGDBServerCLExe", (*device, *server, "-nogui"), ("-select", "usb={serial}")
            ),
        ),
        facts=("device",),
    )


def _st_flash() -> ProbeProgram:
    select = ("--serial", "{serial}")
    return ProbeProgram(
        ProbeCommands(
            name="st_flash",
            image_format="bin",
            flash=Action("st-flash", ("--reset", "write", "{image}", "{flash_address}"), select),
            reset=Action("st-flash", ("reset",), select),
            # -m: continue after a client has left.
            server=Action("st-util", ("-m", "-p", "{gdb_port}"), select),
        )
    )


def _esptool() -> ProbeProgram:
    """Espressif's, version 5; version 4, which PyPI has as ``esptool.py``, takes the same."""
    fixed = ("--chip", "{chip}", "--port", "{port}", "--baud", "460800")
    return ProbeProgram(
        ProbeCommands(
            name="esptool",
            image_format="elf",
            # It resets the chip before and after.
            flash=Action("esptool", (*fixed, "write_flash", "{parts}")),
            reset=Action("esptool", (*fixed, "run")),
            builder=ESP_IDF_BUILD,
        ),
        facts=("chip",),
    )


def _openocd_esp() -> ProbeProgram:
    """Espressif's OpenOCD, which reads the list of files itself."""
    program = f"program_esp_bins {{{{build}}}} {ESP_IDF_BUILD.file} verify reset exit"
    common = _openocd().commands
    arguments = (*common.flash.arguments[:-1], program)
    return ProbeProgram(
        replace(
            common,
            name="openocd_esp",
            flash=replace(common.flash, arguments=arguments),
            # The port for ESP-IDF serves no debugger.
            server=None,
            install="run export.sh of ESP-IDF, which puts Espressif's openocd on PATH",
            builder=ESP_IDF_BUILD,
        ),
        facts=("config",),
    )


# How Zephyr's runners receive a serial number (scripts/west_commands/runners, 3.7).
_WEST_SELECT = {
    "openocd": ("--serial", "{serial}"),
    "jlink": ("--dev-id", "{serial}"),
    "pyocd": ("--dev-id", "{serial}"),
    "nrfjprog": ("--dev-id", "{serial}"),
    "stm32cubeprogrammer": ("--tool-opt=sn={serial}",),
}


def _west(runner: str | None) -> ProbeProgram:
    """``west flash`` with this runner, or with the one that Zephyr's board names first."""
    chosen = ("--runner", runner) if runner else ()
    return ProbeProgram(
        ProbeCommands(
            name=f"west_{runner}" if runner else "west",
            image_format="elf",
            flash=Action(
                "west",
                # The image is built already, with other settings than west's.
                ("flash", "--skip-rebuild", "-d", "{build}", *chosen, "{select}"),
                _WEST_SELECT[runner] if runner else (),
            ),
            reset=None,
            builder=ZEPHYR_BUILD,
        )
    )


#: GDB server -> what makes it listen on this computer's loopback interface only, where that is not
#: so by default or has not always been. These arguments come first.
LOOPBACK_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "openocd": ("-c", "bindto 127.0.0.1"),
    "JLinkGDBServerCLExe": ("-LocalhostOnly", "1"),
}
#: GDB servers that have no such option: they listen on every network interface.
EXPOSED_SERVERS = frozenset({"st-util"})

#: Every program that a board file may name without describing it, by its name there.
PROBE_PROGRAMS: Mapping[str, ProbeProgram] = {
    program.commands.name: program
    for program in (
        _openocd(),
        _pyocd(),
        _stm32cubeprogrammer(),
        _jlink(),
        _st_flash(),
        _esptool(),
        _openocd_esp(),
        *(_west(runner) for runner in (None, *_WEST_SELECT)),
    )
}
