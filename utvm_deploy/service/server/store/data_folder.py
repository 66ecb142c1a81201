"""The folder with a server's data, which one server may use at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from utvm_deploy.base.errors import UtvmError

_LOCK = "lock"


@contextlib.contextmanager
def held_folder(folder: Path) -> Iterator[None]:
    """The folder for this process alone; the kernel gives it back when the process ends.

    Raises UtvmError if another server has it, or if it cannot be written.
    """
    try:
        # Models are the users' own.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (folder / _LOCK).open("a+")
    except OSError as error:
        raise UtvmError(
            f"cannot keep data in {folder}: {error.strerror}; name another folder with --data"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            holder = lock.read(20).strip()
            raise UtvmError(
                f"another server (process {holder or 'unknown'}) uses {folder}; end it, or name "
                "another folder with --data"
            ) from error
        lock.truncate(0)
        try:
            # Unbuffered: closing the file must not try it again.
            os.write(lock.fileno(), f"{os.getpid()}\n".encode())
        except OSError as error:
            raise UtvmError(
                f"cannot keep data in {folder}: {error.strerror}; make room there, or name another "
                "folder with --data"
            ) from error
        yield
