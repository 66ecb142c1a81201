"""The error message of a probe's program, as one sentence with what to do next.

OpenOCD 0.12, pyOCD 0.46, st-flash and st-util 1.7, and west 1.5 have the texts that they print
without a probe. The others have those of their sources and manuals. The rest is quoted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from utvm_deploy.base.errors import NoDevice, ProbeError


@dataclass(frozen=True)
class Failure:
    """What a program's words mean."""

    words: str  # a regular expression, found anywhere in the output, in any case
    is_absent: bool  # whether nothing is plugged in
    meaning: str
    advice: str


# The first row that fits counts: those that know more come first.
FAILURES = (
    Failure(
        r"LIBUSB_ERROR_ACCESS|Access denied|insufficient permissions|Permission denied",
        False,
        "you may not open the USB probe",
        "install its udev rules (sudo apt install openocd brings them), then replug it",
    ),
    Failure(
        r"LIBUSB_ERROR_BUSY|Resource busy|is already (?:in use|open)|in use by another",
        False,
        "another program holds the probe",
        "end it (a debugger, an IDE, another utvm), then try again",
    ),
    Failure(
        r"Target type \S+ not recogni[sz]ed",
        False,
        "pyOCD does not know this chip yet",
        "run pyocd pack install NAME with the target's name, as the board file has it",
    ),
    Failure(
        r"^Error: open failed|Couldn't find any ST-Link|No (?:ST-?LINK|debug probe) detected|"
        r"No target device available|No probe selected|No connected debug probe|"
        r"No available debug probes|unable to find a matching CMSIS-DAP|No J-Link device found|"
        r"J-Link via USB\.*\s*FAILED|Cannot connect to (?:the )?(?:J-Link|probe)",
        True,
        "no debug probe is there",
        "plug the board in, or correct the probe's serial number",
    ),
    Failure(
        r"init mode failed|No STM32 target found|unable to connect to (?:the )?target|"
        r"Cannot connect to (?:the )?target|target voltage may be too low|"
        r"Error connecting DP|Could not find core|unknown chip id",
        False,
        "the probe is there, but the chip does not answer",
        "check its power and its jumpers, or hold its reset button while it starts",
    ),
    Failure(
        r"Could not open \S+, the port is busy",
        True,
        "its serial port is busy or absent",
        "plug the board in, end the program that has the port open, or correct --port",
    ),
    Failure(
        r"Failed to connect to ESP",
        False,
        "the port is there, but the chip does not answer",
        "hold the board's BOOT button while it is reset",
    ),
    Failure(
        r"Can't find board/esp\S+\.cfg|invalid command name \"program_esp",
        False,
        "this OpenOCD is not Espressif's",
        "pip install 'esptool>=5', or put the openocd of ESP-IDF's export.sh first on PATH",
    ),
    Failure(
        r"Can't find \S+\.cfg|couldn't open \S+\.cfg",
        False,
        "OpenOCD has no such script",
        "correct probe.openocd.config in the board file (see /usr/share/openocd/scripts)",
    ),
    Failure(
        r"Python dependencies were missing",
        False,
        "west's runner lacks a Python package",
        "pip install -r zephyr/scripts/requirements.txt for the Python that west runs with",
    ),
    Failure(
        r"required program \S+ not found",
        False,
        "west's runner lacks its program",
        "install what it names, or take another probe",
    ),
    Failure(
        r"Address already in use|Couldn't bind",
        False,
        "another program listens on its TCP port",
        "try again",
    ),
)


def failure(what: str, program: str, output: str, returncode: int | None) -> ProbeError:
    """The error of a program that ended with ``output`` when it should not have."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for row in FAILURES:
        if re.search(row.words, output, re.IGNORECASE | re.MULTILINE):
            kind = NoDevice if row.is_absent else ProbeError
            quoted = next((line for line in lines if re.search(row.words, line, re.IGNORECASE)), "")
            said = f" ({_short(quoted)})" if quoted else ""
            return kind(f"{what} with {program} failed: {row.meaning}{said}; {row.advice}")
    errors = [line for line in lines if "error" in line.lower()] or lines[-1:]
    reason = _short(errors[0]) if errors else f"status {returncode}"
    return ProbeError(
        f"{what} with {program} failed: {reason}; is the board plugged in, and does no other "
        f"program use its probe?"
    )


def _short(line: str, longest: int = 120) -> str:
    return line if len(line) <= longest else f"{line[:longest]}..."
