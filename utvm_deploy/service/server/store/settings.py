"""What a server is started with."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class Tls:
    """The files that a server proves its name with."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class Settings:
    """The options of `utvm serve`."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 0  # 0: any that is free
    token: str | None = field(default=None, repr=False)  # None: nobody is asked for one
    tls: Tls | None = None
    scheduler: str | None = None  # the address of a Dask scheduler; None: a cluster inside
    certificates: Path | None = None  # of the cluster
    listen: str | None = None  # where workers may join the cluster inside: HOST or HOST:PORT
    allow_code: bool = (
        False  # whether uploads may be code: .pt2, .relax, programs for the board `host`
    )
    keep_days: int = 90
    disk_bytes: int = 10 << 30
