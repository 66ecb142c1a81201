"""Python, packages and programs: which are installed, and what installs the rest."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from utvm_deploy.base import process
from utvm_deploy.base.cache import cache_bytes
from utvm_deploy.base.errors import BuildError, MissingTool, UtvmError
from utvm_deploy.base.paths import cache_dir
from utvm_deploy.base.plugin_names import installed_plugins
from utvm_deploy.boards.board import Board
from utvm_deploy.boards.facts import ESP_IDF
from utvm_deploy.device.doctor.check import Check
from utvm_deploy.project.esp_idf_build import EspIdfTree, find_esp_idf
from utvm_deploy.project.zephyr_build import Zephyr, find_zephyr
from utvm_deploy.targets.contract.machine import MachineKind
from utvm_deploy.targets.emulator.plugin import COMPILER

#: How long a program may take to print its version.
VERSION_TIMEOUT_S = 10.0
#: Every Python package that utvm_deploy itself needs; versions are those that it was built with.
_DISTRIBUTION = "utvm-deploy"
#: Packages that only some work needs: the name of the extra, and the work.
_EXTRAS = {
    "client": "use a server: submit, jobs, fetch, utvm://",
    "cluster": "use several computers: worker, tune --cluster",
    "service": "serve a team: serve",
    "quantize": "quantize .tflite models",
    "onnx": "read and quantize ONNX models",
    "torch": "read and quantize PyTorch models",
    "docs": "build the site of the documentation: make site",
    "notebook": "run the notebooks of the tutorials: make notebooks",
    "wasm": "compile for WebAssembly and run it",
    "ethos-u": "compute layers on an Arm Ethos-U: --ethos-u",
}


def installed_checks(board: Board | None) -> list[Check]:
    """What is installed of what ``board`` needs, or of what any board needs."""
    checks = [_python(), *_packages(), *_programs(board), _cache()]
    if board is None:
        checks += [*_extras(), *_plugins()]
    if board is not None and board.cpu.target.machine is not None:
        checks.append(_machine(board.cpu.target.machine))
    if board is not None and "zephyr" in board.project.templates:
        checks.append(
            _system("Zephyr", find_zephyr, "build Zephyr applications", board.template == "zephyr")
        )
    if board is not None and board.project.esp_idf is not None:
        is_needed = board.template == ESP_IDF
        checks.append(_system("ESP-IDF", find_esp_idf, "build projects of ESP-IDF", is_needed))
    return checks


def _cache() -> Check:
    """Where built images are kept, and what they take."""
    purpose, fix = "keep what was built", "set UTVM_CACHE to a folder of yours"
    try:
        found = f"{cache_bytes() / 1e6:,.0f} MB in {cache_dir()}"
    except UtvmError:
        return Check("cache", purpose, None, fix, True)
    return Check("cache", purpose, found, fix, True)


def _plugins() -> list[Check]:
    """The plug-ins that installed packages offer. None of their code runs."""
    return [
        Check(
            f"plug-in {name}",
            f"compute operators (--plugin {name})",
            "offered by an installed package",
            "",
            False,
        )
        for name in installed_plugins()
    ]


def _system(
    name: str, find: Callable[[], Zephyr | EspIdfTree], purpose: str, is_needed: bool
) -> Check:
    """A tree, and a Python that can run its scripts."""
    found, fix = None, ""
    try:
        found = find().version
    except MissingTool as error:
        fix = error.install
    except BuildError as error:
        fix = str(error)
    return Check(name, purpose, found, fix, is_needed)


def _machine(machine: MachineKind) -> Check:
    try:
        machine.check()
    except MissingTool as error:
        return Check(machine.name, "run images", None, error.install, True)
    return Check(machine.name, "run images", importlib.metadata.version(machine.name), "", True)


def _python() -> Check:
    version = ".".join(str(part) for part in sys.version_info[:3])
    good = sys.version_info >= (3, 10)
    return Check("Python", "run utvm", version if good else None, "install Python 3.10", True)


def _packages() -> list[Check]:
    """The pinned dependencies: pip lets a later install move them, and then TVM crashes."""
    checks = []
    for requirement in importlib.metadata.requires(_DISTRIBUTION) or []:
        specification, _, marker = requirement.partition(";")
        if marker:
            continue
        match = re.match(r"[A-Za-z0-9._-]+", specification)
        assert match is not None
        name, exact = match.group(), specification.partition("==")[2].strip()
        try:
            found: str | None = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found = None
        if exact and found != exact:
            found = None
        checks.append(
            Check(name, "Python package", found, f"pip install '{specification.strip()}'", True)
        )
    return checks


def _extras() -> list[Check]:
    """One check for each extra; it is there if all its packages are."""
    wanted: dict[str, list[str]] = {extra: [] for extra in _EXTRAS}
    for requirement in importlib.metadata.requires(_DISTRIBUTION) or []:
        specification, _, marker = requirement.partition(";")
        match = re.match(r"[A-Za-z0-9._-]+", specification)
        extra = re.search(r"extra *== *['\"]([a-z-]+)['\"]", marker)
        if match and extra and extra[1] in wanted and match.group() != _DISTRIBUTION:
            wanted[extra[1]].append(match.group())
    return [
        Check(
            f"[{extra}]",
            _EXTRAS[extra],
            "installed" if all(map(_is_installed, packages)) else None,
            f"pip install '{_DISTRIBUTION}[{extra}]'",
            False,
        )
        for extra, packages in wanted.items()
    ]


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _programs(board: Board | None) -> list[Check]:
    wanted = _programs_of(board) if board else tuple(process.TOOLS)
    checks = []
    for program in wanted:
        purpose, install = process.TOOLS.get(
            Path(program).name, ("reach this board", f"install {program}")
        )
        users = board.probe.commands if board else ()
        own = [one.install for one in users if one.install and program in one.programs]
        install = own[0] if own else install
        needed = board is not None and program not in _optional_programs(board)
        checks.append(Check(program, purpose, _found(program, board), install, needed))
    return checks


def _found(program: str, board: Board | None) -> str | None:
    """The version of a program; None if it is missing, or lacks what it needs for the board."""
    if board is not None and program == board.cpu.toolchain.compiler:
        try:
            board.cpu.toolchain.prepare()
        except MissingTool:
            return None
    return program_version(program)


def needed_programs(board: Board) -> list[str]:
    """The programs without which nothing can be built for the board, or run on it."""
    return [one for one in _programs_of(board) if one not in _optional_programs(board)]


def _programs_of(board: Board) -> Sequence[str]:
    programs = ["cmake", board.cpu.toolchain.compiler]
    if board.template == "zephyr":
        programs += ["ninja", "dtc"]
    # CMake drives whichever of the two is there.
    programs.append("ninja" if process.which("ninja") or not process.which("make") else "make")
    if board.emulator is not None:
        programs.append(board.emulator.program)
    return list(dict.fromkeys([*programs, *_optional_programs(board)]))


def _optional_programs(board: Board) -> list[str]:
    """What work on the board can do without.

    The compiler of the cycle model's plugin is needed only by verbs that count modelled cycles. A
    build imports west without the program; that one fetches Zephyr and flashes.
    """
    return [
        *_probe_programs(board),
        *([COMPILER] if board.has_cycle_model else []),
        *(["west"] if "zephyr" in board.project.templates else []),
    ]


def _probe_programs(board: Board) -> list[str]:
    """Any one of them is enough; desk.py says so."""
    return [program for one in board.probe.commands for program in one.programs]


def program_version(program: str) -> str | None:
    """The version that a program prints, "present" if it prints none; None if it is missing."""
    path = process.which(program)
    if path is None:
        return None
    completed = process.run([path, "--version"], timeout_s=VERSION_TIMEOUT_S)
    match = re.search(r"\d+(\.\d+)+", completed.output)
    return match.group() if match else "present"
