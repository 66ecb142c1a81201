"""The lease of a real board: at most one job of this user on this machine uses it at a time.

It is a lock on a file (flock). The kernel releases it when the process that holds it dies, so that
a killed job never blocks its board.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path

from utvm_deploy.base import cache
from utvm_deploy.base.errors import ClusterError
from utvm_deploy.base.paths import cache_dir
from utvm_deploy.boards.desk_file import BenchEntry, load_bench

#: How often a board that is in use is tried again.
_POLL_S = 0.2
#: What the holder's file may hold: a process id and what it does.
_MOST_BYTES = 400
_DIGEST_DIGITS = 12


@contextlib.contextmanager
def held(board: str, serial: str | None, timeout_s: float, what: str = "") -> Iterator[None]:
    """Hold the board with this serial number during the block; others are shown ``what``.

    Raises ClusterError, which names the holder, if it is not free within ``timeout_s``.
    """
    with _first_free(board, (serial,), timeout_s, what):
        yield


@contextlib.contextmanager
def held_entry(board: str, timeout_s: float, what: str = "") -> Iterator[BenchEntry]:
    """Hold any one of the boards that ``bench.toml`` lists under this name, and give its entry."""
    entries = load_bench().get(board, ())
    if not entries:
        raise ClusterError(f"bench.toml lists no board {board}; add it where the worker runs")
    serials = [entry.probe_serial for entry in entries]
    with _first_free(board, serials, timeout_s, what) as index:
        yield entries[index]


@contextlib.contextmanager
def _first_free(
    board: str, serials: list[str | None] | tuple[str | None], timeout_s: float, what: str
) -> Iterator[int]:
    """The index of the board that was free first."""
    paths = [_lock_path(board, serial) for serial in serials]
    deadline = time.monotonic() + timeout_s
    while True:
        for index, path in enumerate(paths):
            descriptor = _locked(path)
            if descriptor is not None:
                try:
                    _say_who(descriptor, what)
                    yield index
                finally:
                    os.close(descriptor)
                return
        if time.monotonic() >= deadline:
            holders = "; ".join(sorted({_holder(path) for path in paths}))
            raise ClusterError(
                f"{board} is in use by {holders}; it was not free within {timeout_s:g} s: wait "
                "for that job, or cancel it"
            )
        time.sleep(min(_POLL_S, max(0.0, deadline - time.monotonic())))


def _lock_path(board: str, serial: str | None) -> Path:
    # A home folder may be shared by machines, and a serial number may have any characters.
    name = f"{platform.node()}\n{board}\n{(serial or '').lower()}"
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_DIGITS]
    return cache_dir() / "boards" / f"{board}-{digest}.lock"


def _locked(path: Path) -> int | None:
    """A descriptor that locks the file; None if another process has it."""
    descriptor = None
    while descriptor is None:  # somebody may empty the cache
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = cache.locked_file(path, fcntl.LOCK_EX | fcntl.LOCK_NB, 0o600)
        except BlockingIOError:
            return None
    return descriptor


def _say_who(descriptor: int, what: str) -> None:
    text = f"process {os.getpid()}{f' ({what})' if what else ''}".encode()[:_MOST_BYTES]
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text, 0)


def _holder(path: Path) -> str:
    """What the holder wrote into the file."""
    with contextlib.suppress(OSError):
        text = path.read_bytes()[:_MOST_BYTES].decode("utf-8", "replace").strip()
        if text:
            return text
    return "another process"
