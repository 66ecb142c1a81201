"""The only module that starts child processes.

``run`` waits for a program, ``start`` returns a running one. Both log the command and turn an
absent program into MissingTool. Each child has its process group. That whole group is ended on
every way out: deadline, exception, Ctrl-C, death of this process. Tests patch this module.
"""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import logging
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import IO

from utvm_deploy.base.errors import MissingTool
from utvm_deploy.base.readable import utf8

logger = logging.getLogger("utvm_deploy.base.process")

# How long a child may take after it was asked to end; then it is killed.
TERMINATE_TIMEOUT_S = 2.0
# How long the kernel may take to reap a killed child; only a hung disk takes longer.
KILL_TIMEOUT_S = 10.0
# How much of a child's standard error is kept to explain its death.
LAST_WORDS_BYTES = 4096

# Linux: PR_SET_PDEATHSIG of prctl(2).
_PR_SET_PDEATHSIG = 1

# Program -> what it is for, and the command that installs it. The compilers and emulators of a
# target are added by targets/table.py.
TOOLS: dict[str, tuple[str, str]] = {
    "cmake": ("configure and build images", "sudo apt install cmake"),
    "ninja": ("build images", "sudo apt install ninja-build"),
    "make": ("build images", "sudo apt install make"),
    "dtc": ("compile device trees", "sudo apt install device-tree-compiler"),
    "openocd": ("flash boards", "sudo apt install openocd"),
    "pyocd": ("flash boards, and describe chips", "pip install pyocd"),
    "esptool": ("flash Espressif's chips", "pip install 'esptool>=5'"),
    "st-flash": ("flash STM32 boards", "sudo apt install stlink-tools"),
    "st-util": ("debug STM32 boards", "sudo apt install stlink-tools"),
    "JLinkExe": ("flash boards", "download the J-Link software from segger.com"),
    "JLinkGDBServerCLExe": ("debug boards", "download the J-Link software from segger.com"),
    "vela": ("compile for Arm's Ethos-U", "pip install 'utvm-deploy[ethos-u]'"),
    "west": ("build and flash Zephyr applications", "pip install 'utvm-deploy[zephyr]'"),
    "STM32_Programmer_CLI": (
        "flash STM32 boards",
        "download STM32CubeProgrammer from st.com and put its bin folder on PATH",
    ),
}


@dataclass(frozen=True)
class Completed:
    """The result of a finished program."""

    argv: tuple[str, ...]
    returncode: int  # negative: ended by that signal
    stdout: str
    stderr: str
    timed_out: bool = False

    @property
    def is_ok(self) -> bool:
        """Whether it ended by itself with status 0."""
        return self.returncode == 0 and not self.timed_out

    @property
    def output(self) -> str:
        """Both streams, one after the other."""
        return self.stdout + self.stderr


_dry_run_sink: contextvars.ContextVar[Callable[[Sequence[str]], None] | None] = (
    contextvars.ContextVar("dry_run_sink", default=None)
)


@contextlib.contextmanager
def dry_run(sink: Callable[[Sequence[str]], None]) -> Iterator[None]:
    """Within the block, commands are given to ``show`` instead of being run; all succeed."""
    token = _dry_run_sink.set(sink)
    try:
        yield
    finally:
        _dry_run_sink.reset(token)


def is_dry_run() -> bool:
    """Whether a ``dry_run`` block is active; then no program does any work."""
    return _dry_run_sink.get() is not None


def which(program: str) -> str | None:
    """The program's path, if there is one: on PATH, or with this Python by pip."""
    folders = os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)
    return shutil.which(program, path=os.pathsep.join(filter(None, folders)))


def find_tool(program: str) -> str:
    """The program's path; MissingTool, with the command that installs it, if there is none."""
    found = which(program)
    if found is None:
        purpose, install = TOOLS.get(
            Path(program).name, ("go on", f"put {program} on PATH, or correct the name")
        )
        raise MissingTool(program, purpose, install)
    return found


def child_environment() -> dict[str, str]:
    """Lets a Python child import this package from the same place as this process."""
    root = str(Path(__file__).resolve().parents[2])
    inherited = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([root, inherited] if inherited else [root])}


