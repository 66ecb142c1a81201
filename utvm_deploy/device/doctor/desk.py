"""From the probe's program to the image: what stands between a real board and its first run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from utvm_deploy.base import process
from utvm_deploy.base.errors import UtvmError
from utvm_deploy.boards.board import Board
from utvm_deploy.boards.desk_file import BenchEntry, bench_path, load_bench_entry
from utvm_deploy.boards.regions import not_initialized, not_starting
from utvm_deploy.device.doctor.check import Check
from utvm_deploy.device.link.stream import RIGHTS_ADVICE
from utvm_deploy.device.probe import choose_link, needs_debugger, needs_line
from utvm_deploy.device.probe.detect import Place, locate
from utvm_deploy.device.probe.usb import UsbDevice, udev_rules, usb_devices
from utvm_deploy.project import build_image

_UDEV_FIX = (
    "sudo apt install openocd, which brings rules for probes, then replug it (another rule: "
    'SUBSYSTEM=="usb", ATTR{idVendor}=="%04x", MODE="0666" in /etc/udev/rules.d)'
)


def desk_checks(
    board: Board,
    *,
    port: str | None,
    serial: str | None,
    probe: str | None = None,
    link: str | None = None,
    builds: bool = True,
) -> list[Check]:
    """In the order in which they are worth mending; without ``builds`` no image is built."""
    if board.why_no_image:
        found = process.which("idf.py")
        return [Check("idf.py", "build and flash its firmware", found, "install ESP-IDF", False)]
    kind = choose_link(board, link)
    server = _bench_entry(board).server
    if server is not None:
        # It holds the probe, wherever that is.
        checks = [Check("GDB server", "flash and debug", f"{server} (not tried)", "", True)]
    else:
        checks = [_flashing(board, probe)]
        if board.probe.usb:
            devices = usb_devices(board.probe.usb)
            checks += [_on_usb(board, devices), _rights(board, devices)]
    if needs_line(kind):
        checks += _serial_port(board, port, serial)
    if server is None:
        checks.append(_debug_server(board, needs_debugger(kind)))
    if builds and "baremetal" in board.project.templates:
        checks.append(_image(board))
    if any(region.needs_init for region in board.memory):
        checks.append(_memories(board))
    return checks


def _memories(board: Board) -> Check:
    """Which region an image has for what; a board that cannot start fails the check."""
    dead = "; ".join(not_starting(board))
    places = (
        f"code in {board.main_flash.name}, weights in {board.weights_flash(0).name}, data and "
        f"stack in {board.data_ram.name}, workspace in {board.main_ram.name}"
    )
    found = "; ".join((places, *not_initialized(board)))
    return Check("memories", "hold the image", None if dead else found, dead, True)


def _flashing(board: Board, probe: str | None) -> Check:
    """One of the board's programs is enough; the user or bench.toml may insist on one."""
    wanted = probe or _bench_entry(board).probe
    commands = [one for one in board.probe.commands if wanted in (None, one.name)]
    present = [one.name for one in commands if process.which(one.program)]
    first = commands[0].program if commands else "a probe"
    _, install = process.TOOLS.get(first, ("", f"install {first}"))
    return Check(
        "flashing program",
        "put images on the board",
        ", ".join(present) or None,
        install if commands else _other_probe(board, probe),
        True,
    )


def _other_probe(board: Board, probe: str | None) -> str:
    """What to do about a probe that the board does not have."""
    if probe is None:
        return f"correct the probe that {bench_path()} names"
    return f"{probe!r} is none of its probes; name one of {', '.join(board.probe.kinds)}"


def _bench_entry(board: Board) -> BenchEntry:
    """What the bench file says of the board, if it names one board of that kind."""
    try:
        return load_bench_entry(board.name)
    except UtvmError:
        return BenchEntry()


def _on_usb(board: Board, devices: list[UsbDevice]) -> Check:
    ids = " or ".join(f"{usb.vendor:04x}:{usb.product:04x}" for usb in board.probe.usb)
    found = ", ".join(f"{one.usb} {one.serial}".strip() for one in devices)
    return Check(
        "board on USB",
        "its debug probe",
        found or None,
        f"plug the USB connector of its debug probe in ({ids}), with a cable that carries data",
        True,
    )


def _rights(board: Board, devices: list[UsbDevice]) -> Check:
    """Of the device itself if it is there; else whether rules wait for it."""
    vendor = board.probe.usb[0].vendor
    fix = _UDEV_FIX % vendor
    if not sys.platform.startswith("linux"):
        return Check("rights to the probe", "open it", "no rules are needed here", fix, True)
    if devices:
        closed = [one for one in devices if not os.access(one.node, os.R_OK | os.W_OK)]
        found = None if closed else "may be opened"
    else:
        rules = udev_rules(board.probe.usb)
        found = f"{rules[0].name} waits for it" if rules else None
    return Check("rights to the probe", "open it", found, fix, True)


def _serial_port(board: Board, port: str | None, serial: str | None) -> list[Check]:
    purpose = "talk to the runtime"
    try:
        place: Place = locate(board, port=port, serial=serial)
    except UtvmError as error:
        return [Check("serial port", purpose, None, str(error), True)]
    assert place.port is not None
    if "://" in place.port:
        return [Check("serial port", purpose, f"{place.port} (not tried)", "", True)]
    path = Path(place.port)
    if not path.exists() and os.name == "posix":
        return [
            Check("serial port", purpose, None, f"{path} is not there: plug the board in", True)
        ]
    may = os.name != "posix" or os.access(path, os.R_OK | os.W_OK)
    return [Check("serial port", purpose, str(path) if may else None, RIGHTS_ADVICE, True)]


def _debug_server(board: Board, is_needed: bool) -> Check:
    programs = [one.server.program for one in board.probe.commands if one.server]
    present = next((program for program in programs if process.which(program)), None)
    fix = "none of the board's probes has one"
    if programs:
        _, fix = process.TOOLS.get(programs[0], ("", f"install {programs[0]}"))
    return Check("debug server", "the link without a serial port", present, fix, is_needed)


def _image(board: Board) -> Check:
    """The runtime alone: compiler, linker script and drivers fit together."""
    purpose = "compile and link for the board"
    try:
        image = build_image(None, board)
        found = f"{image.flash_bytes:,} bytes of flash, {image.ram_bytes:,} of RAM"
    except UtvmError as error:
        return Check("image", purpose, None, str(error), True)
    return Check("image", purpose, found, "", True)
