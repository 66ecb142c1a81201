"""What a server says of jobs, checked: a server may be another version, or hostile."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from utvm_deploy.base.errors import ServerError

#: States in which nothing happens any more.
_ENDED = frozenset({"done", "failed", "canceled"})
_KEY = re.compile(r"[0-9a-f]{12}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class RemoteFile:
    """A file that a job made."""

    name: str  # as the server has it; may be hostile
    sha256: str
    size: int  # bytes


@dataclass(frozen=True)
class RemoteJob:
    """A job of a server. Texts hold no control characters, so a terminal can show them."""

    key: str
    verb: str
    board: str
    models: tuple[str, ...]
    state: str
    created: float  # seconds since 1970
    exit_code: int | None
    reason: str
    worker: str
    what: str  # it does now
    done: int
    total: int
    run: str  # its key in the server's store of runs
    files: tuple[RemoteFile, ...]

    @property
    def has_ended(self) -> bool:
        """Whether nothing happens any more."""
        return self.state in _ENDED

    @property
    def status(self) -> int:
        """The exit code of a command that waited for this job."""
        if self.state == "done":
            return 0
        code = self.exit_code or 1
        # As a shell has it for a process that a signal ended.
        return min(128 - code, 255) if code < 0 else min(code, 255)


def job_of(answer: Any) -> RemoteJob:
    """A job of an answer. Raises ServerError otherwise."""
    try:
        progress = answer.get("progress") or {}
        return RemoteJob(
            key=is_key(answer["key"]),
            verb=printable(answer["verb"]),
            board=printable(answer["board"]),
            models=tuple(printable(model["name"]) for model in answer["models"]),
            state=printable(answer["state"]),
            created=float(answer["created"]),
            exit_code=None if answer.get("exit_code") is None else int(answer["exit_code"]),
            reason=printable(answer.get("reason") or ""),
            worker=printable(answer.get("worker") or ""),
            what=printable(progress.get("what") or ""),
            done=int(progress.get("done") or 0),
            total=int(progress.get("total") or 0),
            run=printable(answer.get("run") or ""),
            files=tuple(_file_of(file) for file in answer.get("files") or ()),
        )
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise ServerError(
            f"the server's answer is not a job ({type(error).__name__}: {error}); use the "
            "version of utvm that the server has"
        ) from error


def is_key(key: Any) -> str:
    """The key of a job. Raises ValueError otherwise."""
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise ValueError(f"{str(key)[:40]!r} is not 12 hexadecimal digits")
    return key


def printable(text: Any) -> str:
    """Text without characters that would control a terminal. Raises ValueError for other types."""
    if not isinstance(text, str):
        raise ValueError(f"{str(text)[:40]!r} is not text")
    return "".join(letter if letter.isprintable() else "�" for letter in text)


def printable_lines(text: str) -> str:
    """The same for a text of several lines, such as a log."""
    return "\n".join(printable(line.expandtabs()) for line in re.split(r"\r?\n", text))


def _file_of(file: Mapping[str, Any]) -> RemoteFile:
    name, digest, size = file["name"], file["sha256"], int(file["size"])
    if not isinstance(name, str) or not _DIGEST.fullmatch(digest) or size < 0:
        raise ValueError(f"{str(name)[:40]!r} is not a file")
    return RemoteFile(name, digest, size)