def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    log_path: Path | None = None,
    is_part_of_plan: bool = False,
) -> Completed:
    """Run a program to its end, at most ``timeout_s``; the caller judges a failure.

    A dry run shows it, and runs it only if ``is_part_of_plan``: it says what would be built.
    ``env`` is added to this process's environment. ``log`` gets the command and its output.
    """
    if _is_dry(argv) and not is_part_of_plan:
        return Completed(tuple(argv), 0, "", "")
    child = _popen(
        argv,
        cwd,
        env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        guard=_death_guard(),
    )
    timed_out = False
    try:
        out, err = child.communicate(stdin, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _end_group(child)
        out, err = _what_is_left(child)
        timed_out = True
    finally:
        # Any other exception, mostly Ctrl-C: end the child. After a normal end this does nothing.
        _end_group(child)
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()
    completed = Completed(
        tuple(argv),
        child.returncode,
        out.decode("utf-8", "replace"),
        err.decode("utf-8", "replace"),
        timed_out,
    )
    if log_path is not None:
        with log_path.open("ab") as log:
            told = f"$ {shlex.join(argv)}\n{completed.output}"
            log.write(utf8(f"{told}[exit status {completed.returncode}]\n"))
    return completed


def _what_is_left(child: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """The output of an ended child, even if a process that left its group holds its pipes."""
    try:
        out, err = child.communicate(timeout=KILL_TIMEOUT_S)
    except subprocess.TimeoutExpired as late:
        return late.stdout or b"", late.stderr or b""
    return out, err


class Child:
    """A running program with pipes on standard input and output; a context manager.

    Its standard error goes to a nameless file, so a chatty child never blocks. The kernel also
    ends it when the thread that started it ends, so start it from one that outlives it.
    """

    def __init__(self, argv: Sequence[str], popen: subprocess.Popen[bytes], err: IO[bytes]) -> None:
        self.argv = tuple(argv)
        self._popen = popen
        self._err = err
        self._last_words = ""
        # Also runs at interpreter exit, if the caller forgot to close.
        self._finalizer = weakref.finalize(self, _end_group, popen)

    @property
    def popen(self) -> subprocess.Popen[bytes]:
        """The process object, for a stream that reads and writes its pipes."""
        return self._popen

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs; negative if a signal ended it."""
        return self._popen.poll()

    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self._popen.poll() is None

    def last_words(self) -> str:
        """The tail of what it wrote to standard error."""
        if not self._err.closed:
            size = self._err.seek(0, os.SEEK_END)
            self._err.seek(max(0, size - LAST_WORDS_BYTES))
            self._last_words = self._err.read().decode("utf-8", "replace").strip()
        return self._last_words

    def close(self) -> None:
        """End it and its whole group; may be called again."""
        self._finalizer()
        self.last_words()
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                # Bytes that a dead child did not read are of no interest.
                with contextlib.suppress(OSError):
                    pipe.close()
        self._err.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def start(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
    merges_output: bool = False,
    output: IO[bytes] | None = None,
    log: IO[bytes] | None = None,
) -> Child:
    """Start a program that keeps running; the caller closes it.

    The descriptors ``pass_fds`` stay open in it, under the same numbers. ``merges_output`` sends
    its standard output to its standard error, for programs whose pipes nobody reads. ``output``
    and ``log`` are files for the two instead; closing the child closes ``log``.
    """
    # In a dry run, start a program that does nothing, so that callers need no special case.
    actual = [sys.executable, "-c", ""] if _is_dry(argv) else argv
    # Not a ``with``: the file lives as long as the child, and Child.close closes it.
    err = tempfile.TemporaryFile() if log is None else log  # noqa: SIM115
    try:
        popen = _popen(
            actual,
            cwd,
            env,
            stdin=subprocess.PIPE,
            stdout=output or (err if merges_output else subprocess.PIPE),
            stderr=err,
            pass_fds=pass_fds,
        )
    except BaseException:
        err.close()
        raise
    return Child(argv, popen, err)


def _is_dry(argv: Sequence[str]) -> bool:
    sink = _dry_run_sink.get()
    if sink is None:
        return False
    sink(argv)
    return True


def _popen(
    argv: Sequence[str],
    cwd: Path | None,
    env: Mapping[str, str] | None,
    *,
    stdin: int,
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    pass_fds: Sequence[int] = (),
    guard: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """``guard`` is what starts the program, and ends it with this process."""
    logger.debug("run %s", shlex.join(argv))
    program = find_tool(argv[0])
    popen: subprocess.Popen[bytes] | None = None
    try:
        with interrupts_held():
            popen = subprocess.Popen(
                [*guard, program, *argv[1:]],
                cwd=cwd,
                env={**os.environ, **env} if env is not None else None,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                bufsize=0,
                pass_fds=pass_fds,
                # A separate session: Ctrl-C reaches only this process, which ends the group.
                start_new_session=True,
                preexec_fn=None if guard else _parent_death_hook(),
            )
    except BaseException:
        if popen is not None:
            _end_group(popen)
            for pipe in (popen.stdin, popen.stdout, popen.stderr):
                if pipe is not None:
                    pipe.close()
        raise
    return popen


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Delays Ctrl-C to the end of the block.

    Nobody would own a half-started child. A half-loaded module may report Ctrl-C in its own way.
    """
    handler = signal.getsignal(signal.SIGINT)
    # Python runs handlers in the main thread, and only that thread may set them.
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    held: list[FrameType | None] = []
    signal.signal(signal.SIGINT, lambda _number, frame: held.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        # Also if the block failed: what it did may have failed by the same Ctrl-C.
        if held:
            handler(signal.SIGINT, held[0])


def limit_memory(most_bytes: int) -> None:
    """Let this child map ``most_bytes`` at most: a file may ask for any number of huge tensors."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = most_bytes if hard == resource.RLIM_INFINITY else min(most_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))


@lru_cache(maxsize=1)
def _death_guard() -> tuple[str, ...]:
    """What does the same before a program that ends by itself; () where there is no such tool.

    A hook makes Python copy the tables of all its memory: 25 ms of the processor with TVM loaded.
    This takes one. It lets a child live if this process dies in the moment in which it starts.
    """
    program = shutil.which("setpriv") if sys.platform.startswith("linux") else None
    if program is None:
        return ()
    guard = (program, "--pdeathsig", "KILL")
    # BusyBox has one of another kind.
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run([*guard, "true"], capture_output=True, timeout=KILL_TIMEOUT_S, check=True)
        return guard
    return ()


def _parent_death_hook() -> Callable[[], None] | None:
    """The function that the child calls before exec, so that it does not outlive this process
    (Linux)."""
    if not sys.platform.startswith("linux"):
        return None
    # Looked up before the fork, because after it only the call itself is safe.
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def hook() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)

    return hook


def _end_group(popen: subprocess.Popen[bytes]) -> None:
    """End the child's process group, first by SIGTERM, and reap the child."""
    if popen.returncode is not None:
        return  # reaped before: another process may have its number now
    try:
        _signal_group(popen.pid, signal.SIGTERM)
        popen.wait(TERMINATE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        logger.debug("process %d ignores SIGTERM; killing it", popen.pid)
    finally:
        # The group may hold grandchildren that outlived the child.
        _signal_group(popen.pid, signal.SIGKILL)
        popen.wait(KILL_TIMEOUT_S)


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
