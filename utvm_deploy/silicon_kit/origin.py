"""What a report says of its origin: versions, the board, and where modelled cycles come from."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import re
from dataclasses import asdict, dataclass

from utvm_deploy import __version__
from utvm_deploy.base.errors import BoardError, BuildError, MissingTool, ProbeError
from utvm_deploy.boards.board import Board
from utvm_deploy.boards.twin import emulated_twin
from utvm_deploy.device import Device
from utvm_deploy.device.probe import choose_link
from utvm_deploy.device.probe.detect import locate
from utvm_deploy.device.probe.flash import probe_commands
from utvm_deploy.device.probe.usb import usb_devices
from utvm_deploy.project.build import compiler_version
from utvm_deploy.silicon_kit.private import Cleaner
from utvm_deploy.silicon_kit.report import BoardUsed, Modelling, Setup, Timing, Versions
from utvm_deploy.targets.emulator import cycle_model_digest
from utvm_deploy.targets.emulator.plugin import installed_qemu_version, plugin_for


@dataclass(frozen=True)
class Place:
    """Where the board is connected, as the user says; None for everything that the user omits."""

    port: str | None = None
    probe: str | None = None
    serial: str | None = None
    link: str | None = None


def setup_of(board: Board, place: Place, clean: Cleaner) -> tuple[Setup, Board | None]:
    """The report's head, and the emulated board that models cycles, if there is one."""
    modelling, emulated = modelling_of(board, clean)
    setup = Setup(
        versions=Versions(
            utvm=__version__,
            tvm=importlib.metadata.version("apache-tvm"),
            litert=importlib.metadata.version("ai-edge-litert"),
            compiler=clean(compiler_version(board).partition("\n")[0]),
            system=_system(),
            python=platform.python_version(),
        ),
        board=BoardUsed(
            name=board.name,
            core=board.cpu.core,
            clock_hz=board.cpu.clock_hz,
            facts_sha256=facts_digest(board),
            template=board.template,
            is_silicon=not board.runs_here,
            probe=_probe(board, place),
            usb=tuple(sorted({one.usb for one in usb_devices(board.probe.usb)})),
            link=choose_link(board, place.link),
        ),
        modelling=modelling,
    )
    return setup, emulated


def facts_digest(board: Board) -> str:
    """Equal for boards with equal facts; comments in their files do not count."""
    facts = {name: value for name, value in asdict(board).items() if name != "source"}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def timing_of(device: Device) -> Timing:
    """What the board says of its ticks, and what counts them."""
    board = device.board
    if device.is_modelled:
        source = "cycle model"
    elif board.template == "baremetal" and board.project.timer is not None:
        source = board.project.timer.driver.name
    else:
        source = board.template
    return Timing(device.hello.tick_unit, device.hello.ticks_per_second, source)


def stand_in(board: Board) -> Board | None:
    """The board itself or its twin, if a cycle model counts there."""
    try:
        found = board if board.runs_here else emulated_twin(board)
    except BoardError:
        return None
    return found if found.has_cycle_model else None


def modelling_of(board: Board, clean: Cleaner) -> tuple[Modelling, Board | None]:
    """Where modelled cycles of the board come from, and the emulated board that counts them."""
    emulated = stand_in(board)
    if emulated is None:
        why = f"no emulated machine with a cycle model has {board.name}'s core and enough memory"
        return Modelling(None, "", "", why), None
    assert emulated.emulator is not None
    program = emulated.emulator.program
    try:
        plugin_for(program)
    except MissingTool:
        return Modelling(None, "", "", f"{program} is not installed"), None
    except (ProbeError, BuildError) as error:
        return Modelling(None, "", "", clean(str(error))), None
    version = f"{program} {installed_qemu_version(program)}"
    note = emulated.emulator.twin_note
    return Modelling(emulated.name, cycle_model_digest(emulated), version, note), emulated


def _system() -> str:
    """The system, the first numbers of its release, and the machine; nobody's own names."""
    release = re.match(r"\d+(\.\d+)?", platform.release())
    return " ".join(
        part
        for part in (platform.system(), release and release.group(), platform.machine())
        if part
    )


def _probe(board: Board, place: Place) -> str:
    """The program that puts images on the board, with its version."""
    if board.emulator is not None:
        program = board.emulator.program
        return f"{program} {installed_qemu_version(program)}"
    if board.runs_here:
        return "process"
    entry = locate(board, serial=place.serial, needs_port=False).entry
    if entry.server is not None:
        return "GDB server"
    return probe_commands(board, place.probe or entry.probe).name
