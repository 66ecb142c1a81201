"""From a project of ESP-IDF to an image: finding ESP-IDF, building, and why not.

ESP-IDF, its Python and its compilers are the user's; ``export.sh`` of ESP-IDF makes them known.
What is missing is said in one sentence before anything is started. build.py calls this for boards
whose template is esp-idf.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from utvm_deploy.base import process
from utvm_deploy.base.build_failure import BuildStep, run_step
from utvm_deploy.base.errors import BuildError, MissingTool
from utvm_deploy.boards.board import Board
from utvm_deploy.boards.facts import EspIdf
from utvm_deploy.boards.probe_programs import ESP_IDF_BUILD

#: All components of the system, on a busy machine; two minutes are usual.
BUILD_TIMEOUT_S = 1800.0
#: The oldest release that has all functions of the port.
OLDEST = (5, 1)
_TOOL = Path("tools") / "idf.py"
_VERSION = Path("tools") / "cmake" / "version.cmake"
_FIRST_ERROR = re.compile(
    r"^.*(?:\berror: |undefined reference|multiple definition|CMake Error|^ERROR: ).*$",
    re.MULTILINE,
)
_OVERFLOW = re.compile(
    r"region [`'](?P<region>\w+)' overflowed by (?P<bytes>\d+) bytes?|(?P<name>\w+) segment data "
    r"does not fit|app partition is too small[^\n]*"
)


@dataclass(frozen=True)
class EspIdfTree:
    """ESP-IDF on this computer, and the Python that its scripts run with."""

    base: Path
    python: str
    version: str

    @property
    def identity(self) -> str:
        """What an image depends on in addition to its files: part of the cache's key."""
        return f"{self.base}\n{self.version}"


def find_esp_idf() -> EspIdfTree:
    """The tree that IDF_PATH names, with the Python that was installed for it."""
    named = os.environ.get("IDF_PATH")
    if not named:
        raise MissingTool(
            "ESP-IDF",
            "build projects of ESP-IDF",
            f"install ESP-IDF {_dotted(OLDEST)} or newer, then run its export.sh in this shell: "
            ". ~/esp/esp-idf/export.sh, which sets IDF_PATH",
        )
    base = Path(named)
    try:
        text = (base / _VERSION).read_text(encoding="utf-8")
    except OSError as exc:
        raise BuildError(
            f"IDF_PATH names {named!r}, where no ESP-IDF is (no file {_VERSION}); correct it"
        ) from exc
    parts = re.findall(r"set\(IDF_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)\)", text)
    if tuple(map(int, parts[:2])) < OLDEST:
        raise BuildError(
            f"ESP-IDF {'.'.join(parts)} in {named} is too old; install {_dotted(OLDEST)} or newer"
        )
    # Its packages are in a separate environment.
    python = Path(os.environ.get("IDF_PYTHON_ENV_PATH", "")) / "bin" / "python"
    if not os.environ.get("IDF_PYTHON_ENV_PATH") or not python.is_file():
        raise BuildError(
            "IDF_PYTHON_ENV_PATH names no Python environment of ESP-IDF; run in this shell: "
            f". {base / 'export.sh'}"
        )
    return EspIdfTree(base.resolve(), str(python), ".".join(parts))


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def build_esp_idf(directory: Path, build: Path, board: Board, esp_idf: EspIdf, log: Path) -> None:
    """Configure and build the project in ``directory``."""
    tree = find_esp_idf()
    # A relative SDKCONFIG would count from the project.
    build = build.absolute()
    argv = [tree.python, str(tree.base / _TOOL), "-C", str(directory.absolute()), "-B", str(build)]
    # It goes with the build folder: a new build takes the defaults again.
    argv += ["-D", f"SDKCONFIG={build / 'sdkconfig'}", "build"]
    env = {"IDF_PATH": str(tree.base), "IDF_TARGET": esp_idf.target}

    def too_large(output: str) -> str | None:
        overflow = _OVERFLOW.search(output)
        return overflow and (
            f"the image for {board.name} does not fit ({overflow.group()}); use a smaller model, a "
            "board with more memory, or a smaller workspace_bytes of [project.esp_idf]"
        )

    what = f"building an image for {board.name}"
    run_step(BuildStep(what, argv, BUILD_TIMEOUT_S, too_large, _reason), env, log)


def _reason(done: process.Completed) -> str | None:
    first = _FIRST_ERROR.search(done.output)
    return first.group().strip() if first else None


def kept_files(build: Path) -> list[Path]:
    """Of a finished build, what outlives the next one: the image, and what flashes it."""
    names = [ESP_IDF_BUILD.file, *(path.name for path in build.glob("*.elf"))]
    return [*map(Path, names), *(path.relative_to(build) for path in build.rglob("*.bin"))]
