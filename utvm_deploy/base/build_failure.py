"""Why a tool that builds failed: by the surroundings, such as a full disk, or by what it was given.

Compilers pass the system's words on, somewhere in their output, and often only in a line that is
not the first error.
"""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from utvm_deploy.base import process
from utvm_deploy.base.errors import BuildError, CompileError, SystemRefused
from utvm_deploy.base.process import Completed
from utvm_deploy.base.temporary import has_no_room

#: What no change of the sources mends.
_SURROUNDINGS = tuple(
    os.strerror(number)
    for number in (
        *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO),
        *(errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EFBIG),
    )
)
# What GCC, its linker and CMake write before what they have to say; collect2 says nothing.
_FIRST_ERROR = re.compile(
    r"^(?!collect2: ).*(?:\berror: |undefined reference|multiple definition|CMake Error"
    r"|ABI is incompatible|cannot find -l).*$",
    re.MULTILINE,
)
_LONGEST = 300


@dataclass(frozen=True)
class BuildStep:
    """What a build runs, and how its tool says that an image is too large, or what is wrong."""

    what: str  # begins the sentences of its errors
    argv: Sequence[str]
    timeout_s: float
    # The sentence for an image that the board has no room for; None: it has, or nobody knows.
    too_large: Callable[[str], str | None]
    reason: Callable[[Completed], str | None]


def run_step(step: BuildStep, env: Mapping[str, str], log: Path) -> None:
    """Run it, with the output in ``log``.

    Raises BuildError if it fails or takes too long, and CompileError if the image is too large.
    """
    done = process.run(step.argv, timeout_s=step.timeout_s, env=env, log_path=log)
    if done.timed_out:
        raise BuildError(f"{step.what} took longer than {step.timeout_s:g} s", log)
    if done.is_ok:
        return
    overflow = step.too_large(done.output)
    if overflow is not None:
        raise CompileError(overflow)
    raise build_error(f"{step.what} failed", done, log.parent, log, step.reason(done))


def build_error(
    what: str, done: Completed, folder: Path, log: Path | None = None, reason: str | None = None
) -> BuildError:
    """The error for a tool that failed while it wrote into ``folder``; ``what`` begins its text.

    ``reason`` is the caller's, for a tool that says in its own way what it was given wrong.
    """
    if done.timed_out:
        return BuildError(f"{what}: it took too long and was ended{_log(log)}", log)
    refusal = _refusal(done, folder)
    if refusal is not None:
        return SystemRefused(f"{what}: {refusal}{_log(log)}", log)
    if "`ethosu_" in done.output:  # as linkers quote names
        reason = "it calls Arm's driver of an Ethos-U; give your build of it, --ethos-u-driver DIR"
    return BuildError(f"{what}: {reason or _reason(done, folder)}{_log(log)}", log)


def _log(log: Path | None) -> str:
    return "" if log is None else f" (log: {log})"


def _refusal(done: Completed, folder: Path) -> str | None:
    """What the system refused the tool; None if that was not why it failed."""
    for words in _SURROUNDINGS:
        if words in done.output:
            line = next(one for one in done.output.splitlines() if words in one)
            return _short(line, folder)
    return os.strerror(errno.ENOSPC) if has_no_room(folder) else None


def _reason(done: Completed, folder: Path) -> str:
    """The line of a tool's output that says why it failed, or its status."""
    first = _FIRST_ERROR.search(done.output)
    if first is not None:
        return _short(first.group(), folder)
    said = done.output.strip().rpartition("\n")[2]
    return f"{_status(done.returncode)}{f': {_short(said, folder)}' if said else ''}"


def _short(line: str, folder: Path) -> str:
    # Paths within the folder say more without the folder's own.
    return line.strip().replace(f"{folder}{os.sep}", "")[:_LONGEST]


def _status(returncode: int) -> str:
    if returncode >= 0:
        return f"exit status {returncode}"
    try:
        return f"ended by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"ended by signal {-returncode}"
