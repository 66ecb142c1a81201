"""Temporary files and folders that do not outlive the process that made them.

Each is locked (flock), and the kernel releases the lock when the process dies. When the next one is
made in the same place, those without a lock are removed. A lock is better than a process id: it
also works between containers that share a folder but not their process ids.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import tempfile
import weakref
from pathlib import Path

#: Part of every name here; files without it are never removed.
MARK = "utvm-tmp-"
# File systems end names at 255 bytes; mkstemp adds eight.
_LONGEST_PREFIX = 200
# A disk with less room counts as full: what did not fit may leave the end of a block.
_FULL_BYTES = 64 * 1024

# Places that this process has cleaned already: a cache's folder may have thousands of entries.
_swept: set[tuple[str, str]] = set()


class TemporaryFolder:
    """A new folder, removed by ``close``; a context manager that gives its path.

    ``what`` is part of its name. Without ``parent``, it is in the system's folder for such folders.
    """

    def __init__(self, what: str, parent: Path | None = None, *, hidden: bool = False) -> None:
        place = Path(tempfile.gettempdir()) if parent is None else parent
        prefix = f"{'.' if hidden else ''}{what[:_LONGEST_PREFIX]}.{MARK}"
        sweep_once(place, MARK)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
            descriptor = _held(self.path, os.O_RDONLY | os.O_DIRECTORY)
            if descriptor is not None:
                break
        # Also runs at interpreter exit, if the caller forgot to close.
        self._finalizer = weakref.finalize(self, _remove_folder, self.path, descriptor)

    def close(self) -> None:
        """Remove it with all that it holds; may be called again."""
        self._finalizer()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        # A write to a full disk does not say where. Without this folder there is room again.
        if isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None:
            error.filename = str(self.path.parent) if has_no_room(self.path) else None
        self.close()


def has_no_room(folder: Path) -> bool:
    """Whether the disk of a folder is full."""
    try:
        return shutil.disk_usage(folder).free < _FULL_BYTES
    except OSError:
        return False


def temporary_file(beside: Path) -> tuple[int, Path]:
    """A hidden, open new file in the folder of ``path``, and its name; the caller renames or
    deletes it."""
    prefix = f".{beside.name[:_LONGEST_PREFIX]}.{MARK}"
    sweep_once(beside.parent, prefix)
    while True:
        descriptor, name = tempfile.mkstemp(prefix=prefix, dir=beside.parent)
        path = Path(name)
        if _is_locked(descriptor, path):
            return descriptor, path
        os.close(descriptor)


def sweep_once(folder: Path, part: str) -> None:
    """``sweep``, the first time that this process makes something there."""
    key = (str(folder.absolute()), part)
    if key not in _swept:
        _swept.add(key)
        sweep(folder, part)


def sweep(folder: Path, part: str = MARK) -> None:
    """Remove what dead processes of this user left there, with ``part`` in its name."""
    try:
        with os.scandir(folder) as entries:
            found = [Path(one.path) for one in entries if part in one.name and MARK in one.name]
    except OSError:
        return
    for path in found:
        with contextlib.suppress(OSError):
            _remove_if_left(path)


def _remove_if_left(path: Path) -> None:
    is_folder = stat.S_ISDIR(path.lstat().st_mode)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | (os.O_DIRECTORY if is_folder else 0)
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or not (is_folder or stat.S_ISREG(status.st_mode)):
            return
        # BlockingIOError, which is an OSError, if its maker lives.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if is_folder:
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
    finally:
        os.close(descriptor)


def _held(path: Path, flags: int) -> int | None:
    """A descriptor that locks the new file or folder; None if another process removed it."""
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if _is_locked(descriptor, path):
        return descriptor
    os.close(descriptor)
    return None


def _is_locked(descriptor: int, path: Path) -> bool:
    """Lock it; False if somebody else had it first, and removed it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # A file system without locks: then no process has one, so nothing is removed there.
        return True
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _remove_folder(path: Path, descriptor: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    os.close(descriptor)
