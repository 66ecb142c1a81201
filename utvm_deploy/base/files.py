"""Files that are either complete or absent: written to a temporary name, then renamed.

It also refuses to read pipes and devices, which look like files and may never end.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.base.readable import utf8
from utvm_deploy.base.temporary import temporary_file

_CHUNK_BYTES = 1 << 20
_CANNOT_SYNC = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EROFS)


def write_atomically(
    path: Path, write: Callable[[IO[bytes]], Any], *, keeps_mode: bool = False
) -> None:
    """Call ``write`` with an open binary file that becomes ``path`` once it is complete.

    ``keeps_mode``: the new file may be read and written by those who may use the old one. Raises
    UtvmError if the folder is missing or not writable.
    """
    check_writable(path)
    try:
        descriptor, temporary = temporary_file(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        # The open file is locked until it has its final name.
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.flush()
            # mkstemp makes files private; a result is as readable as any other new file.
            umask = os.umask(0)
            os.umask(umask)
            temporary.chmod(path.stat().st_mode & 0o777 if keeps_mode else 0o666 & ~umask)
            sync(temporary)
            temporary.replace(path)
        sync(path.parent)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _unwritable(path, error) from error
        raise


def sync(*paths: Path) -> None:
    """Write files, or the names in folders, to the disk before the caller continues."""
    for path in paths:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError:  # a folder that is writable and not readable
            continue
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Some network and container file systems cannot do this. A full disk is an error.
            if error.errno not in _CANNOT_SYNC:
                raise
        finally:
            os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """``sync`` of a folder and everything in it."""
    for root, _, names in os.walk(folder):
        sync(*(Path(root, name) for name in names), Path(root))


def _unwritable(path: Path, error: OSError) -> UtvmError:
    return UtvmError(
        f"cannot write {path}: {error.strerror}; make room there, or name another folder"
    )


def check_writable(path: Path) -> None:
    """UtvmError if no file can be written there; called before any work is done for it."""
    if path.is_dir():
        raise UtvmError(f"cannot write {path}: it is a folder; give a file's name")
    if path.exists() and not path.is_file():
        # Renaming onto the device would replace the device itself.
        raise UtvmError(f"cannot write {path}: it is a pipe or a device; give a file's name")
    if not path.parent.is_dir():
        raise UtvmError(f"cannot write {path}: there is no folder {path.parent}; make it first")
    if not os.access(path.parent, os.W_OK):
        raise UtvmError(
            f"cannot write {path}: nothing may be written to {path.parent.absolute()}; name "
            "another folder"
        )


def check_regular(path: Path) -> None:
    """OSError if ``path`` is a pipe or a device: it may never end, and cannot be read twice.

    Opening the file reports every other problem.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "it is a pipe or a device, and not a file", str(path))


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8, atomically."""
    write_atomically(path, lambda file: file.write(utf8(text)))


def file_digest(path: Path) -> str:
    """SHA-256 of a file in hexadecimal digits. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
