"""From a Zephyr application to an image: finding Zephyr, configuring, building, and why not.

Zephyr, its Python packages and the compiler are the user's. What is missing is said in one sentence
before anything is started. build.py calls this for boards whose template is zephyr.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from utvm_deploy.base import process
from utvm_deploy.base.build_failure import BuildStep, run_step
from utvm_deploy.base.errors import MissingTool
from utvm_deploy.boards.board import Board
from utvm_deploy.boards.facts import Zephyr as ZephyrFacts
from utvm_deploy.boards.new_boards.zephyr import zephyr_tree
from utvm_deploy.project.zephyr import file_name, zephyr_of

# Configuring reads thousands of device tree and Kconfig files; a cold disk takes its time.
CONFIGURE_TIMEOUT_S = 600.0
# The whole kernel on a busy machine; a minute is usual.
BUILD_TIMEOUT_S = 1800.0
PROBE_TIMEOUT_S = 60.0

# Where Zephyr's build leaves the image.
ZEPHYR_ELF_FILE = Path("zephyr") / "zephyr.elf"
#: What outlives the next build: the image, and those that `west flash` reads with it.
KEPT_FILES = (
    ZEPHYR_ELF_FILE,
    *(Path("zephyr") / name for name in ("zephyr.hex", "zephyr.bin", "runners.yaml", ".config")),
    Path("CMakeCache.txt"),
)

# What the build imports with every release. West is optional to Zephyr, but not once WEST_PYTHON is
# set, which keeps it from running a west of another Python.
_PYTHON_MODULES = ("elftools", "yaml", "packaging", "west")
# What reads the schemas of module and board files; a release imports one of the two.
_VALIDATORS = ("pykwalify", "jsonschema")
_VALIDATING_SCRIPT = Path("scripts") / "zephyr_module.py"
_REQUIREMENTS = Path("scripts") / "requirements-base.txt"
_PYTHON_CHECK = Path("cmake") / "modules" / "python.cmake"

_FIRST_ERROR = re.compile(
    r"^.*(?:\berror: |undefined reference|multiple definition|CMake Error|will not fit).*$",
    re.MULTILINE,
)
_OVERFLOW = re.compile(r"region [`'](?P<region>\w+)' overflowed by (?P<bytes>\d+) bytes?")
# Zephyr aborts on some Kconfig warnings, and says so behind the last of them.
_KCONFIG = re.compile(r"^warning: .*(?:\n(?!\n).*)*", re.MULTILINE)


# Files at the top of a tree that change with the model and that no build reads.
_MODELS_OWN = ("utvm_project.json", "sample.yaml", "prj_standalone.conf")


@dataclass(frozen=True)
class Zephyr:
    """A Zephyr tree on this computer, and the Python that its scripts run with."""

    base: Path
    python: str
    version: str

    @property
    def identity(self) -> str:
        """What an image depends on in addition to its files: part of the cache's key."""
        settings = (
            "ZEPHYR_TOOLCHAIN_VARIANT",
            "ZEPHYR_SDK_INSTALL_DIR",
            "GNUARMEMB_TOOLCHAIN_PATH",
            "CROSS_COMPILE",
            "ZEPHYR_MODULES",
            "ZEPHYR_EXTRA_MODULES",
        )
        chosen = [f"{name}={os.environ.get(name, '')}" for name in settings]
        return "\n".join((str(self.base), self.version, *chosen))


def find_zephyr() -> Zephyr:
    """The tree that ZEPHYR_BASE names, with a Python that can run its scripts."""
    base, version = zephyr_tree("build Zephyr applications")
    for program in ("cmake", "ninja", "dtc"):
        process.find_tool(program)
    return Zephyr(base, _find_python(base), version)


