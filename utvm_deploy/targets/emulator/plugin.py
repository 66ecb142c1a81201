"""Builds plugins for the QEMU that is installed, once; they are kept in the cache by digest.

QEMU's plugin interface has versions. Each that is known has a file ``plugin/abi_N.h``. The decoder
of each target is in a folder of its name.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from utvm_deploy.base import cache, process
from utvm_deploy.base.build_failure import build_error
from utvm_deploy.base.errors import ProbeError, SystemRefused
from utvm_deploy.base.paths import cache_dir
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.targets.emulator.table import header_texts

logger = logging.getLogger("utvm_deploy.targets.emulator")

SOURCES = Path(__file__).resolve().parent / "plugin"
COMPILER = "cc"
FLAGS = (
    *("-std=c11", "-O3", "-flto", "-fPIC", "-shared", "-fvisibility=hidden"),
    *("-Wall", "-Wextra", "-Werror"),
)


@dataclass(frozen=True)
class Plugin:
    """One plugin's sources, and the headers that are generated for it."""

    name: str
    folder: Path
    headers: Callable[[], dict[str, str]]


CYCLE_MODEL = Plugin("cycle_model", SOURCES, header_texts)

#: First QEMU version (major, minor) of each plugin interface that is known, newest first.
#: 9.1 handed instruction bytes out by copy (interface 3); what came after only added functions.
ABI_SINCE = (((9, 1), 3), ((9, 0), 2), ((7, 0), 1))
#: First major version that nobody has looked at.
UNKNOWN_MAJOR = 11

VERSION_TIMEOUT_S = 10.0
# A loaded machine may take its time over a few thousand lines of C.
BUILD_TIMEOUT_S = 120.0


def installed_qemu_version(program: str) -> str:
    """What ``PROGRAM --version`` says, such as "7.2.22"; MissingTool if it is not installed."""
    process.find_tool(program)
    done = process.run([program, "--version"], timeout_s=VERSION_TIMEOUT_S)
    match = re.search(r"version (\d+\.\d+(?:\.\d+)?)", done.stdout)
    if match is None:
        raise ProbeError(f"{program} --version prints no version: {done.output.strip()!r}")
    return match.group(1)


def has_plugins(program: str) -> bool:
    """Whether this QEMU was built with plugins at all; then it has an option for them."""
    return "-plugin" in process.run([program, "--help"], timeout_s=VERSION_TIMEOUT_S).stdout


def plugin_for(program: str, plugin: Plugin = CYCLE_MODEL) -> Path:
    """A plugin for an emulator program, built at the first call.

    Raises ProbeError, MissingTool or BuildError where there can be none; the sentence says why.
    """
    path = process.find_tool(program)
    return _plugin_for(path, Path(path).stat().st_mtime_ns, cache_dir(), plugin)


@functools.cache
def _plugin_for(program: str, _changed_ns: int, _cache: Path, plugin: Plugin) -> Path:
    version = installed_qemu_version(program)
    plugin_abi(version)
    if not has_plugins(program):
        raise ProbeError(
            f"{program} {version} was built without plugins, which count modelled cycles"
        )
    return build_plugin(version, plugin)


def plugin_argument(plugin: Path, settings: Sequence[str]) -> list[str]:
    """What loads a built plugin with these settings, each KEY=VALUE."""
    # QEMU cuts the argument at commas; a doubled one is a comma.
    parts = [str(plugin), *settings]
    return ["-plugin", ",".join(part.replace(",", ",,") for part in parts)]


def plugin_abi(qemu_version: str) -> int:
    """The plugin interface that this version of QEMU asks for; ProbeError if it is not known."""
    try:
        major, minor = (int(part) for part in qemu_version.split(".")[:2])
    except ValueError as error:
        raise ProbeError(f"{qemu_version!r} is not a version of QEMU, such as 7.2.22") from error
    if major < UNKNOWN_MAJOR:
        for since, abi in ABI_SINCE:
            if (major, minor) >= since:
                return abi
    raise ProbeError(
        f"QEMU {qemu_version}'s plugin interface is not known to the cycle model, which needs QEMU "
        f"7.0 to {UNKNOWN_MAJOR - 1}"
    )


def build_plugin(qemu_version: str, plugin: Plugin = CYCLE_MODEL) -> Path:
    """A plugin for this version of QEMU, built at the first call.

    Safe against others doing the same at the same time. Raises ProbeError for an unknown version,
    MissingTool without a C compiler. BuildError, with the system's words, if it does not compile or
    cannot be kept.
    """
    abi = plugin_abi(qemu_version)
    process.find_tool(COMPILER)
    headers = plugin.headers()
    # The interface is declared among the cycle model's sources.
    sources = sorted({*SOURCES.glob("*.h"), *plugin.folder.rglob("*.[ch]")})
    flags = [*FLAGS, f"-DUTVM_QEMU_ABI={abi}"]
    folder = cache_dir() / "emulator"
    entry = folder / _digest(sources, headers, flags)
    built = entry / f"{plugin.name}.so"
    if process.is_dry_run() or cache.take(entry, plugin):
        return built
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFolder("new", folder) as fresh:
            for name, text in headers.items():
                (fresh / name).write_text(text, encoding="utf-8")
            _compile(plugin.name, sources, flags, fresh, built)
            cache.seal(fresh, [fresh / built.name])
            # The plugins are constants, so what they hold stays until this process ends.
            cache.keep_held(fresh, entry, plugin)
    except OSError as error:
        raise SystemRefused(
            f"QEMU's plugin {plugin.name} cannot be built in {folder}: {error.strerror or error}; "
            "make room there, or set UTVM_CACHE to another folder"
        ) from error
    logger.info("built %s for QEMU %s (plugin interface %d)", built, qemu_version, abi)
    return built


def _compile(
    name: str, sources: Sequence[Path], flags: Sequence[str], fresh: Path, built: Path
) -> None:
    argv = [COMPILER, *flags, f"-I{SOURCES}", f"-I{fresh}", "-o", str(fresh / built.name)]
    argv += [str(path) for path in sources if path.suffix == ".c"]
    log = fresh / "build.log"
    # As everything that a killed compiler leaves, its temporary files go with the folder.
    env = {"TMPDIR": str(fresh.absolute())}
    done = process.run(argv, timeout_s=BUILD_TIMEOUT_S, env=env, log_path=log)
    if not done.is_ok:
        log = log.replace(built.parent.with_suffix(".log"))
        raise build_error(f"building QEMU's plugin {name} failed", done, fresh, log)


def _digest(sources: list[Path], headers: dict[str, str], flags: list[str]) -> str:
    version = process.run([COMPILER, "--version"], timeout_s=VERSION_TIMEOUT_S).stdout
    digest = hashlib.sha256(version.encode())
    for text in (*flags, *headers, *headers.values()):
        digest.update(text.encode())
        digest.update(b"\0")
    for path in sources:
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
