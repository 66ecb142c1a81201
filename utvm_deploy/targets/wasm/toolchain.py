"""Compilers of WebAssembly: the distribution's clang, or that of ``ziglang``, a package of PyPI."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import logging
import shlex
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from utvm_deploy.base import process
from utvm_deploy.base.errors import BuildError, MissingTool
from utvm_deploy.base.paths import cache_dir
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.targets.contract.core import Core
from utvm_deploy.targets.wasm import zig_driver
from utvm_deploy.targets.wasm.binary import CONSTRUCTORS

log = logging.getLogger("utvm_deploy.project")

CLANG = "clang-19"
EXTRA = "pip install 'utvm-deploy[wasm]'"
INSTALL = f"{EXTRA}, or sudo apt install {CLANG} lld-19 wasi-libc libclang-rt-19-dev-wasm32"
#: Of Debian's wasi-libc.
_LIBRARY = Path("/usr/lib/wasm32-wasi/libc.a")
#: Of an image, at the bottom of its memory, so that an overflow is an access below it. Modules have
#: the lower half: what they call in the image has its frames above theirs.
STACK_BYTES = 1 << 20
#: Of the lower half, what no module has: it shows that the upper one was too small.
MODULE_BAND_BYTES = 64 << 10
#: The first call of zig builds its C library; and how often a line says that it still does.
_FIRST_CALL_S, _TOLD_EVERY_S = 900.0, 5.0
_OPTIMIZED = ("-msimd128", "-mbulk-memory")
#: Clang warns of inline functions that nobody calls; GCC does not.
_QUIET = "-Wno-error=unused-function"


def is_installed(package: str) -> bool:
    """Whether Python has a package, which is not loaded for this."""
    return importlib.util.find_spec(package) is not None


def _has_clang() -> bool:
    return all(map(shutil.which, (CLANG, "wasm-ld-19"))) and _LIBRARY.is_file()


def zig_program() -> Path:
    """A script for this Python and this ziglang: another environment may not have them any more."""
    versions = [one.version for one in importlib.metadata.distributions(name="ziglang")]
    named = "\0".join((sys.executable, zig_driver.__file__, *versions))
    return cache_dir() / "wasm" / hashlib.sha256(named.encode()).hexdigest()[:16] / "zig-cc"


#: The program that compiles; ``prepare`` makes it if it is not clang.
IS_ZIG = not _has_clang() and is_installed("ziglang")
COMPILER = str(zig_program()) if IS_ZIG else CLANG


def prepare() -> None:
    """See that the compiler works; MissingTool if there is none.

    Zig's is a script around the package. Its first call takes about a minute.
    """
    if not IS_ZIG:
        if not _has_clang():
            raise MissingTool("a compiler of WebAssembly", "compile for it", INSTALL)
        return
    program = Path(COMPILER)
    if not program.is_file():
        log.warning("preparing zig's C library for WebAssembly takes about a minute, once")
        program.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFolder("zig", program.parent) as folder, _telling():
            _write_driver(program, folder)


@contextlib.contextmanager
def _telling() -> Iterator[None]:
    """Say every few seconds how long it has taken."""
    ended, started = threading.Event(), time.monotonic()

    def tell() -> None:
        while not ended.wait(_TOLD_EVERY_S):
            passed = time.monotonic() - started
            log.warning("preparing zig's C library for WebAssembly: %.0f s", passed)

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _write_driver(program: Path, folder: Path) -> None:
    """The script; what zig says of a link shows where it has put its libraries."""
    zig = [sys.executable, "-m", "ziglang"]
    cache = str(program.parents[1] / "zig")
    places = {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
    (folder / "trial.c").write_text("int utvm_trial(int x) { return x; }\n")
    trial = ["cc", *_machine(), "trial.c", "-Wl,--no-entry", "--verbose", "-o", "trial.wasm"]
    done = process.run([*zig, *trial], timeout_s=_FIRST_CALL_S, cwd=folder, env=places)
    links = [line.split() for line in done.output.splitlines() if line.startswith("wasm-ld ")]
    if not done.is_ok or not links:
        raise BuildError(f"zig cannot compile for WebAssembly: {done.output.strip()[-300:]}")
    settings = {"zig": zig, "libraries": [one for one in links[-1] if one.endswith(".a")]}
    words = [sys.executable, str(Path(zig_driver.__file__)), json.dumps(settings)]
    script = folder / program.name
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in places.items())
    script.write_text(f'#!/bin/sh\n{exports}exec {shlex.join(words)} "$@"\n')
    script.chmod(0o755)
    script.replace(program)


def _machine() -> tuple[str, ...]:
    if IS_ZIG:
        return "-target", "wasm32-wasi", "-mexec-model=reactor", "-fno-sanitize=undefined"
    return "--target=wasm32-wasi", "--sysroot=/usr"


def flags(core: Core, fpu: str, mve: bool, dsp: bool) -> tuple[str, ...]:
    """Global names are visible, as the host finds them by their exports."""
    return *_machine(), *_OPTIMIZED, _QUIET, "-fvisibility=default"


def _link(stack_bytes: int) -> tuple[str, ...]:
    named = ("__stack_pointer", "__data_end", CONSTRUCTORS)
    exports = ",".join(["--export-dynamic", *(f"--export={name}" for name in named)])
    return "-nostartfiles", f"-Wl,--no-entry,{exports},--stack-first,-z,stack-size={stack_bytes}"


def link_flags(core: Core) -> tuple[str, ...]:
    """Of images: what is global is exported."""
    return _link(STACK_BYTES)


#: Engines without SIMD take the second one.
VARIANTS = {"simd": (), "scalar": ("-mno-simd128",)}


def standalone_arguments(exports: Sequence[str], stack_bytes: int) -> list[str]:
    """Link a module for engines elsewhere: without names, and only with what it needs."""
    named = ",".join(f"--export={name}" for name in exports)
    options = f"--no-entry,--strip-all,--gc-sections,--stack-first,-z,stack-size={stack_bytes}"
    return ["-nostartfiles", f"-Wl,{options},{named}"]


def module_arguments(work: Path, functions: Iterable[str], address: int) -> list[str]:
    """Link a module whose data begin at ``address`` of the image's memory.

    Its calls of ``functions`` become imports. It has its own copy of what it calls of the C
    library.
    """
    allowed = work / "image_functions"
    allowed.write_text("".join(f"{name}\n" for name in functions))
    own = f"--strip-debug,--import-memory,--global-base={address},--allow-undefined-file={allowed}"
    return [*_link(STACK_BYTES // 2 - MODULE_BAND_BYTES), f"-Wl,{own}"]
