"""Programs and arguments that an untrusted board file may name.

A board file decides what is started on the user's computer. Many programs run others if their
arguments say so: OpenOCD's Tcl has ``exec``, pyOCD loads Python scripts, QEMU loads plugins, GCC
takes ``-wrapper``. Others write the files that their arguments name. So each program has a list of
arguments that only drive a board, and everything else is refused (see boards/trust.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from utvm_deploy.targets.table import TARGETS

_NAME = r"\w[\w.+-]*"
_NUMBER = r"\d+"
_ADDRESS = r"0x[0-9a-fA-F]+|\d+|\{flash_address\}"
_SERIAL = r"\{serial\}"
_PORT = r"\d+|\{(?:gdb|aux)_port\}|\{aux_port_2\}"
_IMAGE = r"\{image\}"


@dataclass(frozen=True)
class Arguments:
    """The arguments that a program may be given; each text but the words is an expression."""

    # Subcommands, and options that take no value.
    words: frozenset[str] = frozenset()
    # Option -> what the argument after it may be.
    values: Mapping[str, str] = field(default_factory=dict)
    # Any other argument.
    operand: str = r"(?!)"
    # A line of the program's command file.
    script: str = r"(?!)"

    def first_refused(self, arguments: Sequence[str]) -> str | None:
        """The first argument that the program must not get; None if there is none."""
        left = list(arguments)
        while left:
            argument = left.pop(0)
            value = self.values.get(argument)
            if value is not None and left:
                if not re.fullmatch(value, left[0], re.ASCII):
                    return left[0]
                left.pop(0)
            elif argument not in self.words and not re.fullmatch(self.operand, argument, re.ASCII):
                return argument
        return None

    def first_refused_line(self, lines: Sequence[str]) -> str | None:
        """The first line that its command file may not have."""
        return next((one for one in lines if not re.fullmatch(self.script, one, re.ASCII)), None)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# OpenOCD's scripts, by the folders that they are in. OpenOCD first looks in the folder in which it
# is started, which is "/" here. With another first folder, such as tmp, it would run any script.
_OPENOCD_SCRIPT = rf"(?:board|chip|cpld|cpu|fpga|interface|target)(?:/{_NAME})+\.cfg"
_OPENOCD_COMMAND = "|".join(
    (
        r"adapter serial \{serial\}",
        r"adapter speed \d+",
        r"transport select \w+",
        r"reset_config [\w ]+",
        r"init|halt|resume|shutdown|exit",
        r"reset(?: run| halt| init)?",
        r"sleep \d+",
        # The braces keep Tcl from reading the path as a command.
        r"program \{\{image\}\}(?: (?:verify|reset|exit|preverify|0x[0-9a-fA-F]+))*",
        r"program_esp_bins \{\{build\}\} flasher_args\.json(?: (?:verify|reset|exit))*",
        r"flash write_image(?: erase)? \{\{image\}\}(?: 0x[0-9a-fA-F]+)?",
        r"verify_image \{\{image\}\}(?: 0x[0-9a-fA-F]+)?",
        r"gdb_port (?:disabled|\{gdb_port\})",
        r"(?:tcl_port|telnet_port) (?:disabled|\{aux_port(?:_2)?\})",
        r"bindto 127\.0\.0\.1",
    )
)
_OPENOCD_COMMANDS = rf"(?:{_OPENOCD_COMMAND})(?:; ?(?:{_OPENOCD_COMMAND}))*;?"

_JLINK_TARGET = {
    **dict.fromkeys(("-device", "-if"), _NAME),
    "-speed": rf"{_NUMBER}|auto",
    "-JTAGConf": r"[\d,-]+",
    **dict.fromkeys(("-autoconnect", "-ExitOnError", "-NoGui"), "[01]"),
}
_JLINK_LINE = "|".join(
    (
        r"r|g|q|h|qc|exit|erase|connect|go|halt|rnh",
        r"sleep \d+",
        r'loadfile "\{image\}"(?:,? (?:0x)?[0-9a-fA-F]+)?',
        r'loadbin "\{image\}",? (?:0x)?[0-9a-fA-F]+',
        rf"(?:device|si) {_NAME}",
        r"speed \d+",
        r"(?i:setpc) (?:0x)?[0-9a-fA-F]+",
    )
)
_WEST_RUNNERS = "openocd|jlink|pyocd|nrfjprog|nrfutil|stm32cubeprogrammer|probe-rs|linkserver"

#: Program, by its name without a folder -> what a board file may have it do.
PROBE_ARGUMENTS: Mapping[str, Arguments] = {
    "openocd": Arguments(values={"-f": _OPENOCD_SCRIPT, "-c": _OPENOCD_COMMANDS}),
    "pyocd": Arguments(
        words=_words("flash load erase reset gdbserver gdb --no-wait -W --persist --chip --mass"),
        values={
            **dict.fromkeys(("--target", "-t", "--erase", "-e", "--format"), _NAME),
            **dict.fromkeys(("--uid", "-u", "--probe"), _SERIAL),
            **dict.fromkeys(("--port", "-p", "--telnet-port", "-T"), _PORT),
            **dict.fromkeys(("--base-address", "-a"), _ADDRESS),
            **dict.fromkeys(("--frequency", "-f"), r"\d+[kKmM]?"),
            **dict.fromkeys(("--connect", "-M"), _NAME),
        },
        operand=_IMAGE,
    ),
    "STM32_Programmer_CLI": Arguments(
        words=_words("-v -rst -hardRst -run -e all"),
        values={"-w": _IMAGE},
        operand=rf"-c|(?:port|mode|reset|freq|ap|index)=\w+|sn=\{{serial\}}|{_ADDRESS}",
    ),
    "JLinkExe": Arguments(
        values={
            **_JLINK_TARGET,
            "-CommandFile": r"\{script\}",
            **dict.fromkeys(("-USB", "-SelectEmuBySN"), _SERIAL),
        },
        script=_JLINK_LINE,
    ),
    "JLinkGDBServerCLExe": Arguments(
        words=_words("-nogui -nohalt -noir -silent -singlerun -strict -vd"),
        values={
            **_JLINK_TARGET,
            **dict.fromkeys(("-port", "-telnetport", "-swoport"), _PORT),
            "-select": r"usb=\{serial\}|usb",
            "-LocalhostOnly": "1",
        },
    ),
    "st-flash": Arguments(
        words=_words("--reset --connect-under-reset --hot-plug write reset erase"),
        values={"--serial": _SERIAL},
        operand=rf"{_IMAGE}|{_ADDRESS}|--(?:freq|format|flash)=\w+",
    ),
    "esptool": Arguments(
        words=_words("write_flash write-flash run {parts}"),
        values={"--chip": _NAME, "--port": r"\{port\}", "--baud": _NUMBER},
    ),
    "st-util": Arguments(
        words=_words("-m --multi -n --no-reset --connect-under-reset"),
        values={"-p": _PORT, "--serial": _SERIAL},
        operand=r"--freq=\w+",
    ),
    "west": Arguments(
        words=_words("flash --skip-rebuild"),
        values={
            "-d": r"\{build\}",
            "--runner": _WEST_RUNNERS,
            **dict.fromkeys(("--dev-id", "--serial"), _SERIAL),
        },
        operand=r"--tool-opt=sn=\{serial\}",
    ),
    "probe-rs": Arguments(
        words=_words("download erase reset gdb --verify --connect-under-reset --chip-erase"),
        values={
            **dict.fromkeys(("--chip", "--protocol", "--binary-format"), _NAME),
            **dict.fromkeys(("--base-address",), _ADDRESS),
            "--speed": _NUMBER,
            "--probe": _SERIAL,
            "--gdb-connection-string": r"127\.0\.0\.1:\{gdb_port\}",
        },
        operand=_IMAGE,
    ),
    "nrfjprog": Arguments(
        words=_words("--sectorerase --chiperase --verify --reset --pinreset --debugreset --halt"),
        values={
            "--program": _IMAGE,
            **dict.fromkeys(("--snr", "-s"), _SERIAL),
            **dict.fromkeys(("--family", "-f", "--coprocessor"), _NAME),
            "--clockspeed": _NUMBER,
        },
    ),
    "dfu-util": Arguments(
        words=_words("-R --reset -w --wait"),
        values={
            **dict.fromkeys(("-D", "--download"), _IMAGE),
            **dict.fromkeys(("-s", "--dfuse-address"), rf"(?:{_ADDRESS})(?::\w+)*"),
            **dict.fromkeys(("-S", "--serial"), _SERIAL),
            **dict.fromkeys(("-a", "--alt"), _NUMBER),
            **dict.fromkeys(("-d", "--device"), r"[0-9a-fA-F]{4}:[0-9a-fA-F]{4}"),
        },
    ),
}

#: What a board file may have emulate a board, and with which arguments.
EMULATORS = frozenset(program for one in TARGETS.values() for program in one.emulators)
EMULATOR_MACHINE = r"\w[\w.-]*(?:,(?:acpi|hpet|usb|secure|virtualization)=(?:on|off))*"
EMULATOR_ARGUMENTS = Arguments(
    words=_words("-no-reboot"),
    values={
        "-m": r"\d+[MG]?",
        "-bios": "none",
        "-cpu": rf"{_NAME}(?:,[+-]?[\w.-]+(?:=[\w.]+)?)*",
        "-icount": r"(?:shift=)?(?:\d+|auto)(?:,(?:sleep|align)=(?:on|off))*",
        "-smp": _NUMBER,
        "-seed": _NUMBER,
    },
)

_FLAGS_F = _words(
    """
    associative-math builtin common cx-limited-range data-sections delete-null-pointer-checks
    fast-math finite-math-only freestanding function-sections gcse hosted inline inline-functions
    inline-small-functions ipa-sra ivopts jump-tables math-errno merge-constants
    move-loop-invariants omit-frame-pointer optimize-sibling-calls peephole2 prefetch-loop-arrays
    reciprocal-math rename-registers rounding-math schedule-insns schedule-insns2 section-anchors
    short-enums short-wchar signed-char signed-zeros single-precision-constant split-wide-types
    stack-protector stack-protector-strong strict-aliasing strict-overflow trapping-math trapv
    tree-loop-distribute-patterns tree-loop-vectorize tree-slp-vectorize tree-vectorize
    unroll-all-loops unroll-loops unsafe-math-optimizations unsigned-char vect-cost-model web
    wrapv
    """
)
#: Flags of GCC that only choose which code it makes. The values of -D cannot be names of functions,
#: because code for the board ``host`` runs on this computer.
COMPILER_FLAG = "|".join(
    (
        # Clang hands what follows -mllvm to LLVM, which loads plugins.
        r"-m(?!llvm)[a-z0-9][\w.+-]*(?:=[\w.+-]+)?",
        r"-D[A-Za-z_]\w*(?:=(?:[+-]?[0-9]\w*|[A-Z_][A-Z0-9_]*)?)?",
        r"-O(?:[0-3sgz]|fast)?",
        rf"-f(?:no-)?(?:{'|'.join(sorted(_FLAGS_F))})",
        r"-falign-(?:functions|loops|jumps|labels)(?:=\d+)?",
        r"-f(?:fp-contract|excess-precision|vect-cost-model)=[a-z-]+",
        r"-g[0-3]?",
        r"-W(?:no-)?(?:error=)?[a-z][a-z0-9+-]*(?:=\d+)?",
        r"-std=(?:c|gnu)\d\w",
    )
)

#: A line of Kconfig: texts may hold options of compilers and names of programs.
KCONFIG_LINE = r"CONFIG_[A-Z0-9_]+=(?:[ynm]|-?\d+|0x[0-9a-fA-F]+)(?:\s+#.*)?"
#: A line of device tree, which the C preprocessor reads first: it must include no file.
DEVICE_TREE_LINE = (
    r"(?!.*/(?:include|incbin)/)(?:[\w\s{}<>;:,&=.()/@\"|~*+-]|#[a-z]+(?:-[a-z]+)*-cells\b)*"
)