def _find_python(base: Path) -> str:
    """The first Python that has what Zephyr's scripts import: west's own, ours, the system's."""
    candidates = [sys.executable, "python3"]
    with contextlib.suppress(MissingTool):
        west = Path(process.find_tool("west")).resolve()
        candidates.insert(0, str(west.with_name("python3")))
    if process.is_dry_run():
        return candidates[-1]
    # What this release's scripts want: Zephyr 4.2 raised it from 3.10 to 3.12.
    text = ""
    with contextlib.suppress(OSError):
        text = (base / _PYTHON_CHECK).read_text(encoding="utf-8")
    found = re.search(r"PYTHON_MINIMUM_REQUIRED (\d+)\.(\d+)", text)
    oldest = (int(found[1]), int(found[2])) if found else (3, 10)
    modules = ", ".join((*_PYTHON_MODULES, *_validators(base)))
    trial = f"import sys, {modules}; assert sys.version_info >= {oldest}"
    for python in candidates:
        with contextlib.suppress(MissingTool):
            if process.run([python, "-c", trial], timeout_s=PROBE_TIMEOUT_S).is_ok:
                return python
    raise MissingTool(
        "the Python packages of Zephyr's build scripts",
        "build Zephyr applications",
        f"pip install 'utvm-deploy[zephyr]', or pip install -r {base / _REQUIREMENTS}, for a "
        f"Python {oldest[0]}.{oldest[1]} or newer",
    )


def _validators(base: Path) -> list[str]:
    text = ""
    with contextlib.suppress(OSError):
        text = (base / _VALIDATING_SCRIPT).read_text(encoding="utf-8")
    return [name for name in _VALIDATORS if re.search(rf"^(import|from) {name}\b", text, re.M)]


def build_application(directory: Path, build: Path, board: Board, log: Path) -> Path:
    """Configure and build the application in ``directory``; its ELF file's path."""
    zephyr = find_zephyr()
    if not (build / "build.ninja").is_file():
        configure = [
            "cmake",
            "-GNinja",
            "-S",
            str(directory),
            "-B",
            str(build),
            f"-DBOARD={_name_in(zephyr.base, zephyr_of(board))}",
            f"-DPython3_EXECUTABLE={zephyr.python}",
            f"-DWEST_PYTHON={zephyr.python}",
        ]
        _step(configure, CONFIGURE_TIMEOUT_S, zephyr, board, log, "configuring")
    jobs = str(os.cpu_count() or 1)
    argv = ["cmake", "--build", str(build), "-j", jobs]
    _step(argv, BUILD_TIMEOUT_S, zephyr, board, log, "building")
    return build / ZEPHYR_ELF_FILE


def _name_in(base: Path, names: ZephyrFacts) -> str:
    """What this release calls the board: it has a file of that name in the board's folder."""
    for name in names.other_names:
        if any((base / "boards").glob(f"*/*/{file_name(name)}.yaml")):
            return name
    return names.board


def _step(
    argv: list[str], timeout_s: float, zephyr: Zephyr, board: Board, log: Path, what: str
) -> None:
    def too_large(output: str) -> str | None:
        overflow = _OVERFLOW.search(output)
        return overflow and (
            f"the image for {board.name} needs {int(overflow['bytes']):,} bytes more than Zephyr's "
            f"region {overflow['region']} has; use a smaller model, a board with more memory, or "
            f"a smaller CONFIG_UTVM_WORKSPACE_BYTES"
        )

    # CFLAGS and LDFLAGS of the environment Zephyr passes over by itself.
    env = {"ZEPHYR_BASE": str(zephyr.base)}
    step = BuildStep(f"{what} an image for {board.name}", argv, timeout_s, too_large, reason)
    run_step(step, env, log)


def reason(done: process.Completed) -> str:
    """The line of a failed build's output that says why."""
    before, aborted, _ = done.output.partition("error: Aborting due to Kconfig warnings")
    warnings = _KCONFIG.findall(before) if aborted else []
    if warnings:
        return " ".join(str(warnings[-1]).split())
    first = _FIRST_ERROR.search(done.output)
    if first is None:
        return f"status {done.returncode}"
    if "CMake Error" in first.group():
        # CMake puts the sentence on the next lines.
        after = done.output[first.end() :].split("\n\n")[0]
        return " ".join(f"{first.group()} {after}".split())
    return first.group().strip()


def kernel_key(files: Mapping[str, str], made_by: str) -> str:
    """Names the build folder that images share which differ by their model alone."""
    digest = hashlib.sha256(made_by.encode())
    for name in sorted(files):
        is_of_kernel = "/" not in name or name.startswith(("boards/", "socs/"))
        if is_of_kernel and name not in _MODELS_OWN:
            digest.update(f"{name}\0{files[name]}\0".encode())
    return digest.hexdigest()
